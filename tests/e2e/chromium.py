"""The system's Chromium for tests, driven by Playwright; what a page did wrong is
collected while it is used."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, Request, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
AXE = Path(__file__).parent / "axe" / "axe.min.js"
# Pages forbid foreign scripts; the checker is injected beside the page, in a world of its own.
SERIOUS = ("serious", "critical")


def executable() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A running browser; skips where none is installed, unless TUNER_REQUIRE_BROWSER=1."""
    program = executable()
    if program is None:
        if os.environ.get("TUNER_REQUIRE_BROWSER") == "1":
            pytest.fail(
                "TUNER_REQUIRE_BROWSER=1 but Chromium is not installed; apt-get install chromium"
            )
        pytest.skip("Chromium is not installed; apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Watched:
    """A page, and all that must not happen on it."""

    page: Page
    host: str
    wrong: list[str] = field(default_factory=list)
    allowed: set[int] = field(default_factory=set)  # statuses that a test provokes

    def __post_init__(self) -> None:
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.wrong.append(f"page error: {error}"))
        self.page.on("request", self._request)
        self.page.on("dialog", self._dialog)
        self.page.add_init_script(
            "document.addEventListener('securitypolicyviolation',"
            " (e) => console.error('policy violation: ' + e.violatedDirective + ' ' + "
            "e.blockedURI));"
        )

    def _console(self, message: ConsoleMessage) -> None:
        provoked = any(f"status of {status}" in message.text for status in self.allowed)
        if message.type in ("error", "warning") and not provoked:
            self.wrong.append(f"console {message.type}: {message.text}")

    def _dialog(self, dialog: Dialog) -> None:
        self.wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.netloc != self.host and parts.scheme not in ("data", "blob", "about"):
            self.wrong.append(f"request to {request.url}")

    def open(self, path: str, *, status: int = 200) -> Page:
        if status != 200:
            self.allowed.add(status)
        answer = self.page.goto(f"http://{self.host}{path}")
        assert answer is not None and answer.status == status, f"{path}: {answer and answer.status}"
        return self.page

    def settle(self) -> None:
        """Waits until the parts that are fetched after the page have come."""
        self.until(
            "!document.querySelector('.busy') && !document.body.innerText.includes('Reading "
            "the trials')"
        )

    def until(self, condition: str, *, timeout_s: float = 10.0) -> float:
        """Seconds until the expression is true. Asked from outside the page, whose
        policy forbids evaluating texts."""
        began = time.monotonic()
        while not self.page.evaluate(condition):
            assert time.monotonic() - began < timeout_s, (
                f"waited {timeout_s} s in vain for {condition}"
            )
            self.page.wait_for_timeout(20)
        return time.monotonic() - began

    def check(self) -> None:
        assert self.wrong == []

    def accessibility(self) -> list[str]:
        """Serious and critical findings of axe-core: rule, element and reason."""
        self.page.evaluate(AXE.read_text())
        audit: dict[str, Any] = self.page.evaluate(
            "axe.run(document, {resultTypes: ['violations']})"
        )
        return [
            f"{violation['id']} ({violation['impact']}): "
            f"{node['html'][:160]} {node['failureSummary'][:200]}"
            for violation in audit["violations"]
            if violation["impact"] in SERIOUS
            for node in violation["nodes"][:4]
        ]
