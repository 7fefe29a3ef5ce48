"""A schedule template for a matrix product, searched on this machine.

Run `python examples/template.py [TRIALS]`. The function `tiled` is the template: it
schedules with TVM's primitives and asks `knobs` for all open choices.
"""

from __future__ import annotations

import os
import sys
import time

from tvm import te
from tvm.s_tir import Schedule

from tuner.cost_model.encoding import KnobEncoding
from tuner.cost_model.ranker import Ranker
from tuner.lowering.template import TemplateSpace
from tuner.lowering.template_measurer import TemplateMeasurer
from tuner.measure.assignment import Lane
from tuner.measure.outcome import Failed
from tuner.search.domain import Domain
from tuner.search.setup import SearchSetup
from tuner.search.strategies import build_searcher
from tuner.spaces.core.template import Knobs
from tuner.target.detect import detect_cpu
from tuner.tuning import Budget, Stopped, TrialRecorded, TuningResult, tune


def product(m: int, n: int, k: int) -> list[te.Tensor]:
    """The matrix product C = A B as te tensors: A, B, C."""
    a, b, r = (
        te.placeholder((m, k), name="A"),
        te.placeholder((k, n), name="B"),
        te.reduce_axis((0, k), name="r"),
    )
    return [a, b, te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")]


def tiled(schedule: Schedule, knobs: Knobs) -> None:
    """Schedules two levels of tiles, vectorised along the last axis."""
    block = schedule.get_sblock("C")
    i, j, r = schedule.get_loops(block)
    extents = [int(schedule.get(loop).extent) for loop in (i, j, r)]
    i_outer, i_inner = schedule.split(i, list(knobs.split("tile_i", extents[0], innermost=16)))
    j_outer, j_inner = schedule.split(j, list(knobs.split("tile_j", extents[1], innermost=64)))
    r_outer, r_inner = schedule.split(r, list(knobs.split("tile_r", extents[2], innermost=16)))
    schedule.reorder(*knobs.order("outer", [i_outer, j_outer, r_outer]), r_inner, i_inner, j_inner)
    schedule.vectorize(j_inner)
    if knobs.boolean("unroll"):
        schedule.unroll(i_inner)


def search(
    space: TemplateSpace, *, trials: int, strategy: str = "random", seed: int = 0
) -> TuningResult:
    """Searches the space in this process and prints each trial."""
    core = max(os.sched_getaffinity(0))
    setup = SearchSetup(
        domain=Domain(space.space), featurizer=KnobEncoding(space.space), model=Ranker(), seed=seed
    )
    with TemplateMeasurer(
        space, target=detect_cpu(), lane=Lane(name=f"cpu:{core}", cores=(core,))
    ) as measurer:
        for event in tune(
            space=space.space,
            searcher=build_searcher(strategy, setup),
            measurer=measurer,
            budget=Budget(trials=trials),
            clock=time.monotonic,
        ):
            match event:
                case TrialRecorded(trial=trial):
                    if isinstance(trial.outcome, Failed):
                        print(trial.number, trial.outcome.kind, {})
                    else:
                        median_us = trial.outcome.median_s * 1e6
                        print(trial.number, f"{median_us:.1f} us", dict(trial.config))
                case Stopped(result=result):
                    return result
    raise AssertionError("the loop ends with Stopped")


def main() -> None:
    """Searches a product of 128x128 matrices."""
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 32
    space = TemplateSpace(product(128, 128, 128), tiled)
    print(f"{space.space.size} points")
    best = search(space, trials=trials).best[0]
    print("fastest:", best.number, dict(best.config))


if __name__ == "__main__":
    main()
