"""Queries about API keys `tk_<id>_<secret>`.

A key is shown once, stored as a digest and compared in constant time.
The secret has 256 random bits, so a plain SHA-256 is as good as a slow hash: there is
nothing to guess.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import insert, select, update

from tuner.db.engine import Session
from tuner.db.errors import NotFound
from tuner.db.tables import ApiKeyRow
from tuner.errors import UsageError

SCOPES = ("read", "submit", "submit:source", "admin", "worker")
LONGEST_NAME = 200
UNKNOWN = "0" * 64  # compared with where the id is unknown, so that this takes as long


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    id: str
    name: str  # whose it is, for people
    scopes: frozenset[str]
    quota: int | None  # unfinished jobs at a time
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


def create(
    session: Session,
    *,
    name: str,
    scopes: Collection[str],
    quota: int | None = None,
    expires_at: datetime | None = None,
) -> tuple[ApiKey, str]:
    """Creates a key; returns it and its token, which cannot be read back later.

    Raises UsageError for unknown scopes or none, and for a name that is too long.
    """
    if not 1 <= len(name) <= LONGEST_NAME:
        raise UsageError(
            f"a key's name has 1 to {LONGEST_NAME} characters, this one has {len(name)}"
        )
    unknown = set(scopes) - set(SCOPES)
    if unknown or not scopes:
        raise UsageError(
            f"a key needs scopes out of {', '.join(SCOPES)}; given: "
            f"{', '.join(sorted(scopes)) or 'none'}"
        )
    key_id, secret = secrets.token_hex(6), secrets.token_hex(32)
    row = {
        "id": key_id,
        "digest": _digest(secret),
        "name": name,
        "scopes": sorted(set(scopes)),
        "quota": quota,
    }
    session.execute(
        insert(ApiKeyRow), [row | {"created_at": session.now(), "expires_at": expires_at}]
    )
    return get(session, key_id), f"tk_{key_id}_{secret}"


def authenticate(session: Session, token: str) -> ApiKey | None:
    """The key of a token that is known, not revoked and not expired; None for any other text."""
    prefix, _, rest = token.partition("_")
    key_id, _, secret = rest.partition("_")
    row = (
        session.get(ApiKeyRow, key_id)
        if prefix == "tk" and len(key_id) <= 32 and key_id.isascii() and key_id.isalnum()
        else None
    )
    right = hmac.compare_digest(UNKNOWN if row is None else row.digest, _digest(secret))
    if row is None or not right or row.revoked_at is not None:
        return None
    if row.expires_at is not None and row.expires_at <= session.now():
        return None
    return _key(row)


def touch(session: Session, key_id: str) -> None:
    """Notes that the key was used now."""
    session.execute(
        update(ApiKeyRow).where(ApiKeyRow.id == key_id).values(last_used_at=session.now())
    )


def holds_good(session: Session, key_id: str) -> bool:
    """Whether a key that was valid before is still neither revoked nor expired."""
    row = session.get(ApiKeyRow, key_id)
    return (
        row is not None
        and row.revoked_at is None
        and (row.expires_at is None or row.expires_at > session.now())
    )


def hold(session: Session, key_id: str) -> None:
    """Locks the key until the transaction ends.

    SQLite has only one writer at a time anyway.
    """
    session.execute(select(ApiKeyRow.id).where(ApiKeyRow.id == key_id).with_for_update())


def revoke(session: Session, key_id: str) -> ApiKey:
    """Ends a key; one that was revoked stays as it is."""
    where = (ApiKeyRow.id == key_id, ApiKeyRow.revoked_at.is_(None))
    session.execute(update(ApiKeyRow).where(*where).values(revoked_at=session.now()))
    return get(session, key_id)


def get(session: Session, key_id: str) -> ApiKey:
    row = session.get(ApiKeyRow, key_id, populate_existing=True)
    if row is None:
        raise NotFound(f"no key {key_id!r} is known; `tuner keys list` lists them")
    return _key(row)


def list_all(session: Session) -> tuple[ApiKey, ...]:
    """Every key, the oldest first."""
    return tuple(
        _key(row)
        for row in session.scalars(select(ApiKeyRow).order_by(ApiKeyRow.created_at, ApiKeyRow.id))
    )


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def _key(row: ApiKeyRow) -> ApiKey:
    same = ("id", "name", "quota", "created_at", "expires_at", "revoked_at", "last_used_at")
    return ApiKey(scopes=frozenset(row.scopes), **{name: getattr(row, name) for name in same})
