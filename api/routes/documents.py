"""Routes of the API's reference page and its style sheet, served from the package."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse

from tuner.api import reference_page

router = APIRouter(prefix="/docs", include_in_schema=False)


@router.get("")
def reference(request: Request) -> HTMLResponse:
    page = reference_page.render(request.app.openapi())
    return HTMLResponse(
        page,
        headers={
            "Content-Security-Policy": reference_page.POLICY,
            "Cache-Control": "public, max-age=300",
        },
    )


@router.get("/style.css")
def style() -> Response:
    return Response(
        reference_page.STYLE,
        media_type="text/css",
        headers={"Cache-Control": "public, max-age=3600"},
    )
