"""Honest kernels of twenty styles are verified, and timed beside another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.depth import thinned
from tests.unit.measure.foreign_kernels import FOREIGN, MATMUL, Foreign
from tuner.measure.assignment import Lane, Placement
from tuner.measure.foreign.compiler import compile_source
from tuner.measure.foreign.examination import Contestant, Examination
from tuner.measure.foreign.judgement import RivalFailed, judge_contestant, judge_source
from tuner.measure.foreign.verdict import VerdictName
from tuner.measure.runner import RunnerProcess
from tuner.runtime.link import system_toolchain
from tuner.workload.spec import parse_spec

PLAIN, RESTRICTED = FOREIGN[0], FOREIGN[1]


@pytest.fixture(scope="module")
def placement(lane: Lane) -> Placement:
    return Placement(lane=lane, memory_bytes=1 << 30)


@pytest.fixture(scope="module")
def process() -> Iterator[RunnerProcess]:
    with RunnerProcess() as started:
        yield started


def contestant(source: str, library: Path, *, foreign: bool = True) -> Contestant:
    library.write_bytes(compile_source(source, "f", system_toolchain()))
    return Contestant(name=library.stem, library=str(library), symbol="f", foreign=foreign)


@pytest.mark.parametrize(
    "kernel", thinned(FOREIGN, 6, pytest.mark.slow), ids=lambda kernel: kernel.style
)
def test_accepted(
    kernel: Foreign, process: RunnerProcess, placement: Placement, tmp_path: Path
) -> None:
    workload = parse_spec(kernel.spec)
    with Examination(workload, process, placement, system_toolchain()) as examination:
        subject = contestant(kernel.source, tmp_path / "kernel.so")
        verdict = judge_contestant(examination, subject, None)
    assert verdict.verified, verdict.message


def test_there_are_twenty() -> None:
    assert len({kernel.style for kernel in FOREIGN}) == 20


@pytest.mark.slow
def test_timed_in_turn(process: RunnerProcess, placement: Placement, tmp_path: Path) -> None:
    """A kernel that does its work a hundred times takes longer, surely."""
    again = 'if (++calls % 100) { __asm__ volatile("" ::: "memory"); goto again; } return 0;'
    slow = RESTRICTED.source.replace("return 0;", again).replace(
        "float *restrict c) {", "float *restrict c) { int calls = 0; again:;"
    )
    workload = parse_spec(MATMUL)
    with Examination(workload, process, placement, system_toolchain()) as examination:
        subject = contestant(slow, tmp_path / "slow.so")
        rival = contestant(RESTRICTED.source, tmp_path / "rival.so")
        verdict = judge_contestant(examination, subject, rival)
    assert verdict.verified, verdict.message
    assert verdict.time is not None
    assert verdict.time.rival == "rival"
    assert verdict.time.ratio.ci95[0] > 1
    low, high = verdict.time.ci95_s
    assert low <= verdict.time.median_s <= high


@pytest.mark.slow
def test_wrong_in_a_timed_call_alone(
    process: RunnerProcess, placement: Placement, tmp_path: Path
) -> None:
    """Each timed call is checked, and not the last alone."""
    late = "c[9] += ++calls == 14; return 0;"
    broken = "static int calls;" + PLAIN.source.replace("return 0;", late)
    workload = parse_spec(MATMUL)
    with Examination(workload, process, placement, system_toolchain()) as examination:
        subject = contestant(broken, tmp_path / "broken.so")
        rival = contestant(PLAIN.source, tmp_path / "rival.so")
        verdict = judge_contestant(examination, subject, rival)
    assert verdict.name is VerdictName.WRONG_ELEMENT
    assert verdict.element is not None
    assert verdict.element.index == (0, 9)


def test_a_rival_that_fails_is_no_fault_of_the_kernel(
    process: RunnerProcess, placement: Placement, tmp_path: Path
) -> None:
    workload = parse_spec(MATMUL)
    with Examination(workload, process, placement, system_toolchain()) as examination:
        subject = contestant(PLAIN.source, tmp_path / "kernel.so")
        rival = Contestant(name="incumbent", library=str(tmp_path / "none.so"), symbol="f")
        with pytest.raises(RivalFailed, match="incumbent"):
            judge_contestant(examination, subject, rival)


def test_from_a_source_to_a_verdict(placement: Placement) -> None:
    workload = parse_spec(MATMUL)
    verdict = judge_source(workload, PLAIN.source, "f", placement, rival=None)
    assert (verdict.name, verdict.element, verdict.time) == (VerdictName.VERIFIED, None, None)
    assert verdict.max_rel_error is not None
    refused = judge_source(workload, "int g;", "f", placement, rival=None)
    assert refused.name is VerdictName.BUILD_ERROR
