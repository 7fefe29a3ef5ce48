"""PostgreSQL as the shared database: an acknowledged commit survives a power cut,
whatever the server's default for it is.

`synchronous_commit` is a session's business and set here; `fsync` and
`full_page_writes` are the server's, and `tuner db check` says where they are off
(https://www.postgresql.org/docs/current/runtime-config-wal.html).
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, event

NEEDED = {
    "fsync": "a power cut can damage the whole database",
    "full_page_writes": "a power cut while a page is written can damage it",
}


def configure(engine: Engine) -> None:
    """Makes every connection of `engine` wait for its commits to be on disk. Stronger
    settings, of replicas, stay."""

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _record: object) -> None:
        with connection.cursor() as cursor:
            if cursor.execute("SHOW synchronous_commit").fetchone()[0] == "off":
                cursor.execute("SET synchronous_commit TO on")
        connection.commit()


def weaknesses(engine: Engine) -> list[str]:
    """Settings of the server that endanger what was acknowledged, in words."""
    with engine.connect() as connection:
        found = {name: connection.exec_driver_sql(f"SHOW {name}").scalar_one() for name in NEEDED}
    return [
        f"the server runs with {name} = off: {NEEDED[name]}; set it to on"
        for name, value in found.items()
        if value == "off"
    ]
