"""A walk along an index of trials, in order, from a place to a place: every row of it,
or those whose knobs have given values.

With knobs the walk looks at the index alone, where each trial has the bits of its
config (db/knob_bits.py), for candidates; their rows are then read and compared. How far
it looks is bounded, so that a value that no trial has costs no more than another.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, case, func, literal, select, tuple_, type_coerce

from tuner.db.engine import Session
from tuner.db.knob_bits import knob_bits
from tuner.db.models import TrialRow
from tuner.errors import UsageError
from tuner.spaces.core.space import Value

# Trials looked at for one page, and no more: first few, which is enough for a value
# that many trials have.
REACHES = (2_000, 48_000)
CANDIDATES = 2  # rows read at once for each that is still wanted

Place = Sequence[Any]  # median in seconds or None, position, number: what a cursor holds
Conditions = Sequence[ColumnElement[bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    where: tuple[ColumnElement[bool], ...]  # on columns of the index that is walked
    also: tuple[ColumnElement[bool], ...] = ()  # on others
    outcomes: tuple[str, ...] = ()  # one of these; any where there are none
    by_median: bool  # else by position and number
    backwards: bool
    after: Place | None  # begins behind it, in its direction

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
    """The first `count` rows; where there are fewer and the walk ended at its bound,
    the place it reached, else None."""
    begin = walk.where if walk.after is None else (*walk.where, walk.behind(walk.after))
    if not knobs:
        return _outright(session, walk, begin, count), None
    found, edge = list[TrialRow](), None
    for reach in REACHES:
        begin = begin if edge is None else (*walk.where, walk.behind(edge))
        edge = _edge(session, walk, begin, reach)
        end = () if edge is None else (walk.until(edge),)
        found += _matching(session, walk, begin, end, knobs, count - len(found))
        if edge is None or len(found) == count:
            return found, None
    return found, edge


def _outright(session: Session, walk: Walk, begin: Conditions, count: int) -> list[TrialRow]:
    """Without knobs. Each outcome has a stretch of the index in order: several are
    walked apart and merged."""
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
    """The place of the row so many on; None where the walk ends before."""
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
    exact, bits, found, wanted = (
        [*walk.also, *_knobs_are(session, knobs)],
        knob_bits(knobs),
        list[TrialRow](),
        CANDIDATES * count,
    )
    narrow = (
        select(TrialRow.id, *walk.columns)
        .where(TrialRow.knob_bits.op("&")(bits) == bits, *end)
        .order_by(*walk.order)
    )
    while len(found) < count:
        candidates = session.execute(narrow.where(*begin).limit(wanted)).all()
        if candidates:
            rows = (
                select(TrialRow)
                .where(TrialRow.id.in_([each.id for each in candidates]), *exact)
                .order_by(*walk.order)
            )
            found += session.scalars(rows.limit(count - len(found)))
        if len(candidates) < wanted:
            break
        begin = (*walk.where, walk.behind(walk.place(candidates[-1][1:])))
    return found


def _knobs_are(session: Session, knobs: Mapping[str, Value]) -> list[ColumnElement[bool]]:
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
    wanted = {
        name: json.dumps(it, separators=(",", ":")) if isinstance(it, list) else it
        for name, it in plain.items()
    }
    return [func.json_extract(config, f'$."{name}"') == value for name, value in wanted.items()]
