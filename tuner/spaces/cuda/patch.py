"""The patch sketch for GPUs: a map whose value depends on an element's place in a small
patch, one thread for each patch, as the transforms of Winograd's algorithm are.

Where a body picks between sums by the index of a short axis, or by an index modulo a
patch's length, its choices share what they read. A thread therefore reads all of that
once, into registers, computes every element of the patch from there, and stores them:
the loops over a patch are unrolled, and what is picked is known at compile time.
"""

from __future__ import annotations

from tuner.spaces.cuda.axes import PatchAxis
from tuner.spaces.cuda.shared_copies import BoxCopy
from tuner.spaces.cuda.tile import CudaTileNest
from tuner.spaces.cuda.vector_loads import VectorLoad
from tuner.spaces.program.loops import LoopId
from tuner.spaces.program.program import ComputeAt
from tuner.spaces.rewrite.access import with_explicit_padding
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


class CudaPatchNest(CudaTileNest):
    """Builds the blocks and steps of one map whose plan has patch axes."""

    def _body(self, copies: list[BoxCopy]) -> Scalar:
        """The body in the nest's iterators; what depends on the patch alone is told from
        what depends on the place in it."""
        anchor = self.group.anchor
        parts = {part.axis.name: part for part in self._patch_axes}

        def divided(node: Scalar) -> Scalar | None:
            match node:
                case Binary(
                    op="floordiv" | "floormod" as op, lhs=Var(name=name), rhs=Const(value=length)
                ) if name in parts and length == parts[name].lanes:
                    return parts[name].patch if op == "floordiv" else parts[name].offset
                case _:
                    return None

        extents = {axis.name: axis.extent for axis in anchor.axes}
        plain = with_explicit_padding(anchor.body, self.shapes, extents)
        return substitute(rewrite(plain, divided), self.indices)

    @property
    def _patch_axes(self) -> list[PatchAxis]:
        return [part for part in self.plan.spatial if isinstance(part, PatchAxis)]

    def _map(self, body: Scalar, copies: list[BoxCopy]) -> None:
        loads = self._patch_loads(body)
        for node, load in loads.items():
            (read,) = reads(node)
            self._registers(load.name, list(load.axes), self.dtypes[read.tensor], node)
        value, dtype = f"{self.name}_value", self.group.output.dtype
        computed = rewrite(body, lambda node: _loaded(node, loads))
        self._registers(value, self.spatial, dtype, computed)
        finished = Read(value, tuple(Var(axis.name) for axis in self.spatial))
        self._block(self.name, self.spatial, (), self._output_indices(), finished)
        self._loops(self.name, self.spatial)
        self._bind(self.name)
        lane = self.register[-1]
        self.steps.append(ComputeAt(block=value, loop=LoopId.of(self.name, self.register[-2])))
        self._innermost(value, store=False, axes=[lane])
        for load in loads.values():
            self.steps.append(
                ComputeAt(block=load.name, loop=LoopId.of(self.name, self.threads[-1]))
            )
            vector = [axis for axis in load.axes if axis == lane]
            self._innermost(load.name, store=True, axes=vector)
        self._innermost(self.name, store=self._stores_vectors)
        self._launch(self.name)

    @property
    def _stores_vectors(self) -> bool:
        """Whether adjacent iterations of the innermost loop always store adjacent elements."""
        fastest = self.plan.axis(self.plan.threads[-1])
        return not isinstance(fastest, PatchAxis) or fastest.axis.extent % fastest.lanes == 0

    def _patch_loads(self, body: Scalar) -> dict[Scalar, VectorLoad]:
        """What is read without regard to a place in a patch, a padded read with its
        condition, each as a block of its own."""
        places = {part.lane.name for part in self._patch_axes}
        loads: dict[Scalar, VectorLoad] = {}

        def collect(node: Scalar) -> None:
            names = {inside.name for inside in walk(node) if isinstance(inside, Var)}
            if (
                isinstance(node, Read | Select)
                and names
                and not names & places
                and len(list(reads(node))) == 1
            ):
                (source,) = reads(node)
                axes = tuple(axis for axis in self.spatial if axis.name in names)
                loads.setdefault(node, VectorLoad(f"{self.name}_in{len(loads)}", axes, source))
                return
            for child in children(node):
                collect(child)

        collect(body)
        return loads


def _loaded(node: Scalar, loads: dict[Scalar, VectorLoad]) -> Scalar | None:
    return loads[node].value if isinstance(node, Read | Select) and node in loads else None
