"""PostgreSQL as the shared database, with commits that survive a power cut.

`synchronous_commit` is a setting of the session and made here. `fsync` and
`full_page_writes` are the server's; `tuner db check` reports where they are off
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
    """Makes every connection of `engine` wait until its commits are on disk.

    Stronger settings, for replicas, stay.
    """

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _record: object) -> None:
        with connection.cursor() as cursor:
            if cursor.execute("SHOW synchronous_commit").fetchone()[0] == "off":
                cursor.execute("SET synchronous_commit TO on")
        connection.commit()


def weaknesses(engine: Engine) -> list[str]:
    """Settings of the server that endanger acknowledged commits, in words."""
    with engine.connect() as connection:
        settings = {
            name: connection.exec_driver_sql(f"SHOW {name}").scalar_one() for name in NEEDED
        }
    return [
        f"the server runs with {name} = off: {NEEDED[name]}; set it to on"
        for name, value in settings.items()
        if value == "off"
    ]
