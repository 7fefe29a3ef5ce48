"""Pages of long lists, each with an opaque cursor that names its last row.

Rows that are added between two requests therefore move nothing.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tuner.errors import UsageError

Item = TypeVar("Item")
MAX_LIMIT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[Item]):
    items: tuple[Item, ...]
    next: str | None  # cursor of the following page, None on the last


def encode(listing: str, position: Sequence[Any]) -> str:
    """A cursor of `listing` (its name and sort) after the row at `position`."""
    return (
        base64.urlsafe_b64encode(json.dumps([listing, *position], separators=(",", ":")).encode())
        .decode()
        .rstrip("=")
    )


def decode(listing: str, cursor: str, types: Sequence[type | tuple[type, ...]]) -> list[Any]:
    """The position in a cursor that `encode` made for the same listing.

    Raises UsageError for any other text.
    """
    try:
        position = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError) as error:
        raise _refused(cursor) from error
    if not isinstance(position, list) or len(position) != len(types) + 1 or position[0] != listing:
        raise _refused(cursor)
    # Python takes a bool for an int; PostgreSQL does not compare the two.
    if any(
        isinstance(value, bool) or not isinstance(value, kind)
        for value, kind in zip(position[1:], types, strict=True)
    ):
        raise _refused(cursor)
    return position[1:]


def _refused(cursor: str) -> UsageError:
    return UsageError(
        f"cursor {cursor[:80]!r} was not given by this listing in this order; start without one"
    )


def checked_limit(limit: int) -> int:
    if not 1 <= limit <= MAX_LIMIT:
        raise UsageError(f"a page of {limit} rows was asked for; the limit is 1 to {MAX_LIMIT}")
    return limit


def page(
    rows: Sequence[Item], limit: int, listing: str, positions: Sequence[Sequence[Any]]
) -> Page[Item]:
    """The page of the first `limit` of `rows`; one row more means that a page follows."""
    more = len(rows) > limit
    return Page(
        items=tuple(rows[:limit]), next=encode(listing, positions[limit - 1]) if more else None
    )
