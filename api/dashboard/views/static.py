"""Serves the assets, which browsers may cache forever: addresses contain a version."""

from __future__ import annotations

from typing import cast

from fastapi import APIRouter, Request, Response

from tuner.api.dashboard.pages import Dashboard
from tuner.api.problems import Problem

router = APIRouter(prefix="/static")


@router.get("/{name}")
def asset(name: str, request: Request) -> Response:
    asset_file = cast(Dashboard, request.app.state.dashboard).assets.get(name)
    if asset_file is None:
        raise Problem(404, "not_found", f"there is no asset {name[:80]!r}")
    kept = (
        "public, max-age=31536000, immutable"
        if request.query_params.get("v") == asset_file.version
        else "no-cache"
    )
    return Response(
        asset_file.content, media_type=asset_file.media_type, headers={"Cache-Control": kept}
    )
