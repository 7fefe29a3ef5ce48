"""Renders pages: templates with escaped texts, security policy, refusals as pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import quote, urlencode

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from tuner import units
from tuner.api.auth import Caller
from tuner.api.dashboard import sessions
from tuner.api.dashboard.assets import STYLESHEETS, Asset, read_assets
from tuner.api.dashboard.charts import svg
from tuner.api.dashboard.sessions import SignIn
from tuner.api.problems import Problem, status_of
from tuner.errors import TunerError
from tuner.version import __version__ as VERSION

POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src "
    "'self'; object-src 'none'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
# Browsers send the Origin of a form only where the page lets them send it to itself.
# An image has its style inside, and may load and run nothing.
IMAGE_HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
HEADERS = {"Content-Security-Policy": POLICY, "Referrer-Policy": "same-origin"}


Theme = Literal["light", "dark"]  # of an image


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """State that the pages share, made once for an application."""

    environment: Environment
    assets: Mapping[str, Asset]

    @property
    def version(self) -> str:
        return self.assets["style.css"].version

    def style(self, *names: str) -> str:
        """These stylesheets as one text."""
        return "\n".join(self.assets[name].content.decode() for name in names)


def make_dashboard() -> Dashboard:
    folder = Path(__file__).parent / "templates"
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    names = (
        "seconds",
        "duration",
        "ratio",
        "percent",
        "count",
        "rate",
        "work",
        "size",
        "moment",
        "value_text",
        "config_text",
        "three",
    )
    environment.filters |= {name: getattr(units, name) for name in names}
    return Dashboard(environment=environment, assets=read_assets())


def render(
    request: Request,
    template: str,
    context: Mapping[str, Any],
    *,
    status: int = 200,
    caller: Caller | None = None,
) -> Response:
    """The rendered template as an answer, with the form cookie if the browser lacks it.

    `now` of the context, the database's time, is what moments are said to be ago from.
    """
    dashboard = cast(Dashboard, request.app.state.dashboard)
    token, now = sessions.form_token(request), context.get("now")
    shared = {
        "asset": lambda name: f"/static/{name}?v={dashboard.version}",
        "svg": Markup,
        "stylesheets": STYLESHEETS,
        "with_query": lambda **changes: with_query(request.query_params, **changes),
        "ago": lambda moment: units.ago(moment, now or datetime.now(UTC)),
        "path": request.url.path,
        "form_token": token,
        "form_field": sessions.FIELD,
        "signed_in": caller is not None and caller.key_id is not None,
        "may_submit": caller is not None and caller.may("submit"),
        "product_version": VERSION,
    }
    text = dashboard.environment.get_template(template).render(shared | dict(context))
    response = HTMLResponse(text, status, dict(HEADERS))
    if request.cookies.get(sessions.FORM) != token:
        sessions.keep(response, request, sessions.FORM, token)
    return response


def image(request: Request, drawing: str, name: str, theme: Theme) -> Response:
    """A drawing as an SVG file named `name` that needs no stylesheet beside it."""
    dashboard = cast(Dashboard, request.app.state.dashboard)
    style = dashboard.style("colours.css", "drawings.css")
    headers = IMAGE_HEADERS | {"Content-Disposition": f'inline; filename="{name}.svg"'}
    return Response(svg.standalone(drawing, style, theme), 200, headers, "image/svg+xml")


def with_query(params: QueryParams, **changes: Any) -> str:
    """The query, from its `?`, with some names changed.

    None removes a name, a list gives it several times.
    """
    kept = [(name, value) for name, value in params.multi_items() if name not in changes]
    for name, value in changes.items():
        if value is not None:
            kept += [
                (name, str(entry))
                for entry in (value if isinstance(value, list | tuple) else [value])
            ]
    return "?" + urlencode(kept)


def redirect(location: str) -> Response:
    """A redirect after a form, so that reloading the page does not submit it again."""
    return RedirectResponse(location, 303, dict(HEADERS))


class PageRoute(APIRoute):
    """A route for browsers: refusals are pages, a missing session leads to the sign-in."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]  # narrower on purpose
        handle = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                return await handle(request)
            except SignIn:
                return _to_sign_in(request)
            except Problem as problem:
                return _refusal(request, problem.status_code, problem.detail, problem.headers)
            except RequestValidationError as error:
                first = next(iter(error.errors()), {"loc": ("request",), "msg": "cannot be read"})
                return _refusal(request, 422, f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
            except TunerError as error:
                status = status_of(error)
                if status >= 500:
                    raise
                return _refusal(request, status, str(error))

        return handler


def _to_sign_in(request: Request) -> Response:
    if (
        request.method != "GET"
        or "/parts/" in request.url.path
        or request.headers.get("accept", "") == "text/event-stream"
    ):
        return _refusal(request, 401, "your session is over; sign in again")
    back = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return redirect(f"/login?next={quote(back, safe='')}")


def _refusal(
    request: Request, status: int, detail: str, headers: Mapping[str, str] | None = None
) -> Response:
    context = {"status": status, "title": HTTPStatus(status).phrase, "detail": detail}
    response = render(request, "error.html", context, status=status)
    response.headers.update(dict(headers or {}))
    return response
