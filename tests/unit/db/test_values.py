"""Columns, cursors and ids: what goes in comes out, on any text and any number."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.database_samples import LIBRARY, add_claimed
from tuner.db import pages, trials
from tuner.db.engine import Database, open_database
from tuner.db.ids import new_id
from tuner.db.leases import Lease
from tuner.db.values import UtcDateTime, clean_text, config_from_json, to_json
from tuner.errors import DatabaseError, UsageError
from tuner.measure.gpu.resources import Resources
from tuner.measure.outcome import Conditions, Failed, FailureKind, Timed, Trial

texts = st.text(
    alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=40
)
seconds = st.floats(min_value=1e-12, max_value=1e6, allow_subnormal=False)
values = st.one_of(
    st.integers(-(2**53), 2**53), texts, st.lists(st.integers(0, 2**31), max_size=4).map(tuple)
)
configs = st.dictionaries(texts, values, max_size=5)
maybe = st.none() | seconds
conditions = st.builds(
    Conditions,
    lane=texts,
    isolation=texts,
    steal_s=maybe,
    frequency_hz=maybe,
    abandoned=st.booleans(),
)
timed = st.builds(
    Timed,
    samples_s=st.lists(seconds, min_size=1, max_size=6).map(tuple),
    max_rel_error=st.floats(0, 1e6),
    conditions=conditions,
    artifact=st.just(LIBRARY),
)
failed = st.builds(Failed, kind=st.sampled_from(FailureKind), message=texts)
counts = st.integers(0, 2**31)
resources = st.builds(
    Resources, registers=counts, spill_bytes=counts, shared_bytes=counts, resident_warps=counts
)


@pytest.fixture(
    scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]
)
def recording(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Database, Lease]]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('values')}/tuner.sqlite"
    else:
        url = request.getfixturevalue("postgres_server").new_database()
    database = open_database(url)
    yield database, add_claimed(database)
    database.close()


@settings(max_examples=60, deadline=None)
@given(
    config=configs, outcome=timed | failed, build_s=seconds, resources_used=st.none() | resources
)
def test_any_trial_comes_back_as_it_was(
    recording: tuple[Database, Lease],
    config: Any,
    outcome: Timed | Failed,
    build_s: float,
    resources_used: Resources | None,
) -> None:
    database, lease = recording
    with database.write() as session:
        number = len(trials.numbers(session, lease.job_id))
        trial = Trial(
            number=number, config=config, outcome=outcome, build_s=build_s, resources=resources_used
        )
        trials.record(session, lease, trial)
    with database.read() as session:
        assert trials.get(session, lease.job_id, number).trial == trial


@given(text=st.text(alphabet=st.characters(), max_size=30))
def test_cleaned_text_can_be_stored_and_stays_clean(text: str) -> None:
    cleaned = clean_text(text)
    assert "\x00" not in cleaned and len(cleaned) == len(text)
    assert cleaned.encode().decode() == cleaned == clean_text(cleaned)


def test_json_refuses_what_it_cannot_hold() -> None:
    for value in (float("nan"), {"a": [float("inf")]}, object(), b"bytes"):
        with pytest.raises(DatabaseError, match="cannot be stored as JSON"):
            to_json(value)
    assert to_json({"t": (1, 2), "u": "\x00"}) == '{"t":[1,2],"u":"\\ufffd"}'
    assert config_from_json({"tile": [4, 8], "name": "a"}) == {"tile": (4, 8), "name": "a"}


def test_times_are_utc_and_need_a_zone() -> None:
    column, dialect = UtcDateTime(), type("Dialect", (), {"name": "sqlite"})()
    there = datetime(2026, 5, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    stored = column.process_bind_param(there, dialect)
    assert (
        stored == datetime(2026, 5, 1, 10) and column.process_result_value(stored, dialect) == there
    )
    with pytest.raises(DatabaseError, match="has no zone"):
        column.process_bind_param(datetime(2026, 5, 1), dialect)


def test_ids_sort_by_time() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    ids = [new_id("j", start + timedelta(milliseconds=37 * step)) for step in range(50)]
    assert ids == sorted(ids) and len({*ids}) == 50
    assert all(len(made) == 18 and made.startswith("j_") for made in ids)


@given(position=st.tuples(texts, st.integers(), st.floats(allow_nan=False, allow_infinity=False)))
def test_cursors_come_back(position: tuple[str, int, float]) -> None:
    assert pages.decode("list", pages.encode("list", position), [str, int, float]) == list(position)


@given(cursor=st.text(max_size=60))
def test_no_text_breaks_a_cursor(cursor: str) -> None:
    with pytest.raises(UsageError, match="was not given by this listing"):
        pages.decode("list", cursor, [str])


def test_signatures_group_by_text_without_numbers() -> None:
    assert trials.signature("at 0x7f01 in /tmp/a1/b.c:12") == trials.signature(
        "at 0x99 in /var/z.c:7"
    )
    assert trials.signature("out of registers") != trials.signature("out of memory")
