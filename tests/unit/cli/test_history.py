"""`jobs`, `show`, `trials`, `cancel`, `best` on a database with a job in it, for people
and as documents."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.database_samples import sample_kernel
from tests.support.databases import new_database
from tests.support.targets import ZEN5
from tuner.app.jobs.lifecycle import requeue, submit
from tuner.db import leases, promotions, trials, workloads
from tuner.db.engine import Database
from tuner.db.errors import LeaseHeld
from tuner.db.jobs import Job
from tuner.measure.outcome import Conditions, Failed, FailureKind, Timed, Trial
from tuner.settings import load_settings
from tuner.workload.spec import parse_spec, to_document

SPEC = "matmul:M=32,N=32,K=32"


@pytest.fixture
def database(home: Path) -> Iterator[Database]:
    """The user's default database."""
    opened = new_database(load_settings().values.db)
    yield opened
    opened.close()


@pytest.fixture
def job(database: Database) -> Job:
    """Three trials of a cancelled job: the default, a faster one, a failure."""
    made = submit(
        database,
        [parse_spec(SPEC)],
        ZEN5,
        load_settings({"trials": 7, "seconds": 60.0}).values,
    )
    conditions = Conditions(lane="cpu:1", isolation="none")
    with database.write() as session:
        _, lease = leases.claim(session, made.id, owner="test")
        for number, seconds in ((0, 2e-3), (1, 1e-3)):
            outcome = Timed(
                samples_s=(seconds,),
                max_rel_error=1e-7,
                conditions=conditions,
                artifact=f"{number:064x}",
            )
            trials.record(
                session,
                lease,
                Trial(number=number, config={"tile": (4, 8)} if number else {}, outcome=outcome),
            )
        failure = Failed(kind=FailureKind.BUILD_TIMEOUT, message="not built within 30 s")
        trials.record(session, lease, Trial(number=2, config={"tile": (8, 8)}, outcome=failure))
        leases.release(session, lease)
    return made


def test_an_empty_database_is_an_empty_list(tuner: Callable[..., Any]) -> None:
    assert tuner("jobs", "--json").document == {"items": [], "next": None}
    assert tuner("best", "--json").document == {"items": [], "next": None}


def test_jobs_lists_what_was_asked_for(tuner: Callable[..., Any], job: Job) -> None:
    line = tuner("jobs").out.splitlines()[1]
    assert line.startswith(job.id) and "queued" in line and "3/7" in line and "1.00 ms" in line
    (item,) = tuner("jobs", "--json").document["items"]
    assert (item["id"], item["state"], item["trials"], item["seconds"]) == (
        job.id,
        "queued",
        7,
        60.0,
    )
    assert item["tasks"][0]["workload"]["params"]["M"] == 32
    assert item["tasks"][0]["trials_done"] == 3 and item["tasks"][0]["best_median_s"] == 1e-3


def test_jobs_can_be_limited_to_states(tuner: Callable[..., Any], job: Job) -> None:
    assert tuner("jobs", "--json", "--state", "running").document["items"] == []
    assert (
        len(tuner("jobs", "--json", "--state", "running", "--state", "queued").document["items"])
        == 1
    )


def test_show_takes_an_id_or_last(tuner: Callable[..., Any], job: Job) -> None:
    shown = tuner("show", "last")
    assert shown.out == tuner("show", job.id).out
    assert "7 trials or 1 min 00 s for each workload; annealing, seed 0, threads 1" in shown.out
    assert tuner("show", "last", "--json").document["id"] == job.id


def test_trials_has_the_fields_scripts_rely_on(tuner: Callable[..., Any], job: Job) -> None:
    document = tuner("trials", job.id, "--json").document
    assert document["next"] is None
    default, faster, failed = document["items"]
    assert (
        default["number"],
        default["config"],
        default["outcome"],
        default["median_s"],
        default["error"],
    ) == (
        0,
        {},
        "ok",
        2e-3,
        None,
    )
    assert (faster["config"], faster["median_s"]) == ({"tile": [4, 8]}, 1e-3)
    assert (failed["outcome"], failed["median_s"], failed["error"]) == (
        "build_timeout",
        None,
        "not built within 30 s",
    )


def test_trials_can_be_limited_to_outcomes(tuner: Callable[..., Any], job: Job) -> None:
    assert [
        item["number"]
        for item in tuner("trials", "last", "--outcome", "ok", "--json").document["items"]
    ] == [0, 1]
    assert [
        item["number"]
        for item in tuner("trials", "last", "--outcome", "failed", "--json").document["items"]
    ] == [2]


def test_a_queued_job_is_cancelled_at_once_and_can_be_queued_again(
    tuner: Callable[..., Any], database: Database, job: Job
) -> None:
    assert "is cancelled; tuner resume" in tuner("cancel", "last").out
    again = requeue(database, job.id, trials=9)
    assert (again.state, again.trials, again.tasks[0].trials_done) == ("queued", 9, 3)


