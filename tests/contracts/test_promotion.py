"""Promotion, on both databases: one kernel holds a place, what it replaced comes back,
what may have aged is marked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.contracts.together import together
from tests.support.database_samples import ManualClock, add_claimed, sample_kernel
from tuner.db import events, jobs, kernels, promotions
from tuner.db.engine import Database
from tuner.db.errors import IllegalTransition, IncumbentChanged


def test_promotion_supersedes_and_rolls_back(database: Database, clock: ManualClock) -> None:
    lease = add_claimed(database)
    with database.write() as session:
        first = promotions.promote(session, sample_kernel(session), lease=lease)
    clock.advance(1)
    with database.write() as session:
        second = promotions.promote(
            session, sample_kernel(session, median_s=5e-4, previous=first.id), lease=lease
        )
    with database.read() as session:
        promoted = kernels.find_promoted(session, first.workload, first.target, 1)
        assert (
            promoted == second
            and promoted.config["tile"] == (4, 8)
            and promoted.ci95_s == (5e-4 * 0.9, 5e-4 * 1.1)
        )
        assert kernels.schedule(session, second.id)["versions"] == {"tvm": "0.27"}
        assert [kernel.id for kernel in kernels.lineage(session, second.id)] == [
            second.id,
            first.id,
        ]
        assert kernels.get(session, first.id).state == kernels.SUPERSEDED
        assert jobs.get(session, lease.job_id).tasks[0].kernel == second.id
        assert [event.data["kernel"] for event in events.after(session, lease.job_id, 2)] == [
            first.id,
            second.id,
        ]
        newest = kernels.list_page(session, state=(), limit=1)
        older = kernels.list_page(session, state=(), cursor=newest.next)
        assert [kernel.id for kernel in (*newest.items, *older.items)] == [second.id, first.id]
    with database.write() as session:
        restored = promotions.rollback(session, second.id)
        assert restored is not None and (restored.id, restored.state) == (
            first.id,
            kernels.PROMOTED,
        )
    with pytest.raises(IllegalTransition, match="rolled back"), database.write() as session:
        promotions.rollback(session, second.id)
    with database.write() as session:
        assert promotions.rollback(session, first.id) is None
        assert kernels.find_promoted(session, first.workload, first.target, 1) is None


def test_only_one_of_concurrent_promotions_wins(database: Database) -> None:
    with database.write() as session:
        sample_kernel(session)
    outcomes: list[str] = []

    def promote(index: int) -> None:
        try:
            with database.write() as session:
                promotions.promote(session, sample_kernel(session, median_s=1e-3 * (index + 1)))
            outcomes.append("won")
        except IncumbentChanged:
            outcomes.append("changed")

    together(4, promote)
    assert sorted(outcomes) == ["changed", "changed", "changed", "won"]
    with database.read() as session:
        assert len(kernels.list_page(session, state=()).items) == 1


def test_a_kernel_of_a_race_with_a_wide_interval_is_disturbed(database: Database) -> None:
    with database.write() as session:
        new = sample_kernel(session, median_s=1e-3)
        wide = promotions.promote(session, replace(new, ci95_s=(0.95e-3, 1.1e-3)))
        quiet = replace(new, ci95_s=(0.99e-3, 1.01e-3), previous=wide.id)
        assert (wide.disturbed, promotions.promote(session, quiet).disturbed) == (True, False)


def test_stale_kernels_are_marked_until_validated(database: Database, clock: ManualClock) -> None:
    with database.write() as session:
        kernel = promotions.promote(session, sample_kernel(session))
        assert kernels.mark_stale(session, kernel.target, "TVM changed") == 1
        assert kernels.get(session, kernel.id).stale == "TVM changed"
        clock.advance(5)
    with database.write() as session:
        kernels.mark_validated(session, kernel.id)
        assert (
            kernels.get(session, kernel.id).stale,
            kernels.get(session, kernel.id).validated_at,
        ) == (None, clock())
        assert [near.id for near in kernels.neighbours(session, "copy", kernel.target, 1)] == [
            kernel.id
        ]
