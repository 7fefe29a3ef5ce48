"""The role of the fleet, played by this program and its database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.api.operators import operator_answer
from tuner.api.schemas import HealthAnswer, OperatorAnswer, WorkerAnswer
from tuner.settings import Settings
from tuner.version import __version__
from tuner.workload.catalogue import CATALOGUE

if TYPE_CHECKING:
    from tuner.db.engine import Database
    from tuner.target.target import Target


@dataclass(frozen=True, slots=True)
class LocalFleet:
    """A `Fleet`. It opens the database only when needed, which `tuner ops` does not."""

    settings: Settings
    database: Callable[[], AbstractContextManager[Database]]

    def operators(self) -> Sequence[OperatorAnswer]:
        return [operator_answer(operator) for operator in CATALOGUE]

    def target(self) -> Target:
        from tuner.target.detect import parse_target

        return parse_target(self.settings.target, self.settings.microarchitectures)

    def workers(self) -> Sequence[WorkerAnswer]:
        from tuner.api.answer_queries import worker_answers

        with self.database() as database, database.read() as session:
            return worker_answers(session)

    def health(self) -> HealthAnswer:
        with self.database() as database:
            database.ping()
        return HealthAnswer(status="ok", version=__version__)
