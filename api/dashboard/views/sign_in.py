"""The pages to sign in with a key, and to sign out."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from tuner.api.dashboard import sessions
from tuner.api.dashboard.pages import PageRoute, redirect, render
from tuner.api.dashboard.sessions import Form
from tuner.api.service import ServiceDep

router = APIRouter(route_class=PageRoute)


def safe(target: str) -> str:
    """A path of this service; anything else leads to the overview."""
    plain = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if plain else "/"


@router.get("/login")
def ask(request: Request, service: ServiceDep, next: str = "/") -> Response:
    if service.options.auth == "off":
        return redirect(safe(next))
    return render(request, "login.html", {"next": safe(next), "error": None})


@router.post("/login")
async def enter(request: Request, service: ServiceDep, fields: Form) -> Response:
    token, target = fields.get("key", "").strip(), safe(fields.get("next", "/"))
    caller = await sessions.enter(request, service, token)
    if caller is None:
        error = "this key is unknown, expired or revoked; 'tuner keys create' makes one"
        return render(request, "login.html", {"next": target, "error": error}, status=401)
    response = redirect(target)
    sessions.keep(response, request, sessions.SESSION, token)
    return response


@router.post("/logout")
def leave(request: Request, fields: Form) -> Response:
    response = redirect("/login")
    response.delete_cookie(sessions.SESSION, path="/")
    return response
