"""The rule by which a canary is promoted, or withdrawn: its races beside the champion.

The champion is the promoted kernel. A canary is one that beat it once, when it was found.
It is promoted after as many undisturbed races in a row in which it is surely faster, and
withdrawn by one in which it is surely slower.
"""

from __future__ import annotations

from tuner.db import kernels, promotions, races
from tuner.db.engine import Session
from tuner.db.kernels import Kernel
from tuner.measure.regression import CANARY, Contest


def settle(session: Session, champion: str, needed: int) -> Kernel | None:
    """Promotes or withdraws the canary of a champion by its races so far.

    `needed` races must be won. Returns the canary as it is then, None where there is none.
    """
    kernel = kernels.get(session, champion)
    canary = kernels.find_canary(
        session, kernel.workload, kernel.target, kernel.threads, cache=kernel.cache
    )
    if canary is None:
        return None
    contests = _contests(session, champion, canary.id)
    if contests and contests[-1].ratio.ci95[0] > 1.0:
        promotions.rollback(session, canary.id)
    elif len(contests) >= needed and all(
        contest.ratio.surely_faster for contest in contests[-needed:]
    ):
        promotions.promote_canary(session, canary.id)
    return kernels.get(session, canary.id)


def _contests(session: Session, champion: str, canary: str) -> list[Contest]:
    """The undisturbed contests of both, in order of time."""
    return [
        contest
        for stored in races.series(session, champion)
        if stored.record is not None and not stored.record.disturbed
        for contest in stored.record.contests
        if (contest.contender, contest.version) == (CANARY, canary) and not contest.disturbed
    ]
