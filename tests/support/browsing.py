"""Pages of a service as a browser with a session asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from tests.support.live_service import LiveService

TOKEN = "t" * 43


@contextmanager
def browser(service: LiveService, key: str, token: str | None = TOKEN) -> Iterator[httpx.Client]:
    cookies = {"tuner_session": key} | ({} if token is None else {"tuner_form": token})
    with httpx.Client(base_url=service.url, cookies=cookies, timeout=30, verify=False) as pages:
        yield pages
