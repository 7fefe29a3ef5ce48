"""Patches of maps: a body that picks by an element's place in a short run of an axis.

The transforms of Winograd's algorithm are such maps. They pick between sums by the index
of a short axis, or by an index modulo a patch's length. What they pick from is the same
for a whole patch, so that code which computes one patch at a time reads it once.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod

from tuner.spaces.program.tiles import add, at_most, constant, times
from tuner.workload.expression import (
    Axis,
    Binary,
    Const,
    Scalar,
    Select,
    Stage,
    Unary,
    Var,
    children,
    rewrite,
    walk,
)

MAX_PATCH = 8  # elements of a patch along one axis; the body picks by no longer one


def patch_lengths(stage: Stage) -> dict[str, int]:
    """Axes that the stage's body picks by, each with the length of its patches.

    Empty where there are none or an axis has two lengths.
    """
    extents = {axis.name: axis.extent for axis in stage.axes}
    lengths: dict[str, int] = {}
    for node in walk(stage.body) if stage.reducer is None else ():
        match node:
            case Select(cond=Binary(op="eq", lhs=Var(name=name), rhs=Const())) if name in extents:
                length = extents[name]
            case Select(
                cond=Binary(
                    op="eq",
                    lhs=Binary(op="floormod", lhs=Var(name=name), rhs=Const(value=value)),
                    rhs=Const(),
                )
            ):
                length = int(value) if name in extents else 0
            case _:
                continue
        if not 1 < length <= MAX_PATCH or lengths.setdefault(name, length) != length:
            return {}
    return lengths


@dataclass(frozen=True, kw_only=True)
class Patches:
    """A map with each axis of several patches split: the patches, and the place in one.

    The last patch may run over an axis's extent. What it reads there is the axis's last
    element once more.
    """

    stage: Stage  # with the split axes; of the same name, and with the same values
    places: Mapping[str, int]  # axes that its body picks by, with their extents
    output: tuple[Scalar, ...]  # the index of each axis of the original
    inside: tuple[Scalar, ...]  # conditions under which an element is one of the original

    @property
    def operations(self) -> float:
        """Arithmetic operations for each element, if a patch computes equal terms once."""
        counted = _Distinct()
        for values in product(*(range(extent) for extent in self.places.values())):
            counted.visit(self.stage.body, dict(zip(self.places, values, strict=True)))
        return counted.operations / prod(self.places.values())


def patches(stage: Stage) -> Patches | None:
    """The stage in patches; None of a stage that picks by no place."""
    lengths = patch_lengths(stage)
    if not lengths:
        return None
    names = {axis.name for axis in (*stage.axes, *stage.reduce_axes)}
    axes: list[Axis] = []
    places: list[Axis] = []
    output: list[Scalar] = []
    inside: list[Scalar] = []
    parts: dict[str, tuple[Scalar, Scalar]] = {}
    for axis in stage.axes:
        length = lengths.get(axis.name, axis.extent)
        if length == axis.extent:
            axes.append(axis)
            places += [axis] if axis.name in lengths else []
            output.append(Var(axis.name))
            parts[axis.name] = (constant(0), Var(axis.name))
            continue
        place = Axis(name=_fresh(f"{axis.name}q", names), extent=length)
        names.add(place.name)
        axes += [replace(axis, extent=-(-axis.extent // length)), place]
        places.append(place)
        index = add(times(Var(axis.name), length), Var(place.name))
        output.append(index)
        parts[axis.name] = (Var(axis.name), Var(place.name))
        if axis.extent % length:
            inside.append(Binary("lt", index, constant(axis.extent)))
    clamped = {
        axis.name: index
        if axis.extent % lengths.get(axis.name, axis.extent) == 0
        else at_most(index, axis.extent - 1)
        for axis, index in zip(stage.axes, output, strict=True)
    }

    def divided(node: Scalar) -> Scalar | None:
        match node:
            case Binary(
                op="floordiv" | "floormod" as op, lhs=Var(name=name), rhs=Const(value=length)
            ) if lengths.get(name) == length:
                return parts[name][op == "floormod"]
            case Var(name=name):
                return clamped.get(name)
            case _:
                return None

    split = replace(stage, axes=tuple(axes), body=rewrite(stage.body, divided))
    return Patches(
        stage=split,
        places={axis.name: axis.extent for axis in places},
        output=tuple(output),
        inside=tuple(inside),
    )


def _fresh(name: str, names: set[str]) -> str:
    while name in names:
        name += "x"
    return name


@dataclass(kw_only=True)
class _Distinct:
    """Counts the operations of several values, equal ones once."""

    operations: int = 0
    _numbers: dict[Hashable, int] = field(default_factory=dict)

    def visit(self, node: Scalar, places: Mapping[str, int]) -> int:
        """The number of the node's value at a place; equal values have equal numbers."""
        match node:
            case Select(
                cond=Binary(op="eq", lhs=Var(name=name), rhs=Const(value=value)),
                then=then,
                other=other,
            ) if name in places:
                return self.visit(then if places[name] == value else other, places)
            case Binary(op=op) | Unary(op=op):
                operands = [self.visit(child, places) for child in children(node)]
                return self._number((op, *operands), operations=1)
            case _ if any(isinstance(part, Var) and part.name in places for part in walk(node)):
                return self._number((node, *places.values()), operations=0)
            case _:
                return self._number(node, operations=0)

    def _number(self, key: Hashable, *, operations: int) -> int:
        if key not in self._numbers:
            self._numbers[key] = len(self._numbers)
            self.operations += operations
        return self._numbers[key]
