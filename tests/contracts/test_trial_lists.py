"""Lists of trials, on both databases: sorted, filtered, page by page, and found by the
values of their knobs."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from sqlalchemy import event

from tests.support.database_samples import add_claimed, failed, timed
from tuner.db import trial_pages, trial_walks, trials
from tuner.db.engine import Database
from tuner.db.trial_pages import TrialFilter
from tuner.errors import UsageError
from tuner.measure.outcome import Failed, FailureKind, Timed, Trial
from tuner.spaces.core.space import Value


def all_numbers(database: Database, job_id: str, limit: int = 3, **listing: object) -> list[int]:
    numbers, cursor = list[int](), None
    while True:
        with database.read() as session:
            page = trial_pages.list_page(session, job_id, cursor=cursor, limit=limit, **listing)  # type: ignore[arg-type] # keywords pass through
        numbers += [stored.trial.number for stored in page.items]
        cursor = page.next
        if cursor is None:
            return numbers


def test_trials_are_listed_by_number_and_median(database: Database) -> None:
    lease = add_claimed(database)
    medians = {0: 5e-3, 2: 1e-3, 3: 1e-3, 5: 2e-3, 7: 9e-3}
    with database.write() as session:
        for number in range(8):
            trials.record(
                session,
                lease,
                timed(number, medians[number]) if number in medians else failed(number),
            )
    job = lease.job_id
    assert all_numbers(database, job) == list(range(8))
    assert all_numbers(database, job, sort="-number") == list(range(8))[::-1]
    assert all_numbers(database, job, sort="median_s") == [2, 3, 5, 0, 7, 1, 4, 6]
    assert all_numbers(database, job, sort="-median_s") == [7, 0, 5, 3, 2, 1, 4, 6]
    assert all_numbers(database, job, where=TrialFilter(outcome=["failed"])) == [1, 4, 6]
    assert all_numbers(
        database, job, where=TrialFilter(outcome=["ok"], min_median_s=2e-3, max_median_s=5e-3)
    ) == [0, 5]
    assert all_numbers(
        database, job, where=TrialFilter(knobs={"tile": (4, 8), "unroll": 2, "sketch": "tiles"})
    ) == [
        0,
        2,
        3,
        5,
        7,
    ]
    assert all_numbers(database, job, where=TrialFilter(knobs={"tile": (8, 8)})) == [1, 4, 6]
    assert all_numbers(database, job, where=TrialFilter(knobs={"sketch": "none"})) == []
    with pytest.raises(UsageError, match="unknown outcome 'good'"):
        all_numbers(database, job, where=TrialFilter(outcome=["good"]))
    with pytest.raises(UsageError, match="unknown sort"):
        all_numbers(database, job, sort="age")


def test_trials_are_found_by_exact_values_of_knobs(database: Database) -> None:
    lease = add_claimed(database)
    configs: list[dict[str, Value]] = [
        {"sketch": "tiles", "tile": (4, 8), "unroll": 2},
        {"sketch": "tiles", "tile": (8, 4), "unroll": 2},
        {"sketch": "tiles", "tile": (4, 8, 8), "unroll": 20},
        {"sketch": "rows", "tile": (4, 8), "unroll": 2},
    ]
    with database.write() as session:
        for number, config in enumerate(configs):
            trials.record(
                session, lease, replace(timed(number, 1e-3 * (number + 1)), config=config)
            )

    def found(sort: trial_pages.Sort, **knobs: Value) -> list[int]:
        with database.read() as session:
            page = trial_pages.list_page(
                session, lease.job_id, where=TrialFilter(knobs=knobs), sort=sort
            )
        return [each.trial.number for each in page.items]

    assert found("number", tile=(4, 8)) == [0, 3] and found("-median_s", tile=(4, 8)) == [3, 0]
    assert found("number", unroll=2, sketch="tiles") == [0, 1] and found(
        "median_s", unroll=2, tile=(8, 4)
    ) == [1]
    assert (
        found("number", unroll=20) == [2]
        and found("number", tile=(8,)) == []
        and found("number", pack=1) == []
    )


def test_trial_cursors_are_stable_under_inserts(database: Database) -> None:
    lease = add_claimed(database)
    with database.write() as session:
        for number in range(4):
            trials.record(session, lease, timed(number, 1e-3 * (number + 1)))
    with database.read() as session:
        first = trial_pages.list_page(session, lease.job_id, sort="median_s", limit=2)
    with database.write() as session:
        trials.record(session, lease, timed(4, 1e-4))
    with database.read() as session:
        second = trial_pages.list_page(
            session, lease.job_id, sort="median_s", limit=2, cursor=first.next
        )
        assert [stored.trial.number for stored in (*first.items, *second.items)] == [0, 1, 2, 3]
        with pytest.raises(UsageError, match="cursor"):
            trial_pages.list_page(session, lease.job_id, sort="number", cursor=first.next)


@pytest.mark.parametrize("sort", trial_pages.SORTS)
def test_a_page_ends_where_it_has_looked_far_enough_and_the_next_goes_on(
    database: Database, sort: trial_pages.Sort, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = add_claimed(database)
    knobs: dict[str, Value] = {"tile": (2, 4), "unroll": 0}
    with database.write() as session:
        for number in range(40):
            config: dict[str, Value] = {
                "tile": (2, 4 + number % 3),
                "unroll": number % 5,
                "seed": number,
            }
            trial = (
                failed(number) if number % 7 == 0 else timed(number, 1e-3 / (1 + number * 37 % 40))
            )
            trials.record(session, lease, replace(trial, config=config))
    everything = all_numbers(database, lease.job_id, sort=sort)
    matching = [number for number in everything if number % 15 == 0]
    assert (
        all_numbers(database, lease.job_id, sort=sort, where=TrialFilter(knobs=knobs)) == matching
    )
    monkeypatch.setattr(trial_walks, "REACHES", (2, 5))
    pages, cursor = list[int](), None
    while len(pages) < 40:
        with database.read() as session:
            page = trial_pages.list_page(
                session,
                lease.job_id,
                where=TrialFilter(knobs=knobs),
                sort=sort,
                cursor=cursor,
                limit=1,
            )
        pages.append(len(page.items))
        cursor = page.next
        if cursor is None:
            break
    assert sum(pages) == 3 and 0 in pages
    assert (
        all_numbers(database, lease.job_id, sort=sort, where=TrialFilter(knobs=knobs)) == matching
    )


def passes(trial: Trial, where: TrialFilter) -> bool:
    """What a filter says, in Python."""
    outcome, median_s = (
        trial.outcome,
        trial.outcome.median_s if isinstance(trial.outcome, Timed) else None,
    )
    kind = outcome.kind.value if isinstance(outcome, Failed) else "ok"
    filters = (
        not where.outcome or kind in where.outcome or (kind != "ok" and "failed" in where.outcome)
    )
    least, most = where.min_median_s, where.max_median_s
    between = (least is None and most is None) or (
        median_s is not None and (least or 0.0) <= median_s <= (most or 1.0)
    )
    return (
        filters
        and between
        and all(trial.config.get(name) == value for name, value in where.knobs.items())
    )


OUTCOMES: list[list[str]] = [
    [],
    ["ok"],
    ["failed"],
    ["run_timeout"],
    ["build_error", "run_timeout"],
    ["ok", "run_timeout"],
    ["ok", "failed"],
]
MEDIANS: list[tuple[float | None, float | None]] = [
    (None, None),
    (0.0, 1.0),
    (2e-3, None),
    (9e-4, 1.1e-3),
]
KNOBS: list[dict[str, Value]] = [{}, {"unroll": 1}, {"tile": (2, 5), "unroll": 0}]


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("bounds", [(50_000, 50_000), (3, 2)])
def test_every_filter_in_every_order_lists_what_it_says(
    database: Database, bounds: tuple[int, int], step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quick cases are each fifth of all: five divides no list's length."""
    monkeypatch.setattr(trial_pages, "FEW_ROWS", bounds[0])
    monkeypatch.setattr(trial_pages, "FEW_KEYS", bounds[0])
    monkeypatch.setattr(trial_walks, "REACHES", bounds)
    lease, everything = add_claimed(database), dict[int, Trial]()
    kinds = [FailureKind.RUN_TIMEOUT, FailureKind.BUILD_ERROR, FailureKind.WRONG_ANSWER]
    with database.write() as session:
        for number in range(24):
            config: dict[str, Value] = {
                "tile": (2, 4 + number % 2),
                "unroll": number % 3,
                "seed": number,
            }
            trial = (
                failed(number, "text", kinds[number % 3])
                if number % 4 == 1
                else timed(number, 1e-3 * (1 + number * 7 % 24) / 8)
            )
            everything[number] = replace(trial, config=config)
            trials.record(session, lease, everything[number])
    orders = {sort: all_numbers(database, lease.job_id, sort=sort) for sort in trial_pages.SORTS}
    cases = list(product(trial_pages.SORTS, OUTCOMES, MEDIANS, KNOBS))
    for sort, outcome, (least, most), knobs in cases[::step]:
        where = TrialFilter(outcome=outcome, min_median_s=least, max_median_s=most, knobs=knobs)
        expected = [number for number in orders[sort] if passes(everything[number], where)]
        got = all_numbers(database, lease.job_id, limit=9, sort=sort, where=where)
        assert got == expected, (sort, where)


