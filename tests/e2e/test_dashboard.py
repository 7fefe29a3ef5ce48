"""The controls of the dashboard in a real Chromium against a real server: each one
used, by mouse and by keyboard."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.cable import cable
from tests.e2e.chromium import Watched
from tests.e2e.dashboard_site import Site
from tests.support import dashboard_samples as samples
from tests.support.live_service import wait_for
from tuner.db import jobs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180), pytest.mark.xdist_group("dashboard")]


def test_the_overview_filters_into_its_address(watched: Watched, site: Site) -> None:
    page = watched.open("/")
    expect(page.locator("#jobs tbody tr")).to_have_count(8)
    page.get_by_label("State").select_option("running")
    expect(page.locator("#jobs tbody tr")).to_have_count(1)
    assert "state=running" in page.url
    page.get_by_label("State").select_option("")
    page.get_by_label("Operator, workload or id").fill("softmax")
    expect(page.locator("#jobs tbody tr")).to_have_count(3)
    page.reload()
    expect(page.locator("#jobs tbody tr")).to_have_count(3)
    expect(page.get_by_label("Operator, workload or id")).to_have_value("softmax")
    page.get_by_label("Operator, workload or id").fill("no such workload")
    expect(page.get_by_text("No job fits this filter.")).to_be_visible()
    page.get_by_role("link", name="Show all").click()
    expect(page.locator("#jobs tbody tr")).to_have_count(8)


def test_trials_are_sorted_filtered_paged_and_kept_in_the_address(
    watched: Watched, site: Site
) -> None:
    page = watched.open(site.path("job"))
    watched.settle()
    rows = page.locator("#trial-table tbody tr")
    expect(rows).to_have_count(50)
    page.locator("#trials").get_by_role("link", name="Median").click()
    expect(page.locator("th[aria-sort=ascending]")).to_contain_text("Median")
    assert "sort=median_s" in page.url
    fastest = rows.first.locator("td").nth(2).inner_text()
    best = page.locator("#head .stat").filter(has_text="Best, of the race")
    expect(best).to_contain_text("2.31 ms")
    # The fastest trial's gain stands beside the race's, which is of other measurements.
    gain = rows.first.locator("td").nth(3).inner_text()
    raced = page.locator("#head .stat").filter(has_text="Speed-up, raced")
    expect(raced).to_contain_text(f"in trials {gain}")
    assert fastest != "2.31 ms"
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
    assert lines[0].startswith("workload,number,outcome,median_s") and all(
        ",ok," in line for line in lines[1:]
    )
    with page.expect_download() as document:
        page.get_by_role("link", name="JSON").click()
    assert Path(document.value.path()).read_text().startswith('{"items":[')


def test_a_job_is_cancelled_and_resumed(watched: Watched, site: Site) -> None:
    page = watched.open(site.path("empty"))
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#head .chip").first).to_have_text("cancelled")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#head .chip").first).to_have_text("queued")


@pytest.mark.serial
def test_points_appear_within_a_second_and_a_lost_connection_loses_none(
    browser: Browser, site: Site
) -> None:
    lease, rng = site.made.running, np.random.default_rng(0)
    config = samples.configs(samples.parsed(samples.SPEC), 40, seed=9)
    total = "Number(document.querySelector('[data-curve]').dataset.total)"
    with cable(int(site.host.rpartition(":")[2])) as wire:
        context = browser.new_context()
        dashboard = Watched(page=context.new_page(), host=wire.host)
        page = dashboard.open(site.path("running"))
        dashboard.settle()
        expect(page.locator("#live")).to_have_text("live")
        start = int(page.evaluate(total))
        waits = []
        for step in range(5):
            with site.live.database.write() as session:
                samples.add(session, lease, samples.sample_trial(rng, start + step, config[step]))
            waits.append(dashboard.until(f"{total} === {start + step + 1}"))
        # The median: something else may take a second of the machine's.
        assert sorted(waits)[2] < 1.0, f"points took {waits} s to appear"
        dashboard.check()
        wire.cut()
        expect(page.locator("#live")).to_have_text("reconnecting")
        with site.live.database.write() as session:
            for step in range(5, 25):
                samples.add(session, lease, samples.sample_trial(rng, start + step, config[step]))
        page.wait_for_timeout(400)
        assert page.evaluate(total) == start + 5
        wire.mend()
        dashboard.until(f"{total} === {start + 25}", timeout_s=15)
        expect(page.locator("#live")).to_have_text("live")
        context.close()
        # The browser itself reports refused connections; nothing else may have gone wrong.
        assert [message for message in dashboard.wrong if "ERR_" not in message] == []


def test_the_end_of_a_job_is_seen(watched: Watched, site: Site) -> None:
    lease = samples.claim(site.live.database, site.live.queue())
    page = watched.open(f"/jobs/{lease.job_id}")
    expect(page.locator("#head .chip").first).to_have_text("running")
    with site.live.database.write() as session:
        jobs.enter(session, jobs.locked_row(session, lease.job_id), jobs.SUCCEEDED)
    expect(page.locator("#head .chip").first).to_have_text("succeeded", timeout=2000)


def test_a_page_that_nobody_sees_leaves_its_connection_to_others(
    watched: Watched, site: Site
) -> None:
    """A browser has six to a host; a page that comes back, from its history too, goes on."""
    lease = samples.claim(site.live.database, site.live.queue())
    page = watched.open(f"/jobs/{lease.job_id}")
    expect(page.locator("#live")).to_have_text("live")

    def streams() -> float:
        with site.live.http() as http:
            text = http.get("/metrics").text
        return float(text.split("\ntuner_event_streams ")[1].split()[0])

    def becomes(state: str) -> None:
        page.evaluate(
            "(state) => { Object.defineProperty(document, 'visibilityState', {value: state,"
            " configurable: true}); document.dispatchEvent(new Event('visibilitychange')); }",
            state,
        )

    wait_for(lambda: streams() == 1)
    becomes("hidden")
    wait_for(lambda: streams() == 0)
    becomes("visible")
    wait_for(lambda: streams() == 1)
    for event in ("pagehide", "pageshow"):
        page.evaluate(f"dispatchEvent(new PageTransitionEvent('{event}', {{persisted: true}}))")
    with site.live.database.write() as session:
        jobs.enter(session, jobs.locked_row(session, lease.job_id), jobs.SUCCEEDED)
    expect(page.locator("#head .chip").first).to_have_text("succeeded", timeout=2000)


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
    watched.page.context.grant_permissions(
        ["clipboard-read", "clipboard-write"], origin=site.live.url
    )
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
