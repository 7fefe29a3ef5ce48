"""The space of a workload on a target: for every group its sketches, and their combinations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Generic, TypeVar

from tuner.errors import WorkloadError
from tuner.spaces.core.context import SpaceContext
from tuner.spaces.core.sketch import Sketch
from tuner.spaces.core.space import Combination, Config, Space
from tuner.spaces.program.program import Program
from tuner.spaces.rewrite.algorithm import Algorithm, algorithms, indices_by_expression
from tuner.spaces.rewrite.groups import Group
from tuner.spaces.rewrite.parallel_units import ParallelUnits
from tuner.spaces.rewrite.stages import plainly_named
from tuner.spaces.rewrite.winograd_tile import WinogradTile
from tuner.target.target import Target
from tuner.workload.budgets import BUDGETS
from tuner.workload.expression import Expression
from tuner.workload.workload import Numerics, Workload

MAX_COMBINATIONS = 64  # of an algorithm's sketches; beyond it the first ones are kept

F_co = TypeVar("F_co", covariant=True)  # the facts of a target's sketches
SketchGenerator = Callable[[Group, SpaceContext], Sequence[Sketch[F_co]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeProgram(Generic[F_co]):
    """Sketches for all stages of an algorithm at once, each stage a group of its own."""

    name: str  # of the combination
    algorithm: Algorithm
    sketches: tuple[Sketch[F_co], ...]  # one for each group of the algorithm


WholeProgramGenerator = Callable[[Algorithm, SpaceContext], WholeProgram[F_co] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SketchCatalogue(Generic[F_co]):
    """All that one kind of target adds to a space: its sketches, and how its programs are made."""

    simplify: Callable[[Expression], Expression]  # what every algorithm's expression goes through
    # (target, threads) -> the units that share the loops
    parallel_units: Callable[[Target, int], ParallelUnits]
    joins_tiles: bool  # whether the tiles of Winograd's algorithm are numbered along one axis
    winograd_tiles: tuple[WinogradTile, ...]  # that its sketches compute
    prepacks: bool  # whether declared constants are packed ahead of the first call
    widens: bool  # whether the compiler keeps narrow floats as float32 unless told otherwise
    # Each group is offered to every one, in this order.
    generators: tuple[SketchGenerator[F_co], ...]
    streams: bool = False  # whether its sketches compute rows part by part
    fuses: bool = False  # whether its sketches compute groups in the tiles of their readers
    whole_programs: tuple[WholeProgramGenerator[F_co], ...] = ()


class TargetSpace(Generic[F_co]):
    """The sketches of one workload for (target, threads), and the program of each config.

    Algorithms that need more memory than the budget of a workload are left out. Raises
    WorkloadError where that is all of them.

    `sketches` has the sketches of each combination, one for each group of its algorithm;
    `algorithms` the algorithm of each; both by the combination's name.
    """

    def __init__(
        self, workload: Workload, target: Target, threads: int, catalogue: SketchCatalogue[F_co]
    ) -> None:
        plain = plainly_named(workload.expression)
        self.workload, self.target, self.threads = workload, target, threads
        self._catalogue = catalogue
        self.constants = _constants(workload, plain) if catalogue.prepacks else ()
        offered = algorithms(
            plain,
            workload.numerics,
            catalogue.simplify,
            joins_tiles=catalogue.joins_tiles,
            streams=catalogue.streams,
            fuses=catalogue.fuses,
            tiles=catalogue.winograd_tiles,
            isa=target.isa,
            units=catalogue.parallel_units(target, threads),
        )
        self.algorithm = offered[0]  # the workload as it stands
        self.sketches: dict[str, tuple[Sketch[F_co], ...]] = {}
        self.algorithms: dict[str, Algorithm] = {}
        for algorithm in offered:
            if algorithm.nbytes <= BUDGETS.nbytes:
                self._combine(algorithm)
        self._add_whole_programs(threads)
        if not self.sketches:
            raise WorkloadError(_too_large(min(algorithm.nbytes for algorithm in offered)))
        self.space = Space(
            tuple(
                Combination(name=name, knobs=tuple(knob for part in parts for knob in part.knobs))
                for name, parts in self.sketches.items()
            )
        )

    @property
    def by_algorithm(self) -> list[list[int]]:
        """The indices of each algorithm's combinations, the workload's own algorithm first."""
        return indices_by_expression(self.algorithms.values())

    def units_of(self, combination: str) -> int:
        """Threads or multiprocessors that share the loops of a combination's kernels."""
        return self.algorithms[combination].units

    def program(self, config: Config) -> Program:
        """The program of a config, which may leave out knobs its sketches do not use.

        Raises UsageError where it is not of this space, IllegalSchedule where the target
        has no room for it.
        """
        full = self.space.config(self.space.point(config))
        combination = str(full["sketch"])
        algorithm = self.algorithms[combination]
        nests = [sketch.nest(full) for sketch in self.sketches[combination]]
        exact = algorithm.rewritten and self._catalogue.widens
        return algorithm.program(nests, self.constants, exact=exact)

    def _combine(self, algorithm: Algorithm) -> None:
        """Adds every combination of the sketches of an algorithm's groups."""
        context = _context(algorithm, self.target, algorithm.units, self.workload.numerics)
        variants = [
            [
                sketch
                for generate in self._catalogue.generators
                for sketch in generate(group, context)
            ]
            for group in algorithm.groups
        ]
        for chosen in islice(product(*variants), MAX_COMBINATIONS):
            name = "+".join(f"{sketch.group.name}:{sketch.name}" for sketch in chosen)
            self.sketches[name], self.algorithms[name] = chosen, algorithm

    def _add_whole_programs(self, threads: int) -> None:
        context = _context(self.algorithm, self.target, threads, self.workload.numerics)
        for generate in self._catalogue.whole_programs:
            if (whole := generate(self.algorithm, context)) is not None:
                self.sketches[whole.name] = whole.sketches
                self.algorithms[whole.name] = whole.algorithm


def _too_large(nbytes: int) -> str:
    return (
        f"its inputs, outputs and intermediates take {nbytes / 2**30:.1f} GiB in every algorithm "
        f"on this target, the limit is {BUDGETS.nbytes / 2**30:.0f} GiB; use smaller extents"
    )


def _context(algorithm: Algorithm, target: Target, units: int, numerics: Numerics) -> SpaceContext:
    return SpaceContext(
        target=target,
        units=units,
        shapes=algorithm.shapes,
        dtypes=algorithm.dtypes,
        exact=algorithm.exact,
        rewritten=algorithm.rewritten,
        numerics=numerics,
        in_patches=algorithm.in_patches,
    )


def _constants(workload: Workload, plain: Expression) -> tuple[str, ...]:
    """The declared constants, by their names in the plainly named expression."""
    inputs = zip(workload.expression.inputs, plain.inputs, strict=True)
    return tuple(named.name for tensor, named in inputs if tensor.name in workload.constants)
