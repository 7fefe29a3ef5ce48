"""The space of a workload on a CPU: for every group of stages its sketches, for the
whole every combination of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice, product

from tuner.errors import UsageError
from tuner.spaces.core.space import Config, Sketch, Space
from tuner.spaces.cpu.amx import amx_sketch
from tuner.spaces.cpu.dots import dot_sketch
from tuner.spaces.cpu.fully_unrolled import STRAIGHT, straight
from tuner.spaces.cpu.row_knobs import RowSketch, lane_sketches, row_sketch
from tuner.spaces.cpu.tile_knobs import TileSketch, tile_sketches
from tuner.spaces.program.program import Program
from tuner.spaces.rewrite.algorithm import Algorithm, algorithms, places, simplified
from tuner.spaces.rewrite.bf16x3 import part_axis
from tuner.spaces.rewrite.collapse import collapsed
from tuner.spaces.rewrite.dot_products import factors
from tuner.spaces.rewrite.groups import Group, RowGroup
from tuner.spaces.rewrite.parallel_units import among_threads
from tuner.spaces.rewrite.polyphase import phased
from tuner.spaces.rewrite.stages import materialized, plainly_named
from tuner.target.target import Target
from tuner.workload.expression import Expression
from tuner.workload.workload import Workload

MAX_SKETCHES = 64  # combinations of the groups' sketches; beyond it the first ones are kept


class CpuSpace:
    """The sketches of one workload for (target, threads): the space they span and the
    program of each config."""

    def __init__(self, workload: Workload, target: Target, threads: int) -> None:
        if target.kind != "cpu":
            raise UsageError(f"target {target.name} is no CPU; its sketches live elsewhere")
        plain = plainly_named(workload.expression)
        given = zip(workload.expression.inputs, plain.inputs, strict=True)
        self.constants = tuple(
            named.name for tensor, named in given if tensor.name in workload.constants
        )
        self.target, self.threads = target, threads
        found = algorithms(
            plain,
            workload.numerics,
            _prepared,
            joined=False,
            isa=target.isa,
            sharing=among_threads(threads),
        )
        self.algorithm = found[0]
        self.expression, self.groups = self.algorithm.expression, self.algorithm.groups
        self._algorithms: dict[str, Algorithm] = {}
        self.combinations: dict[str, tuple[TileSketch | RowSketch, ...]] = {}
        for algorithm in found:
            variants = [self._variants(group, algorithm) for group in algorithm.groups]
            for chosen in islice(product(*variants), MAX_SKETCHES):
                name = "+".join(f"{one.group.name}:{one.name}" for one in chosen)
                self.combinations[name], self._algorithms[name] = chosen, algorithm
        if (whole := straight(self.algorithm, target, threads)) is not None:
            self._algorithms[STRAIGHT], self.combinations[STRAIGHT] = whole[0], tuple(whole[1])
        self.space = Space(
            tuple(
                Sketch(name=name, knobs=tuple(knob for one in chosen for knob in one.knobs))
                for name, chosen in self.combinations.items()
            )
        )

    @property
    def by_algorithm(self) -> list[list[int]]:
        """The places of each algorithm's sketches among the space's."""
        return places(self._algorithms.values())

    def threads_of(self, combination: str) -> int:
        """Threads that share the loops of a combination's kernels."""
        return self._algorithms[combination].units

    def _variants(self, group: Group, algorithm: Algorithm) -> Sequence[TileSketch | RowSketch]:
        facts = (self.target, algorithm.units, algorithm.shapes, algorithm.dtypes)
        if isinstance(group, RowGroup):
            return [row_sketch(group, *facts)]
        tiles: list[TileSketch | RowSketch] = [*tile_sketches(group, *facts)]
        vectors = [one.vector for one in tiles if isinstance(one, TileSketch) and one.vector]
        parts = part_axis(group.anchor) if algorithm.rewritten else None
        matrices = [amx_sketch(group, vector, *facts, algorithm.exact, parts) for vector in vectors]
        if algorithm.rewritten:
            # Of so many stages neither every combination of sketches is offered nor a
            # copy of each read of a map.
            if (
                factors(group.anchor) is not None
            ):  # of bfloat16, which other units sum no faster than float32
                return [one for one in matrices[:1] if one is not None]
            return [
                replace(one, copying=group.anchor.reducer is not None)
                for one in tiles[:1]
                if isinstance(one, TileSketch)
            ]
        special = [
            *(dot_sketch(group, vector, *facts, algorithm.exact) for vector in vectors),
            *matrices,
        ]
        return [*tiles, *(one for one in special if one is not None), *lane_sketches(group, *facts)]

    def program(self, config: Config) -> Program:
        """The program of a config; the config must name every knob of its sketch."""
        full = self.space.config(self.space.point(config))
        name = str(full["sketch"])
        chosen, algorithm = self.combinations[name], self._algorithms[name]
        return algorithm.program(
            [sketch.nest(full) for sketch in chosen], self.constants, exact=algorithm.rewritten
        )


def _prepared(expression: Expression) -> Expression:
    return collapsed(materialized(phased(simplified(expression))))


def space_for(workload: Workload, target: Target, threads: int) -> Space:
    """The space of a workload on a CPU. Raises UsageError for a target of another kind."""
    return CpuSpace(workload, target, threads).space


def program_for(workload: Workload, target: Target, threads: int, config: Config) -> Program:
    """The program of one config. Raises UsageError for a config that is not of this space."""
    return CpuSpace(workload, target, threads).program(config)
