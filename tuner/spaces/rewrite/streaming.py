"""Reductions that need a whole row first, rewritten so that the row streams by.

A softmax followed by a product sums terms `exp(f - m) * g` over an axis along which `m`
is the maximum of `f`. With the maximum of the part of the row that has been read in its
place, each sum is right but for the factor `exp(old m - new m)`, by which it is rescaled
when the maximum rises (Milakov and Gimelshein, "Online normalizer calculation for
softmax", 2018). So the row is read once, part by part, and neither it nor what follows
from it is ever in memory as a whole.

This is found in the algebra of the stages: a maximum, exponentials of differences to it,
sums of products with these. What `f` is made of does not matter: scale, bias, masks,
windows and caps are parts of it. Where `f` reads a sum point by point, such as the product
of queries and keys, that sum is computed for each part of the row as it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tuner.spaces.program.tiles import constant
from tuner.spaces.rewrite.groups import epilogue_of
from tuner.spaces.rewrite.liveness import live_conditions
from tuner.spaces.rewrite.predicates import iterators
from tuner.spaces.rewrite.stages import fresh_name
from tuner.spaces.rewrite.stream_group import RunningSum, StreamGroup
from tuner.workload.expression import (
    Axis,
    Binary,
    Cast,
    Expression,
    Read,
    Scalar,
    Stage,
    Unary,
    Var,
    reads,
    rewrite,
    rows_from_data,
    substitute,
)

SUFFIX = "streamed"  # of names of the stages, whose knobs differ from the original's
# dtypes whose conversions the compiler leaves out between stages
FLOATS = ("float32", "float16", "bfloat16")


def stream_group(expression: Expression) -> StreamGroup | None:
    """The last stages of the expression that can stream, as one group; None of others.

    Nothing streams beside ragged ranges and scattered terms.
    """
    if any(rows_from_data(stage) is not None for stage in expression.stages):
        return None
    for peak in reversed(expression.stages):
        if peak.reducer != "max" or len(peak.reduce_axes) != 1 or not peak.axes:
            continue
        for last in reversed(expression.stages):
            rows = _Rows(expression, peak)
            if (group := rows.group(last)) is not None and not refusal(group, expression):
                return group
    return None


def refusal(group: StreamGroup, expression: Expression) -> str | None:
    """Why a group is no way to compute its output in the expression; None where it is.

    Derives each part of the group from the stages again, and looks at who else reads them.
    """
    order = [stage.name for stage in expression.stages]
    inside = [*([group.product.name] if group.product else []), group.peak]
    inside += [running.name for running in group.sums]
    if any(name not in order for name in inside):
        return "a member is no stage of the expression"
    if [order.index(name) for name in inside] != sorted(order.index(name) for name in inside):
        return "a member reads a later one"
    peak = expression.stage(group.peak)
    expected = _Rows(expression, peak).group(expression.stage(inside[-1]))
    if expected is None:
        return "its stages are no sums of exponentials below a maximum"
    for part in ("rows", "stream", "product", "value", "sums", "output", "dtype"):
        if getattr(group, part) != getattr(expected, part):
            return f"its {part} differs from what the stages compute"
    if not set(group.live_conditions) <= set(expected.live_conditions):
        return "it leaves out terms that count"
    kept = _needed(expression, group)
    for name in inside:
        if name != group.name and name in kept:
            return f"{name} is read elsewhere"
    return None


def streamed_away(expression: Expression, group: StreamGroup) -> frozenset[str]:
    """Names of the stages that nothing reads once the group computes its output."""
    kept = _needed(expression, group)
    return frozenset(stage.name for stage in expression.stages if stage.name not in kept)


def _needed(expression: Expression, group: StreamGroup) -> set[str]:
    """Names of the outputs and of all that is read to compute them, with the group in place."""
    stages = {stage.name: stage for stage in expression.stages}
    needed: set[str] = set()
    waiting = list(expression.outputs)
    while waiting:
        name = waiting.pop()
        if name in needed:
            continue
        needed.add(name)
        if name == group.name:
            waiting += group.sources
        elif name in stages:
            waiting += [read.tensor for read in reads(stages[name].body)]
    return needed


@dataclass(frozen=True)
class _Term:
    """A term of a sum as an exponential, times factors, over what is the same for all terms."""

    factor: Scalar | None
    outside: tuple[Scalar, ...]  # factors that do not move along the sum
    divisors: tuple[Scalar, ...]  # neither do these


class _Rows:
    """Rows with the maximum `peak`, and what can be summed along them."""

    def __init__(self, expression: Expression, peak: Stage) -> None:
        self.expression = expression
        self.stages = {stage.name: _without_units(stage) for stage in expression.stages}
        self.peak = self.stages[peak.name]
        self.length = peak.reduce_axes[0].extent
        self.places: dict[str, Mapping[str, str]] = {}  # of members' axes, the group's names

    def group(self, last: Stage) -> StreamGroup | None:
        """The group of which `last` is the sum with columns."""
        if not self._may_be_sum(last):
            return None
        last, stream = self.stages[last.name], last.reduce_axes[0]
        exponent = self._exponent(last)
        if exponent is None:
            return None
        value, names = exponent
        self.places[self.peak.name] = names | {self.peak.reduce_axes[0].name: stream.name}
        own_rows = {*names.values()}
        rows = tuple(axis for axis in last.axes if axis.name in own_rows or axis.extent == 1)
        columns = tuple(axis for axis in last.axes if axis not in rows)
        term = self._term(last, value)
        if term is None or not columns:
            return None
        epilogue = epilogue_of(last, self.expression, set())
        if epilogue is not None and epilogue.dtype not in FLOATS and epilogue.dtype != last.dtype:
            epilogue = None
        result: Scalar = Read(last.name, tuple(Var(axis.name) for axis in (*rows, *columns)))
        for factor in term.outside:
            result = Binary("mul", result, factor)
        for divisor in term.divisors:
            result = Binary("div", result, divisor)
        output = replace(last, body=result, reduce_axes=(), reducer=None)
        if epilogue is not None:
            body = _with_value(_without_units(epilogue).body, last.name, result)
            output = replace(epilogue, body=body)
        totals = self._totals(output, value, rows, stream, last)
        if totals is None:
            return None
        product, value = self._product(value, rows, stream, last)
        group = StreamGroup(
            rows=rows,
            stream=stream,
            product=product,
            value=value,
            peak=self.peak.name,
            sums=(*totals, RunningSum(name=last.name, columns=columns, factor=term.factor)),
            output=output,
            dtype=last.accumulator,
        )
        return replace(group, live_conditions=self._live(group))

    # --- sums

    def _may_be_sum(self, stage: Stage) -> bool:
        return (
            stage.reducer == "sum"
            and len(stage.reduce_axes) == 1
            and stage.reduce_axes[0].extent == self.length
            and stage.accumulator in ("float32", "float64")
            and self.peak.accumulator == stage.accumulator
        )

    def _exponent(self, stage: Stage) -> tuple[Scalar, dict[str, str]] | None:
        """What the exponential of the stage's terms is of, before the maximum is
        subtracted, and by the maximum's axes the stage's."""
        stream = stage.reduce_axes[0]
        numerators, _ = _factors(self._resolved(stage.body, stream.name))
        for factor in numerators:
            match factor:
                case Unary(op="exp", arg=Binary(op="sub", lhs=value, rhs=Read() as top)):
                    pass
                case _:
                    continue
            names = _place(top, self.peak) if top.tensor == self.peak.name else None
            if names is None or stream.name in names.values():
                continue
            along = self.peak.reduce_axes[0].name
            renamed = _renamed(self.peak.body, names | {along: stream.name})
            own = self._resolved(renamed, stream.name)
            if own == value and iterators(value) <= {*names.values(), stream.name}:
                return value, names
        return None

    def _term(self, stage: Stage, value: Scalar) -> _Term | None:
        """A term of the stage's sum; None where it is no product with one exponential."""
        stream = stage.reduce_axes[0].name
        numerators, divisors = _factors(self._resolved(stage.body, stream))
        exponentials = [
            factor
            for factor in numerators
            if isinstance(factor, Unary)
            and factor.op == "exp"
            and isinstance(factor.arg, Binary)
            and factor.arg.op == "sub"
            and factor.arg.lhs == value
        ]
        if len(exponentials) != 1 or any(stream in iterators(part) for part in divisors):
            return None
        others = list(numerators)
        others.remove(exponentials[0])
        moving = [part for part in others if stream in iterators(part)]
        factor = None
        for part in moving:
            factor = part if factor is None else Binary("mul", factor, part)
        return _Term(
            factor=factor,
            outside=tuple(part for part in others if part not in moving),
            divisors=tuple(divisors),
        )

    def _totals(
        self,
        output: Stage,
        value: Scalar,
        rows: tuple[Axis, ...],
        stream: Axis,
        last: Stage,
    ) -> tuple[RunningSum, ...] | None:
        """The sums beside the last one that the output reads, one for each row.

        None where one of them is read elsewhere than at its row.
        """
        totals = []
        for read in dict.fromkeys(reads(output.body)):
            stage = self.stages.get(read.tensor)
            if stage is self.peak:
                own_rows = _place(read, stage)
                if own_rows is None or not own_rows.items() <= self.places[stage.name].items():
                    return None
            if stage is None or stage is last or not self._may_be_sum(stage):
                continue
            names = _place(read, stage)
            if names is None or {*names.values()} != _long(rows):
                continue
            own = self._exponent(stage)
            if own is None:
                continue
            names[stage.reduce_axes[0].name] = stream.name
            if _renamed(own[0], names) != value:
                return None
            term = self._term(stage, own[0])
            if term is None or term.outside or term.divisors:
                return None
            factor = None if term.factor is None else _renamed(term.factor, names)
            self.places[stage.name] = names
            totals.append(RunningSum(name=stage.name, columns=(), factor=factor))
        return tuple(totals)

    # --- what the exponential is of

    def _product(
        self, value: Scalar, rows: tuple[Axis, ...], stream: Axis, last: Stage
    ) -> tuple[Stage | None, Scalar]:
        """A sum that is read at each point, in terms of the group's axes, and f with it."""
        for read in reads(value):
            stage = self.stages.get(read.tensor)
            names = None if stage is None else _place(read, stage)
            if (
                stage is None
                or stage.reducer != "sum"
                or names is None
                or {*names.values()} != _long((*rows, stream))
                or stage.accumulator != last.accumulator
                or not stage.reduce_axes
            ):
                continue
            reserved = {axis.name for axis in (*last.axes, stream)}
            for axis in stage.reduce_axes:
                names[axis.name] = fresh_name(axis.name, reserved)
                reserved.add(names[axis.name])
            product = replace(
                stage,
                axes=(*rows, stream),
                reduce_axes=tuple(
                    replace(axis, name=names[axis.name]) for axis in stage.reduce_axes
                ),
                body=_renamed(stage.body, names),
            )
            own = Read(stage.name, tuple(Var(axis.name) for axis in product.axes))
            changed = _with_read(value, read, own)
            if not any(other.tensor == stage.name and other != own for other in reads(changed)):
                return product, changed
        return None, value

    def _resolved(self, node: Scalar, stream: str) -> Scalar:
        """The value with maps along the rows inlined, and conversions between stages dropped."""

        def change(part: Scalar) -> Scalar | None:
            if isinstance(part, Cast) and part.dtype in FLOATS and _is_stage(part.arg, self.stages):
                return self._resolved(part.arg, stream)
            if not isinstance(part, Read):
                return None
            stage = self.stages.get(part.tensor)
            names = None if stage is None else _place(part, stage)
            if (
                stage is None
                or stage.reducer is not None
                or names is None
                or stream not in names.values()
                or len(names) != len(_long(self.peak.axes)) + 1
                or stage.dtype not in (*FLOATS, "float64")
            ):
                return None
            return self._resolved(_renamed(stage.body, names), stream)

        return rewrite(node, change)

    # --- terms that count

    def _live(self, group: StreamGroup) -> tuple[Scalar, ...]:
        """Conditions that exclude terms of the maximum and of all sums alike."""
        every = live_conditions(self.expression)
        axes = (*(axis.name for axis in group.rows), group.stream.name)
        common: list[Scalar] | None = None
        for name in (group.peak, *(running.name for running in group.sums)):
            own = self.places.get(name, {})
            conditions = [_renamed(part, own) for part in every.get(name, ())]
            conditions = [part for part in conditions if iterators(part) <= set(axes)]
            common = (
                conditions if common is None else [part for part in common if part in conditions]
            )
        return tuple(common or ())


