"""Backup and restore: a consistent copy under writes, restored whole, and refused when
it is not sound."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.database_samples import add_job
from tuner.db import jobs, schema, sqlite
from tuner.db.backup import backup, restore, restore_at
from tuner.db.engine import Database, open_database
from tuner.errors import DatabaseError, UsageError


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "postgresql" and (
        shutil.which("pg_dump") is None or shutil.which("pg_restore") is None
    ):
        pytest.skip("pg_dump and pg_restore are not on PATH")
    url = (
        f"sqlite:///{tmp_path}/tuner.sqlite"
        if request.param == "sqlite"
        else str(request.getfixturevalue("postgres_url"))
    )
    opened = open_database(url)
    yield opened
    opened.close()


def known(database: Database) -> set[str]:
    with database.read() as session:
        return {job.id for job in jobs.list_page(session, limit=1000).items}


def test_restore_brings_back_the_moment_of_the_backup(database: Database, tmp_path: Path) -> None:
    before = {add_job(database) for _ in range(3)}
    file = backup(database, tmp_path / "copies" / "one")
    add_job(database)
    restore(database, file)
    assert known(database) == before
    assert schema.check(database.engine) == []
    add_job(database)
    assert [entry.name for entry in file.parent.iterdir()] == ["one"]
    with pytest.raises(UsageError, match="name a new file"):
        backup(database, file)


def test_backup_under_writes_is_consistent(database: Database, tmp_path: Path) -> None:
    acknowledged, stop = [add_job(database)], threading.Event()

    def write() -> None:
        while not stop.is_set():
            acknowledged.append(add_job(database))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        already = set(acknowledged)
        file = backup(database, tmp_path / "copy")
    finally:
        stop.set()
        writer.join(timeout=60)
    restore(database, file)
    assert already <= known(database) <= set(acknowledged)
    assert schema.check(database.engine) == []


def test_what_is_no_backup_is_refused(database: Database, tmp_path: Path) -> None:
    kept = add_job(database)
    (tmp_path / "text").write_text("hello" * 1000)
    with pytest.raises(DatabaseError):
        restore(database, tmp_path / "text")
    with pytest.raises(UsageError, match="there is no backup"):
        restore(database, tmp_path / "none")
    assert known(database) == {kept}


def test_damaged_and_newer_sqlite_backups_are_refused(tmp_path: Path) -> None:
    database = open_database(tmp_path / "tuner.sqlite")
    for _ in range(20):
        add_job(database)
    file = backup(database, tmp_path / "copy")
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2] + bytes(4096) + whole[len(whole) // 2 + 4096 :])
    with pytest.raises(DatabaseError, match=r"damaged|malformed"):
        restore(database, file)
    file.write_bytes(whole)
    with contextlib.closing(sqlite.library().connect(str(file))) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9000'")
        connection.commit()
    with pytest.raises(DatabaseError, match=f"newer than {schema.head()}"):
        restore(database, file)
    database.close()


@pytest.mark.parametrize("damage", ["all of it", "a page", "half is missing"])
def test_a_damaged_database_is_replaced(tmp_path: Path, damage: str) -> None:
    place = tmp_path / "tuner.sqlite"
    opened = open_database(place)
    before = {add_job(opened) for _ in range(3)}
    file = backup(opened, tmp_path / "copy")
    opened.close()
    whole = place.read_bytes()
    place.write_bytes(
        {
            "all of it": b"\x5a" * len(whole),
            "a page": bytes(4096) + whole[4096:],
            "half is missing": whole[: len(whole) // 2],
        }[damage]
    )
    place.with_name("tuner.sqlite-wal").write_bytes(b"of another file")
    assert restore_at(f"sqlite:///{place}", file) == f"sqlite:///{place}"
    again = open_database(place)
    assert known(again) == before and schema.check(again.engine) == []
    again.close()
    assert sorted(
        entry.name
        for entry in tmp_path.iterdir()
        if entry.suffix not in (".sqlite-wal", ".sqlite-shm")
    ) == [
        "copy",
        "tuner.sqlite",
    ]


def test_unwritable_place_for_a_backup(database: Database) -> None:
    with pytest.raises(DatabaseError, match="cannot be written"):
        backup(database, Path("/proc/nowhere/copy"))


def test_missing_client_programs_are_named(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = open_database(postgres_url)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DatabaseError, match="pg_dump is not on PATH; install"):
        backup(database, tmp_path / "copy")
    database.close()
