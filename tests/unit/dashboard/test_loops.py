"""Loops as text: what is read there is what the program does. Checked by counting how
often each block runs."""

from __future__ import annotations

import re
from math import prod

import numpy as np
import pytest

from tests.support.database_samples import sample_target
from tests.support.spaces import shared_space
from tests.support.targets import SM_80, SM_90
from tuner.api.dashboard import loops
from tuner.target.target import Target
from tuner.workload.spec import parse_spec


def test_before_is_the_expression() -> None:
    workload = parse_spec("matmul:M=4,N=5,K=6")
    expected = "for i in 4:\n  for j in 5:\n    for k in 6:\n      C[i, j] += A[i, k] * B[k, j]"
    assert loops.before({}, workload) == expected
    assert loops.before({"before": "stored"}, workload) == "stored"


def iterations(lines: list[str]) -> dict[str, int]:
    """How often each updating line runs, by the buffer it updates."""
    stack: list[tuple[int, int]] = []
    counts: dict[str, int] = {}
    for line in lines:
        depth = (len(line) - len(line.lstrip())) // 2
        stack = [outer for outer in stack if outer[0] < depth]
        loop = re.match(r"\s*for [\w.]+ in (\d+):", line)
        if loop:
            stack.append((depth, int(loop[1])))
        else:
            buffer = line.strip().partition("[")[0]
            counts[buffer] = counts.get(buffer, 0) + prod(extent for _, extent in stack)
    return counts


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("threads", [1, 2])
def test_after_runs_the_reduction_over_every_point(seed: int, threads: int) -> None:
    """Of a matmul in any config: at least M·N·K multiply-adds, and no more than
    overlapping tiles explain."""
    space = shared_space("matmul:M=48,N=40,K=32", sample_target(), threads)
    config = space.space.config(space.space.sample(np.random.default_rng(seed), 1)[0])
    program = space.program(config)
    lines = loops.nest_lines(program)
    counts = iterations(lines)
    for block in program.blocks:
        points = prod(axis.extent for axis in (*block.axes, *block.reduce_axes))
        assert counts[block.buffer] >= points, (block.name, config)
    assert len(lines) < 120


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("target", [SM_80, SM_90], ids=lambda target: target.name)
@pytest.mark.parametrize("spec", ["matmul:M=512,N=512,K=512,dtype=float16", "softmax:M=128,N=200"])
def test_after_runs_every_block_of_a_gpus_program(spec: str, target: Target, seed: int) -> None:
    space = shared_space(spec, target)
    program = space.program(
        space.space.config(space.space.sample(np.random.default_rng(seed), 1)[0])
    )
    lines = loops.nest_lines(program)
    runs = iterations(lines)
    for block in program.blocks:
        points = prod(axis.extent for axis in (*block.axes, *block.reduce_axes))
        assert runs[block.buffer] >= points, block.name
    assert any("# blockIdx.x" in line for line in lines)


def test_a_trace_is_shown_whatever_its_form() -> None:
    assert loops.trace_text({"text": "sch.split()", "trace": "[]"}) == "sch.split()"
    assert loops.trace_text({"trace": [["split", 4], ["fuse"]]}) == '["split", 4]\n["fuse"]'
    assert loops.trace_text({"trace": []}) is None
