"""The dashboard in a real Chromium against a real server: each page visited, each control used, by mouse and by keyboard."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from db import charts, jobs, trials
from tests.e2e import dashboard_samples as samples
from tests.e2e.cable import cable
from tests.e2e.chromium import Watched, chromium
from tests.e2e.dashboard_samples import HOSTILE, Samples
from tests.integration.live_service import LiveService, options_for, serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180), pytest.mark.xdist_group("dashboard")]

LARGE = 100_000
PAGES = (
    "overview", "job", "running", "large", "failed", "empty", "notation-job", "trial", "failed-trial", "kernels", "kernel",
    "compare", "compare-jobs", "compare-kernels", "fleet", "submit", "submit-notation", "missing",
)  # fmt: skip
SAME_AS_JOB = ("running", "large", "empty", "notation-job")  # one template: the checker sees it once


@dataclass(frozen=True, kw_only=True)
class Site:
    live: LiveService
    made: Samples
    large: str

    @property
    def host(self) -> str:
        return self.live.url.removeprefix("http://")

    def path(self, name: str) -> str:
        made = self.made
        return {
            "overview": "/",
            "job": f"/jobs/{made.succeeded}",
            "running": f"/jobs/{made.running.job_id}",
            "large": f"/jobs/{self.large}?x=time",
            "failed": f"/jobs/{made.failed}",
            "empty": f"/jobs/{made.queued}",
            "notation-job": f"/jobs/{made.notation}",
            "trial": f"/jobs/{made.succeeded}/trials/5",
            "failed-trial": f"/jobs/{made.succeeded}/trials/{self.failed_trial()}",
            "kernels": "/kernels",
            "kernel": f"/kernels/{made.kernel}",
            "compare": "/compare",
            "compare-jobs": f"/compare?a={made.succeeded}&b={made.cancelled}",
            "compare-kernels": f"/compare?a={made.kernel}&b={made.previous}",
            "fleet": "/fleet",
            "submit": "/submit?op=conv2d",
            "submit-notation": "/submit?form=notation",
            "missing": "/jobs/j_nothing",
        }[name]

    def failed_trial(self) -> int:
        with self.live.database.read() as session:
            return trials.failure_groups(session, self.made.succeeded)[0].example


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Auth is off: the loopback choice."""
    folder = tmp_path_factory.mktemp("dashboard")
    options = options_for(f"sqlite:///{folder}/tuner.sqlite", folder, auth="off", target=samples.machine(), event_poll_s=0.1)
    with serving(options) as live:
        made = samples.fill(live.database, live.store)
        yield Site(live=live, made=made, large=samples.large_job(live.database, LARGE))


@pytest.fixture
def watched(site: Site, browser: Browser) -> Iterator[Watched]:
    """A fresh page; whatever went wrong on it fails the test."""
    context = browser.new_context(viewport={"width": 1360, "height": 900}, accept_downloads=True)
    found = Watched(page=context.new_page(), host=site.host)
    yield found
    context.close()
    found.check()


def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kept where TUNER_SCREENSHOTS says, as a CI artifact."""
    given = os.environ.get("TUNER_SCREENSHOTS")
    folder = Path(given) if given else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.mark.parametrize("theme", ["light", "dark", "phone"])
def test_every_page_is_clean_accessible_and_fits(
    theme: str, site: Site, browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No error, no foreign request, no broken policy, no serious finding of axe-core, nothing wider than the screen."""
    folder = screenshots(tmp_path_factory)
    viewport = {"width": 390, "height": 844} if theme == "phone" else {"width": 1360, "height": 900}
    context = browser.new_context(viewport=viewport, color_scheme="dark" if theme == "dark" else "light")  # type: ignore[arg-type]
    found = Watched(page=context.new_page(), host=site.host)
    findings = {}
    for name in PAGES:
        page = found.open(site.path(name), status=404 if name == "missing" else 200)
        found.settle()
        for details in page.locator("main details").all()[:6]:
            details.evaluate("(one) => { one.open = true; }")
        page.screenshot(path=folder / f"{name}-{theme}.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"], f"{name} is wider than the screen"
        assert page.title() not in ("", "owned")
        serious = [] if name in SAME_AS_JOB or theme == "phone" else found.accessibility()
        if serious:
            findings[name] = serious
    context.close()
    assert findings == {}
    found.check()


