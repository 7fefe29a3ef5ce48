"""Measure how far building disturbs timing.

    python -m benchmarks.timing --blocks 12

Kernels are timed as trials are, in blocks with the builder busy and idle in turn. The
builder is the product's own compiler process on a builder's core, fed without a pause.
The kernels are measured by a runner process on the lane. Run it on a machine that does
nothing else.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, median, stdev

import numpy as np

from benchmarks.isolation import KERNELS, fastest, measure
from tuner.measure.assignment import Assignment, Request
from tuner.measure.runner import RunnerProcess
from tuner.measure.statistics import ratio_of_medians
from tuner.measure.timing import SCREENING
from tuner.spaces.by_target import space_of
from tuner.target.detect import detect_cpu
from tuner.workers.fleet.builder import Compiler
from tuner.workers.fleet.machine import plan_machine, usable_nodes
from tuner.workers.fleet.messages import BuildRequest, Limits, Problem
from tuner.workload.spec import parse_spec

BUILT = "matmul:M=512,N=512,K=512"  # what the builder builds meanwhile
TRIALS = 8  # measured in each block
MOST_RATIO, MOST_CV = 1.03, 0.03  # for the compute-bound kernel


@dataclass(frozen=True, kw_only=True)
class Disturbance:
    """Of one kernel."""

    idle_s: float  # median of the trials' medians
    building_s: float
    ratio: float  # building to idle, of medians paired block by block
    ci95: tuple[float, float]
    cv_idle: float  # coefficient of variation of the trials' medians
    cv_building: float
    builds: int  # candidates built meanwhile


class Feeder:
    """Keeps a compiler process busy from a thread of its own while it is wanted."""

    def __init__(self, folder: Path, core: int) -> None:
        self.builds = 0
        self._problem = Problem(workload=parse_spec(BUILT), target=detect_cpu(), threads=1)
        self._compiler = Compiler(storage=folder, cores=(core,), limits=Limits())
        self._building, self._resting, self._over = (
            threading.Event(),
            threading.Event(),
            threading.Event(),
        )
        self._thread = threading.Thread(target=self._feed, daemon=True, name="feeder")

    def __enter__(self) -> Feeder:
        self._compiler.start()
        self._compiler.wait_ready()
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()
        self._compiler.close()

    @contextmanager
    def building(self) -> Iterator[None]:
        """Build candidates without a pause within the block, and none after it."""
        self._resting.clear()
        self._building.set()
        try:
            yield
        finally:
            self._building.clear()
            self._resting.wait()

    def _feed(self) -> None:
        space = space_of(self._problem.workload, self._problem.target, 1).space
        rng = np.random.default_rng(0)
        while not self._over.is_set():
            if not self._building.wait(0.05):
                self._resting.set()
                continue
            self.builds += 1
            config = space.config(space.sample(rng, 1)[0])
            self._compiler.build(self._problem, BuildRequest(number=self.builds, config=config))


def disturbance(spec: str, blocks: int, isolation: str) -> Disturbance:
    workload, plan = parse_spec(spec), plan_machine(usable_nodes(), threads=1)
    with (
        tempfile.TemporaryDirectory(prefix="tuner-timing-") as folder,
        RunnerProcess() as runner,
        Feeder(Path(folder), plan.builder_cores[0]) as feeder,
    ):
        runner.prepare(Assignment(workload=workload, lane=plan.lanes[0], isolation=isolation))
        request = replace(fastest(workload, 1, Path(folder), runner), plan=SCREENING)
        idle, building = [], []
        for number in range(blocks):
            for builds in (number % 2 == 0, number % 2 == 1):  # neither always comes first
                if builds:
                    with feeder.building():
                        building.append(_block(runner, request, spec))
                else:
                    idle.append(_block(runner, request, spec))
    ratio = ratio_of_medians(building, idle)
    return Disturbance(
        idle_s=median(value for block in idle for value in block),
        building_s=median(value for block in building for value in block),
        ratio=ratio.value,
        ci95=ratio.ci95,
        cv_idle=_variation(idle),
        cv_building=_variation(building),
        builds=feeder.builds,
    )


def _block(runner: RunnerProcess, request: Request, spec: str) -> tuple[float, ...]:
    """Medians of a few trials."""
    return tuple(measure(runner, request, spec).median_s for _ in range(TRIALS))


def _variation(blocks: list[tuple[float, ...]]) -> float:
    values = [value for block in blocks for value in block]
    return stdev(values) / mean(values)


def faults(disturbances: Mapping[str, Disturbance]) -> list[str]:
    """What exceeds its bound.

    Nothing is demanded of the memory-bound kernel, since building takes bandwidth too.
    """
    compute_bound = disturbances["compute-bound"]
    wrong = (
        []
        if compute_bound.ratio <= MOST_RATIO
        else [f"compute-bound: {compute_bound.ratio:.3f} times slower while building"]
    )
    worst = max(compute_bound.cv_idle, compute_bound.cv_building)
    return (
        wrong
        if worst <= MOST_CV
        else [*wrong, f"compute-bound: coefficient of variation {worst:.1%}"]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--blocks", type=int, default=12, help="of each kind")
    parser.add_argument("--isolation", default="required")
    given = parser.parse_args()
    if given.blocks < 3:
        parser.error(f"{given.blocks} blocks are too few to pair; at least 3")
    disturbances = {
        name: disturbance(spec, given.blocks, given.isolation) for name, spec in KERNELS.items()
    }
    print(json.dumps({name: asdict(figures) for name, figures in disturbances.items()}, indent=1))
    print(*faults(disturbances), sep="\n")
    sys.exit(1 if faults(disturbances) else 0)


if __name__ == "__main__":
    main()
