"""Kernels held against what the database recorded of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.databases import new_database
from tests.support.promoted_products import EXTENTS, promote_products
from tuner.app.races.loss import Checked, check, recorded_kernels
from tuner.app.races.race import Entry, RaceError
from tuner.db.engine import Database
from tuner.db.kernels import Kernel
from tuner.errors import UsageError
from tuner.settings import load_settings
from tuner.target.detect import parse_target
from tuner.workload.spec import parse_spec
from tuner.workload.workload import Workload

TARGET = parse_target("cpu")


@pytest.fixture
def database(home: Path) -> Iterator[Database]:
    opened = new_database(load_settings().values.db)
    promote_products(opened, TARGET)
    yield opened
    opened.close()


@pytest.fixture
def recorded(database: Database) -> tuple[Workload, Kernel]:
    return recorded_kernels(database, TARGET, 1, [])[0]


def checked(
    recorded: tuple[Workload, Kernel], *ratios: float, tolerance: float = 0.0
) -> tuple[Checked, int]:
    """The verdict on races whose times are these multiples of the record's, with intervals of
    1% to each side, and how many races it took."""
    workload, kernel = recorded
    assert kernel.ci95_s == pytest.approx((0.99 * kernel.median_s, 1.01 * kernel.median_s))
    medians = [ratio * kernel.median_s for ratio in ratios]
    entries = [
        Entry(name="kernel", median_s=median_s, ci95_s=(0.99 * median_s, 1.01 * median_s))
        for median_s in medians
    ]
    left = iter(entries)
    verdict = check(workload, kernel, lambda *_: next(left), tolerance)
    return verdict, len(entries) - len(list(left))


def test_a_time_whose_interval_meets_the_recorded_one_is_kept(
    recorded: tuple[Workload, Kernel],
) -> None:
    for ratio in (0.5, 1.0, 1.019):
        each, races = checked(recorded, ratio, 9.0)
        assert each.verdict == "kept" and races == 1
        assert each.slower_percent == pytest.approx(100 * (ratio - 1))


def test_a_loss_is_one_that_two_races_show(recorded: tuple[Workload, Kernel]) -> None:
    each, races = checked(recorded, 1.5, 1.2)
    assert each.verdict == "lost" and races == 2
    assert each.slower_percent == pytest.approx(20)  # the better of the two
    each, races = checked(recorded, 1.5, 1.0)
    assert each.verdict == "kept" and races == 2


def test_a_tolerance_moves_the_end_of_the_interval(recorded: tuple[Workload, Kernel]) -> None:
    assert checked(recorded, 1.1, 1.1, tolerance=0.05)[0].verdict == "lost"
    assert checked(recorded, 1.1, 1.1, tolerance=0.1)[0].verdict == "kept"


def test_a_kernel_that_no_longer_runs_has_failed(recorded: tuple[Workload, Kernel]) -> None:
    def broken(workload: Workload, kernel: Kernel) -> Entry:
        raise RaceError("wrong_answer at 3")

    each = check(*recorded, broken)
    assert (each.verdict, each.entry, each.slower_percent) == ("failed", None, None)
    assert each.error == "wrong_answer at 3"


def test_all_kernels_or_those_asked_for(database: Database) -> None:
    everything = recorded_kernels(database, TARGET, 1, [])
    assert sorted(workload.params["M"] for workload, _ in everything) == sorted(EXTENTS)
    asked = parse_spec("matmul:M=48,N=64,K=64")
    ((workload, kernel),) = recorded_kernels(database, TARGET, 1, [asked])
    assert workload.key == kernel.workload == asked.key


def test_a_check_of_nothing_does_not_pass(database: Database) -> None:
    with pytest.raises(UsageError, match="nothing to check"):
        recorded_kernels(database, TARGET, 64, [])
    with pytest.raises(UsageError, match=r"no kernel of matmul:M=5,.*tune it first"):
        recorded_kernels(database, TARGET, 1, [parse_spec("matmul:M=5,N=64,K=64")])