def test_a_job_left_running_by_a_process_that_is_gone_is_queued_again_at_once(
    database: Database, job: Job
) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    with database.write() as session:
        leases.claim(session, job.id, owner=f"{socket.gethostname()}:{ended.pid}")
    assert requeue(database, job.id).state == "queued"


@pytest.mark.parametrize(
    "owner",
    [f"{socket.gethostname()}:{os.getpid()}", "another-host:1"],
    ids=["itself", "another host"],
)
def test_a_job_whose_holder_may_be_alive_is_left_to_it(
    database: Database, job: Job, owner: str
) -> None:
    with database.write() as session:
        leases.claim(session, job.id, owner=owner)
    with pytest.raises(LeaseHeld, match="is being tuned by"):
        requeue(database, job.id)


def test_db_check_and_upgrade(tuner: Callable[..., Any], database: Database) -> None:
    checked = tuner("db", "check", "--json").document
    assert checked["ok"] and checked["schema"] == checked["needed"] and checked["problems"] == []
    assert tuner("db", "upgrade", "--json").document["after"] == checked["needed"]


def test_doctor_finds_this_machine_fit(tuner: Callable[..., Any]) -> None:
    findings = {
        finding["check"]: finding["status"]
        for finding in tuner("doctor", "--json").document["findings"]
    }
    fences = {name for name in findings if name.startswith("isolation")}
    assert "isolation" in fences and "isolation: seccomp" in fences
    machine, service = (
        {"python", "packages", "compiler", "target", "cores", "gpu"},
        {"database", "artifacts", "settings"},
    )
    assert set(findings) - fences == machine | service
    assert findings["compiler"] == findings["target"] == findings["database"] == "ok"


def test_doctor_names_a_variable_that_is_no_setting(
    tuner: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_TRAILS", "5")
    findings = {
        finding["check"]: finding for finding in tuner("doctor", "--json").document["findings"]
    }
    assert (
        findings["settings"]["status"] == "warning"
        and "TUNER_TRAILS" in findings["settings"]["detail"]
    )


def test_a_backup_brings_a_job_back(tuner: Callable[..., Any], home: Path, job: Job) -> None:
    assert tuner("db", "backup", "copy.db", "--json").document["size_bytes"] > 0
    assert tuner("db", "backup", "copy.db").code == 2
    other = f"sqlite:///{home}/other.db"
    assert tuner("db", "restore", "copy.db", "--db", other).code == 0
    assert tuner("show", job.id, "--db", other, "--json").document["tasks"][0]["trials_done"] == 3


def test_a_key_is_shown_once_and_can_be_revoked(tuner: Callable[..., Any]) -> None:
    made = tuner("keys", "create", "ci", "--scope", "read", "--days", "1", "--json").document
    assert made["token"].startswith(f"tk_{made['id']}_") and made["scopes"] == ["read"]
    (listed,) = tuner("keys", "list", "--json").document["items"]
    assert (
        "token" not in listed and listed["revoked_at"] is None and listed["expires_at"] is not None
    )
    assert tuner("keys", "revoke", made["id"], "--json").document["revoked_at"] is not None
    assert tuner("keys", "create", "ci", "--scope", "everything").code == 2


def test_prune_needs_to_be_told_and_leaves_unfinished_jobs_alone(
    tuner: Callable[..., Any], job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tuner("db", "prune")
    assert asked.code == 2 and "--days" in asked.err
    names = ("jobs", "trials", "events", "idempotency_keys", "runs", "spans", "sources")
    nothing = dict.fromkeys(names, 0)
    assert tuner("db", "prune", "--trials", "1", "--json").document == nothing
    tuner("cancel", job.id)
    monkeypatch.setenv(
        "TUNER_KEEP_TRIALS", "2"
    )  # three are there, and a cancelled job keeps all or none
    assert "3 trials and 0 events of 1 jobs are deleted" in tuner("db", "prune").out
    assert tuner("trials", job.id, "--json").document["items"] == []
    assert tuner("show", job.id, "--json").document["tasks"][0]["trials_done"] == 3


def test_best_says_which_figures_are_in_doubt(
    tuner: Callable[..., Any], database: Database
) -> None:
    with database.write() as session:
        workload = parse_spec(SPEC)
        key = workloads.remember(session, workload, to_document(workload))
        new = replace(sample_kernel(session), workload=key)
        promotions.promote(session, new)
    assert "disturbed" in tuner("best").out.splitlines()[1]
    assert [kernel["disturbed"] for kernel in tuner("best", "--json").document["items"]] == [True]


def test_trials_in_t4(tuner: Callable[..., Any], job: Job) -> None:
    document = tuner("trials", job.id, "--t4").document
    assert document["schema_version"] == "1.0.0"
    words = [result["invalidity"] for result in document["results"]]
    assert words == ["correct", "correct", "compile"]
    assert document["results"][1]["measurements"][0]["unit"] == "s"
