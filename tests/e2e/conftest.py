"""The browser and the service that the dashboard is tried with, new for each file of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.e2e.chromium import Watched, chromium
from tests.e2e.dashboard_site import Site
from tests.support import dashboard_samples as samples
from tests.support.live_service import options_for, serving


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as launched:
        yield launched


@pytest.fixture(scope="module")
def site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Auth is off: the loopback choice."""
    folder = tmp_path_factory.mktemp("dashboard")
    options = options_for(
        f"sqlite:///{folder}/tuner.sqlite",
        folder,
        auth="off",
        target=samples.machine(),
        event_poll_s=0.1,
    )
    with serving(options) as live:
        yield Site(live=live, made=samples.fill(live.database, live.store))


@pytest.fixture
def watched(site: Site, browser: Browser) -> Iterator[Watched]:
    """A fresh page; whatever went wrong on it fails the test."""
    context = browser.new_context(viewport={"width": 1360, "height": 900}, accept_downloads=True)
    watched_page = Watched(page=context.new_page(), host=site.host)
    yield watched_page
    context.close()
    watched_page.check()
