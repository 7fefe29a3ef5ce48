"""How right estimates are, on a database of kernels or on recorded tables, and how long
they take.

    python -m benchmarks.estimates sqlite:///FILE
    python -m benchmarks.estimates tests/tables/large/*.npz tests/tables/parts/*.npz

Tables stand for kernels of their fastest configs, timed while nothing else ran; each is
left out in turn, and its time is printed as a multiple of what the others say.

Of a database, each kernel is left out in turn of what the predictor learns. It needs a target with
kernels of one thread; the newest target counts. Descriptions of workloads that were not
seen before are timed apart, since a service keeps them.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median, quantiles

import numpy as np

from tuner.api.estimates import Estimator, describe
from tuner.app.replay.tables import open_tables
from tuner.cost_model.latency import LatencyModel, Measured
from tuner.db import targets
from tuner.db.engine import open_database
from tuner.replay.table import RecordedTable
from tuner.target.document import target_from_document
from tuner.workload.spec import from_document, parse_spec

WORKLOADS = 1000
REPEATS = 10  # requests of all
LARGEST = 512  # extent of the products asked for


def main() -> None:
    if "://" in sys.argv[1]:
        of_database(sys.argv[1])
    else:
        of_tables(open_tables([Path(name) for name in sys.argv[1:]]))


def of_tables(tables: list[RecordedTable]) -> None:
    kernels = [kernel_of(table) for table in tables]
    print(LatencyModel(kernels).accuracy)
    for place, (table, left_out) in enumerate(zip(tables, kernels, strict=True)):
        others = LatencyModel([*kernels[:place], *kernels[place + 1 :]])
        (said,) = others.predict([left_out.described])
        print(f"{table.name[:70]:72} {left_out.median_s / said.median_s:.2f}")


def kernel_of(table: RecordedTable) -> Measured:
    """The fastest config of a table, as a promoted kernel."""
    target = target_from_document(json.loads(table.notes["target"]))
    threads = int(table.notes.get("threads", "1"))
    best_s = table.optimum_s
    return Measured(
        described=describe(from_document(table.workload), target, threads),
        median_s=best_s,
        ci95_s=(best_s, best_s),
    )


def of_database(url: str) -> None:
    database = open_database(url, create=False)
    with database.read() as session:
        target = targets.list_all(session)[-1]
    draw = np.random.default_rng(0)
    extents = np.unique(draw.integers(1, LARGEST + 1, (2 * WORKLOADS, 3)), axis=0)
    draw.shuffle(extents)
    asked = [parse_spec(f"matmul:M={m},N={n},K={k}") for m, n, k in extents[:WORKLOADS]]
    estimator = Estimator(database)

    def ask(count: int) -> float:
        return seconds(lambda: estimator.estimate(asked[:count], target, 1))

    learning_s = ask(1)
    describing_s = ask(WORKLOADS)
    whole = [ask(WORKLOADS) for _ in range(REPEATS)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    single = [seconds(partial(estimator.estimate, [each], target, 1)) for each in asked]
    for _ in range(100_000 // WORKLOADS - REPEATS):
        ask(WORKLOADS)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(target.name)
    print(estimator.estimate(asked[:1], target, 1).accuracy)
    print(f"learning {learning_s:.1f} s, a new workload {1e3 * describing_s / WORKLOADS:.0f} ms")
    print(f"{WORKLOADS} known workloads: median {median(whole):.2f} s, most {max(whole):.2f} s")
    slow_s = quantiles(single, n=100)[-1]
    print(f"single ones: median {1e3 * median(single):.1f} ms, p99 {1e3 * slow_s:.1f} ms")
    print(f"memory grew by {grown} KiB over 100,000 estimates")


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
