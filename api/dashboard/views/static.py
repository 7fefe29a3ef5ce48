"""The assets, from memory: addresses carry a version, so browsers may keep them for good."""

from __future__ import annotations

from typing import cast

from fastapi import APIRouter, Request, Response

from tuner.api.dashboard.pages import Dashboard
from tuner.api.problems import Problem

router = APIRouter(prefix="/static")


@router.get("/{name}")
def asset(name: str, request: Request) -> Response:
    found = cast(Dashboard, request.app.state.dashboard).assets.get(name)
    if found is None:
        raise Problem(404, "not_found", f"there is no asset {name[:80]!r}")
    kept = (
        "public, max-age=31536000, immutable"
        if request.query_params.get("v") == found.version
        else "no-cache"
    )
    return Response(found.content, media_type=found.media_type, headers={"Cache-Control": kept})
