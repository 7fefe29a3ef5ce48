"""What of a trace has kernels, what they gain, and the job of the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.database_samples import sample_kernel
from tests.support.databases import new_database
from tests.support.promoted_products import promote_products
from tests.support.traced_calls import call, trace_of
from tuner.api.coverage import LOOK_S, RECORDED, Coverage
from tuner.app.traces import chosen_calls, coverage, submit_calls
from tuner.db import jobs, promotions, targets, workloads
from tuner.db.engine import Database
from tuner.errors import UsageError
from tuner.settings import load_settings
from tuner.target.detect import parse_target
from tuner.trace.record import TracedCall
from tuner.trace.workloads import Expressed, express, expressed
from tuner.workload.spec import to_document

TARGET = parse_target("cpu")
ROWS = np.ones((8, 16), "float32")
PRODUCT = call("numpy.matmul", ROWS, ROWS.T.copy(), count=100, total_s=2.0)
SUM = call("numpy.sum", ROWS, count=10, total_s=1.0)
INVERSE = call("numpy.linalg.inv", np.ones((3, 3)), count=3, total_s=0.5)
RARE = call("numpy.exp", ROWS, count=1, total_s=0.001)


@pytest.fixture
def database(home: Path) -> Iterator[Database]:
    opened = new_database(load_settings().values.db)
    yield opened
    opened.close()


def promote(database: Database, each: Expressed, median_s: float) -> None:
    with database.write() as session:
        for part in each.parts:
            new = replace(
                sample_kernel(session, median_s=median_s),
                workload=workloads.remember(session, part.workload, to_document(part.workload)),
                target=targets.remember(session, TARGET),
            )
            promotions.promote(session, new)


def covered(database: Database, *calls: TracedCall) -> Coverage:
    trace = trace_of(*calls)
    return coverage(database, trace, list(expressed(trace)), TARGET, 1)


def test_a_call_with_a_kernel_gains_what_the_kernel_saves(database: Database) -> None:
    promote(database, express(PRODUCT), 0.004)
    product, total, inverse = covered(database, PRODUCT, SUM, INVERSE).calls
    assert (product.state, product.is_measured) == ("tuned", True)
    assert product.kernels_s == pytest.approx(100 * 0.004)
    assert product.gain_s == pytest.approx(2.0 - 0.4)
    assert (total.state, total.kernels_s, total.gain_s) == ("untuned", None, 0.0)
    assert inverse.state == "fallback" and "no expression yet" in str(inverse.reason)


def test_a_kernel_that_is_slower_than_the_library_gains_nothing(database: Database) -> None:
    promote(database, express(SUM), 0.2)
    result = covered(database, SUM)
    assert result.calls[0].kernels_s == pytest.approx(2.0) and result.gain_s == 0.0


def test_what_has_no_kernel_is_estimated_from_others(database: Database) -> None:
    promote_products(database, TARGET)
    (product,) = covered(database, PRODUCT).calls
    assert product.state == "untuned" and not product.is_measured
    assert product.kernels_s is not None and 0 < product.kernels_s < 2.0
    assert product.gain_s == pytest.approx(2.0 - product.kernels_s)


def test_a_program_run_with_kernels_gains_where_they_save_more_than_looks_take(
    database: Database,
) -> None:
    promote(database, express(PRODUCT), 0.004)
    other = call("numpy.matmul", ROWS, np.ones((16, 2), "float32"), count=1000, total_s=0.1)
    for kind, answered in ((other, True), (replace(other, count=1e9), False)):
        calls = covered(database, PRODUCT, kind).calls
        looked = {each.call.count: each for each in calls}
        assert [each.is_answered for each in calls] == [answered, False]
        product, rest = looked[100], looked[kind.count]
        expected = 2.0 - 0.4 - 100 * LOOK_S["numpy"] if answered else 0.0
        assert product.run_gain_s == pytest.approx(expected)
        assert rest.run_gain_s == pytest.approx(-1000 * LOOK_S["numpy"] * answered)


def test_what_writes_into_a_given_array_is_tuned_but_not_answered(database: Database) -> None:
    given = call("numpy.add", ROWS, ROWS, ROWS, count=100, total_s=2.0)
    promote(database, express(given), 0.001)
    (each,) = covered(database, given).calls
    assert each.state == "tuned" and each.gain_s > 0
    assert (each.is_answered, each.run_gain_s) == (False, 0.0)


def test_shares_are_of_the_whole_time(database: Database) -> None:
    promote(database, express(SUM), 0.01)
    result = covered(database, PRODUCT, SUM, INVERSE)
    states: Sequence[tuple[str, float]] = [
        (state, result.seconds(state)) for state in ("tuned", "untuned", "fallback")
    ]
    assert states == [("tuned", 1.0), ("untuned", 2.0), ("fallback", 0.5)]


def test_a_job_has_what_takes_the_time_by_how_often_it_is_called(database: Database) -> None:
    again = call("numpy.dot", ROWS, ROWS.T.copy(), count=50, total_s=0.5)  # the same kernel
    trace = trace_of(PRODUCT, again, SUM, INVERSE, RARE)
    chosen = chosen_calls(list(expressed(trace)))
    assert [each.call.operator for each in chosen] == ["numpy.matmul", "numpy.sum", "numpy.dot"]
    settings = load_settings({"trials": 5}).values
    calls = list(expressed(trace))
    job = submit_calls(database, calls, trace.total_s, TARGET, settings, seconds=60.0)
    assert (job.kind, len(job.tasks), job.seconds) == (jobs.MODEL, 2, 60.0)
    product, total = (each.parts[0].workload.key for each in (express(PRODUCT), express(SUM)))
    assert job.settings["calls"] == {product: 150, total: 10}
    assert len(job.settings[RECORDED]["calls"]) == len(trace.calls)


def test_a_trace_without_anything_to_tune_is_refused() -> None:
    with pytest.raises(UsageError, match="no call that a kernel could compute"):
        chosen_calls(list(expressed(trace_of(INVERSE))))
