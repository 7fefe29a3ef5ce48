"""The square sketch for GPUs: a map whose value depends on an element's place in a
square, a thread a square.

Where a body picks between sums by the index of a short axis, or by an index modulo a
square's side, its choices share what they read. A thread therefore reads all of that
once, into registers, computes every element of the square from there, and stores them:
the loops over a square are unrolled, and what is picked is known at compile time.
"""

from __future__ import annotations

from tuner.spaces.cuda.axes import SquareAxis
from tuner.spaces.cuda.shared_copies import Fetch
from tuner.spaces.cuda.tile import CudaTileNest
from tuner.spaces.cuda.vector_loads import VectorLoad
from tuner.spaces.program.loops import LoopId
from tuner.spaces.program.program import ComputeAt
from tuner.spaces.rewrite.access import unpadded
from tuner.workload.expression import (
    Binary,
    Const,
    Read,
    Scalar,
    Select,
    Var,
    children,
    reads,
    rewrite,
    substitute,
    walk,
)


class CudaSquareNest(CudaTileNest):
    """Builds the blocks and steps of one map whose plan has square axes."""

    def _body(self, fetches: list[Fetch]) -> Scalar:
        """The body in the nest's iterators, what depends on squares alone told from
        what depends on places in them."""
        anchor = self.group.anchor
        parts = {one.axis.name: one for one in self.plan.spatial if isinstance(one, SquareAxis)}

        def divided(node: Scalar) -> Scalar | None:
            match node:
                case Binary(
                    op="floordiv" | "floormod" as op, lhs=Var(name=name), rhs=Const(value=side)
                ) if name in parts:
                    part = parts[name]
                    return (
                        (part.number if op == "floordiv" else part.place)
                        if side == part.lanes
                        else None
                    )
                case _:
                    return None

        extents = {axis.name: axis.extent for axis in anchor.axes}
        return substitute(
            rewrite(unpadded(anchor.body, self.shapes, extents), divided), self.indices
        )

    def _map(self, body: Scalar, fetches: list[Fetch]) -> None:
        held = self._held(body)
        for node, one in held.items():
            (read,) = reads(node)
            self._registers(one.name, list(one.axes), self.dtypes[read.tensor], node)
        value = f"{self.name}_value"
        self._registers(
            value,
            self.spatial,
            self.group.output.dtype,
            rewrite(body, lambda node: _loaded(node, held)),
        )
        finished = Read(value, tuple(Var(axis.name) for axis in self.spatial))
        self._block(self.name, self.spatial, (), self._output_indices(), finished)
        self._loops(self.name, self.spatial)
        self._bind(self.name)
        self.steps.append(ComputeAt(block=value, loop=LoopId.of(self.name, self.register[-2])))
        self._innermost(value, store=False, axes=[self.register[-1]])
        for one in held.values():
            self.steps.append(
                ComputeAt(block=one.name, loop=LoopId.of(self.name, self.threads[-1]))
            )
            self._innermost(
                one.name, store=True, axes=[axis for axis in one.axes if axis == self.register[-1]]
            )
        self._innermost(self.name, store=self._in_vectors)
        self._launch(self.name)

    @property
    def _in_vectors(self) -> bool:
        """Whether neighbours in the innermost loop are always neighbours in the output."""
        fastest = self.plan.axis(self.plan.threads[-1])
        return not isinstance(fastest, SquareAxis) or fastest.axis.extent % fastest.lanes == 0

    def _held(self, body: Scalar) -> dict[Scalar, VectorLoad]:
        """What is read without regard to a place in a square, a padded read with its
        condition, each as a block of its own."""
        places = {one.lane.name for one in self.plan.spatial if isinstance(one, SquareAxis)}
        found: dict[Scalar, VectorLoad] = {}

        def look(node: Scalar) -> None:
            names = {inside.name for inside in walk(node) if isinstance(inside, Var)}
            if (
                isinstance(node, Read | Select)
                and names
                and not names & places
                and len(list(reads(node))) == 1
            ):
                (source,) = reads(node)
                own = tuple(axis for axis in self.spatial if axis.name in names)
                found.setdefault(node, VectorLoad(f"{self.name}_in{len(found)}", own, source))
                return
            for child in children(node):
                look(child)

        look(body)
        return found


def _loaded(node: Scalar, held: dict[Scalar, VectorLoad]) -> Scalar | None:
    return held[node].value if isinstance(node, Read | Select) and node in held else None
