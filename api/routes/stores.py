"""Routes of the stores of other tuners: texts under keys, shared by all who have a key.

They are claims. Nothing here reads, measures or serves them as a kernel.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Path

from tuner.api.auth import Reader, Submitter
from tuner.api.content_type import JSON_BODY
from tuner.api.entry_schemas import EntryAnswer, EntryRequest
from tuner.api.problems import documented
from tuner.api.routes.jobs import Cursor, Limit
from tuner.api.schemas import Page
from tuner.api.service import ServiceDep
from tuner.db import entries
from tuner.db.entries import Entry

router = APIRouter(prefix="/v1/stores", tags=["stores"])

Store = Annotated[
    str, Path(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$", description="the tuner's name, as `helion`")
]
Key = Annotated[str, Path(pattern=r"^[A-Za-z0-9._-]{1,200}$", description="chosen by the tuner")]


@router.get("/{store}", responses=documented(400, 401, 403, 422, 429, 503))
def list_entries(
    store: Store, caller: Reader, service: ServiceDep, cursor: Cursor = None, limit: Limit = 50
) -> Page[EntryAnswer]:
    """A store's entries, the newest first; none for a store that nobody has put into."""
    with service.database.read() as session:
        page = entries.list_page(session, store, cursor=cursor, limit=limit)
    return Page(items=[_answer(entry) for entry in page.items], next=page.next)


@router.get("/{store}/{key}", responses=documented(401, 403, 404, 422, 429, 503))
def get_entry(store: Store, key: Key, caller: Reader, service: ServiceDep) -> EntryAnswer:
    """The text that was last put under the key."""
    with service.database.read() as session:
        return _answer(entries.get(session, store, key))


@router.put(
    "/{store}/{key}",
    dependencies=[JSON_BODY],
    responses=documented(400, 401, 403, 408, 413, 415, 422, 429, 503),
)
def put_entry(
    store: Store,
    key: Key,
    caller: Submitter,
    service: ServiceDep,
    request: Annotated[EntryRequest, Body()],
) -> EntryAnswer:
    """Stores a text under the key, in the place of what was there. Of a store that holds
    100,000, the oldest goes."""
    with service.database.write("entry") as session:
        return _answer(
            entries.put(session, store=store, key=key, content=request.content, owner=caller.key_id)
        )


def _answer(entry: Entry) -> EntryAnswer:
    return EntryAnswer(
        store=entry.store, key=entry.key, content=entry.content, created_at=entry.created_at
    )
