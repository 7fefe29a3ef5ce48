"""Blocks, buffers and steps of a nest while it is being built."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.spaces.program.nest import Nest, parallel_prefix
from tuner.spaces.program.program import Block, Buffer, MathFunctions, Prefetch, Step
from tuner.workload.expression import Axis, Reducer, Scalar


class NestParts:
    """What there is of a nest so far, in order.

    Every block computes functions by `math_functions`, and `threads` share the loops.
    """

    def __init__(self, *, math_functions: MathFunctions, threads: int) -> None:
        self.blocks: list[Block] = []
        self.buffers: list[Buffer] = []
        self.steps: list[Step] = []
        self._math_functions: MathFunctions = math_functions
        self._threads = threads

    def compute(
        self,
        name: str,
        axes: Sequence[Axis],
        indices: Sequence[Scalar],
        body: Scalar,
        *,
        reduce_axes: Sequence[Axis] = (),
        reducer: Reducer | None = None,
        when: tuple[Scalar, ...] = (),
        otherwise: Scalar | None = None,
        prefetches: tuple[Prefetch, ...] = (),
        non_temporal: bool = False,
    ) -> Block:
        """Adds the block that computes `body` into the buffer of its own name."""
        block = Block(
            name=name,
            axes=tuple(axes),
            reduce_axes=tuple(reduce_axes),
            buffer=name,
            indices=tuple(indices),
            body=body,
            reducer=reducer if reduce_axes else None,
            when=when,
            otherwise=otherwise,
            prefetches=prefetches,
            non_temporal=non_temporal,
            math_functions=self._math_functions,
        )
        self.blocks.append(block)
        return block

    def share_loops(self, block: str, axes: Sequence[Axis], keep: Sequence[Axis] = ()) -> None:
        """Lets threads share the block's outermost loops, never across one in `keep`."""
        self.steps += parallel_prefix(block, list(axes), self._threads, list(keep))

    def nest(self) -> Nest:
        """All of it."""
        return Nest(tuple(self.blocks), tuple(self.buffers), tuple(self.steps))