def _factors(node: Scalar) -> tuple[list[Scalar], list[Scalar]]:
    """The factors of a product, and what it is divided by."""
    match node:
        case Binary(op="mul", lhs=lhs, rhs=rhs):
            (a, b), (c, d) = _factors(lhs), _factors(rhs)
            return a + c, b + d
        case Binary(op="div", lhs=lhs, rhs=rhs):
            (a, b), (c, d) = _factors(lhs), _factors(rhs)
            return a + d, b + c
        case _:
            return [node], []


def _place(read: Read, stage: Stage) -> dict[str, str] | None:
    """By each axis of a stage that is longer than one, the iterator that reads along it.

    None where other indices stand there, an iterator twice, or padding.
    """
    names: dict[str, str] = {}
    for axis, index in zip(stage.axes, read.indices, strict=True):
        if axis.extent > 1:
            if not isinstance(index, Var) or index.name in names.values():
                return None
            names[axis.name] = index.name
    return names if read.pad is None else None


def _without_units(stage: Stage) -> Stage:
    """The stage with 0 in the place of iterators that are nothing else."""
    zeros = {name: constant(0) for name, extent in stage.extents.items() if extent == 1}
    return replace(stage, body=substitute(stage.body, zeros))


def _long(axes: tuple[Axis, ...]) -> set[str]:
    """Names of the axes that are longer than one."""
    return {axis.name for axis in axes if axis.extent > 1}


def _renamed(node: Scalar, names: Mapping[str, str]) -> Scalar:
    return substitute(node, {old: Var(new) for old, new in names.items()})


def _is_stage(node: Scalar, stages: Mapping[str, Stage]) -> bool:
    return isinstance(node, Read) and node.tensor in stages


def _with_read(node: Scalar, old: Read, new: Read) -> Scalar:
    return rewrite(node, lambda part: new if part == old else None)


def _with_value(node: Scalar, tensor: str, value: Scalar) -> Scalar:
    return rewrite(
        node, lambda part: value if isinstance(part, Read) and part.tensor == tensor else None
    )
