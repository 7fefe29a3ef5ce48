"""Entries of other tuners, on both databases: the last put counts, lists begin with the
newest, the oldest go."""

from __future__ import annotations

import pytest

from tests.contracts.together import together
from tuner.db import entries
from tuner.db.engine import Database
from tuner.db.errors import NotFound
from tuner.errors import UsageError


def put(
    database: Database, key: str, content: str, *, store: str = "helion", most: int = 9
) -> None:
    with database.write() as session:
        entries.put(session, store=store, key=key, content=content, owner="k", most=most)


def keys(database: Database, store: str = "helion") -> list[str]:
    with database.read() as session:
        return [entry.key for entry in entries.list_page(session, store).items]


def test_the_last_put_counts(database: Database) -> None:
    put(database, "a", "1")
    put(database, "b", "2")
    put(database, "a", "3")
    put(database, "a", "other", store="triton")
    with database.read() as session:
        assert entries.get(session, "helion", "a").content == "3"
        assert entries.get(session, "triton", "a").content == "other"
        with pytest.raises(NotFound, match="store helion has no entry 'c'"):
            entries.get(session, "helion", "c")
    assert keys(database) == ["a", "b"]


def test_pages_move_nothing(database: Database) -> None:
    for number in range(5):
        put(database, f"k{number}", "x")
    with database.read() as session:
        first = entries.list_page(session, "helion", limit=2)
    put(database, "new", "x")
    with database.read() as session:
        second = entries.list_page(session, "helion", cursor=first.next, limit=9)
    assert [entry.key for entry in (*first.items, *second.items)] == ["k4", "k3", "k2", "k1", "k0"]
    assert second.next is None


def test_the_oldest_go(database: Database) -> None:
    put(database, "kept", "x", store="triton")
    for number in range(6):
        put(database, f"k{number}", "x", most=3)
    assert keys(database) == ["k5", "k4", "k3"]
    assert keys(database, "triton") == ["kept"]


def test_puts_at_the_same_time_leave_one_entry(database: Database) -> None:
    together(6, lambda number: put(database, "a", str(number)))
    assert keys(database) == ["a"]


@pytest.mark.parametrize("content", ["a\x00b", "a\ud800b"])
def test_what_no_text_has_is_refused(database: Database, content: str) -> None:
    with pytest.raises(UsageError, match="no text has"):
        put(database, "a", content)


def test_texts_come_back_as_they_were(database: Database) -> None:
    content = '{"config": "ä\\u0000\\n\t ", "n": 1e-5}\n'
    put(database, "a", content)
    with database.read() as session:
        assert entries.get(session, "helion", "a").content == content
