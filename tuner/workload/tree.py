"""Expressions as JSON and back, as the database and REST store them.

Scalar nodes are lists, stages and tensors are objects.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias, cast, get_args

from tuner.errors import WorkloadError
from tuner.workload.dtypes import ByteFloat, DType
from tuner.workload.expression import (
    Axis,
    Binary,
    BinaryOp,
    Bitcast,
    Cast,
    Const,
    Expression,
    Fact,
    Lengths,
    Read,
    Reducer,
    Scalar,
    Select,
    Splits,
    Spread,
    Stage,
    Tensor,
    Unary,
    UnaryOp,
    Var,
    Within,
)

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
MAX_HEIGHT = 420  # of a scalar tree read from a document, whatever wrote it


def scalar_document(node: Scalar, names: Mapping[str, str]) -> list[Json]:
    """`["read", name, indices, pad]` and the like; tensors are renamed by `names`."""
    match node:
        case Var(name=name):
            return ["var", name]
        case Const(value=value, dtype=dtype):
            return ["const", dtype, _number(value, dtype)]
        case Read(tensor=tensor, indices=indices, pad=pad):
            index_documents: list[Json] = [scalar_document(index, names) for index in indices]
            return [
                "read",
                names.get(tensor, tensor),
                index_documents,
                None if pad is None else scalar_document(pad, names),
            ]
        case Unary(op=op, arg=arg):
            return ["unary", op, scalar_document(arg, names)]
        case Binary(op=op, lhs=lhs, rhs=rhs):
            return ["binary", op, scalar_document(lhs, names), scalar_document(rhs, names)]
        case Select(cond=cond, then=then, other=other):
            return ["select", *(scalar_document(part, names) for part in (cond, then, other))]
        case Cast(dtype=dtype, arg=arg):
            return ["cast", dtype, scalar_document(arg, names)]
        case Bitcast(dtype=dtype, source=source, arg=arg):
            return ["bitcast", dtype, source, scalar_document(arg, names)]


def _number(value: int | float | bool, dtype: str) -> Json:
    """Floats as text, so that infinities survive and 1 and 1.0 are one."""
    if dtype == "bool":
        return bool(value)
    return repr(float(value)) if "float" in dtype else int(value)


def expression_document(expression: Expression) -> dict[str, Json]:
    """The expression as JSON, with the names that it has."""
    return {
        "name": expression.name,
        "inputs": [_tensor(tensor) for tensor in expression.inputs],
        "stages": [
            {
                "name": stage.name,
                "axes": _axes(stage.axes),
                "reduce_axes": _axes(stage.reduce_axes),
                "reducer": stage.reducer,
                "accumulator": stage.accumulator,
                "dtype": stage.dtype,
                "body": scalar_document(stage.body, {}),
            }
            for stage in expression.stages
        ],
        "outputs": list(expression.outputs),
    }


def _tensor(tensor: Tensor) -> dict[str, Json]:
    document: dict[str, Json] = {
        "name": tensor.name,
        "shape": list(tensor.shape),
        "dtype": tensor.dtype,
    }
    return document if tensor.fact is None else document | {"fact": fact_document(tensor.fact)}


def fact_document(fact: Fact) -> Json:
    """`["within", start, stop, spread]` or `["splits", stop, lengths]`."""
    match fact:
        case Within(start=start, stop=stop, spread=spread):
            return ["within", start, stop, spread]
        case Splits(stop=stop, lengths=lengths):
            return ["splits", stop, lengths]


def _fact_from(document: object) -> Fact | None:
    if document is None:
        return None
    match _items(document):
        case ["within", start, stop, spread] if spread in get_args(Spread):
            return Within(start=_integer(start), stop=_integer(stop), spread=cast("Spread", spread))
        case ["splits", stop, lengths] if lengths in get_args(Lengths):
            return Splits(stop=_integer(stop), lengths=cast("Lengths", lengths))
    raise ValueError(f"fact {str(document)[:40]}")


def _axes(axes: tuple[Axis, ...]) -> list[Json]:
    return [[axis.name, axis.extent] for axis in axes]


def expression_from(document: object) -> Expression:
    """The expression of a document. Its bounds and budgets are not checked here.

    Raises `WorkloadError` for anything that is no such document.
    """
    try:
        parts = cast("dict[str, list[dict[str, object]]]", document)
        inputs = tuple(
            Tensor(
                name=_text(t["name"]),
                shape=tuple(_integer(e) for e in _items(t["shape"])),
                dtype=_dtype(t["dtype"]),
                fact=_fact_from(t.get("fact")),
            )
            for t in parts["inputs"]
        )
        stages = tuple(_stage(stage) for stage in parts["stages"])
        return Expression(
            name=_text(parts["name"]),
            inputs=inputs,
            stages=stages,
            outputs=tuple(_text(name) for name in parts["outputs"]),
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise WorkloadError(f"not an expression document: {error}") from None


def _stage(part: dict[str, object]) -> Stage:
    reducer = part["reducer"]
    if reducer is not None and reducer not in get_args(Reducer):
        raise ValueError(f"reducer {reducer!r}")
    return Stage(
        name=_text(part["name"]),
        axes=_axes_from(part["axes"]),
        reduce_axes=_axes_from(part["reduce_axes"]),
        reducer=cast("Reducer | None", reducer),
        accumulator=_dtype(part["accumulator"]),
        dtype=_dtype(part["dtype"]),
        body=scalar_from(part["body"]),
    )


def _axes_from(document: object) -> tuple[Axis, ...]:
    return tuple(
        Axis(name=_text(_items(axis)[0]), extent=_integer(_items(axis)[1]))
        for axis in _items(document)
    )


def scalar_from(document: object, height: int = 0) -> Scalar:
    """The inverse of `scalar_document`, for a node so many below the root.

    Raises ValueError for what is no tree, and for one that is too high.
    """
    if height > MAX_HEIGHT:
        raise ValueError(f"a tree higher than {MAX_HEIGHT}")
    kind, *rest = _items(document)
    match kind, rest:
        case "var", [name]:
            return Var(_text(name))
        case "const", [dtype, value]:
            return _constant(_dtype(dtype), value)
        case "read", [tensor, indices, pad]:
            padding = None if pad is None else scalar_from(pad, height + 1)
            if padding is not None and not isinstance(padding, Const):
                raise ValueError("a read padded with something other than a constant")
            return Read(
                _text(tensor),
                tuple(scalar_from(index, height + 1) for index in _items(indices)),
                padding,
            )
        case "unary", [op, arg] if op in get_args(UnaryOp):
            return Unary(cast(UnaryOp, op), scalar_from(arg, height + 1))
        case "binary", [op, lhs, rhs] if op in get_args(BinaryOp):
            return Binary(
                cast(BinaryOp, op), scalar_from(lhs, height + 1), scalar_from(rhs, height + 1)
            )
        case "select", [cond, then, other]:
            return Select(
                scalar_from(cond, height + 1),
                scalar_from(then, height + 1),
                scalar_from(other, height + 1),
            )
        case "cast", [dtype, arg]:
            return Cast(_dtype(dtype), scalar_from(arg, height + 1))
        case "bitcast", [dtype, source, arg]:
            bits = scalar_from(arg, height + 1)
            if dtype in get_args(ByteFloat):
                return Bitcast(cast(ByteFloat, dtype), _dtype(source), bits)
            return Bitcast(_dtype(dtype), _dtype(source), bits)
        case _:
            raise ValueError(f"unknown node {str(kind)[:40]!r}")


def _constant(dtype: DType, value: object) -> Const:
    if dtype == "bool":
        return Const(bool(value), dtype)
    if "float" not in dtype:
        return Const(_integer(value), dtype)
    number = float(_text(value))
    if math.isnan(number):
        raise ValueError("a constant that is not a number")
    return Const(number, dtype)


def _items(document: object) -> list[object]:
    if not isinstance(document, list):
        raise ValueError(f"a list is needed, not {type(document).__name__}")
    return document


def _text(document: object) -> str:
    if not isinstance(document, str):
        raise ValueError(f"text is needed, not {type(document).__name__}")
    return document


def _integer(document: object) -> int:
    if isinstance(document, bool) or not isinstance(document, int):
        raise ValueError(f"an integer is needed, not {type(document).__name__}")
    return document


def _dtype(document: object) -> DType:
    if document not in get_args(DType):
        raise ValueError(f"dtype {str(document)[:40]!r}")
    return cast(DType, document)
