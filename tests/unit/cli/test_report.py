"""`tuner report` writes one page that needs nothing else; `tuner show --plot` draws in
the terminal."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.databases import new_database
from tests.support.targets import ZEN5
from tuner.app.jobs.lifecycle import submit
from tuner.db import leases, trials
from tuner.db.engine import Database
from tuner.measure.outcome import Conditions, Failed, FailureKind, Timed, Trial
from tuner.settings import load_settings
from tuner.spaces.core.space import Config
from tuner.workload.spec import parse_spec

HOSTILE = "</pre><script>alert(1)</script>"


@pytest.fixture
def database(home: Path) -> Iterator[Database]:
    opened = new_database(load_settings().values.db)
    yield opened
    opened.close()


@pytest.fixture
def job(database: Database) -> str:
    """Thirty trials, some of which failed with a hostile text."""
    specs = [parse_spec("matmul:M=32,N=32,K=32"), parse_spec("softmax:M=8,N=8")]
    made = submit(database, specs, ZEN5, load_settings({"trials": 30, "seconds": 60.0}).values)
    conditions = Conditions(lane="cpu:1", isolation="none")
    with database.write() as session:
        _, lease = leases.claim(session, made.id, owner="test")
        for number in range(30):
            outcome: Timed | Failed = Failed(kind=FailureKind.BUILD_ERROR, message=HOSTILE)
            if number % 5 != 3:
                median_s = 1e-3 * (1 + (number * 7) % 13) / (1 + number)
                outcome = Timed(
                    samples_s=(median_s,),
                    max_rel_error=1e-7,
                    conditions=conditions,
                    artifact=f"{number:064x}",
                )
            config: Config = (
                {"tile": (4, 8 * (number % 3 + 1)), "unroll": number % 4} if number else {}
            )
            trials.record(session, lease, Trial(number=number, config=config, outcome=outcome))
        leases.release(session, lease)
    return made.id


def test_the_report_is_one_page_without_script_or_address(
    tuner: Callable[..., Any], job: str, tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    assert tuner("report", job, "-o", str(file), "--json").document["bytes"] == file.stat().st_size
    text = file.read_text()
    assert text.count("<svg") >= 3 and "Best so far over 30 trials, 6 failed" in text
    assert "<script" not in text and "&lt;script&gt;alert(1)" in text
    assert not re.search(r"(src|href|action)=|url\(|@import", text)
    assert "No trial of 0 was timed so far" in text  # the second workload


def test_it_goes_to_standard_output_and_to_a_file_of_the_jobs_name(
    tuner: Callable[..., Any], job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert tuner("report", "last", "-o", "-").out.startswith("<!doctype html>")
    tuner("report", job)
    assert (tmp_path / f"{job}.html").stat().st_size > 10_000


def test_a_file_that_cannot_be_written_is_refused_by_name(
    tuner: Callable[..., Any], job: str, tmp_path: Path
) -> None:
    result = tuner("report", job, "-o", str(tmp_path / "no" / "such.html"))
    assert result.code == 2 and "is no folder; name a file in one that exists" in result.err


def test_show_draws_the_curve(tuner: Callable[..., Any], job: str) -> None:
    out = tuner("show", job, "--plot").out
    assert "█" in out and "default" in out and "no trial was timed yet" in out
    assert "█" not in tuner("show", job).out
