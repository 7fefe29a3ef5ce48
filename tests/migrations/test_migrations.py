"""The schema's history: one head, up and down and up again, what the revisions make is
what the models say, old files upgrade."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect

from tests.migrations.freeze import freeze
from tests.support.database_samples import add_claimed, add_job, failed, sample_kernel, timed
from tuner.db import events, jobs, kernels, keys, promotions, schema, tradeoffs, trial_pages, trials
from tuner.db.engine import Database, open_database
from tuner.db.pages import Page
from tuner.db.tables import Base
from tuner.db.trial_pages import TrialFilter
from tuner.db.trials import StoredTrial
from tuner.measure.outcome import Failed, Trial

FROZEN = sorted((Path(__file__).parent / "frozen").glob("*.sqlite"))


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    url = (
        f"sqlite:///{tmp_path}/tuner.sqlite"
        if request.param == "sqlite"
        else str(request.getfixturevalue("postgres_url"))
    )
    (tmp_path / "tuner.sqlite").touch()
    opened = open_database(url, create=False, check_schema=False)
    yield opened
    opened.close()


def test_single_head_known_without_alembic() -> None:
    script = ScriptDirectory.from_config(schema.configuration())
    assert script.get_heads() == [schema.head()]
    assert script.get_bases() == ["0001"]


def test_up_down_up(empty: Database) -> None:
    assert schema.current(empty.engine) is None
    assert schema.check(empty.engine) != []
    assert schema.upgrade(empty.engine) == (None, schema.head())
    add_job(empty)
    assert schema.upgrade(empty.engine) == (schema.head(), schema.head())
    with empty.read() as session:
        assert len(jobs.list_page(session).items) == 1
    schema.downgrade(empty.engine, "base")
    assert set(inspect(empty.engine).get_table_names()) == {"alembic_version"}
    assert schema.current(empty.engine) is None
    assert schema.create_if_empty(empty.engine) and not schema.create_if_empty(empty.engine)
    add_job(empty)
    assert schema.check(empty.engine) == []


def test_trials_survive_down_and_up_and_are_found_by_their_knobs(empty: Database) -> None:
    schema.upgrade(empty.engine)
    lease, knobs = add_claimed(empty), TrialFilter(knobs={"tile": (4, 8), "sketch": "tiles"})
    with empty.write() as session:
        for trial in (timed(0), failed(1), timed(2)):
            trials.record(session, lease, trial)

    def found() -> tuple[Page[StoredTrial], tuple[Trial, ...]]:
        with empty.read() as session:
            return trial_pages.list_page(
                session, lease.job_id, where=knobs, sort="median_s"
            ), trials.of_task(session, lease.job_id)

    before = found()
    assert [each.trial.number for each in before[0].items] == [0, 2]
    schema.downgrade(empty.engine, "0001")
    assert "knob_bits" not in {
        column["name"] for column in inspect(empty.engine).get_columns("trials")
    }
    assert schema.upgrade(empty.engine) == ("0001", schema.head())
    assert found() == before


def test_what_older_schemas_cannot_hold_does_not_pass_for_warm_or_fastest(empty: Database) -> None:
    schema.upgrade(empty.engine)
    lease = add_claimed(empty)
    with empty.write() as session:
        new = sample_kernel(session)
        warm = promotions.promote(session, new)
        promotions.promote(session, replace(new, cache="cold"))
        tradeoffs.keep(session, [new], lease)
    schema.downgrade(empty.engine, "0008")
    assert schema.upgrade(empty.engine) == ("0008", schema.head())
    with empty.read() as session:
        stored = kernels.list_page(session, state=()).items
    assert sorted(each.state for each in stored) == ["promoted", "promoted", "superseded"]
    schema.downgrade(empty.engine, "0007")
    assert schema.upgrade(empty.engine) == ("0007", schema.head())
    with empty.read() as session:
        assert [each.id for each in kernels.list_page(session).items] == [warm.id]
        assert {each.cache for each in kernels.list_page(session, state=()).items} == {"warm"}


def test_models_match_the_revisions(empty: Database) -> None:
    schema.upgrade(empty.engine)
    with empty.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []


def test_a_failed_upgrade_leaves_nothing(empty: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    make = command.upgrade

    def upgrade_and_die(configuration: Config, revision: str) -> None:
        make(configuration, revision)
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "upgrade", upgrade_and_die)
    with pytest.raises(KeyboardInterrupt):
        schema.upgrade(empty.engine)
    assert inspect(empty.engine).get_table_names() == []


def test_there_is_a_frozen_database_of_a_release() -> None:
    assert [file.stem for file in FROZEN][:1] == ["0.1.0"]


@pytest.mark.parametrize("file", FROZEN, ids=lambda file: file.stem)
def test_databases_of_past_releases_upgrade(file: Path, tmp_path: Path) -> None:
    copy = tmp_path / "tuner.sqlite"
    shutil.copy(file, copy)
    database = open_database(copy, create=False, check_schema=False)
    schema.upgrade(database.engine)
    assert schema.check(database.engine) == []
    with database.read() as session:
        queued, done = jobs.list_page(session).items
        assert (queued.state, done.state, queued.threads) == ("queued", "succeeded", 2)
        first, second, third = trials.of_task(session, done.id)
        assert isinstance(second.outcome, Failed) and first.config == third.config == {
            "sketch": "tiles",
            "tile": (4, 8),
            "unroll": 2,
        }
        page = trial_pages.list_page(
            session, done.id, where=TrialFilter(knobs={"tile": (4, 8)})
        ).items
        assert [each.trial.number for each in page] == [0, 2]
        kernel = done.tasks[0].kernel
        assert kernel is not None
        assert [each.state for each in kernels.lineage(session, kernel)] == [
            "promoted",
            "superseded",
        ]
        assert kernels.schedule(session, kernel)["versions"] == {"tvm": "0.27"}
        assert [event.kind for event in events.after(session, done.id, 0)] == [
            "queued",
            "running",
            "kernel",
            "kernel",
            "note",
            "succeeded",
        ]
        assert [key.name for key in keys.list_all(session)] == ["frozen"]
    add_job(database)
    database.close()


def test_freezing_makes_what_this_release_reads(tmp_path: Path) -> None:
    freeze(tmp_path / "x.sqlite")
    assert (tmp_path / "x.sqlite").stat().st_size < 1 << 20
    database = open_database(tmp_path / "x.sqlite", create=False)
    assert schema.check(database.engine) == []
    database.close()
