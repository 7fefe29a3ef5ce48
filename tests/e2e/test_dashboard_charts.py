"""Axes, shares of the fastest, links and images of the drawings in a real Chromium."""

from __future__ import annotations

import re
import struct
import time
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.chromium import Watched
from tests.e2e.dashboard_site import Site
from tests.support.kernel_samples import many_kernels

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180), pytest.mark.xdist_group("dashboard")]

KERNELS = 10_000


def drawn(page: Page) -> str:
    return page.locator("#curve svg").inner_html()


def test_axes_and_the_fastest_share_are_in_the_address(watched: Watched, site: Site) -> None:
    page = watched.open(site.path("job"))
    watched.settle()
    whole = drawn(page)
    for name in ("x log", "y linear", "best 20%"):
        page.get_by_role("link", name=name, exact=True).click()
        expect(page.locator("#curve").get_by_role("link", name=name, exact=True)).to_have_attribute(
            "aria-current", "true"
        )
    watched.settle()
    for part in ("xscale=log", "yscale=linear", "top=20"):
        assert part in page.url
    assert drawn(page) != whole
    expect(page.locator("#curve")).to_contain_text("The fastest 20% of the timed trials")
    expect(page.locator("#trials .chip.filter")).to_contain_text("fastest 20%")
    # A filter typed afterwards keeps the axes, and links of older parts keep the filter.
    page.get_by_label("Outcome", exact=True).select_option("ok")
    expect(page.locator("#trials .chip.failed")).to_have_count(0)
    page.get_by_role("link", name="by time").click()
    expect(page.locator("#curve svg")).to_contain_text("time since the start")
    assert "outcome=ok" in page.url and "xscale=log" in page.url
    shown = drawn(page)
    page.reload()
    watched.settle()
    assert drawn(page) == shown
    expect(page.get_by_label("Outcome", exact=True)).to_have_value("ok")
    page.locator("#trials").get_by_role("link", name=re.compile("fastest")).click()
    expect(page.locator("#trials .chip.filter")).to_have_count(0)
    assert "top=" not in page.url


def test_a_share_that_is_none_is_refused_in_words(watched: Watched, site: Site) -> None:
    page = watched.open(site.path("job") + "?top=200")
    expect(page.locator("#trials .problem")).to_contain_text("give a percentage above 0")


def test_the_link_of_a_drawing_restores_it(watched: Watched, site: Site) -> None:
    page = watched.open(site.path("job"))
    watched.settle()
    page.get_by_role("link", name="x log", exact=True).click()
    expect(page.locator("#curve .tools a").first).to_have_attribute(
        "href", re.compile("xscale=log#best$")
    )
    page.get_by_label("to", exact=True).fill("9 ms")
    expect(page.locator("#knobs .tools a").first).to_have_attribute(
        "href", re.compile("max=9.*#knobs$")
    )
    address = page.locator("#knobs .tools a").first.get_attribute("href")
    shown = drawn(page)
    page.goto("about:blank")
    page = watched.open(str(address))
    watched.settle()
    assert drawn(page) == shown
    expect(page.get_by_label("to", exact=True)).to_have_value("9 ms")
    expect(page.locator("#knobs h2")).to_be_in_viewport()


@pytest.mark.parametrize(
    ("name", "count"),
    [("job", 4), ("kernel", 2), ("compare-jobs", 1), ("compare-kernels", 1), ("fleet", 1)],
)
def test_every_drawing_is_an_svg_and_a_png(
    watched: Watched, site: Site, name: str, count: int
) -> None:
    page = watched.open(site.path(name))
    watched.settle()
    tools = page.locator(".tools")
    expect(tools).to_have_count(count)
    for index in range(count):
        with page.expect_download() as vector:
            tools.nth(index).get_by_role("link", name="SVG").click()
        text = Path(vector.value.path()).read_text()
        root = ElementTree.fromstring(text)
        assert root.tag == "{http://www.w3.org/2000/svg}svg" and "<a " not in text
        with page.expect_download() as picture:
            tools.nth(index).get_by_role("button", name="PNG").click()
        content = Path(picture.value.path()).read_bytes()
        assert picture.value.suggested_filename.endswith(".png")
        assert content.startswith(b"\x89PNG")
        width, height = struct.unpack(">II", content[16:24])
        assert (width, height) == (2 * int(root.get("width", 0)), 2 * int(root.get("height", 0)))
        # A blank image compresses to almost nothing.
        assert len(content) > 4000
        address = tools.nth(index).get_by_role("link", name="Link").get_attribute("href")
        assert page.locator(f"#{urlsplit(str(address)).fragment}").count() == 1


def test_jobs_of_several_workloads_stand_side_by_side(watched: Watched, site: Site) -> None:
    made = site.made
    page = watched.open(f"/compare?a={made.succeeded}&b={made.cancelled}")
    rows = page.get_by_role("region", name="Workloads of both jobs").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(page.get_by_text("as fast as B in the geometric mean")).to_be_visible()
    rows.first.get_by_role("link").click()
    assert "workload=" in page.url
    expect(page.locator("#curves svg")).to_be_visible()
    page.get_by_role("link", name="x log", exact=True).click()
    assert "workload=" in page.url and "xscale=log" in page.url
    page = watched.open(f"/compare?a={made.succeeded}&b={made.cancelled}&workload=abc", status=400)
    expect(page.locator("main")).to_contain_text("is not one of both jobs")


@pytest.mark.serial
def test_ten_thousand_kernels_stay_quick(watched: Watched, site: Site) -> None:
    """The best of a few attempts: others may use the machine meanwhile, and the bound is
    on what the pages cost."""
    ids = many_kernels(site.live.database, KERNELS)
    for path, shown in (
        ("/kernels", "#main tbody tr"),
        ("/kernels?q=M%3D77%2C", "#main tbody tr"),
        ("/kernels?op=matmul", "#main tbody tr"),
        (f"/kernels/{ids[-1]}", "#race-table"),
        ("/", "#jobs tbody tr"),
    ):
        waits = []
        for _ in range(4):
            began = time.monotonic()
            page = watched.open(path)
            expect(page.locator(shown).first).to_be_visible()
            waits.append(time.monotonic() - began)
        assert min(waits) < 1.0, f"{path} took {waits}"
    page = watched.open("/kernels?q=M%3D77%2C")
    expect(page.locator("tbody tr")).to_have_count(50)
    expect(page.locator("#ktext")).to_have_value("M=77,")
