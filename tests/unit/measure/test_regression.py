"""When a kernel that was good no longer is: what one race says, and how many must agree."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.measure.regression import (
    BASE,
    CONFIRMATIONS,
    DEFAULT,
    Contest,
    Kind,
    Progress,
    RaceRecord,
    State,
    advanced,
    evidence,
)
from tuner.measure.statistics import Ratio


def around(value: float, part: float = 0.01) -> tuple[float, float]:
    return value * (1 - part), value * (1 + part)


def contest(name: str, ratio: float, version: str = "1", width: float = 0.01) -> Contest:
    return Contest(
        contender=name,
        version=version,
        median_s=1e-3,
        ci95_s=around(1e-3, width),
        ratio=Ratio(value=ratio, ci95=around(ratio)),
    )


def record(median_s: float, *contests: Contest, width: float = 0.01) -> RaceRecord:
    return RaceRecord(median_s=median_s, ci95_s=around(median_s, width), contests=contests)


def lost(before: list[RaceRecord], now: RaceRecord) -> list[tuple[Kind, str]]:
    return [(each.kind, each.contender) for each in evidence(before, now) if each.lost]


BEFORE = [record(1.0, contest("torch", 1.5), contest(DEFAULT, 3.0))] * BASE


@pytest.mark.parametrize(
    ("now", "kinds"),
    [
        (record(1.2, contest("torch", 1.25), contest(DEFAULT, 2.5)), [(Kind.SLOWER, "")]),
        # The machine is slower: so is everything else.
        (record(1.2, contest("torch", 1.5), contest(DEFAULT, 3.0)), []),
        # Beside a control that was upgraded nothing can be said; beside another it can.
        (record(1.2, contest("torch", 1.25, "2")), []),
        (record(1.2, contest("torch", 1.5, "2"), contest(DEFAULT, 2.5)), [(Kind.SLOWER, "")]),
        # Within the margin.
        (record(1.04, contest("torch", 1.44), contest(DEFAULT, 2.88)), []),
        # The library became faster: by too little, and by enough.
        (record(1.0, contest("torch", 1.1, "2"), contest(DEFAULT, 3.0)), []),
        (
            record(1.0, contest("torch", 0.9, "2"), contest(DEFAULT, 3.0)),
            [(Kind.OVERTAKEN, "torch")],
        ),
        # The default schedule is no library.
        (record(1.0, contest("torch", 1.5), contest(DEFAULT, 0.5, "2")), []),
        # Disturbed, as a whole or beside the library.
        (record(2.0, contest("torch", 0.75), contest(DEFAULT, 1.5), width=0.2), []),
        (record(1.0, contest("torch", 0.75, "2", width=0.2), contest(DEFAULT, 3.0)), []),
        # A library that was not there before.
        (record(1.0, contest("onednn", 0.5), contest(DEFAULT, 3.0)), []),
    ],
)  # fmt: skip
def test_what_a_race_says(now: RaceRecord, kinds: list[tuple[Kind, str]]) -> None:
    assert lost(BEFORE, now) == kinds


def test_without_a_base_nothing_is_lost() -> None:
    now = record(5.0, contest("torch", 0.1), contest(DEFAULT, 0.2))
    assert lost(BEFORE[:-1], now) == [] and len(lost(BEFORE, now)) == 2
    noisy = record(1.0, contest("torch", 1.5), width=0.3)
    assert lost([*BEFORE[:-1], noisy], now) == []


def test_what_was_behind_before_was_not_overtaken() -> None:
    before = [record(1.0, contest("torch", 0.8))] * BASE
    assert lost(before, record(1.0, contest("torch", 0.5))) == []


def test_a_slow_drift_is_seen_as_the_base_stays() -> None:
    drift = [
        record(1.0 + 0.01 * day, contest(DEFAULT, 3.0 / (1 + 0.01 * day))) for day in range(12)
    ]
    assert lost(drift[:-1], drift[-1]) == [(Kind.SLOWER, "")]


@given(st.lists(st.booleans(), max_size=40))
def test_raised_and_resolved_are_as_many_races_in_a_row(says: list[bool]) -> None:
    progress: Progress | None = None
    for number, each in enumerate(says):
        progress = advanced(progress, each)
        latest = says[max(0, number - CONFIRMATIONS) : number + 1]
        match progress:
            case Progress(state=State.RAISED) if progress.agreeing == CONFIRMATIONS + 1:
                assert progress.contrary or all(latest)
            case Progress(state=State.RESOLVED):
                assert not any(latest) and len(latest) == CONFIRMATIONS + 1
            case Progress(state=State.DISMISSED):
                assert not each
            case None:
                assert not each
            case _:
                pass
        if progress is not None and progress.state in (State.DISMISSED, State.RESOLVED):
            progress = None
