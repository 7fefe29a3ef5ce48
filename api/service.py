"""The state that the routes of one application share, and its dependency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends
from starlette.requests import Request

from tuner.api.estimates import Estimator
from tuner.api.event_feed import EventFeed
from tuner.api.lookup_cache import LookupCache
from tuner.api.losses import Losses
from tuner.api.metrics import Metrics
from tuner.api.options import ServiceOptions
from tuner.api.rate_limit import TokenBuckets
from tuner.api.workloads import ParsedWorkloads
from tuner.db.engine import Database
from tuner.export.artifacts import ArtifactStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Open resources, limits and counts of one application."""

    options: ServiceOptions
    database: Database
    artifacts: ArtifactStore
    feed: EventFeed
    metrics: Metrics
    requests: TokenBuckets  # by key
    logins: TokenBuckets  # by address: refused credentials
    parsed: ParsedWorkloads
    lookups: LookupCache
    estimator: Estimator
    losses: Losses

    @property
    def default_target(self) -> str | None:
        """Key of the target of requests that name none."""
        return None if self.options.target is None else self.options.target.key


async def of(request: Request) -> Service:
    """The service of the request's application.

    Async because FastAPI would run a plain function in another thread.
    """
    return cast(Service, request.app.state.service)


ServiceDep = Annotated[Service, Depends(of)]
