"""Which waiting job is claimed: the urgent first, within quotas, never one past another
that waits for other lanes."""

from __future__ import annotations

from tests.support.admitted_jobs import job
from tuner.db.jobs import Job
from tuner.workers.fleet.policy import PolicyName
from tuner.workers.jobs.admission import Quotas, admitted

ROOM = Quotas(running_jobs=4)


def choose(
    waiting: list[Job], running: list[Job], quotas: Quotas = ROOM, *, policy: PolicyName = "fair"
) -> str | None:
    job = admitted(
        waiting,
        running,
        quotas,
        policy=policy,
        same_fleet=lambda first, second: first.threads == second.threads,
    )
    return None if job is None else job.id


def test_the_most_urgent_is_claimed_while_there_is_room() -> None:
    assert choose([job("a"), job("b")], []) == "a"
    assert choose([job("a")], [job(name) for name in "wxyz"]) is None
    assert choose([], []) is None


def test_a_key_with_enough_running_is_passed_over() -> None:
    quotas = Quotas(running_jobs=4, running_per_key=1)
    assert choose([job("a", owner="x"), job("b", owner="y")], [job("r", owner="x")], quotas) == "b"
    assert choose([job("a", owner="x")], [job("r", owner="x")], quotas) is None
    assert choose([job("a")], [job("r")], quotas) is None  # without keys all are one


def test_a_job_for_other_lanes_waits_and_is_not_overtaken() -> None:
    waiting = [job("wide", threads=2), job("narrow")]
    assert choose(waiting, [job("r")]) is None
    assert choose(waiting, []) == "wide"


def test_least_remaining_work_is_claimed_first_where_that_is_the_policy() -> None:
    waiting = [
        job("large", trials=500),
        job("nearly", trials=1000, done=990),
        job("small", trials=50),
    ]
    assert choose(waiting, [], policy="srtf") == "nearly"
    assert choose([*waiting, job("urgent", trials=9999, priority=1)], [], policy="srtf") == "urgent"
    assert choose(waiting, [], policy="fair") == "large"


def test_a_model_waits_for_an_equal_job_that_runs() -> None:
    waiting = [job("a", model="m", owner="x"), job("b", model="n"), job("c")]
    assert choose(waiting, []) == "a"
    assert choose(waiting, [job("r", model="m", owner="y", priority=1)]) == "b"
    assert choose(waiting, [job("r", model="m", trials=7)]) == "a"
    assert choose([job("a")], [job("r")]) == "a"  # whose workloads may be any


def test_a_job_that_runs_here_is_not_claimed_again() -> None:
    assert choose([job("a"), job("b")], [job("a")]) == "b"
