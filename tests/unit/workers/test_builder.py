"""The compiler process: builds alike for alike, survives a timeout, a kill and its age,
and tells whose fault a failure is."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.problems import PROBLEM
from tuner.measure.outcome import Failed, FailureKind
from tuner.spaces.by_target import space_of
from tuner.workers.fleet.builder import Builder, Compiler
from tuner.workers.fleet.handoff import HandoffQueue
from tuner.workers.fleet.messages import BuildRequest, Library, Limits
from tuner.workers.fleet.shipping import discard

pytestmark = pytest.mark.slow

DEFAULT = BuildRequest(number=0, config=None)


@pytest.fixture
def compiler(tmp_path: Path) -> Iterator[Callable[[Limits], Compiler]]:
    made: list[Compiler] = []

    def make(limits: Limits) -> Compiler:
        made.append(
            Compiler(storage=tmp_path, cores=(min(os.sched_getaffinity(0)),), limits=limits)
        )
        return made[-1]

    yield make
    for started in made:
        started.close()


def test_a_killed_compiler_is_no_fault_of_the_candidate(
    compiler: Callable[[Limits], Compiler], tmp_path: Path
) -> None:
    builder = compiler(Limits())
    first = builder.build(PROBLEM, DEFAULT)
    assert isinstance(first, Library)
    assert sorted(path.suffix for path in tmp_path.glob("[!.]*")) == [".so"]
    assert builder.build(PROBLEM, replace(DEFAULT, number=1)) == first
    kept = builder.build(PROBLEM, replace(DEFAULT, keep="kept"))
    assert isinstance(kept, Library) and kept.sha256 == first.sha256
    files = sorted((tmp_path / "kept").iterdir())
    assert [path.suffix for path in files] == [".json", ".o", ".so"]
    assert kept.path == str(files[2])

    assert builder.pid is not None
    os.kill(builder.pid, signal.SIGSTOP)  # so that it surely dies while it has work
    with subprocess.Popen(["sh", "-c", f"sleep 0.3; kill -KILL {builder.pid}"]):
        lost = builder.build(PROBLEM, DEFAULT)
    assert isinstance(lost, Failed) and lost.kind is FailureKind.INFRASTRUCTURE
    assert builder.build(PROBLEM, DEFAULT) == first


def contents(folder: Path) -> dict[str, bytes]:
    """Files by name, without the addresses by which TVM names buffers in the text of LLVM."""
    address = re.compile(rb"0x[0-9a-f]+")
    return {path.name: address.sub(b"", path.read_bytes()) for path in folder.glob("[!.]*")}


def test_a_finalist_is_what_a_fresh_compiler_makes_of_it(
    compiler: Callable[[Limits], Compiler], tmp_path: Path
) -> None:
    """Bit for bit, though the one that was timed is not compiled again."""
    space = space_of(PROBLEM.workload, PROBLEM.target, 1).space
    trial = BuildRequest(number=1, config=space.config(space.unrank(space.size // 2)))
    builder = compiler(Limits())
    builder.build(PROBLEM, DEFAULT)
    timed = builder.build(PROBLEM, trial)
    assert isinstance(timed, Library)
    for path in tmp_path.glob("[!.]*"):
        path.unlink()  # as the driver does with what was timed
    again = builder.build(PROBLEM, replace(trial, number=0, keep="kept"))
    assert isinstance(again, Library) and again.sha256 == timed.sha256
    files = contents(tmp_path / "kept")
    discard(again)
    builder.start()
    assert builder.build(PROBLEM, replace(trial, number=0, keep="kept")) == again
    assert contents(tmp_path / "kept") == files
    assert sorted(Path(name).suffix for name in files) == [".json", ".o", ".so"]


def test_a_config_of_the_space_builds_and_a_wrong_one_says_why(
    compiler: Callable[[Limits], Compiler],
) -> None:
    builder = compiler(Limits(builds_per_server=1))
    space = space_of(PROBLEM.workload, PROBLEM.target, 1).space
    config = space.config(space.unrank(0))
    assert isinstance(builder.build(PROBLEM, BuildRequest(number=1, config=config)), Library)
    before = builder.pid
    refused = builder.build(PROBLEM, BuildRequest(number=2, config={**config, "sketch": "none"}))
    assert (
        isinstance(refused, Failed)
        and refused.kind is FailureKind.BUILD_ERROR
        and "none" in refused.message
    )
    assert builder.pid != before  # recycled by count


def test_a_build_that_takes_too_long_is_ended(compiler: Callable[[Limits], Compiler]) -> None:
    builder = compiler(Limits(build_timeout_s=0.001))
    space = space_of(PROBLEM.workload, PROBLEM.target, 1).space
    candidate = BuildRequest(number=1, config=space.config(space.unrank(0)))
    for request, limit in ((candidate, "0.001 s"), (DEFAULT, "0.005 s")):
        failed = builder.build(PROBLEM, request)
        assert isinstance(failed, Failed) and failed.kind is FailureKind.BUILD_TIMEOUT
        assert limit in failed.message


def test_a_builder_hands_new_code_to_the_lane_that_waits_for_it(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    box, space = (
        HandoffQueue(tmp_path, "cpu:1"),
        space_of(PROBLEM.workload, PROBLEM.target, 1).space,
    )
    other = BuildRequest(number=3, config=space.config(space.unrank(0)), lane="cpu:1", best_s=0.5)
    wrong = BuildRequest(
        number=4, config={**space.config(space.unrank(0)), "sketch": "none"}, lane="cpu:1"
    )
    builder = Builder(
        name="build:0",
        storage=str(tmp_path),
        cores=(min(before),),
        home_cores=(min(before),),
        limits=Limits(),
    )
    try:
        builder.load(PROBLEM)
        first = replace(DEFAULT, lane="cpu:1")
        built = builder.build(PROBLEM.key, [DEFAULT, first, replace(first, number=2), wrong, other])
        box.close()
        handoffs = list(box.handoffs())
    finally:
        builder.close()
        os.sched_setaffinity(0, before)
    assert [handoff.request.number for handoff in handoffs] == [
        0,
        3,
    ]  # once for the same code, none for what does not build
    assert [handoff.request.library for handoff in handoffs] == [built[1].result, built[4].result]
    assert handoffs[1].request.best_s == 0.5 and {handoff.problem for handoff in handoffs} == {
        PROBLEM.key
    }


def test_a_compiler_loads_without_packages_that_only_cost_time(tmp_path: Path) -> None:
    for package in ("torch", "sklearn", "pandas"):
        (tmp_path / f"{package}.py").write_text("raise SystemExit('was imported')")
    script = (
        "import sys\n"
        "from tuner.workers.fleet.build_server import load_compilers\n"
        "load_compilers()\n"
        "print([name for name in ('torch', 'sklearn', 'pandas') if name in sys.modules])\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.getcwd()}"}
    ran = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "[]\n"
