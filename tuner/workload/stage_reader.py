"""One assignment of a kernel in the notation, read as a stage."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import cast

from lark import Token, Tree

from tuner.workload.bounds import (
    infer_extents,
    overflow_error,
    read_error,
    with_conditional_padding,
    without_redundant_padding,
)
from tuner.workload.budgets import BUDGETS
from tuner.workload.dtypes import COMPUTED_IN, FLOATS, INTEGERS, DType
from tuner.workload.expression import (
    Axis,
    Binary,
    Const,
    Read,
    Reducer,
    Scalar,
    Select,
    Stage,
    Tensor,
    Var,
    substitute,
)
from tuner.workload.grammar import Node, fail
from tuner.workload.ragged_notation import (
    StatedRows,
    is_ragged,
    scattered_rows,
    stated_rows,
    written_iterator,
)
from tuner.workload.right_hand_sides import TermBuilder
from tuner.workload.scalar_operators import REDUCTIONS, identity
from tuner.workload.terms import LITERAL_INT, LITERAL_REAL, coerce, common_type

_REDUCERS: Mapping[str, Reducer] = {row.symbol: name for name, row in REDUCTIONS.items()}


@dataclass(frozen=True, slots=True)
class Declared:
    """A tensor of the kernel's head, and where it is declared."""

    tensor: Tensor
    node: Node


