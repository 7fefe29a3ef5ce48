"""Queries about the entries of other tuners: what each said, under a key of its own.

An entry is a text that nobody here reads. Entries of a store are listed by when they were
put, the newest first; the oldest go where there are too many.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, select

from tuner.db.engine import Session
from tuner.db.errors import NotFound
from tuner.db.pages import Page, checked_limit, decode, page
from tuner.db.tables import EntryRow
from tuner.db.values import clean_text
from tuner.errors import UsageError

MOST_ENTRIES = 100_000  # of a store
LISTING = "entries"  # of cursors


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    store: str  # the tuner it is of, such as "helion"
    key: str  # its own
    content: str
    owner: str | None  # api key id of who put it last
    created_at: datetime


def put(
    session: Session,
    *,
    store: str,
    key: str,
    content: str,
    owner: str | None = None,
    most: int = MOST_ENTRIES,
) -> Entry:
    """Stores a text under a key, in the place of what was there. The oldest beyond `most` go.

    Raises UsageError for a text with characters that databases do not keep.
    """
    if clean_text(content) != content:
        raise UsageError(f"entry {key!r} holds characters that no text has: NUL or lone surrogates")
    here = (EntryRow.store == store, EntryRow.key == key)
    new = {"store": store, "key": key, "content": content, "owner": owner}
    session.execute(delete(EntryRow).where(*here))
    while not session.insert_new(EntryRow, {**new, "created_at": session.now()}):
        session.execute(delete(EntryRow).where(*here))  # another put it at the same time
    oldest = (
        select(EntryRow.number)
        .where(EntryRow.store == store)
        .order_by(EntryRow.number.desc())
        .offset(most)
        .limit(1)
    )
    last = session.scalars(oldest).first()
    if last is not None:
        session.execute(delete(EntryRow).where(EntryRow.store == store, EntryRow.number <= last))
    return get(session, store, key)


def get(session: Session, store: str, key: str) -> Entry:
    """Raises NotFound."""
    row = session.scalars(
        select(EntryRow).where(EntryRow.store == store, EntryRow.key == key)
    ).one_or_none()
    if row is None:
        raise NotFound(f"store {store} has no entry {key!r}")
    return _entry(row)


def list_page(
    session: Session, store: str, *, cursor: str | None = None, limit: int = 50
) -> Page[Entry]:
    """A store's entries, the newest first."""
    query = select(EntryRow).where(EntryRow.store == store).order_by(EntryRow.number.desc())
    if cursor is not None:
        (number,) = decode(LISTING, cursor, (int,))
        query = query.where(EntryRow.number < number)
    rows = session.scalars(query.limit(checked_limit(limit) + 1)).all()
    positions = [(row.number,) for row in rows]
    return page([_entry(row) for row in rows], limit, LISTING, positions)


def _entry(row: EntryRow) -> Entry:
    return Entry(
        store=row.store,
        key=row.key,
        content=row.content,
        owner=row.owner,
        created_at=row.created_at,
    )
