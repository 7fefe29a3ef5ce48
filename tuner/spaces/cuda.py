"""The space of a workload on a GPU: for every group of stages its sketches, for the whole every combination of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice, product

from tuner.errors import UsageError
from tuner.spaces.cuda_mma_knobs import CudaMmaSketch, shape_of
from tuner.spaces.cuda_row_knobs import CudaRowSketch
from tuner.spaces.cuda_tile_knobs import CudaTileSketch
from tuner.spaces.cuda_warpgroup_knobs import CudaWarpgroupSketch, warpgroup_shape
from tuner.spaces.groups import Group, RowGroup, TileGroup, groups, shapes_of
from tuner.spaces.program import Buffer, Program
from tuner.spaces.space import Config, Sketch, Space
from tuner.spaces.stages import hoisted, inlined, plainly_named
from tuner.target.target import Target
from tuner.workload.expression import DType
from tuner.workload.workload import Workload

WARPGROUPS = "sm_90"  # the architecture that has instructions of whole warpgroups, which no later one kept
MAX_SKETCHES = 64  # combinations of the groups' sketches; beyond it the first ones are kept


AnySketch = CudaTileSketch | CudaRowSketch | CudaMmaSketch | CudaWarpgroupSketch


class CudaSpace:
    """The sketches of one workload for a GPU: the space they span and the program of each config. Each group is one kernel."""

    def __init__(self, workload: Workload, target: Target) -> None:
        if target.kind != "cuda":
            raise UsageError(f"target {target.name} is no GPU; its sketches live elsewhere")
        self.expression = inlined(hoisted(plainly_named(workload.expression)))
        self.shapes = shapes_of(self.expression)
        self.dtypes: Mapping[str, DType] = {
            tensor.name: tensor.dtype for tensor in (*self.expression.inputs, *(stage.tensor for stage in self.expression.stages))
        }
        self.target = target
        self.architecture = int(str(target.tvm["arch"]).removeprefix("sm_"))
        self.groups = groups(self.expression)
        variants = [self._variants(group) for group in self.groups]
        self.combinations = {
            "+".join(f"{one.group.name}:{one.name}" for one in chosen): chosen
            for chosen in islice(product(*variants), MAX_SKETCHES)
        }
        self.space = Space(
            tuple(
                Sketch(name=name, knobs=tuple(knob for one in chosen for knob in one.knobs))
                for name, chosen in self.combinations.items()
            )
        )

    def _variants(self, group: Group) -> Sequence[AnySketch]:
        if isinstance(group, RowGroup):
            return [CudaRowSketch(group, self.shapes, self.dtypes)]
        tile = CudaTileSketch(group, self.shapes, self.dtypes, self.architecture)
        return [tile, *self._tensor_cores(group), *self._warpgroups(group)]

    def _tensor_cores(self, group: TileGroup) -> list[CudaMmaSketch]:
        shape = shape_of(group, self.shapes, self.dtypes)
        if shape is None:
            return []
        sketch = CudaMmaSketch(group, self.shapes, self.dtypes, shape, self.architecture, self._shared_bytes)
        return [sketch] if sketch.tile_values() else []

    def _warpgroups(self, group: TileGroup) -> list[CudaWarpgroupSketch]:
        if self.target.tvm["arch"] != WARPGROUPS:
            return []
        shape = warpgroup_shape(group, self.shapes, self.dtypes)
        if shape is None:
            return []
        sketch = CudaWarpgroupSketch(group, self.shapes, self.dtypes, shape, self._shared_bytes)
        return [sketch] if sketch.tile_values() else []

    @property
    def _shared_bytes(self) -> int:
        """Of a block, as much as can be asked for at a launch."""
        return int(self.target.fingerprint["max_dynamic_shared_memory_per_block"])

    def program(self, config: Config) -> Program:
        """The program of a config. Raises UsageError where it is not of this space, IllegalSchedule where no block fits it."""
        full = self.space.config(self.space.point(config))
        chosen = self.combinations[str(full["sketch"])]
        nests = [sketch.nest(full) for sketch in chosen]
        between = tuple(
            Buffer(name=group.name, shape=self.shapes[group.name], dtype=self.dtypes[group.name])
            for group in self.groups
            if group.name not in self.expression.outputs
        )
        return Program(
            inputs=self.expression.inputs,
            outputs=tuple(self.expression.tensor(name) for name in self.expression.outputs),
            buffers=(*between, *(buffer for nest in nests for buffer in nest.buffers)),
            blocks=tuple(
                replace(block, section=sketch.group.name)
                for sketch, nest in zip(chosen, nests, strict=True)
                for block in nest.blocks
            ),
            steps=tuple(step for nest in nests for step in nest.steps),
        )