def test_the_overview_filters_into_its_address(watched: Watched, site: Site) -> None:
    page = watched.open("/")
    expect(page.locator("#jobs tbody tr")).to_have_count(7)
    page.get_by_label("State").select_option("running")
    expect(page.locator("#jobs tbody tr")).to_have_count(1)
    assert "state=running" in page.url
    page.get_by_label("State").select_option("")
    page.get_by_label("Operator, workload or id").fill("softmax")
    expect(page.locator("#jobs tbody tr")).to_have_count(2)
    page.reload()
    expect(page.locator("#jobs tbody tr")).to_have_count(2)
    expect(page.get_by_label("Operator, workload or id")).to_have_value("softmax")
    page.get_by_label("Operator, workload or id").fill("no such workload")
    expect(page.get_by_text("No job fits this filter.")).to_be_visible()
    page.get_by_role("link", name="Show all").click()
    expect(page.locator("#jobs tbody tr")).to_have_count(7)


def test_trials_are_sorted_filtered_paged_and_kept_in_the_address(watched: Watched, site: Site) -> None:
    page = watched.open(site.path("job"))
    watched.settle()
    rows = page.locator("#trial-table tbody tr")
    expect(rows).to_have_count(50)
    page.locator("#trials").get_by_role("link", name="Median").click()
    expect(page.locator("th[aria-sort=ascending]")).to_contain_text("Median")
    assert "sort=median_s" in page.url
    fastest = rows.first.locator("td").nth(2).inner_text()
    assert fastest in page.locator("#head .stat").first.inner_text()
    page.get_by_label("Outcome", exact=True).select_option("wrong_answer")
    expect(rows.first).to_contain_text("wrong_answer")
    page.get_by_label("Outcome", exact=True).select_option("")
    page.get_by_label("to", exact=True).fill("4 ms")
    expect(page.locator("#trials .pager")).not_to_contain_text("Next")
    page.get_by_label("to", exact=True).fill("soon")
    expect(page.locator("#trials .problem")).to_contain_text("'soon' is not a time")
    page.get_by_role("link", name="Clear").click()
    expect(page.locator("#trials .problem")).to_have_count(0)
    page.get_by_role("link", name="Next 50").click()
    expect(page.get_by_role("link", name="First")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("link", name="First")).to_have_count(0)


def test_knobs_of_the_drawings_filter_the_table(watched: Watched, site: Site) -> None:
    page = watched.open(site.path("job"))
    watched.settle()
    page.locator("svg.parallel a").first.click()
    expect(page.locator("#trials .chip.filter")).to_have_count(1)
    assert "knob=" in page.url
    expect(page.locator("svg.parallel .picked")).to_have_count(1)
    text = page.locator("#trials .chip.filter").inner_text().partition(" ")[0]
    page.reload()
    watched.settle()
    expect(page.locator("#trials .chip.filter")).to_contain_text(text)
    page.locator("#trials .chip.filter").click()
    expect(page.locator("#trials .chip.filter")).to_have_count(0)
    expect(page.locator("svg.parallel .picked")).to_have_count(0)
    page.locator("#knob-2 summary").click()
    page.locator("#knob-2 tbody a").first.click()
    expect(page.locator("#trials .chip.filter")).to_have_count(1)
    expect(page.locator("#knob-2")).to_have_attribute("open", "")


