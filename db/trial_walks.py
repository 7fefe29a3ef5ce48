"""Ordered scans of a trial index, optionally restricted to given knob values.

A scan by knobs first reads candidates from the index alone, which stores a bit mask of
each config (`db/knob_bits.py`). Only the rows of candidates are read and compared. The
length of such a scan is bounded, so that a value that no trial has stays cheap.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, case, func, literal, select, tuple_, type_coerce

from tuner.db.engine import Session
from tuner.db.knob_bits import knob_bits
from tuner.db.tables import TrialRow
from tuner.errors import UsageError
from tuner.spaces.core.space import Value

# Index entries scanned for one page, in two steps: the first suffices for a value that
# many trials have, the second bounds the scan.
REACHES = (2_000, 48_000)
CANDIDATES = 2  # rows read at once for each that the page still lacks

Place = Sequence[Any]  # median in seconds or None, position, number: what a cursor holds
Conditions = Sequence[ColumnElement[bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """What to scan, in which order, and where to begin."""

    where: tuple[ColumnElement[bool], ...]  # on columns of the scanned index
    also: tuple[ColumnElement[bool], ...] = ()  # on other columns
    outcomes: tuple[str, ...] = ()  # accepted outcomes; empty accepts all
    by_median: bool  # otherwise by position and number
    backwards: bool
    after: Place | None  # begins after this place, in the direction of the scan

    @property
    def columns(self) -> tuple[Any, ...]:
        numbered = (TrialRow.position, TrialRow.number)
        return (TrialRow.median_s, *numbered) if self.by_median else numbered

    @property
    def order(self) -> tuple[Any, ...]:
        return tuple(column.desc() if self.backwards else column.asc() for column in self.columns)

    def behind(self, place: Place) -> ColumnElement[bool]:
        here, there = self._compared(place)
        return here.op("<" if self.backwards else ">", is_comparison=True)(there)

    def until(self, place: Place) -> ColumnElement[bool]:
        here, there = self._compared(place)
        return here.op(">=" if self.backwards else "<=", is_comparison=True)(there)

    def _compared(self, place: Place) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
        return tuple_(*self.columns), tuple_(*map(literal, place if self.by_median else place[1:]))

    def place(self, columns: Sequence[Any]) -> Place:
        return list(columns) if self.by_median else [None, *columns]


def rows(
    session: Session, walk: Walk, knobs: Mapping[str, Value], count: int
) -> tuple[list[TrialRow], Place | None]:
    """The first `count` rows, and the place where a bounded scan stopped early.

    The place is None if `count` rows were read or the index has no more.
    """
    begin = walk.where if walk.after is None else (*walk.where, walk.behind(walk.after))
    if not knobs:
        return _outright(session, walk, begin, count), None
    matching: list[TrialRow] = []
    edge: Place | None = None
    for reach in REACHES:
        begin = begin if edge is None else (*walk.where, walk.behind(edge))
        edge = _edge(session, walk, begin, reach)
        end = () if edge is None else (walk.until(edge),)
        matching += _matching(session, walk, begin, end, knobs, count - len(matching))
        if edge is None or len(matching) == count:
            return matching, None
    return matching, edge


def _outright(session: Session, walk: Walk, begin: Conditions, count: int) -> list[TrialRow]:
    """The first `count` rows of a scan without knobs.

    Each outcome is an ordered range of the index: several are scanned one by one and merged.
    """
    query = select(TrialRow).order_by(*walk.order).limit(count)
    if len(walk.outcomes) < 2:
        outcome = [TrialRow.outcome == each for each in walk.outcomes]
        return list(session.scalars(query.where(*begin, *walk.also, *outcome)))
    narrow = (
        select(*walk.columns, TrialRow.id)
        .where(*begin, *walk.also)
        .order_by(*walk.order)
        .limit(count)
    )
    firsts = [
        tuple(row)
        for each in walk.outcomes
        for row in session.execute(narrow.where(TrialRow.outcome == each))
    ]
    ids = [row[-1] for row in sorted(firsts, reverse=walk.backwards)[:count]]
    return list(session.scalars(query.where(TrialRow.id.in_(ids))))


def _edge(session: Session, walk: Walk, begin: Conditions, reach: int) -> Place | None:
    """The place of the row number `reach`, from 1; None if the scan has fewer rows."""
    row = session.execute(
        select(*walk.columns).where(*begin).order_by(*walk.order).offset(reach - 1).limit(1)
    ).first()
    return None if row is None else walk.place(row)


def _matching(
    session: Session,
    walk: Walk,
    begin: Conditions,
    end: Conditions,
    knobs: Mapping[str, Value],
    count: int,
) -> list[TrialRow]:
    """At most `count` rows between `begin` and `end` whose config has these knob values."""
    exact = [*walk.also, *_knobs_are(session, knobs)]
    bits = knob_bits(knobs)
    matching: list[TrialRow] = []
    batch = CANDIDATES * count
    narrow = (
        select(TrialRow.id, *walk.columns)
        .where(TrialRow.knob_bits.op("&")(bits) == bits, *end)
        .order_by(*walk.order)
    )
    while len(matching) < count:
        candidates = session.execute(narrow.where(*begin).limit(batch)).all()
        if candidates:
            rows = (
                select(TrialRow)
                .where(TrialRow.id.in_([each.id for each in candidates]), *exact)
                .order_by(*walk.order)
            )
            matching += session.scalars(rows.limit(count - len(matching)))
        if len(candidates) < batch:
            break
        begin = (*walk.where, walk.behind(walk.place(candidates[-1][1:])))
    return matching


def _knobs_are(session: Session, knobs: Mapping[str, Value]) -> list[ColumnElement[bool]]:
    """Conditions by which a trial's config has exactly these values."""
    """Conditions by which a trial's config has exactly these values."""
    plain: dict[str, Any] = {
        name: list(value) if isinstance(value, tuple) else value for name, value in knobs.items()
    }
    config = TrialRow.config
    if session.on_postgresql and plain:
        # One containment costs half of a comparison for each knob, and its estimated
        # selectivity (0.001) lets the planner walk the ordered index up to the page's
        # end. It takes lists for sets: those are compared too, by a CASE, which the
        # planner takes for a coin.
        lists = [(name, value) for name, value in plain.items() if isinstance(value, list)]
        equal = [
            case((config.op("->")(name) == type_coerce(value, config.type), True), else_=False)
            for name, value in lists
        ]
        return [config.op("@>", is_comparison=True)(type_coerce(plain, config.type)), *equal]
    for name in plain:
        if '"' in name:
            raise UsageError(f"unknown knob {name!r}; `tuner space` lists the knobs")
    expected = {
        name: json.dumps(it, separators=(",", ":")) if isinstance(it, list) else it
        for name, it in plain.items()
    }
    return [func.json_extract(config, f'$."{name}"') == value for name, value in expected.items()]
