"""Who takes part in a promotion, the fastest trials whose code differs, and when it races."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.task_preparation import preparing
from tuner.db.engine import open_database
from tuner.export.artifacts import ArtifactStore
from tuner.measure.outcome import Conditions, Timed, Trial
from tuner.workers.fleet.actors import FIRST_CALL_S
from tuner.workers.fleet.messages import (
    BuildFinalists,
    BuildRequest,
    Built,
    Control,
    ControlReply,
    Library,
    Limits,
    RaceOutcome,
)
from tuner.workers.fleet.shipping import SUFFIXES
from tuner.workers.jobs.contest import ANSWER_S, RACE_S, Contest, Promotion, contested, distinct
from tuner.workers.jobs.options import Interrupted


def trial(
    number: int, seconds: float, artifact: str, *, abandoned: bool = False, reused: bool = False
) -> Trial:
    conditions = Conditions(lane="cpu:1", isolation="process", abandoned=abandoned, reused=reused)
    outcome = Timed(
        samples_s=(seconds,), max_rel_error=0.0, conditions=conditions, artifact=artifact
    )
    return Trial(number=number, config={"knob": number} if number else {}, outcome=outcome)


def test_finalists_have_different_code_and_were_timed_to_the_end() -> None:
    best = [
        trial(4, 1.0, "a"),
        trial(7, 1.0, "a", reused=True),
        trial(0, 1.5, "default"),
        trial(2, 2.0, "b"),
        trial(3, 3.0, "c", abandoned=True),
        trial(5, 4.0, "d"),
    ]
    assert [trial.number for trial in distinct(best, 3)] == [4, 2, 5]
    assert [trial.number for trial in distinct(best, 1)] == [4]
    assert distinct([trial(0, 1.0, "default")], 3) == []


def test_an_answer_is_waited_for_longer_than_the_fleet_may_take() -> None:
    """A race that is asked for again while the first still runs would only wait behind it."""
    preparation_s = FIRST_CALL_S + Limits().run_timeout_s
    assert 2 * preparation_s + RACE_S < ANSWER_S


class Fleet:
    """Builds everything, races nothing, and notes what it was asked in order."""

    def __init__(self, storage: Path, *, races: bool = True) -> None:
        self.storage, self.races = storage, races
        self.asked: list[str] = []

    def request_control(self, what: Control, **_: object) -> ControlReply:
        self.asked.append(type(what).__name__)
        if isinstance(what, BuildFinalists):
            value: tuple[Built | RaceOutcome, ...] = tuple(map(self._built, what.requests))
        elif self.races:
            value = (RaceOutcome(finalists=(), winner="trial 1", reason="the fastest"),)
        else:
            raise Interrupted
        return ControlReply(number=1, value=value, error=None)

    def _built(self, request: BuildRequest) -> Built:
        folder, digest = self.storage / request.keep, f"{request.number:064x}"
        folder.mkdir(parents=True)
        for suffix in SUFFIXES:
            (folder / f"{digest}{suffix}").touch()
        library = Library(sha256=digest, path=str(folder / f"{digest}.so"), symbol="k")
        return Built(number=request.number, result=library, started_s=0.0, ended_s=0.1)


def contest_on(fleet: Any, folder: Path) -> Contest:
    database = open_database(f"sqlite:///{folder / 'tuner.db'}", create=True)
    try:
        with ThreadPoolExecutor(1) as background:
            preparation, job, _ = preparing(database, background, "softmax:M=4,N=4")
            with preparation.prepared(job.tasks[0], job) as run:
                return contested(
                    Promotion(
                        run=replace(run, measurer=fleet),
                        best=[trial(1, 1.0, "a")],
                        artifacts=ArtifactStore(folder / "artifacts"),
                        check=lambda: None,
                        quiet=lambda contestants: fleet.asked.append(f"quiet for {contestants}"),
                    )
                )
    finally:
        database.close()


def test_a_race_begins_once_nothing_else_computes(tmp_path: Path) -> None:
    """Its contestants may be built before."""
    fleet = Fleet(tmp_path / "build")
    contest = contest_on(fleet, tmp_path)
    assert fleet.asked == ["BuildFinalists", "quiet for 2", "RunRace"]
    assert [entry.contestant.name for entry in contest.entries] == ["default", "trial 1"]


def test_what_was_built_for_a_race_is_deleted_with_it(tmp_path: Path) -> None:
    """A service's fleet builds for many races in the same folder."""
    fleet = Fleet(tmp_path / "build")
    contest = contest_on(fleet, tmp_path)
    folders = [Path(entry.contestant.path).parent for entry in contest.entries]
    assert sorted(folders) == sorted(fleet.storage.iterdir()) and len(folders) == 2
    contest.built.close()
    assert not [*fleet.storage.iterdir()]


def test_what_was_built_for_a_race_that_never_ran_is_deleted(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path / "build", races=False)
    with pytest.raises(Interrupted):
        contest_on(fleet, tmp_path)
    assert fleet.asked == ["BuildFinalists", "quiet for 2", "RunRace"]
    assert not [*fleet.storage.iterdir()]
