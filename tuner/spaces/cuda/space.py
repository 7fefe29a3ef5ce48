"""The space of a workload on a GPU: for every group of stages its sketches, for the
whole every combination of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, product

from tuner.errors import UsageError
from tuner.spaces.core.space import Config, Sketch, Space
from tuner.spaces.cuda.mma_knobs import CudaMmaSketch, shape_of
from tuner.spaces.cuda.row_knobs import CudaRowSketch
from tuner.spaces.cuda.square_knobs import CudaSquareSketch, sides_of
from tuner.spaces.cuda.tile_knobs import CudaTileSketch
from tuner.spaces.cuda.warpgroup_knobs import CudaWarpgroupSketch, warpgroup_shape
from tuner.spaces.program.program import Program
from tuner.spaces.rewrite.algorithm import Algorithm, algorithms, places, simplified
from tuner.spaces.rewrite.dot_products import factors
from tuner.spaces.rewrite.groups import Group, RowGroup, TileGroup
from tuner.spaces.rewrite.parallel_units import among_multiprocessors
from tuner.spaces.rewrite.stages import plainly_named
from tuner.target.target import Target
from tuner.workload.workload import Workload

WARPGROUPS = (
    "sm_90"  # the architecture that has instructions of whole warpgroups, which no later one kept
)
MAX_SKETCHES = 64  # combinations of the groups' sketches; beyond it the first ones are kept

AnySketch = CudaTileSketch | CudaRowSketch | CudaMmaSketch | CudaWarpgroupSketch | CudaSquareSketch


class CudaSpace:
    """The sketches of one workload for a GPU: the space they span and the program of
    each config. Each group is one kernel."""

    def __init__(self, workload: Workload, target: Target) -> None:
        if target.kind != "cuda":
            raise UsageError(f"target {target.name} is no GPU; its sketches live elsewhere")
        plain = plainly_named(workload.expression)
        sharing = among_multiprocessors(target.cores)
        found = algorithms(
            plain, workload.numerics, simplified, joined=True, isa=target.isa, sharing=sharing
        )
        self.algorithm = found[0]
        self.expression, self.groups = self.algorithm.expression, self.algorithm.groups
        self.shapes, self.dtypes = self.algorithm.shapes, self.algorithm.dtypes
        self.target = target
        self.architecture = int(str(target.tvm["arch"]).removeprefix("sm_"))
        self.algorithms: dict[str, Algorithm] = {}  # of each combination
        self.combinations: dict[str, tuple[AnySketch, ...]] = {}
        for algorithm in found:
            variants = [self._variants(group, algorithm) for group in algorithm.groups]
            for chosen in islice(product(*variants), MAX_SKETCHES):
                name = "+".join(f"{one.group.name}:{one.name}" for one in chosen)
                self.combinations[name], self.algorithms[name] = chosen, algorithm
        self.space = Space(
            tuple(
                Sketch(name=name, knobs=tuple(knob for one in chosen for knob in one.knobs))
                for name, chosen in self.combinations.items()
            )
        )

    @property
    def by_algorithm(self) -> list[list[int]]:
        """The places of each algorithm's sketches among the space's, the expression's own first."""
        return places(self.algorithms.values())

    def _variants(self, group: Group, algorithm: Algorithm) -> Sequence[AnySketch]:
        facts = (algorithm.shapes, algorithm.dtypes)
        if isinstance(group, RowGroup):
            return [CudaRowSketch(group, *facts)]
        cores: list[AnySketch] = [
            *self._tensor_cores(group, algorithm),
            *self._warpgroups(group, algorithm),
        ]
        if algorithm.rewritten:
            # Of so many stages not every combination of sketches is offered, nor
            # threads along the places of a square.
            if (
                factors(group.anchor) is not None
            ):  # of bfloat16, which only tensor cores sum faster than float32
                return cores
            return _squares(group, algorithm) or [
                CudaTileSketch(group, *facts, self.architecture, batches=False)
            ]
        return [CudaTileSketch(group, *facts, self.architecture), *cores]

    def _tensor_cores(self, group: TileGroup, algorithm: Algorithm) -> list[CudaMmaSketch]:
        facts = (algorithm.shapes, algorithm.dtypes)
        shape = shape_of(group, *facts)
        if shape is None:
            return []
        sketch = CudaMmaSketch(group, *facts, shape, self.architecture, self._shared_bytes)
        return [sketch] if sketch.tile_values() else []

    def _warpgroups(self, group: TileGroup, algorithm: Algorithm) -> list[CudaWarpgroupSketch]:
        facts = (algorithm.shapes, algorithm.dtypes)
        if self.target.tvm["arch"] != WARPGROUPS:
            return []
        shape = warpgroup_shape(group, *facts)
        if shape is None:
            return []
        sketch = CudaWarpgroupSketch(group, *facts, shape, self._shared_bytes)
        return [sketch] if sketch.tile_values() else []

    @property
    def _shared_bytes(self) -> int:
        """Of a block, as much as can be asked for at a launch."""
        return int(self.target.fingerprint["max_dynamic_shared_memory_per_block"])

    def program(self, config: Config) -> Program:
        """The program of a config. Raises UsageError where it is not of this space,
        IllegalSchedule where no block fits it."""
        full = self.space.config(self.space.point(config))
        name = str(full["sketch"])
        return self.algorithms[name].program(
            [sketch.nest(full) for sketch in self.combinations[name]]
        )


def _squares(group: TileGroup, algorithm: Algorithm) -> list[CudaSquareSketch]:
    sides = sides_of(group.anchor)
    sketch = CudaSquareSketch(group, algorithm.shapes, algorithm.dtypes, sides)
    return [sketch] if sides and sketch.tile_values() else []
