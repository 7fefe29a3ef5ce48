"""Canaries, the same on both databases: they wait, win again, and take the champion's place."""

from __future__ import annotations

import pytest

from tests.support.canaries import as_new, champion_and_canary
from tests.support.database_samples import ManualClock
from tests.support.kernel_samples import many_kernels
from tuner.db import canaries, kernels, promotions, races
from tuner.db.engine import Database
from tuner.db.errors import IllegalTransition
from tuner.db.kernels import CANARY, PROMOTED, ROLLED_BACK, SUPERSEDED
from tuner.db.races import CONFIRM_AFTER
from tuner.measure.regression import CANARY as CONTENDER
from tuner.measure.regression import Contest, RaceRecord
from tuner.measure.statistics import Ratio

NEEDED = 3


def state_of(database: Database, kernel: str) -> str:
    with database.read() as session:
        return kernels.get(session, kernel).state


def raced(database: Database, champion: str, canary: str, ratios: list[float]) -> list[str]:
    """The canary's state after each race, in which it took so much of the champion's time."""
    states = []
    for ratio in ratios:
        contest = Contest(
            contender=CONTENDER,
            version=canary,
            median_s=1e-3,
            ci95_s=(0.99e-3, 1.01e-3),
            ratio=Ratio(value=ratio, ci95=(ratio * 0.98, ratio * 1.02)),
        )
        record = RaceRecord(median_s=1e-3, ci95_s=(0.99e-3, 1.01e-3), contests=(contest,))
        with database.write() as session:
            races.record(session, champion, record, {})
            settled = canaries.settle(session, champion, NEEDED)
        states.append("none" if settled is None else settled.state)
    return states


def test_a_canary_waits_and_is_promoted_after_its_races(database: Database) -> None:
    champion, canary = champion_and_canary(database)
    assert (state_of(database, champion), state_of(database, canary)) == (PROMOTED, CANARY)
    # One that is not surely won begins the count anew.
    assert raced(database, champion, canary, [0.5, 0.5, 0.99]) == [CANARY] * 3
    assert raced(database, champion, canary, [0.5] * 3) == [CANARY, CANARY, PROMOTED]
    assert state_of(database, champion) == SUPERSEDED
    with database.write() as session:
        assert kernels.get(session, canary).previous == champion
        restored = promotions.rollback(session, canary)
    assert restored is not None and restored.id == champion
    assert state_of(database, canary) == ROLLED_BACK


def test_a_canary_that_surely_loses_is_withdrawn(database: Database) -> None:
    champion, canary = champion_and_canary(database)
    assert raced(database, champion, canary, [0.5, 1.2, 0.5]) == [CANARY, ROLLED_BACK, "none"]
    assert state_of(database, champion) == PROMOTED


def test_a_newer_canary_takes_the_place_of_the_one_before(database: Database) -> None:
    champion, first = champion_and_canary(database)
    raced(database, champion, first, [0.5, 0.5])
    with database.write() as session:
        second = promotions.promote(
            session, as_new(kernels.get(session, champion), champion), canary=True
        ).id
    assert state_of(database, first) == SUPERSEDED
    assert raced(database, champion, second, [0.5] * 3) == [CANARY, CANARY, PROMOTED]


def test_without_a_champion_or_beside_a_stale_one_nobody_waits(database: Database) -> None:
    (champion,) = many_kernels(database, 1)
    with database.write() as session:
        stored = kernels.get(session, champion)
        kernels.mark_stale(session, stored.target, "the compiler is another one")
        after = promotions.promote(session, as_new(stored, champion), canary=True)
        assert after.state == PROMOTED
        promotions.rollback(session, after.id)
        promotions.rollback(session, champion)
        assert promotions.promote(session, as_new(stored, None), canary=True).state == PROMOTED


def test_promotion_by_hand_and_withdrawal(database: Database) -> None:
    champion, canary = champion_and_canary(database)
    with database.write() as session:
        with pytest.raises(IllegalTransition, match="only a canary can be promoted"):
            promotions.promote_canary(session, champion)
        kept = promotions.rollback(session, canary)
        assert kept is not None and kept.id == champion
        with pytest.raises(IllegalTransition, match="only a canary can be promoted"):
            promotions.promote_canary(session, canary)


def test_a_champion_with_a_canary_is_raced_soon(database: Database, clock: ManualClock) -> None:
    champion, canary = champion_and_canary(database)
    raced(database, champion, canary, [0.99] * 4)
    with database.read() as session:
        target = kernels.get(session, champion).target
    clock.advance(CONFIRM_AFTER.total_seconds() + 1)
    with database.read() as session:
        due = races.due(session, target, every=100 * CONFIRM_AFTER, libraries={})
    assert [each.kernel for each in due] == [champion]