def test_the_curve_is_read_with_pointer_and_arrows(watched: Watched, site: Site) -> None:
    page = watched.open(site.path("job"))
    watched.settle()
    page.get_by_role("link", name="by time").click()
    expect(page.locator("#curve svg")).to_contain_text("time since the start")
    page.get_by_role("link", name="by trial").click()
    expect(page.locator("#curve svg .label").filter(has_text=re.compile("^trial$"))).to_be_visible()
    box = page.locator("[data-curve]")
    box.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".tip")).to_have_text(re.compile(r"^trial 0: 45\.0 ms, the best so far$"))
    page.keyboard.press("ArrowRight")
    expect(page.locator(".tip")).to_contain_text("the best so far")
    page.keyboard.press("Shift+ArrowRight")
    page.locator("#curve svg").hover(position={"x": 400, "y": 150})
    expect(page.locator(".tip")).to_be_visible()
    box.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/trials/*")


def test_failures_open_with_their_whole_text(watched: Watched, site: Site) -> None:
    page = watched.open(site.path("job"))
    watched.settle()
    group = page.locator("#analysis details").filter(has_text="InternalError").first
    group.locator("summary").click()
    expect(group.locator("pre")).to_contain_text("at lower.cc:21")
    group.get_by_role("link").click()
    expect(page.get_by_role("heading", name="Why it failed")).to_be_visible()


def test_downloads_hold_what_is_selected(watched: Watched, site: Site) -> None:
    page = watched.open(site.path("job") + "?outcome=ok")
    with page.expect_download() as csv:
        page.get_by_role("link", name="CSV").click()
    lines = Path(csv.value.path()).read_text().splitlines()
    assert lines[0].startswith("workload,number,outcome,median_s") and all(",ok," in line for line in lines[1:])
    with page.expect_download() as document:
        page.get_by_role("link", name="JSON").click()
    assert Path(document.value.path()).read_text().startswith('{"items":[')


def test_a_job_is_cancelled_and_resumed(watched: Watched, site: Site) -> None:
    page = watched.open(site.path("empty"))
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#head .chip").first).to_have_text("cancelled")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#head .chip").first).to_have_text("queued")


def test_points_appear_within_a_second_and_a_lost_connection_loses_none(browser: Browser, site: Site) -> None:
    lease, rng = site.made.running, np.random.default_rng(0)
    config = samples.configs(samples.parsed(samples.SPEC), 40, seed=9)
    total = "Number(document.querySelector('[data-curve]').dataset.total)"
    with cable(int(site.host.rpartition(":")[2])) as wire:
        context = browser.new_context()
        found = Watched(page=context.new_page(), host=wire.host)
        page = found.open(site.path("running"))
        found.settle()
        expect(page.locator("#live")).to_have_text("live")
        start = int(page.evaluate(total))
        waits = []
        for step in range(5):
            with site.live.database.write() as session:
                samples.add(session, lease, samples.sample_trial(rng, start + step, config[step]))
            waits.append(found.until(f"{total} === {start + step + 1}"))
        assert max(waits) < 1.0, f"points took {waits} s to appear"
        found.check()
        wire.cut()
        expect(page.locator("#live")).to_have_text("reconnecting")
        with site.live.database.write() as session:
            for step in range(5, 25):
                samples.add(session, lease, samples.sample_trial(rng, start + step, config[step]))
        page.wait_for_timeout(400)
        assert page.evaluate(total) == start + 5
        wire.mend()
        found.until(f"{total} === {start + 25}", timeout_s=15)
        expect(page.locator("#live")).to_have_text("live")
        context.close()
        # The browser itself reports refused connections; nothing else may have gone wrong.
        assert [one for one in found.wrong if "ERR_" not in one] == []


def test_the_end_of_a_job_is_seen(watched: Watched, site: Site) -> None:
    lease = samples.claim(site.live.database, site.live.queue())
    page = watched.open(f"/jobs/{lease.job_id}")
    expect(page.locator("#head .chip").first).to_have_text("running")
    with site.live.database.write() as session:
        jobs.enter(session, jobs.locked_row(session, lease.job_id), jobs.SUCCEEDED)
    expect(page.locator("#head .chip").first).to_have_text("succeeded", timeout=2000)


def test_a_hundred_thousand_trials_stay_quick(watched: Watched, site: Site) -> None:
    """The best of a few attempts: others may use the machine meanwhile, and the bounds are on what the pages cost."""
    sizes: list[int] = []
    watched.page.on("response", lambda answer: sizes.append(int(answer.headers.get("content-length", 0))))
    firsts = []
    for _ in range(5):
        sizes.clear()
        began = time.monotonic()
        page = watched.open(f"/jobs/{site.large}")
        expect(page.locator("#curve svg .best")).to_be_visible()
        firsts.append(time.monotonic() - began)
        watched.settle()
        assert sum(sizes) <= 1_000_000, f"{sum(sizes)} bytes were sent"
    assert min(firsts) < 2.0, f"the first chart took {firsts} s"
    with site.live.database.read() as session:
        timed = charts.timings(session, site.large, 0)
    best = samples.records_of(timed.medians_s, timed.numbers)
    shown = page.evaluate("JSON.parse(document.querySelector('[data-curve] script').textContent).records")
    assert sorted(shown) == best
    assert page.locator("#records tbody tr").count() <= 200
    waits = []
    for path in ("outcome=build_error", "max=3ms", "sort=-median_s", "knob=C.tile_j.depth%3D64", "knob=C.tile_j.depth%3D3"):
        waits.append((path, min(seconds_of(page, f"{site.live.url}/jobs/{site.large}/parts/trials?{path}") for _ in range(4))))
    assert max(wait for _, wait in waits) < 0.3, f"filters took {waits}"


def seconds_of(page: Page, url: str) -> float:
    began = time.monotonic()
    assert page.request.get(url).ok
    return time.monotonic() - began


def test_hostile_texts_are_shown_and_never_run(watched: Watched, site: Site) -> None:
    for name, shown in (
        ("failed", "no worker answered"),
        ("fleet", "calibration drifted"),
        ("kernel", "trial 77"),
        ("failed-trial", ""),
        ("job", "InternalError"),
        ("overview", "calibration drifted"),
        ("compare-kernels", ""),
    ):
        page = watched.open(site.path(name))
        watched.settle()
        assert shown in page.content() and page.title() != "owned"
        assert page.locator("main img, main script:not([type='application/json'])").count() == 0, name
    page = watched.open(
        "/submit?form=notation&" + "notation=" + "%3C/textarea%3E%3Cscript%3Edocument.title%3D'owned'%3C/script%3E"
    )
    expect(page.locator("#notation")).to_have_value(re.compile("^</textarea><script>"))
    expect(page.locator("#verdict .problem")).to_be_visible()
    watched.allowed.add(422)
    page = watched.open(f"/?q={HOSTILE.replace('&', '%26').replace('#', '%23')}")
    assert page.title() != "owned"
    expect(page.get_by_text("No job fits this filter.")).to_be_visible()


def test_the_notation_editor_marks_the_line_at_fault(watched: Watched) -> None:
    page = watched.open("/submit?form=notation")
    expect(page.locator("#verdict")).to_contain_text("configs")
    page.locator("#notation").fill("kernel f(A: f32[M]) -> (B: f32[M]) {\n  B[i] = A[i] +\n}")
    page.get_by_label("Shapes").fill("M=8")
    expect(page.locator("#verdict .problem")).to_contain_text("line 3")
    expect(page.locator(".gutter .wrong")).to_have_text("3")
    watched.allowed.add(422)
    page.get_by_role("button", name="Submit job").click()
    expect(page.locator("#verdict .problem")).to_contain_text("line 3")
    expect(page.locator("#notation")).to_have_value(re.compile(r"B\[i\] = A\[i\] \+"))


def test_theme_and_shortcuts(watched: Watched) -> None:
    page = watched.open("/")
    root = page.locator("html")
    page.get_by_role("button", name="change theme").click()
    expect(root).to_have_attribute("data-theme", "light")
    page.keyboard.press("t")
    expect(root).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(root).to_have_attribute("data-theme", "dark")
    page.locator("main").focus()
    page.keyboard.press("t")
    assert root.get_attribute("data-theme") is None
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    expect(page.locator("#jobs tbody tr").first.locator("a").first).to_be_focused()
    page.keyboard.press("j")
    expect(page.locator("#jobs tbody tr").nth(1).locator("a").first).to_be_focused()
    page.keyboard.press("/")
    expect(page.get_by_label("Operator, workload or id")).to_be_focused()


def test_fleet_and_compare_controls(watched: Watched, site: Site) -> None:
    page = watched.open("/fleet")
    page.get_by_role("link", name="5m").click()
    assert "window=5m" in page.url
    page.get_by_role("link", name="Earlier").click()
    assert "until=" in page.url
    page.get_by_role("link", name="Latest").click()
    expect(page.locator("#lanes-title")).to_be_visible()
    page = watched.open("/compare")
    page.get_by_label("A", exact=True).fill(site.made.succeeded)
    page.get_by_label("B", exact=True).fill(site.made.cancelled)
    page.get_by_role("button", name="Compare").click()
    page.get_by_role("link", name="time", exact=True).click()
    expect(page.get_by_role("heading", name="Best so far")).to_be_visible()
    page.get_by_role("link", name="Swap").click()
    expect(page.get_by_label("A", exact=True)).to_have_value(site.made.cancelled)


def test_snippets_are_copied(watched: Watched, site: Site) -> None:
    watched.page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=site.live.url)
    page = watched.open(site.path("kernel"))
    page.get_by_role("button", name="Copy curl").click()
    expect(page.locator("[data-copy=snippet-1]")).to_contain_text("Copied")
    assert site.made.kernel in page.evaluate("navigator.clipboard.readText()")


def test_from_submitting_to_downloading_by_keyboard_alone(watched: Watched, site: Site) -> None:
    """The job has no workers here, so the kernel at the end is one that another job has brought."""
    page = watched.open("/")
    page.keyboard.press("g")
    page.keyboard.press("s")
    page.wait_for_url("**/submit")
    tab_to(page, "p_M")
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("64")
    tab_to(page, "trials")
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("16")
    expect(page.locator("#verdict")).to_contain_text("configs")
    tab_to(page, "action")
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/j_*")
    expect(page.locator("h1")).to_contain_text("matmul:M=64")
    page.keyboard.press("g")
    page.keyboard.press("k")
    page.wait_for_url("**/kernels")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/kernels/k_*")
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "download":
            break
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    assert Path(download.value.path()).stat().st_size > 1000


