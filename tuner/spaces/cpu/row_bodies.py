"""What the blocks of a row nest compute: bodies of stages, in the loops of the nest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.spaces.cpu.row_blocks import RowBlocks
from tuner.spaces.cpu.row_plan import RowLoops
from tuner.spaces.rewrite.access import with_explicit_padding
from tuner.spaces.rewrite.groups import COLUMN, RowGroup, replace_reads
from tuner.spaces.rewrite.liveness import tile_condition
from tuner.spaces.rewrite.predicates import iterators
from tuner.workload.expression import (
    Binary,
    Cast,
    Const,
    Read,
    Scalar,
    Select,
    Stage,
    Unary,
    Var,
    reads,
    rewrite,
    substitute,
    walk,
)


class RowBodies:
    """Bodies that read other stages of the group from where they are kept.

    Divisions by one number a row become products with its reciprocal, which gets a block
    of its own.
    """

    def __init__(
        self,
        group: RowGroup,
        stages: Sequence[Stage],
        loops: RowLoops,
        blocks: RowBlocks,
        shapes: Mapping[str, tuple[int, ...]],
    ) -> None:
        self._group, self._loops, self._blocks, self._shapes = group, loops, blocks, shapes
        self._float32 = {stage.name for stage in stages if stage.dtype == "float32"}
        self._finished: dict[str, Scalar] = {}  # value of each stage that has one a row
        self._along_column: set[str] = set()  # stages kept along the column
        # By divisor: the names of its scale and of its reciprocal.
        self._reciprocals: dict[Scalar, tuple[str, str]] = {}

    def finish(self, stage: str, value: Scalar) -> None:
        """From now on the stage's one value a row is this."""
        self._finished[stage] = value

    def keep(self, stage: str) -> None:
        """From now on the stage is read from its buffer along the column."""
        self._along_column.add(stage)

    def of_row(self, stage: Stage) -> Scalar:
        """The body of a stage that has one value a row."""
        body = with_explicit_padding(stage.body, self._shapes, stage.extents)
        return replace_reads(substitute(body, self._loops.indices), self._finished)

    def along_column(self, stage: Stage, index: Scalar, tile: Scalar) -> Scalar:
        """The body at an index of the column, which lies in the tile of that number."""
        loops = self._loops
        body = with_explicit_padding(stage.body, self._shapes, stage.extents)
        body = rewrite(body, self._by_reciprocal)
        lanes = (Var(loops.vectors.name), Var(loops.lanes.name))
        kept = {name: Read(name, (*loops.row, tile, *lanes)) for name in self._along_column}
        # Substitute first: what replaces a read already speaks of the new iterators.
        substituted = substitute(body, loops.indices | {COLUMN: index})
        return replace_reads(substituted, {**self._finished, **kept})

    def live(self, stage: Stage, index: Scalar) -> tuple[Scalar, ...]:
        """Conditions under which anything in a tile of the column, at this index, matters."""
        loops = self._loops
        indices = loops.indices | {COLUMN: index}
        tile = [*loops.register, loops.vectors, loops.lanes]
        conditions = (
            condition
            for condition in self._group.live_conditions.get(stage.name, ())
            if iterators(condition) <= set(indices)
        )
        return tuple(tile_condition(condition, indices, tile) for condition in conditions)

    def _by_reciprocal(self, node: Scalar) -> Scalar | None:
        """A division by one number a row as a product with its reciprocal, within 1.5
        ulp: a vector's takes as long as thirty products on Intel's cores."""
        if not (
            isinstance(node, Binary) and node.op == "div" and self._is_float32_of_row(node.rhs)
        ):
            return None
        if node.rhs not in self._reciprocals:
            self._reciprocals[node.rhs] = self._reciprocal(node.rhs)
        scale, reciprocal = self._reciprocals[node.rhs]
        dividend = rewrite(node.lhs, self._by_reciprocal)
        return Binary("mul", Binary("mul", dividend, Read(scale, ())), Read(reciprocal, ()))

    def _reciprocal(self, divisor: Scalar) -> tuple[str, str]:
        """Names of a scale of both sides, and of the scaled divisor's reciprocal, a
        normal number whatever the divisor is."""
        name = f"{self._group.name}_divisor{len(self._reciprocals)}"
        divisor = replace_reads(substitute(divisor, self._loops.indices), self._finished)
        unit, small, large = (Const(2.0**exponent, "float32") for exponent in (0, -64, 64))
        size = Unary("abs", divisor)
        scale = Select(
            Binary("lt", size, small), large, Select(Binary("gt", size, large), small, unit)
        )
        scaled = f"{name}_scale"
        self._of_row(scaled, scale)
        self._of_row(name, Binary("div", unit, Binary("mul", divisor, self._finished[scaled])))
        return scaled, name

    def _of_row(self, name: str, body: Scalar) -> None:
        self._blocks.local(name, [], body, "float32")
        self.finish(name, Read(name, self._loops.row))

    def _is_float32_of_row(self, node: Scalar) -> bool:
        """Whether a value is made of float32 numbers that each row has one of, and of
        nothing that varies in a row."""
        of_row = self._float32 & self._finished.keys()
        tensors = {read.tensor for read in reads(node)}
        varying = any(
            isinstance(inner, Var) and inner.name not in self._loops.indices for inner in walk(node)
        )
        return (
            bool(tensors)
            and tensors <= of_row
            and not varying
            and not any(isinstance(inner, Cast) for inner in walk(node))
        )
