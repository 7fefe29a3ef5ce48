"""What each policy prefers, stated on accounts alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tuner.workers.fleet.policy import (
    CREDIT_S,
    POLICIES,
    Account,
    Fair,
    Fifo,
    JobShare,
    LaneShare,
    Pack,
    Place,
    PolicyName,
    Srtf,
)


def account(
    job: str,
    *,
    order: int = 0,
    priority: int = 0,
    threads: int = 1,
    memory_bytes: int = 0,
    trials_left: int = 0,
) -> Account:
    job_share = JobShare(
        job=job,
        order=order,
        priority=priority,
        threads=threads,
        memory_bytes=memory_bytes,
        trials_left=trials_left,
    )
    return Account(job_share)


def first(policy: PolicyName, *accounts: Account) -> str:
    return min(accounts, key=POLICIES[policy].build).job_share.job


def test_fifo_serves_the_first_claimed_unless_another_is_more_urgent() -> None:
    early, late = account("early", order=1), account("late", order=2)
    early.charged_s = 100.0
    assert first("fifo", late, early) == "early"
    assert first("fifo", account("urgent", order=3, priority=1), early) == "urgent"


def test_fair_serves_who_has_had_least() -> None:
    much, little = account("much", order=1), account("little", order=2)
    much.charged_s, little.charged_s = 2.0, 1.0
    assert first("fair", much, little) == "little"


def test_fair_doubles_the_share_with_each_priority() -> None:
    plain, urgent = account("plain", order=1), account("urgent", order=2, priority=1)
    plain.charged_s, urgent.charged_s = 1.0, 1.9
    assert first("fair", plain, urgent) == "urgent"
    urgent.charged_s = 2.1
    assert first("fair", plain, urgent) == "plain"
    assert account("x", priority=2**31 - 1).job_share.weight == 1024.0
    assert account("x", priority=-(2**31)).job_share.weight == 1 / 1024


def test_fair_counts_what_is_under_way() -> None:
    waiting, holding = account("waiting", order=2), account("holding", order=1)
    holding.measuring = 1
    assert Fair().lane(waiting, Place()) < Fair().lane(holding, Place())
    holding.measuring, holding.building = 0, 3
    assert first("fair", waiting, holding) == "waiting"


def test_a_job_that_comes_late_or_was_away_does_not_have_the_lanes_to_itself() -> None:
    late = account("late")
    late.level(100.0, credit_s=0.0)
    assert late.virtual_s == 100.0
    away = account("away")
    away.charged_s = 40.0
    away.level(100.0, credit_s=CREDIT_S)
    assert away.virtual_s == pytest.approx(100.0 - CREDIT_S)
    ahead = account("ahead")
    ahead.charged_s = 120.0
    ahead.level(100.0, credit_s=CREDIT_S)
    assert ahead.virtual_s == 120.0


def test_srtf_serves_the_job_that_ends_first() -> None:
    many, few = account("many", trials_left=100), account("few", trials_left=90)
    assert first("srtf", many, few) == "few"
    few.lane_s = 1.0  # fewer, but longer
    assert first("srtf", many, few) == "many"
    few.job_share = replace(few.job_share, seconds_left=0.5)
    assert first("srtf", many, few) == "few"


def test_pack_gives_a_lane_to_the_job_that_fills_it() -> None:
    small, large = account("small", order=1, threads=1), account("large", order=2, threads=4)
    wide, narrow = Place(threads=4), Place(threads=1)
    assert Pack().lane(large, wide) < Pack().lane(small, wide)
    assert Pack().lane(small, narrow) < Pack().lane(small, wide)
    assert not narrow.fits(large.job_share) and wide.fits(small.job_share)


def test_pack_looks_at_memory_first_where_the_lane_has_its_own() -> None:
    heavy, wide = (
        account("heavy", memory_bytes=90, threads=1),
        account("wide", memory_bytes=10, threads=4),
    )
    gpu = Place(threads=4, memory_bytes=100)
    assert Pack().lane(heavy, gpu) < Pack().lane(wide, gpu)
    assert not Place(threads=4, memory_bytes=50).fits(heavy.job_share)


def test_pack_builds_what_lanes_run_short_of() -> None:
    supplied, short = account("supplied", order=1), account("short", order=2)
    supplied.ready, supplied.lanes = 4, 8
    short.ready, short.lanes = 3, 2
    assert first("pack", supplied, short) == "supplied"
    supplied.ready = 16
    assert first("pack", supplied, short) == "short"


@pytest.mark.parametrize("policy", [Fifo(), Srtf(), Pack()])
def test_priority_goes_first_and_quota_before_it(policy: Fifo | Srtf | Pack) -> None:
    plain, urgent = (
        account("plain", order=1, trials_left=1),
        account("urgent", order=2, priority=1, trials_left=1000, threads=1),
    )
    assert policy.build(urgent) < policy.build(plain)
    urgent.over_quota = True
    assert policy.build(plain) < policy.build(urgent)


def test_an_owner_over_its_share_is_marked_until_it_is_forgotten() -> None:
    accounts = {
        "a": Account(JobShare(job="a", owner="x")),
        "b": Account(JobShare(job="b", owner="y")),
    }
    share = LaneShare(most=0.6, half_life_s=10.0)
    share.note("x", 7.0, at_s=0.0)
    share.note("y", 3.0, at_s=0.0)
    share.mark(accounts)
    assert accounts["a"].over_quota and not accounts["b"].over_quota
    share.note("y", 1.0, at_s=20.0)
    share.mark(accounts)
    assert not accounts["a"].over_quota


def test_without_a_bound_nobody_is_over_it() -> None:
    accounts = {"a": Account(JobShare(job="a"))}
    share = LaneShare()
    share.note("", 7.0, at_s=0.0)
    share.mark(accounts)
    assert not accounts["a"].over_quota