def tab_to(page: Page, name: str) -> None:
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.name") == name:
            return
    raise AssertionError(f"Tab does not reach {name}")


def test_pages_work_without_script(site: Site, browser: Browser) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{site.live.url}{site.path('job')}?outcome=build_error&sort=-number")
    expect(page.locator("#trial-table tbody tr").first).to_contain_text("build_error")
    page.goto(f"{site.live.url}/submit")
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#verdict")).to_contain_text("configs")
    page.get_by_role("button", name="Submit job").click()
    expect(page.locator("h1")).to_contain_text("matmul")
    context.close()


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
    found = Watched(page=context.new_page(), host=guarded.url.removeprefix("http://"))
    page = found.open("/?state=queued")
    assert page.url.endswith("/login?next=%2F%3Fstate%3Dqueued")
    assert found.accessibility() == []
    found.allowed |= {401, 403}
    page.get_by_role("textbox", name="Key").fill("tk_no_key")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("unknown, expired or revoked")
    token = guarded.key("admin")
    page.get_by_role("textbox", name="Key").fill(token)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#jobs tbody tr")).to_have_count(1)
    assert page.url.endswith("/?state=queued")
    (session,) = [one for one in context.cookies() if one["name"] == "tuner_session"]
    assert session["httpOnly"] and session["sameSite"] == "Strict"
    assert page.evaluate("document.cookie") == ""
    assert page.request.get(f"{guarded.url}/v1/jobs").status == 401  # the cookie is no key for the API
    page.locator("#jobs tbody a").first.click()
    expect(page.locator("#live")).to_have_text("live")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.goto(guarded.url + "/fleet")
    assert "/login" in page.url
    context.close()
    found.check()


def test_a_reader_looks_and_changes_nothing(guarded: LiveService, browser: Browser) -> None:
    context = browser.new_context()
    found = Watched(page=context.new_page(), host=guarded.url.removeprefix("http://"))
    page = found.open("/login")
    page.get_by_role("textbox", name="Key").fill(guarded.key("read"))
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("No job yet.")).to_be_visible()  # another key's job is not shown
    page.goto(guarded.url + "/submit")
    expect(page.get_by_role("button", name="Submit job")).to_be_disabled()
    token = page.locator("input[name=form_token]").first.get_attribute("value") or ""
    assert page.request.post(guarded.url + "/submit", form={"form_token": token, "op": "matmul"}).status == 403
    assert page.request.post(guarded.url + "/logout", form={"form_token": "x" * 43}).status == 403
    foreign = {"Origin": "http://elsewhere.example"}
    assert page.request.post(guarded.url + "/logout", form={"form_token": token}, headers=foreign).status == 403
    context.close()
    found.check()