class StageReader:
    """Analyses one assignment: its right-hand side, iterator ranges and dtypes."""

    def __init__(
        self,
        node: Tree[Token],
        tensors: Mapping[str, Tensor],
        later: frozenset[str],
        outputs: Mapping[str, Declared],
        symbols: Mapping[str, int],
        used_symbols: set[str],
    ) -> None:
        self.node, self.tensors, self.outputs = node, tensors, outputs
        self.builder = TermBuilder(tensors, later, symbols, used_symbols)
        tokens = list(node.children)
        self.name, *rest = tokens
        split = next(
            i
            for i, child in enumerate(rest)
            if isinstance(child, Token) and child.type in ("ASSIGN", "REDUCE")
        )
        self.scattered = [child for child in rest[:split] if isinstance(child, Tree)]
        self.written = [written_iterator(child, node, symbols) for child in rest[:split]]
        self.assign, self.right, *others = rest[split:]
        self.ranges = cast(
            "list[Tree[Token]]",
            others[0].children if others and isinstance(others[0], Tree) else [],
        )

    def stage(self) -> Stage:
        name = str(self.name)
        self._check_written(name)
        term = self.builder.build(self.right)
        reducer = _REDUCERS.get(str(self.assign))
        scattered = self._scattered(name, reducer)
        reduced = [i for i in self.builder.iterators if i not in [str(w) for w in self.written]]
        self._check_reduction(reducer, reduced)
        starts, stated, ragged = self._stated(reduced if reducer else [])
        rows = scattered if ragged is None else ragged
        stated |= {} if scattered is None else scattered.extents
        extents = self._extents(name, stated, starts)
        shifted: dict[str, Scalar] = {
            i: Binary("add", Var(i), Const(start, "int64")) for i, start in starts.items() if start
        }
        self._check_reads(extents, shifted)
        declared = self.outputs[name].tensor.dtype if name in self.outputs else None
        dtype, body, accumulator = self._typed(term.type, declared)
        value = substitute(coerce(term, body, self.right), shifted)
        if rows is not None and reducer is not None:
            value = Select(rows.condition, value, identity(reducer, body))
        if error := overflow_error(value, extents):
            raise fail(error, self.right)
        return Stage(
            name=name,
            axes=tuple(Axis(name=str(i), extent=extents[str(i)]) for i in self.written),
            reduce_axes=tuple(Axis(name=i, extent=extents[i]) for i in reduced),
            reducer=reducer,
            body=with_conditional_padding(
                without_redundant_padding(value, extents, self.tensors), extents, self.tensors
            ),
            dtype=dtype,
            accumulator=accumulator,
        )

    def _scattered(self, name: str, reducer: Reducer | None) -> StatedRows | None:
        """The rows that an index on the left names."""
        if not self.scattered:
            return None
        (node,) = self.scattered
        if reducer is None:
            raise fail(
                f"elements of {name} may be named several times or never; reduce with +=, *=, "
                f"max= or min=",
                node,
            )
        row = written_iterator(node, self.node, self.builder.symbols)
        dimension, output = self.written.index(row), self.outputs.get(name)
        extent = None if output is None else output.tensor.shape[dimension]
        return scattered_rows(node, str(row), extent, self.builder)

    def _check_written(self, name: str) -> None:
        ragged = list(filter(is_ragged, self.ranges))
        if self.scattered and (others := [*self.scattered[1:], *ragged]):
            message = "a stage has one index on the left and no ragged range beside it"
            raise fail(f"{message}; make another stage", others[0])
        seen: set[str] = set()
        for token in self.written:
            if str(token) in self.builder.symbols:
                raise fail(
                    f"{str(token)!r} is a shape symbol, not an iterator; {name} is written at "
                    f"one iterator per dimension",
                    token,
                )
            if str(token) in seen:
                raise fail(
                    f"iterator {str(token)!r} stands twice on the left; each dimension has its own",
                    token,
                )
            seen.add(str(token))
        if name in self.outputs and len(self.outputs[name].tensor.shape) != len(self.written):
            shape = self.outputs[name].tensor.shape
            raise fail(
                f"{name} is declared with {len(shape)} dimensions and written with "
                f"{len(self.written)}",
                self.node,
            )

    def _stated(
        self, reduced: Collection[str]
    ) -> tuple[dict[str, int], dict[str, int], StatedRows | None]:
        """Starts and extents of iterators whose ranges are stated, and the ragged one."""
        starts: dict[str, int] = {}
        extents: dict[str, int] = {}
        rows: StatedRows | None = None
        for node in self.ranges:
            name = str(node.children[0])
            if is_ragged(node):
                if rows is not None:
                    raise fail("a stage has one ragged range; make another stage", node)
                if name not in reduced:
                    raise fail(
                        f"{name!r} has a ragged range, so it is reduced over; write +=, *=, max= "
                        f"or min=, and no {name!r} on the left",
                        node,
                    )
                rows = stated_rows(node, [str(token) for token in self.written], self.builder)
                extents |= rows.extents
                continue
            first, last = (self.builder.constant(child) for child in node.children[1:])
            if name not in self.builder.iterators and name not in [
                str(token) for token in self.written
            ]:
                raise fail(f"{name!r} is not an iterator of this stage", node)
            if name in extents:
                raise fail(f"the range of {name!r} is stated twice", node)
            if last <= first or last - first > BUDGETS.extent:
                raise fail(
                    f"the range {first}:{last} of {name!r} is empty or too long; it holds "
                    f"{first} and ends before {last}",
                    node,
                )
            if first and name in [str(token) for token in self.written]:
                raise fail(
                    f"{name!r} indexes the written tensor, so its range starts at 0, not {first}",
                    node,
                )
            starts[name], extents[name] = first, last - first
        return starts, extents, rows

    def _extents(
        self, name: str, stated: Mapping[str, int], starts: Mapping[str, int]
    ) -> dict[str, int]:
        fixed = dict(stated)
        if name in self.outputs:
            for token, extent in zip(self.written, self.outputs[name].tensor.shape, strict=True):
                if fixed.setdefault(str(token), extent) != extent:
                    raise fail(
                        f"{str(token)!r} runs to {fixed[str(token)]} but {name} has extent "
                        f"{extent} there",
                        token,
                    )
        all_reads = [built.read for built in self.builder.reads]
        self._check_whole(fixed, stated)
        names = [*(str(token) for token in self.written), *self.builder.iterators]
        extents, clash = infer_extents(names, fixed, all_reads, self.tensors)
        if clash:
            iterator, first, second = clash
            node = next(built.node for built in self.builder.reads if built.read is second)
            raise fail(
                f"iterator {iterator!r} runs over {first.tensor} "
                f"({_along(first, iterator, self.tensors)}) and {second.tensor} "
                f"({_along(second, iterator, self.tensors)}), which differ; state its range, "
                f"e.g. for {iterator} in 0:"
                f"{min(_along(first, iterator, self.tensors), _along(second, iterator, self.tensors))}",  # noqa: E501
                node,
            )
        for iterator in names:
            node = self.builder.iterators.get(iterator) or next(
                token for token in self.written if str(token) == iterator
            )
            if iterator not in extents:
                raise fail(
                    f"the range of iterator {iterator!r} is not known; state it, e.g. for "
                    f"{iterator} in 0:3",
                    node,
                )
            if extents[iterator] < 1:
                raise fail(
                    f"iterator {iterator!r} has no value that keeps its indices inside; its "
                    f"range would be {extents[iterator]}",
                    node,
                )
        return extents

    def _check_whole(self, fixed: Mapping[str, int], stated: Mapping[str, int]) -> None:
        """Refuse an iterator that reads only a part of a dimension without a stated range.

        The range of such an iterator follows from the tensor that the stage writes.
        """
        for built in self.builder.reads:
            read, node = built.read, built.node
            for index, extent in zip(read.indices, self.tensors[read.tensor].shape, strict=True):
                if (
                    isinstance(index, Var)
                    and index.name in fixed
                    and index.name not in stated
                    and read.pad is None
                    and fixed[index.name] != extent
                ):
                    raise fail(
                        f"iterator {index.name!r} runs to {fixed[index.name]} as declared for "
                        f"{self.name!s} "
                        f"but {read.tensor} has extent {extent} there; make them equal, or state "
                        f"the range: for {index.name} in 0:{fixed[index.name]}",
                        node,
                    )

    def _check_reads(self, extents: Mapping[str, int], shifted: Mapping[str, Scalar]) -> None:
        for built in self.builder.reads:
            read = cast(Read, substitute(built.read, shifted))
            conditions = [substitute(condition, shifted) for condition in built.conditions]
            if error := read_error(read, extents, self.tensors, conditions):
                raise fail(error, built.node)

    def _check_reduction(self, reducer: Reducer | None, reduced: list[str]) -> None:
        if reducer is None and reduced:
            where = self.builder.iterators[reduced[0]]
            raise fail(
                f"iterator {reduced[0]!r} is not on the left; reduce over it with +=, *=, "
                f"max= or min=",
                where,
            )
        if reducer is not None and not reduced:
            raise fail(
                f"'{self.assign!s}' reduces over nothing; write '='", cast(Token, self.assign)
            )
        if len(reduced) > BUDGETS.dimensions:
            raise fail(
                f"reduces over {len(reduced)} iterators, the limit is {BUDGETS.dimensions}",
                self.node,
            )

    def _typed(self, term_type: str, declared: DType | None) -> tuple[DType, DType, DType]:
        """The dtypes of the stored tensor, of the body and of the accumulator."""
        if term_type in (LITERAL_INT, LITERAL_REAL):
            body: DType = declared or ("int32" if term_type == LITERAL_INT else "float32")
        else:
            body = cast(DType, term_type)
        stored = declared or body
        if not any(body in kind and stored in kind for kind in (FLOATS, INTEGERS, ("bool",))):
            raise fail(
                f"a value of type {body} is assigned to {self.name!s} of {stored}; convert it, "
                f"e.g. {stored}(…)",
                self.right,
            )
        if body == "bool" and str(self.assign) in _REDUCERS:
            raise fail("a condition cannot be reduced; write where(condition, 1, 0)", self.right)
        wide = cast(DType, common_type(body, stored, self.right))
        return stored, body, COMPUTED_IN.get(wide, wide)


def _along(read: Read, iterator: str, tensors: Mapping[str, Tensor]) -> int:
    return next(
        extent
        for index, extent in zip(read.indices, tensors[read.tensor].shape, strict=True)
        if index == Var(iterator)
    )
