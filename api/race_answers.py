"""Converts records of races and regressions into answers, without queries."""

from __future__ import annotations

from typing import cast

from tuner.api.race_schemas import ContestAnswer, RaceAnswer, RegressionAnswer, RegressionState
from tuner.db.races import Regression, StoredRace
from tuner.measure.regression import Contest, Kind


def race(stored: StoredRace) -> RaceAnswer:
    record = stored.record
    return RaceAnswer(
        raced_at=stored.raced_at,
        libraries=dict(stored.libraries),
        median_s=None if record is None else record.median_s,
        ci95_s=None if record is None else record.ci95_s,
        disturbed=record is not None and record.disturbed,
        error=stored.error,
        contests=[] if record is None else [_contest(each) for each in record.contests],
    )


def _contest(contest: Contest) -> ContestAnswer:
    return ContestAnswer(
        contender=contest.contender,
        version=contest.version,
        median_s=contest.median_s,
        ci95_s=contest.ci95_s,
        ratio=contest.ratio.value,
        ratio_ci95=contest.ratio.ci95,
    )


def regression(stored: Regression) -> RegressionAnswer:
    return RegressionAnswer(
        id=stored.id,
        kernel=stored.kernel,
        kind=Kind(stored.kind).value,
        contender=stored.contender or None,
        version=stored.version or None,
        state=cast(RegressionState, stored.state),
        factor=stored.factor,
        suspected_at=stored.suspected_at,
        raised_at=stored.raised_at,
        ended_at=stored.ended_at,
    )
