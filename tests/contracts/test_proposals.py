"""Proposals of an external searcher, on both databases: each is taken once, in its order."""

from __future__ import annotations

import pytest

from tests.contracts.together import together
from tests.support.database_samples import add_claimed
from tuner.db import leases, proposals
from tuner.db.engine import Database
from tuner.db.errors import IllegalTransition
from tuner.db.proposals import ProposalConflict, Proposed
from tuner.spaces.core.space import Config


def configs(first: int, count: int) -> list[Config]:
    return [{"sketch": "tiles", "tile": (number, 8)} for number in range(first, first + count)]


def propose(
    database: Database, job: str, first: int, count: int, *, close: bool = False
) -> Proposed:
    with database.write() as session:
        return proposals.propose(
            session, job, 0, first=first, configs=configs(first, count), close=close
        )


@pytest.fixture
def job(database: Database) -> str:
    return add_claimed(database).job_id


def test_batches_follow_each_other_and_one_that_is_sent_twice_is_taken_once(
    database: Database, job: str
) -> None:
    propose(database, job, 0, 3)
    assert propose(database, job, 0, 3).configs == tuple(configs(0, 3))
    # Of a batch that was cut off, what is new.
    assert propose(database, job, 1, 5).configs == tuple(configs(0, 6))
    with database.read() as session:
        assert proposals.read(session, job, 0) == Proposed(
            configs=tuple(configs(0, 6)), closed=False
        )
        assert proposals.read(session, job, 1).configs == ()


def test_gaps_and_other_configs_under_a_number_are_refused(database: Database, job: str) -> None:
    propose(database, job, 0, 3)
    with pytest.raises(ProposalConflict, match="send those from 3 on"):
        propose(database, job, 4, 1)
    with database.write() as session, pytest.raises(ProposalConflict, match="proposal 2 is"):
        proposals.propose(session, job, 0, first=2, configs=configs(7, 2), close=False)


def test_nothing_follows_the_last_proposal_or_the_end_of_the_job(
    database: Database, job: str
) -> None:
    assert propose(database, job, 0, 2, close=True).closed
    assert propose(database, job, 0, 2, close=True).configs == tuple(configs(0, 2))
    with pytest.raises(ProposalConflict, match="closed after 2"):
        propose(database, job, 2, 1)


def test_a_job_that_has_ended_takes_none(database: Database) -> None:
    lease = add_claimed(database)
    with database.write() as session:
        leases.finish(session, lease, "succeeded")
    with pytest.raises(IllegalTransition, match="takes no proposals"):
        propose(database, lease.job_id, 0, 1)


def test_of_callers_at_once_one_has_the_number(database: Database, job: str) -> None:
    outcomes: list[str] = []

    def add(index: int) -> None:
        try:
            with database.write() as session:
                own = configs(10 * index, 2)
                proposals.propose(session, job, 0, first=0, configs=own, close=False)
            outcomes.append("taken")
        except ProposalConflict:
            outcomes.append("refused")

    together(4, add)
    assert sorted(outcomes) == ["refused", "refused", "refused", "taken"]
