"""Errors of the drivers: what may happen to any statement is an error of the database, for
threads that wait and clients that come back; faults of ours pass."""

from __future__ import annotations

import pytest
from sqlalchemy import exc
from sqlalchemy.engine import make_url

from tuner.db.failures import translated
from tuner.errors import DatabaseError

SERVER = make_url("postgresql://user:secret@host/name")
FILE = make_url("sqlite:////folder/tuner.sqlite")


class DriversError(Exception):
    def __init__(self, text: str, sqlstate: str | None) -> None:
        super().__init__(text)
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("kind", "state", "text"),
    [
        (exc.OperationalError, "53200", "out of memory"),
        (exc.OperationalError, "58030", "could not read block 3"),
        (exc.InternalError, "XX001", "invalid page in block 7"),
        (exc.InterfaceError, None, "the connection is closed"),
    ],
)
def test_what_happens_to_a_server_names_it_and_its_log(
    kind: type[exc.DBAPIError], state: str | None, text: str
) -> None:
    refused = pytest.raises(DatabaseError, match=rf"user:\*\*\*@host/name: {text}; .* log")
    with refused, translated(SERVER):
        raise kind("SELECT 1", {}, DriversError(text, state))


def test_what_happens_to_a_file_names_it() -> None:
    with pytest.raises(DatabaseError, match=r"tuner\.sqlite: interrupted"), translated(FILE):
        raise exc.OperationalError("SELECT 1", {}, DriversError("interrupted", None))


@pytest.mark.parametrize("kind", [exc.IntegrityError, exc.ProgrammingError])
def test_faults_of_ours_pass(kind: type[exc.DBAPIError]) -> None:
    with pytest.raises(kind), translated(SERVER):
        raise kind("SELECT 1", {}, DriversError("a column is missing", "42703"))
