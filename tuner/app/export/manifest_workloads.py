"""Workloads and families that a manifest describes, checked against keys and arguments."""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Any, cast, get_args

from tuner.app.export.portfolio import portfolio_key, rows_checked
from tuner.errors import WorkloadError
from tuner.export.errors import ManifestError
from tuner.workload.rows import member
from tuner.workload.spec import (
    Portfolio,
    workload_from_expression,
    workload_from_notation,
    workload_from_params,
)
from tuner.workload.tree import expression_from
from tuner.workload.workload import Numerics, Workload


def workload_of(function: Mapping[str, Any]) -> Workload:
    """The workload that a function's entry in a manifest describes.

    Raises WorkloadError for an entry that describes none, ManifestError where the key or
    the arguments are those of another workload.
    """
    stated = function["workload"]
    constants, numerics = _texts(stated.get("constants", [])), str(stated.get("numerics", "strict"))
    if isinstance(stated.get("op"), str):
        workload = workload_from_params(
            stated["op"],
            _object(stated, "params", bool | int | float | str),
            constants=constants,
            numerics=numerics,
        )
    elif isinstance(stated.get("notation"), str):
        shapes = {name: int(extent) for name, extent in _object(stated, "shapes", int).items()}
        workload = workload_from_notation(stated["notation"], shapes, constants, numerics)
    elif isinstance(stated.get("expression"), dict):
        workload = workload_from_expression(
            expression_from(stated["expression"]), constants, numerics
        )
    else:
        raise ManifestError(
            f"{function['symbol']}: its workload has neither an operator nor a notation nor an "
            f"expression"
        )
    if workload.key != stated.get("key"):
        raise ManifestError(
            f"{function['symbol']}: its workload's key is {workload.key}, the manifest says "
            f"otherwise"
        )
    _check_arguments(function, workload)
    return workload


def _check_arguments(function: Mapping[str, Any], workload: Workload) -> None:
    """Checks that the function has the workload's arguments. Raises ManifestError."""
    expression = workload.expression
    outputs = (expression.tensor(name) for name in expression.outputs)
    expected = [
        (tensor.name, tensor.dtype, list(tensor.shape), "in") for tensor in expression.inputs
    ]
    expected += [(tensor.name, tensor.dtype, list(tensor.shape), "out") for tensor in outputs]
    if expected != [
        (argument["name"], argument["dtype"], argument["shape"], argument["role"])
        for argument in function["arguments"]
    ]:
        raise ManifestError(f"{function['symbol']}: its arguments are not those of its workload")


def portfolio_of(function: Mapping[str, Any]) -> Portfolio:
    """The family that the entry of a function with a range describes.

    Raises as `workload_of` does.
    """
    stated, ranges = function["workload"], function["ranges"]
    if not isinstance(ranges, dict) or len(ranges) != 1 or not isinstance(stated.get("op"), str):
        raise ManifestError(
            f"{function['symbol']}: a function with a range has one range and an operator"
        )
    ((name, ends),) = ranges.items()
    low, high = (
        (ends.get(end) for end in ("least", "greatest")) if isinstance(ends, dict) else (None, None)
    )
    if type(low) is not int or type(high) is not int or not 1 <= low < high:
        raise ManifestError(f"{function['symbol']}: the range of {name!r} has no ends")
    params = {
        key: value
        for key, value in _object(stated, "params", bool | int | float | str).items()
        if key != name
    }
    numerics = str(stated.get("numerics", "strict"))
    if numerics not in get_args(Numerics):
        raise ManifestError(f"{function['symbol']}: numerics {numerics[:40]!r} are not known")
    family = Portfolio(
        op=stated["op"],
        params=params,
        ranges={name: (low, high)},
        constants=_texts(stated.get("constants", [])),
        numerics=cast(Numerics, numerics),
    )
    rows_checked(family)
    if portfolio_key(family) != stated.get("key"):
        raise ManifestError(
            f"{function['symbol']}: its family's key is {portfolio_key(family)}, the manifest "
            f"says otherwise"
        )
    _check_arguments(function, member(family, high))
    return family


def _object(stated: Mapping[str, Any], name: str, kind: type | UnionType) -> Mapping[str, Any]:
    """An object of values of one type. Raises WorkloadError for anything else."""
    values = stated.get(name)
    if not isinstance(values, dict) or not all(
        isinstance(value, kind) for value in values.values()
    ):
        raise WorkloadError(f"{name} must be an object of plain values", parameter=name)
    return values


def _texts(names: object) -> tuple[str, ...]:
    """A list of names. Raises WorkloadError for anything else."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise WorkloadError("constants must be a list of names", parameter="const")
    return tuple(names)
