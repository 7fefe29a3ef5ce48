"""Column types that behave the same on SQLite and PostgreSQL: text, UTC times and JSON.

PostgreSQL refuses NUL characters and lone surrogates, which the output of a crashed
compiler may contain. They are replaced.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, DateTime, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

from tuner.errors import DatabaseError
from tuner.spaces.core.space import Value


def clean_text(text: str) -> str:
    """`text` with NUL replaced by U+FFFD and lone surrogates by a question mark."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def plain(value: object) -> Any:
    """`value` as dictionaries, lists and clean strings, ready for JSON.

    Values of other types are left as they are.
    """
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, Mapping):
        return {clean_text(str(name)): plain(entry) for name, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [plain(entry) for entry in value]
    return value


def to_json(value: object) -> str:
    """JSON text of `value`. Raises DatabaseError for what JSON cannot express, such as nan."""
    try:
        return json.dumps(plain(value), allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise DatabaseError(
            f"a value cannot be stored as JSON: {error}; store finite numbers, text, lists "
            f"and mappings"
        ) from error


def config_from_json(document: Mapping[str, Any]) -> dict[str, Value]:
    """A config as it was before JSON turned its tuples into lists."""
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in document.items()
    }


class CleanText(TypeDecorator[str]):
    """Text of any origin, such as a compiler's output, cleaned on its way in."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else clean_text(value)


class UtcDateTime(TypeDecorator[datetime]):
    """An aware datetime in UTC.

    SQLite stores it without the zone, so that values compare as text in order of time.
    """

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise DatabaseError(
                f"the time {value.isoformat()} has no zone; give an aware datetime, such as "
                f"datetime.now(UTC)"
            )
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def json_type() -> JSON:
    """JSON as text on SQLite, JSONB on PostgreSQL."""
    return JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
