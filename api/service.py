"""What the routes share: the open database, the artifact store, the event feed, limits
and counts of one application."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends
from starlette.requests import Request

from tuner.api.event_feed import EventFeed
from tuner.api.known_answers import KnownAnswers
from tuner.api.metrics import Metrics
from tuner.api.options import ServiceOptions
from tuner.api.rate_limit import TokenBuckets
from tuner.api.workloads import Parsed
from tuner.db.engine import Database
from tuner.export.artifacts import ArtifactStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    options: ServiceOptions
    database: Database
    artifacts: ArtifactStore
    feed: EventFeed
    metrics: Metrics
    requests: TokenBuckets  # by key
    logins: TokenBuckets  # by address: refused credentials
    parsed: Parsed  # workloads lately asked for
    answers: KnownAnswers  # to lookups

    @property
    def default_target(self) -> str | None:
        """Key of the target meant where a request names none."""
        return None if self.options.target is None else self.options.target.key


async def of(request: Request) -> Service:
    """Async because FastAPI would send a plain function to another thread, for nothing."""
    return cast(Service, request.app.state.service)


ServiceDep = Annotated[Service, Depends(of)]
