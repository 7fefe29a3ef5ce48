"""Authentication by API key, before anything of the request is read.

The header is `Authorization: Bearer tk_<id>_<secret>`; keys and their digests are in
`db/keys.py`. A key has scopes: `read`; `submit`, which includes `read`; `submit:source`, which
includes `read`, for kernels in C; `admin`, which includes all; `worker`, for machines that
join the fleet and nothing else.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import Annotated, cast

import structlog
from fastapi import Depends
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from tuner.api.options import is_loopback
from tuner.api.problems import Problem, on_http_exception, on_tuner_error
from tuner.api.rate_limit import retry_after
from tuner.api.service import Service, ServiceDep
from tuner.db import keys
from tuner.db.engine import Database
from tuner.errors import DatabaseError, TunerError

# The last use of a key is recorded at this interval, so that requests seldom write.
LAST_USED_WITHIN = timedelta(hours=1)

SECURED = "/v1/"
OPEN = frozenset({"/v1/health/live", "/v1/health/ready"})  # probes carry no keys
INCLUDED = {
    "read": frozenset({"read", "submit", "submit:source", "admin"}),
    "submit": frozenset({"submit", "admin"}),
    "submit:source": frozenset({"submit:source", "admin"}),
    "admin": frozenset({"admin"}),
}
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="tuner"'}


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    key_id: str | None  # None: auth is off
    scopes: frozenset[str]
    quota: int | None = None  # unfinished jobs at a time; None: the service's own limit

    def may(self, scope: str) -> bool:
        return not self.scopes.isdisjoint(INCLUDED[scope])

    @property
    def sees_all(self) -> bool:
        return self.may("admin")


OPERATOR = Caller(key_id=None, scopes=frozenset({"admin"}))
# Blocking; None for a credential that is wrong, expired or revoked.
Verify = Callable[[str], Caller | None]


class RecentKeys:
    """A cache of keys that were accepted moments ago, by the digest of their token.

    A busy client thus costs one query a second. Belongs to one event loop. Refused
    credentials are not cached.
    """

    def __init__(
        self, *, keep_s: float, names: int = 10_000, clock: Callable[[], float] = monotonic
    ) -> None:
        self._keep_s = keep_s
        self._names = names
        self._clock = clock
        self._callers: OrderedDict[bytes, tuple[Caller, float]] = OrderedDict()  # until when

    def get(self, token: str) -> Caller | None:
        caller, until = self._callers.get(_digest(token), (None, 0.0))
        return caller if self._clock() < until else None

    def put(self, token: str, caller: Caller) -> None:
        name = _digest(token)
        self._callers[name] = (caller, self._clock() + self._keep_s)
        self._callers.move_to_end(name)
        if len(self._callers) > self._names:
            self._callers.popitem(last=False)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


class Authentication:
    """Sets `scope["state"]["caller"]` for everything under /v1 except the probes.

    Refuses requests without a valid key, and those beyond the rate limit.
    """

    def __init__(self, app: ASGIApp, *, service: Callable[[], Service], verify: Verify) -> None:
        self.app = app
        self.service = service
        self.verify = verify
        self.recent = RecentKeys(keep_s=service().options.key_memory_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] != "http"
            or not scope["path"].startswith(SECURED)
            or scope["path"] in OPEN
        ):
            await self.app(scope, receive, send)
            return
        try:
            caller = await self.authenticate(scope)
            take_token(self.service(), caller, 1.0)
        except Problem as problem:
            await (await on_http_exception(Request(scope), problem))(scope, receive, send)
            return
        except TunerError as error:
            await (await on_tuner_error(Request(scope), error))(scope, receive, send)
            return
        scope.setdefault("state", {})["caller"] = caller
        if caller.key_id is not None:
            structlog.contextvars.bind_contextvars(key=caller.key_id)
        await self.app(scope, receive, send)

    async def authenticate(self, scope: Scope) -> Caller:
        service, address = self.service(), (scope.get("client") or ("", 0))[0]
        if service.options.auth == "off":
            if not is_loopback(address):
                raise Problem(403, "forbidden", "auth is off, so only this machine may call")
            return OPERATOR
        header = Headers(scope=scope).get("authorization", "")
        kind, _, token = header.partition(" ")
        if kind.lower() != "bearer" or not token:
            raise Problem(
                401,
                "unauthorized",
                "send 'Authorization: Bearer tk_<id>_<secret>'; 'tuner keys create' makes a key",
                headers=CHALLENGE,
            )
        caller = self.recent.get(token)
        if caller is not None:
            return caller
        caller = await run_in_threadpool(self.verify, token.strip())
        if caller is None:
            count_refusal(service, address)
            raise Problem(
                401, "unauthorized", "this key is unknown, expired or revoked", headers=CHALLENGE
            )
        self.recent.put(token, caller)
        return caller


def verify(database: Database, token: str) -> Caller | None:
    """The caller of a token; None for an unknown, expired or revoked one.

    Also records the key's last use.
    """
    with database.read() as session:
        key, now = keys.authenticate(session, token), session.now()
    if key is None:
        return None
    if key.last_used_at is None or now - key.last_used_at > LAST_USED_WITHIN:
        # A failure to record the use does not refuse the request.
        with suppress(DatabaseError), database.write("key-used") as session:
            keys.touch(session, key.id)
    return Caller(key_id=key.id, scopes=key.scopes, quota=key.quota)


def count_refusal(service: Service, address: str) -> None:
    """Counts a refused credential against its address. Raises Problem 429 beyond the limit.

    Only refusals count: a stranger's guesses must not lock out key holders behind the same
    proxy.
    """
    wait_s = service.logins.take(address)
    if wait_s > 0:
        detail = "too many refused credentials from this address"
        raise Problem(
            429, "too_many_failures", detail, headers={"Retry-After": retry_after(wait_s)}
        )


def take_token(service: Service, caller: Caller, cost: float) -> None:
    """Raises Problem 429 when the key's bucket holds too little."""
    wait_s = service.requests.take(caller.key_id or "", cost)
    if wait_s > 0:
        raise Problem(
            429,
            "rate_limited",
            "this key sends too many requests",
            headers={"Retry-After": retry_after(wait_s)},
        )


def take_work(service: Service, caller: Caller) -> None:
    """Takes the price of new work, of which the request has paid one token already.

    Raises Problem 429.
    """
    take_token(service, caller, service.options.submit_cost - 1.0)


def require(*scopes: str, costly: bool = False) -> Callable[[Request, Service], Awaitable[Caller]]:
    """A dependency that returns the caller and refuses one whose key has none of `scopes`.

    If `costly`, it also takes the price of new work.
    """

    async def dependency(request: Request, service: ServiceDep) -> Caller:
        caller = cast(Caller, request.state.caller)
        if not any(map(caller.may, scopes)):
            needed = " or ".join(map(repr, scopes))
            raise Problem(
                403,
                "forbidden",
                f"this key has the scopes {', '.join(sorted(caller.scopes)) or 'none'}; "
                f"{needed} is needed",
            )
        if costly:
            take_work(service, caller)
        return caller

    return dependency


Reader = Annotated[Caller, Depends(require("read"))]
Submitter = Annotated[Caller, Depends(require("submit"))]
Requester = Annotated[Caller, Depends(require("submit", costly=True))]
# Whoever may queue a job may end it, and queue it again.
Canceller = Annotated[Caller, Depends(require("submit", "submit:source"))]
Resumer = Annotated[Caller, Depends(require("submit", "submit:source", costly=True))]
SourceSubmitter = Annotated[Caller, Depends(require("submit:source", costly=True))]
Administrator = Annotated[Caller, Depends(require("admin"))]
