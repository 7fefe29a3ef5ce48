"""The space of a workload on a CPU: for every group of stages its sketches, for the whole every combination of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice, product

from tuner.errors import UsageError
from tuner.spaces.cpu_pairs import pair_sketch
from tuner.spaces.cpu_row_knobs import RowSketch, lane_sketches, row_sketch
from tuner.spaces.cpu_tile_knobs import TileSketch, tile_sketches
from tuner.spaces.groups import Group, RowGroup, groups, shapes_of
from tuner.spaces.program import Buffer, Program
from tuner.spaces.space import Config, Sketch, Space
from tuner.spaces.stages import inlined, plainly_named
from tuner.target.target import Target
from tuner.workload.expression import DType
from tuner.workload.workload import Workload

MAX_SKETCHES = 64  # combinations of the groups' sketches; beyond it the first ones are kept


class CpuSpace:
    """The sketches of one workload for (target, threads): the space they span and the program of each config."""

    def __init__(self, workload: Workload, target: Target, threads: int) -> None:
        if target.kind != "cpu":
            raise UsageError(f"target {target.name} is no CPU; its sketches live elsewhere")
        self.expression = inlined(plainly_named(workload.expression))
        given = zip(workload.expression.inputs, self.expression.inputs, strict=True)
        self.constants = tuple(plain.name for tensor, plain in given if tensor.name in workload.constants)
        self.shapes = shapes_of(self.expression)
        self.dtypes: Mapping[str, DType] = {
            tensor.name: tensor.dtype for tensor in (*self.expression.inputs, *(stage.tensor for stage in self.expression.stages))
        }
        self.target, self.threads = target, threads
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

    def _variants(self, group: Group) -> Sequence[TileSketch | RowSketch]:
        if isinstance(group, RowGroup):
            return [row_sketch(group, self.target, self.threads, self.shapes, self.dtypes)]
        tiles = tile_sketches(group, self.target, self.threads, self.shapes, self.dtypes)
        pairs = [
            pair_sketch(group, tile.vector, self.target, self.threads, self.shapes, self.dtypes) for tile in tiles if tile.vector
        ]
        tiles += [sketch for sketch in pairs if sketch is not None]
        return [*tiles, *lane_sketches(group, self.target, self.threads, self.shapes, self.dtypes)]

    def program(self, config: Config) -> Program:
        """The program of a config; the config must name every knob of its sketch."""
        full = self.space.config(self.space.point(config))
        chosen = self.combinations[str(full["sketch"])]
        nests = [sketch.nest(full) for sketch in chosen]
        outputs = set(self.expression.outputs)
        between = tuple(
            Buffer(name=group.name, shape=self.shapes[group.name], dtype=self.dtypes[group.name])
            for group in self.groups
            if group.name not in outputs
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
            constants=self.constants,
        )


def space_for(workload: Workload, target: Target, threads: int) -> Space:
    """The space of a workload on a CPU. Raises UsageError for a target of another kind."""
    return CpuSpace(workload, target, threads).space


def program_for(workload: Workload, target: Target, threads: int, config: Config) -> Program:
    """The program of one config. Raises UsageError for a config that is not of this space."""
    return CpuSpace(workload, target, threads).program(config)
