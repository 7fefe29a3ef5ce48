"""Adds the dashboard to the application."""

from __future__ import annotations

from fastapi import FastAPI

from tuner.api.dashboard.pages import make_dashboard
from tuner.api.dashboard.views import (
    compare,
    coverage,
    downloads,
    fleet,
    job,
    kernel,
    kernels,
    live,
    overview,
    sign_in,
    static,
    submit,
    trial,
)


def install(app: FastAPI) -> None:
    """Adds the pages. They are no part of the OpenAPI document."""
    app.state.dashboard = make_dashboard()
    for view in (
        overview,
        job,
        coverage,
        trial,
        downloads,
        live,
        kernels,
        kernel,
        compare,
        fleet,
        submit,
        sign_in,
        static,
    ):
        app.include_router(view.router, include_in_schema=False)
