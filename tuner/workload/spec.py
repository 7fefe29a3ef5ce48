"""Construction of workloads from specs, operator parameters, notation and expressions.

A spec is `op:NAME=VALUE,…`. Workloads are also written as JSON documents, which keep
the whole expression, so that lifted programs can be stored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast, get_args

from tuner.errors import WorkloadError
from tuner.workload.bounds import check_bounds
from tuner.workload.budgets import check_budgets
from tuner.workload.catalogue import operator
from tuner.workload.expression import Expression
from tuner.workload.keys import workload_key
from tuner.workload.notation import parse
from tuner.workload.operator import Param, Value, checked
from tuner.workload.structure import check_structure
from tuner.workload.tree import Json, expression_document, expression_from
from tuner.workload.workload import Numerics, Workload

DOCUMENT_SCHEMA = 1
MAX_SPEC = 4096  # characters
_RANGE = re.compile(r"([0-9]{1,10})\.\.([0-9]{1,10})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Portfolio:
    """A family of workloads: an operator with some extents given as ranges, both ends included."""

    op: str
    params: Mapping[str, object]  # given parameters that are not ranged, as written
    ranges: Mapping[str, tuple[int, int]]  # extent parameter -> (least, greatest)
    constants: tuple[str, ...] = ()
    numerics: Numerics = "strict"
    # weight of each extent by how often it is called; None: all are called equally often
    traffic: Mapping[int, float] | None = None

    def workload(self, extents: Mapping[str, int]) -> Workload:
        """The member with these extents, one for each ranged parameter."""
        for name, (low, high) in self.ranges.items():
            if name not in extents or not low <= extents[name] <= high:
                raise WorkloadError(
                    f"{name}={extents.get(name)} is outside {low}..{high}", parameter=name
                )
        return workload_from_params(
            self.op, {**self.params, **extents}, constants=self.constants, numerics=self.numerics
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    op: str
    params: dict[str, str]
    constants: tuple[str, ...] = ()
    numerics: str = "strict"
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)


def parse_spec(text: str) -> Workload:
    """The workload of `op:NAME=VALUE,…` with optional `const=W` (several as
    `const=W+bias`) and `numerics=strict|fast|tensor`.

    Raises `WorkloadError` whose `parameter` is the name at fault ("op" for the operator).
    """
    if text.endswith(".onnx"):
        message = (
            f"{text[-80:]!r} is a model's file; only `tuner tune`, `tuner estimate` and "
            f"`tuner quantize` take models; here give a SPEC such as matmul:M=512,N=512,K=512"
        )
        raise WorkloadError(message, parameter="op")
    parts = _split(text)
    for name, (low, high) in parts.ranges.items():
        message = (
            f"{name}={low}..{high} is a range; only `tuner tune` and `tuner export` take "
            f"ranges; here give one number"
        )
        raise WorkloadError(message, parameter=name)
    return workload_from_params(
        parts.op, parts.params, constants=parts.constants, numerics=parts.numerics
    )


def parse_portfolio(text: str) -> Portfolio:
    """The portfolio of a spec in which at least one extent is a range such as `M=1..512`."""
    parts = _split(text)
    if not parts.ranges:
        raise WorkloadError(
            f"{text[:80]!r} has no range; write one extent as LEAST..GREATEST, e.g. M=1..512",
            parameter="op",
        )
    portfolio = Portfolio(
        op=parts.op,
        params=parts.params,
        ranges=parts.ranges,
        constants=parts.constants,
        numerics=_numerics(parts.numerics),
    )
    for end in (0, 1):
        portfolio.workload({name: ends[end] for name, ends in parts.ranges.items()})
    return portfolio


def _split(text: str) -> _Parts:
    if len(text) > MAX_SPEC:
        raise WorkloadError(
            f"the spec has {len(text)} characters, the limit is {MAX_SPEC}", parameter="op"
        )
    name, _, rest = text.strip().partition(":")
    op = operator(name.strip())
    params: dict[str, str] = {}
    for item in rest.split(",") if rest.strip() else ():
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not key or not value:
            raise WorkloadError(
                f"{item.strip()[:60]!r} is not NAME=VALUE; write {op.name}:NAME=VALUE,NAME=VALUE",
                parameter=key or "op",
            )
        if key in params:
            raise WorkloadError(f"{key} is given twice; give it once", parameter=key)
        params[key] = value
    constants = tuple(part.strip() for part in params.pop("const", "").split("+") if part.strip())
    numerics = params.pop("numerics", "strict")
    ranges = {key: _range(op.param(key), value) for key, value in params.items() if ".." in value}
    kept = {key: value for key, value in params.items() if key not in ranges}
    return _Parts(op=op.name, params=kept, constants=constants, numerics=numerics, ranges=ranges)


def _range(param: Param, value: str) -> tuple[int, int]:
    match = _RANGE.fullmatch(value)
    if param.kind != "extent" or not match:
        message = (
            f"{param.name}={value[:40]} is not a range of an extent; extents are ranged "
            f"as LEAST..GREATEST, e.g. M=1..512"
        )
        raise WorkloadError(message, parameter=param.name)
    low, high = (int(checked(param, end)) for end in match.groups())
    if low >= high:
        raise WorkloadError(
            f"{param.name}={value} is empty; the first end is the smaller", parameter=param.name
        )
    return low, high


def workload_from_params(
    op: str,
    params: Mapping[str, object],
    *,
    constants: Iterable[str] = (),
    numerics: str = "strict",
) -> Workload:
    """The workload of a catalogue operator.

    Parameters are typed values or text, and may include `const` and `numerics`.
    """
    given = dict(params)
    constants = tuple(constants) or tuple(
        part for part in str(given.pop("const", "") or "").split("+") if part
    )
    given.pop("const", None)
    numerics = str(given.pop("numerics", numerics))
    catalogued = operator(op)
    values = catalogued.filled(given)
    text = catalogued.text(values)
    try:
        expression = parse(text, catalogued.symbols(values, text))
    except WorkloadError as error:
        message = (
            str(error).removeprefix(f"line {error.line}, column {error.column}: ")
            if error.line
            else str(error)
        )
        raise WorkloadError(
            f"{op}: {message}", parameter=_culprit(catalogued.params, values)
        ) from None
    return _workload(expression, constants, numerics, op=op, params=values)


def _culprit(params: tuple[Param, ...], values: Mapping[str, Value]) -> str:
    """The largest extent, which is the one to lower where the whole is too large."""
    return max(
        (param.name for param in params if param.kind == "extent"),
        key=lambda name: int(values[name]),
    )


def workload_from_notation(
    text: str, shapes: Mapping[str, int], constants: Iterable[str] = (), numerics: str = "strict"
) -> Workload:
    return _workload(parse(text, shapes), constants, numerics, notation=text, shapes=dict(shapes))


def workload_from_expression(
    expression: Expression, constants: Iterable[str] = (), numerics: str = "strict"
) -> Workload:
    """A workload around a given expression, for instance a lifted program.

    Raises `WorkloadError` if its structure, bounds or budgets would be refused of a text.
    """
    check_structure(expression)
    check_bounds(expression)
    check_budgets(expression)
    return _workload(expression, constants, numerics)


def _numerics(value: str) -> Numerics:
    if value not in get_args(Numerics):
        message = f"numerics={value[:40]} is not strict, fast or tensor"
        raise WorkloadError(message, parameter="numerics")
    return cast(Numerics, value)


def _workload(
    expression: Expression,
    constants: Iterable[str],
    numerics: str,
    *,
    op: str | None = None,
    params: Mapping[str, Value] | None = None,
    notation: str | None = None,
    shapes: Mapping[str, int] | None = None,
) -> Workload:
    names = [tensor.name for tensor in expression.inputs]
    declared = tuple(dict.fromkeys(constants))
    for name in declared:
        if name not in names:
            raise WorkloadError(
                f"const={name[:60]} is not an input; the inputs are {', '.join(names)}",
                parameter="const",
            )
    if len(declared) == len(names):
        raise WorkloadError(
            "every input is declared constant; at least one must vary", parameter="const"
        )
    ordered, chosen = tuple(name for name in names if name in declared), _numerics(numerics)
    return Workload(
        expression=expression,
        key=workload_key(expression, ordered, chosen),
        op=op,
        params=params or {},
        notation=notation,
        shapes=shapes or {},
        constants=ordered,
        numerics=chosen,
    )


def to_document(workload: Workload) -> dict[str, Json]:
    """The workload as JSON, its expression whole; `from_document` is the inverse."""
    return {
        "schema": DOCUMENT_SCHEMA,
        "key": workload.key,
        "op": workload.op,
        "params": dict(workload.params),
        "notation": workload.notation,
        "shapes": dict(workload.shapes),
        "constants": list(workload.constants),
        "numerics": workload.numerics,
        "expression": expression_document(workload.expression),
    }


def from_document(document: Mapping[str, object]) -> Workload:
    """The workload of a document.

    Raises `WorkloadError` for an unknown schema, a malformed tree or a wrong key.
    """
    if document.get("schema") != DOCUMENT_SCHEMA:
        raise WorkloadError(
            f"workload document of schema {document.get('schema')!r}; this version reads "
            f"{DOCUMENT_SCHEMA}"
        )
    expression = expression_from(document.get("expression"))
    check_structure(expression)
    check_bounds(expression)
    check_budgets(expression)
    op, notation = document.get("op"), document.get("notation")
    workload = _workload(
        expression,
        cast("list[str]", document.get("constants") or []),
        str(document.get("numerics", "strict")),
        op=op if isinstance(op, str) else None,
        params=cast("dict[str, Value]", document.get("params") or {}),
        notation=notation if isinstance(notation, str) else None,
        shapes=cast("dict[str, int]", document.get("shapes") or {}),
    )
    if workload.key != document.get("key"):
        raise WorkloadError(
            f"the document's key {document.get('key')!r} is not that of its expression, "
            f"{workload.key}"
        )
    return workload