@pytest.mark.parametrize(
    ("sort", "index"), [("number", "ix_trials_number"), ("-median_s", "ix_trials_median")]
)
def test_knobs_are_looked_for_in_the_index_alone(
    database: Database, sort: trial_pages.Sort, index: str
) -> None:
    lease, statements = add_claimed(database), list[tuple[str, Any]]()
    with database.write() as session:
        for number in range(20):
            trials.record(session, lease, timed(number))

    def executed(
        _connection: object, _cursor: object, statement: str, values: Any, *_more: object
    ) -> None:
        if " & " in statement:
            statements.append((statement, values))

    event.listen(database.engine, "before_cursor_execute", executed)
    with database.read() as session:
        trial_pages.list_page(
            session,
            lease.job_id,
            where=TrialFilter(knobs={"unroll": 2, "sketch": "rows"}),
            sort=sort,
        )
    event.remove(database.engine, "before_cursor_execute", executed)
    with database.engine.connect() as connection:
        if connection.dialect.name == "postgresql":  # so few rows would be read and sorted at once
            connection.exec_driver_sql("SET enable_seqscan = off")
            connection.exec_driver_sql("SET enable_bitmapscan = off")
            connection.exec_driver_sql("SET enable_sort = off")
        explain = "EXPLAIN " if connection.dialect.name == "postgresql" else "EXPLAIN QUERY PLAN "
        plan = " ".join(
            str(row)
            for row in connection.exec_driver_sql(explain + statements[0][0], statements[0][1])
        )
    assert f"COVERING INDEX {index} " in plan or re.search(
        f"Index Only Scan (Backward )?using {index} ", plan
    )
