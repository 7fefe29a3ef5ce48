"""The dashboard of a service with keys: signing in and out, and what a key that may
only read can do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.chromium import Watched
from tests.support import dashboard_samples as samples
from tests.support.live_service import LiveService, options_for, serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180), pytest.mark.xdist_group("dashboard")]


@pytest.fixture(scope="module")
def guarded(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    """With keys, as a service on a network has them."""
    folder = tmp_path_factory.mktemp("guarded")
    options = options_for(f"sqlite:///{folder}/tuner.sqlite", folder, target=samples.machine())
    with serving(options) as live:
        live.queue()
        yield live


def test_signing_in_with_a_key_and_out(guarded: LiveService, browser: Browser) -> None:
    context = browser.new_context()
    dashboard = Watched(page=context.new_page(), host=guarded.url.removeprefix("http://"))
    page = dashboard.open("/?state=queued")
    assert page.url.endswith("/login?next=%2F%3Fstate%3Dqueued")
    assert dashboard.accessibility() == []
    dashboard.allowed |= {401, 403}
    page.get_by_role("textbox", name="Key").fill("tk_no_key")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("unknown, expired or revoked")
    token = guarded.key("admin")
    page.get_by_role("textbox", name="Key").fill(token)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#jobs tbody tr")).to_have_count(1)
    assert page.url.endswith("/?state=queued")
    (session,) = [cookie for cookie in context.cookies() if cookie["name"] == "tuner_session"]
    assert session["httpOnly"] and session["sameSite"] == "Strict"
    assert page.evaluate("document.cookie") == ""
    assert (
        page.request.get(f"{guarded.url}/v1/jobs").status == 401
    )  # the cookie is no key for the API
    page.locator("#jobs tbody a").first.click()
    expect(page.locator("#live")).to_have_text("live")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.goto(guarded.url + "/fleet")
    assert "/login" in page.url
    context.close()
    dashboard.check()


def test_a_reader_looks_and_changes_nothing(guarded: LiveService, browser: Browser) -> None:
    context = browser.new_context()
    dashboard = Watched(page=context.new_page(), host=guarded.url.removeprefix("http://"))
    page = dashboard.open("/login")
    page.get_by_role("textbox", name="Key").fill(guarded.key("read"))
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("No job yet.")).to_be_visible()  # another key's job is not shown
    page.goto(guarded.url + "/submit")
    expect(page.get_by_role("button", name="Submit job")).to_be_disabled()
    token = page.locator("input[name=form_token]").first.get_attribute("value") or ""
    assert (
        page.request.post(
            guarded.url + "/submit", form={"form_token": token, "op": "matmul"}
        ).status
        == 403
    )
    assert page.request.post(guarded.url + "/logout", form={"form_token": "x" * 43}).status == 403
    foreign = {"Origin": "http://elsewhere.example"}
    assert (
        page.request.post(
            guarded.url + "/logout", form={"form_token": token}, headers=foreign
        ).status
        == 403
    )
    context.close()
    dashboard.check()
