"""The FastAPI application: middleware, routes, startup and shutdown.

A request passes, in this order: request id, log and metrics (`api/access.py`); security
headers; the check for cross-origin requests; authentication and rate limit; the limit of
the body; relative redirects; HEAD as GET; its route.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from functools import partial

from fastapi import FastAPI
from fastapi.routing import APIRoute

from tuner.api import problems
from tuner.api.access import Access
from tuner.api.auth import Authentication, verify
from tuner.api.body_limit import BodyLimit, Limit
from tuner.api.cross_origin import CrossOriginGuard
from tuner.api.dashboard.install import install as install_dashboard
from tuner.api.estimates import Estimator
from tuner.api.event_feed import EventFeed
from tuner.api.head import HeadAsGet
from tuner.api.headers import SecurityHeaders
from tuner.api.lookup_cache import LookupCache
from tuner.api.losses import Losses
from tuner.api.metrics import Metrics
from tuner.api.openapi import DESCRIPTION, TAGS, document
from tuner.api.options import ServiceOptions
from tuner.api.rate_limit import TokenBuckets
from tuner.api.redirects import RelativeRedirects
from tuner.api.routes import (
    candidates,
    coverage,
    documents,
    estimates,
    events,
    fleet,
    health,
    jobs,
    kernels,
    lookup,
    model_runs,
    models,
    proposals,
    regressions,
    runs,
    stores,
)
from tuner.api.service import Service
from tuner.api.workloads import ParsedWorkloads
from tuner.db import events as stored_events
from tuner.db import targets
from tuner.db.engine import Database, open_database
from tuner.export.artifacts import ArtifactStore
from tuner.version import __version__ as VERSION

BUSY_TIMEOUT_S = 5.0  # a client that would wait longer gets 503
LARGER_MODELS = (
    "raise the service's setting model_gib, to 2 at most, or run tuner tune where the file is"
)


def create_app(options: ServiceOptions, *, database: Database | None = None) -> FastAPI:
    """The service's application.

    Opens `options.database_url`, unless an open `database` is given, which the caller closes.
    """
    opened = database or open_database(options.database_url, busy_timeout_s=BUSY_TIMEOUT_S)
    service = build(options, opened)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if options.target is not None:
            with opened.write() as session:
                targets.remember(session, options.target)
        poller = asyncio.create_task(service.feed.run(), name="events")
        try:
            yield
        finally:
            await service.feed.close()
            await poller
            if database is None:
                opened.close()

    app = FastAPI(
        title="tuner",
        version=VERSION,
        description=DESCRIPTION,
        openapi_tags=TAGS,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        generate_unique_id_function=operation_id,
    )
    app.state.service = service
    app.openapi = lambda: document(app)  # type: ignore[method-assign]  # FastAPI's documented way of extending the document
    problems.install(app)
    # Routes are tried in this order, and lookups outnumber all other requests.
    for noun in (
        *(lookup, jobs, proposals, candidates, coverage, events, kernels, estimates, runs),
        *(models, model_runs, stores, regressions, fleet, health, documents),
    ):
        app.include_router(noun.router)
    install_dashboard(app)
    add_layers(app, service)
    return app


def build(options: ServiceOptions, database: Database) -> Service:
    def latest(job_ids: Sequence[str]) -> dict[str, int]:
        with database.read() as session:
            return stored_events.latest(session, job_ids)

    return Service(
        options=options,
        database=database,
        artifacts=ArtifactStore(options.artifacts),
        feed=EventFeed(latest, poll_s=options.event_poll_s),
        metrics=Metrics(),
        requests=TokenBuckets(per_s=options.requests_per_s, burst=options.request_burst),
        logins=TokenBuckets(per_s=options.failed_logins_per_s, burst=options.failed_login_burst),
        parsed=ParsedWorkloads(),
        lookups=LookupCache(),
        estimator=Estimator(database),
        losses=Losses(),
    )


def add_layers(app: FastAPI, service: Service) -> None:
    """Adds the middleware, innermost first: each call wraps the previous ones."""
    options = service.options

    def limit_of(path: str) -> Limit:
        if path == "/v1/models":
            return Limit(most_bytes=options.max_model_bytes, way_out=LARGER_MODELS)
        if path in ("/v1/estimates", "/v1/estimates/jobs"):
            return Limit(most_bytes=options.max_estimates_bytes)
        if path.startswith(("/v1/kernels/", "/v1/models/")) and path.endswith("/run"):
            return Limit(most_bytes=options.max_run_bytes)
        return Limit(most_bytes=options.max_body_bytes)

    app.add_middleware(HeadAsGet)
    app.add_middleware(RelativeRedirects)
    app.add_middleware(BodyLimit, limit_of=limit_of)
    app.add_middleware(
        Authentication, service=lambda: service, verify=partial(verify, service.database)
    )
    app.add_middleware(CrossOriginGuard, loopback_only=options.auth == "off")
    app.add_middleware(SecurityHeaders)
    app.add_middleware(Access, metrics=service.metrics)


def operation_id(route: APIRoute) -> str:
    """The name of the route's function, such as `submit_job`."""
    return route.name
