"""Figures of the dashboard in a real Chromium: whole dates, one scale per axis, sizes."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.chromium import Watched
from tests.e2e.dashboard_site import Site
from tuner.db import targets
from tuner.target.detect import parse_target
from tuner.workload.catalogue import operator

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180), pytest.mark.xdist_group("dashboard")]

# By how many pixels the cells of a column are wider than shown, and reach out of the region
# that scrolls the table.
CUT_OFF = """
(header) => {
  const table = header.closest("table"), region = header.closest(".scroll");
  const cells = [header, ...table.querySelectorAll(`tbody td:nth-child(${header.cellIndex + 1})`)];
  const right = region.getBoundingClientRect().right;
  return Math.max(...cells.map((cell) => Math.max(
    cell.scrollWidth - cell.clientWidth, cell.getBoundingClientRect().right - right)));
}
"""


def test_when_a_job_was_created_is_whole_on_a_common_screen(site: Site, browser: Browser) -> None:
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    watched = Watched(page=context.new_page(), host=site.host)
    page = watched.open(site.path("overview"))
    watched.settle()
    header = page.get_by_role("region", name="Jobs").locator("th", has_text="Created")
    expect(header).to_be_in_viewport(ratio=1)
    assert header.evaluate(CUT_OFF) <= 0.5
    context.close()
    watched.check()


def test_scores_of_the_estimate_do_not_stretch_the_models_axis(
    watched: Watched, site: Site
) -> None:
    """The samples' estimates are far below the scores of the trained model."""
    page = watched.open(site.path("job"))
    watched.settle()
    drawing = page.get_by_role("img", name=re.compile("Predicted score against measured median"))
    shown = int(re.findall(r"of (\d+) trials", drawing.locator("title").text_content() or "")[0])
    expect(drawing).to_contain_text("predicted score (higher: faster)")
    axis = [float(text) for text in drawing.locator("text[y='216']").all_text_contents()]
    assert axis and min(axis) > -20.0
    caption = page.locator("p", has_text="trials that the trained model had scored")
    expect(caption).to_contain_text(f"{shown} trials that the trained model had scored")
    expect(caption).to_contain_text("before its first training are left out")


def test_a_form_suggests_usual_extents_and_sizes_the_space_of_a_gpu(
    watched: Watched, site: Site
) -> None:
    gpu = parse_target("cuda:sm_90")
    with site.live.database.write() as session:
        targets.remember(session, gpu)
    page = watched.open("/submit?op=matmul")
    for param in operator("matmul").params:
        if param.usual is not None:
            expect(page.locator(f"input[name=p_{param.name}]")).to_have_value(str(param.usual))
    page.locator("select[name=target]").select_option(value=gpu.key)
    page.locator("input[name=threads]").fill("1")
    verdict = page.locator("#verdict")
    expect(verdict).to_contain_text(gpu.name, timeout=60_000)
    expect(verdict).to_contain_text(re.compile(r"[1-9][0-9,]* configs, [1-9][0-9]* sketch"))
    expect(verdict).not_to_contain_text("sized by the workers")
