"""The contract of a sketch, kept by every sketch of CPUs and of GPUs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.support.spaces import shared_space
from tests.support.targets import GOLDEN_COVE, NEOVERSE, SM_90
from tuner.errors import IllegalSchedule
from tuner.spaces.core.choice import Choice
from tuner.spaces.core.roles import KnobRole
from tuner.spaces.core.sketch import Sketch
from tuner.spaces.core.target_space import TargetSpace
from tuner.spaces.cpu.facts import LoopNestFacts
from tuner.spaces.program.nest import Nest
from tuner.target.detect import parse_target

# A CPU with every instruction of x86 that sketches ask for, one with few, one with Arm's
# products of matrices, and a GPU.
TARGETS = {
    "cpu": GOLDEN_COVE,
    "aarch64": NEOVERSE,
    "i8mm": parse_target("cpu:neoverse-v2"),
    "cuda": SM_90,
}
# Between them they are offered every sketch family.
INT8 = "matmul:M=64,N=64,K=64,dtype=int8"
BFLOAT16 = "matmul:M=128,N=128,K=128,dtype=bfloat16"
CONV = "conv2d:N=1,H=28,W=28,CI=32,CO=64,KH=3,KW=3,pad=1,act=relu"
FLOAT16 = "matmul:M=64,N=64,K=128,dtype=float16,numerics=tensor"
ROWS, MOVES = "softmax:M=64,N=1000", "transpose:M=1024,N=1024"
SPECS = (
    "matmul:M=128,N=128,K=128",
    INT8,
    BFLOAT16,
    "matmul:M=128,N=128,K=128,dtype=float16",
    FLOAT16,
    "batch_matmul:B=8,M=64,N=64,K=64,transpose_b=true",
    CONV,
    "conv2d:N=1,H=4,W=4,CI=2,CO=2,KH=3,KW=3",
    ROWS,
    MOVES,
    "qdense:M=4,N=64,K=512,group=128",
    "qdense:M=4,N=64,K=512,group=128,weight=int8",
    "spmm:M=64,N=64,K=64,density=0.1",
    "scatter_add:M=64,N=256,D=64",
)
CONFIGS = 6  # of each sketch


def space(spec: str, kind: str) -> TargetSpace[Any]:
    return shared_space(spec, TARGETS[kind], 2)


def sketches(spec: str, kind: str) -> dict[str, Sketch[Any]]:
    """Every sketch of the workload's space, by what its knobs' names begin with."""
    every = (sketch for parts in space(spec, kind).sketches.values() for sketch in parts)
    return {f"{sketch.group.name}.{sketch.name}": sketch for sketch in every}


# Where there are no instructions for products a few operators have all that there is.
SPACES = [
    *product(SPECS, ("cpu", "cuda")),
    *((spec, "aarch64") for spec in (INT8, FLOAT16, CONV, ROWS, MOVES)),
    *((spec, "i8mm") for spec in (INT8, BFLOAT16)),
]
every_space = pytest.mark.parametrize(("spec", "kind"), SPACES)


@pytest.mark.slow
def test_every_family_is_among_the_sketches() -> None:
    names = {
        (kind, sketch.name.partition("_")[0])
        for spec, kind in SPACES
        for sketch in sketches(spec, kind).values()
    }
    of_cpu = {name for kind, name in names if kind == "cpu"}
    assert of_cpu >= {"tile", "turn", "amx", "pairs", "fours", "lanes", "rows", "straight"}
    assert of_cpu >= {"lookup", "grouped", "ragged", "scatter", "float16"}
    assert ("i8mm", "mmla") in names
    assert len({name for kind, name in names if kind == "cuda"}) >= 4


@every_space
def test_knobs_are_named_by_their_sketch_and_say_their_role(spec: str, kind: str) -> None:
    for owner, sketch in sketches(spec, kind).items():
        assert len({knob.name for knob in sketch.knobs}) == len(sketch.knobs)
        for knob in sketch.knobs:
            assert knob.name.startswith(f"{owner}.")
            assert knob.role not in (KnobRole.SKETCH, KnobRole.OTHER)


@every_space
def test_a_knob_has_a_choice_of_different_values(spec: str, kind: str) -> None:
    for sketch in sketches(spec, kind).values():
        for knob in sketch.knobs:
            assert len(knob.values) > 1
            assert len(set(knob.values)) == len(knob.values)


@every_space
def test_configs_are_read_back_from_json(spec: str, kind: str) -> None:
    offered = space(spec, kind).space
    for point in offered.sample(np.random.default_rng(2), 20):
        stored = json.loads(json.dumps(offered.config(point)))
        assert np.array_equal(offered.point(stored), point)


@every_space
def test_configs_have_a_nest_that_writes_the_output(spec: str, kind: str) -> None:
    rng = np.random.default_rng(3)
    for owner, sketch in sketches(spec, kind).items():
        nests = [nest for nest in sampled_nests(sketch, rng) if nest is not None]
        assert nests, f"no config of {owner} is legal"
        for nest in nests:
            names = [block.name for block in nest.blocks]
            assert len(set(names)) == len(names)
            written = {block.buffer for block in nest.blocks}
            assert sketch.group.output.name in written
            assert {buffer.name for buffer in nest.buffers} <= written


def sampled_nests(sketch: Sketch[Any], rng: np.random.Generator) -> Iterator[Nest | None]:
    """Of a few configs; None of one that the target has no room for."""
    for _ in range(CONFIGS):
        config = {knob.name: knob.values[rng.integers(len(knob.values))] for knob in sketch.knobs}
        try:
            yield sketch.nest(config)
        except IllegalSchedule:
            yield None


@pytest.mark.parametrize(("spec", "kind"), [each for each in SPACES if each[1] != "cuda"])
def test_facts_of_a_cpu_have_the_choices_of_the_knobs(spec: str, kind: str) -> None:
    for sketch in sketches(spec, kind).values():
        declared = [*choices(sketch.facts)]
        knobs = {knob.name: knob for knob in sketch.knobs}
        assert {choice.name: choice.knob for choice in declared if choice.is_open} == knobs
        for choice in declared:
            assert len(choice.stored) == len(choice.values)
            for value, stored in zip(choice.values, choice.stored, strict=True):
                assert choice.of({choice.name: stored}) == value
            if choice.is_open:
                assert choice.knob.role is choice.role


def choices(facts: LoopNestFacts) -> Iterator[Choice[Any]]:
    """All that the facts declare."""
    yield facts.register_tile
    yield from facts.cache_blocks.values()
    yield facts.outer_order
    yield facts.inner_order
    for choice in (facts.reduction_block, facts.unrolling):
        if choice is not None:
            yield choice
    yield from facts.copies
    yield facts.prefetch
    yield facts.store_mode
    yield facts.math_functions
    if facts.columns is not None:
        yield from facts.columns.recompute
