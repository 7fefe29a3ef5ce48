"""Iterators split in two, where that makes indices affine."""

from __future__ import annotations

from typing import Any

from tuner.workload.expression import Binary, Const, Scalar, Stage, Var, rewrite, walk


def with_split_iterators(stage: Stage) -> Stage:
    """The stage with iterators split in two, so that more of its indices are affine.

    An iterator i is split where `i // c` or `i % c` occurs and c divides its extent.
    """
    divisors: dict[str, int] = {}
    extents = stage.extents
    for node in walk(stage.body):
        match node:
            case Binary(
                op="floordiv" | "floormod", lhs=Var(name=name), rhs=Const(value=divisor)
            ) if extents[name] % int(divisor) == 0:
                divisors.setdefault(name, int(divisor))
    if not divisors:
        return stage

    def change(node: Scalar) -> Scalar | None:
        match node:
            case Binary(op="floordiv", lhs=Var(name=name), rhs=Const(value=divisor)) if (
                divisors.get(name) == divisor
            ):
                return Var(f"{name} outer")
            case Binary(op="floormod", lhs=Var(name=name), rhs=Const(value=divisor)) if (
                divisors.get(name) == divisor
            ):
                return Var(f"{name} inner")
            case Var(name=name) if name in divisors:
                return Binary(
                    "add",
                    Binary("mul", Var(f"{name} outer"), Const(divisors[name], "int64")),
                    Var(f"{name} inner"),
                )
        return None

    def axes(given: tuple[Any, ...]) -> tuple[Any, ...]:
        parts = []
        for axis in given:
            size = divisors.get(axis.name)
            parts += (
                [axis]
                if size is None
                else [
                    type(axis)(name=f"{axis.name} outer", extent=axis.extent // size),
                    type(axis)(name=f"{axis.name} inner", extent=size),
                ]
            )
        return tuple(parts)

    return Stage(
        name=stage.name,
        axes=axes(stage.axes),
        reduce_axes=axes(stage.reduce_axes),
        reducer=stage.reducer,
        body=rewrite(stage.body, change),
        dtype=stage.dtype,
        accumulator=stage.accumulator,
    )
