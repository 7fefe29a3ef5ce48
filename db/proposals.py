"""Configs that a caller proposes for a job of the strategy `external`.

They are events of the job, of kind `proposal`: numbered, committed once, and read again in
their order by whoever continues the job. Each workload's proposals count from 0, so that a
caller that was cut off learns where to go on, and a batch sent twice is taken once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from tuner.db import events
from tuner.db.engine import Session
from tuner.db.errors import IllegalTransition
from tuner.db.jobs import FINISHED, locked_row
from tuner.db.tables import EventRow
from tuner.db.values import config_from_json, plain
from tuner.spaces.core.space import Config

PROPOSAL = "proposal"  # kind of the events


class ProposalConflict(IllegalTransition):
    """The batch does not follow, or does not equal, what was proposed before."""

    code = "proposal_conflict"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """All that was proposed for one workload of a job."""

    configs: tuple[Config, ...]
    closed: bool


def read(session: Session, job_id: str, position: int) -> Proposed:
    """In the order in which they were proposed."""
    rows = session.scalars(
        select(EventRow.data)
        .where(EventRow.job_id == job_id, EventRow.kind == PROPOSAL)
        .order_by(EventRow.sequence)
    )
    batches = [data for data in rows if data["task"] == position]
    return Proposed(
        configs=tuple(config_from_json(config) for data in batches for config in data["configs"]),
        closed=any(data["closed"] for data in batches),
    )


def propose(
    session: Session,
    job_id: str,
    position: int,
    *,
    first: int,
    configs: Sequence[Config],
    close: bool,
) -> Proposed:
    """Adds the configs from number `first` on; those that are there already must be equal.

    Returns all of the workload's. Raises IllegalTransition for a job that has ended,
    ProposalConflict for a gap, for another config under a number, or behind the last.
    """
    row = locked_row(session, job_id)
    before = read(session, job_id, position)
    total = len(before.configs)
    if first > total:
        raise ProposalConflict(
            f"proposals begin at {first}, but only {total} are there; send those from {total} on"
        )
    given = tuple(config_from_json(dict(config)) for config in configs)
    again = given[: total - first]
    for number, config in enumerate(again, first):
        if config != before.configs[number]:
            raise ProposalConflict(
                f"proposal {number} is another config than the one that was sent before; new "
                f"ones begin at {total}"
            )
    fresh = given[len(again) :]
    if before.closed and fresh:
        raise ProposalConflict(f"the proposals were closed after {total}; no more can be added")
    if not fresh and (not close or before.closed):
        return before
    if row.state in FINISHED:
        raise IllegalTransition(f"job {job_id} is {row.state} and takes no proposals")
    data: dict[str, Any] = {
        "task": position,
        "first": total,
        "configs": plain([dict(config) for config in fresh]),
        "closed": close,
    }
    events.append(session, job_id, PROPOSAL, data)
    return Proposed(configs=(*before.configs, *fresh), closed=close or before.closed)
