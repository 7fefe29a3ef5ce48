"""The package holds what pages need, and nothing in a template goes around the policy
or the escaping."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from starlette.datastructures import QueryParams

from tuner.api.dashboard.pages import make_dashboard, with_query
from tuner.api.dashboard.views.sign_in import safe

TEMPLATES = sorted((Path(__file__).parents[3] / "api/dashboard/templates").glob("*.html"))
SCRIPTS = sorted((Path(__file__).parents[3] / "api/dashboard/static").glob("*.js"))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_templates_have_no_inline_script_style_or_handler(path: Path) -> None:
    text = path.read_text()
    make_dashboard().environment.parse(text)
    assert not re.search(r"\sstyle=|\son[a-z]+=|javascript:", text)
    assert not re.search(r"\|\s*safe\b|autoescape false", text)
    assert not re.search(r"https?://", text)
    allowed = r"<script (src=|type=\"module\" src=|type=\"application/json\")"
    assert len(re.findall("<script", text)) == len(re.findall(allowed, text))
    assert ("<style" in text) == (path.name == "report.html")


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_evaluate_nothing_and_go_nowhere_else(path: Path) -> None:
    text = path.read_text()
    assert not re.search(
        r"\beval\(|new Function|document\.write|https?://(?!www\.w3\.org/2000/svg)", text
    )


def test_every_asset_a_page_asks_for_exists() -> None:
    assets = make_dashboard().assets
    asked = {
        name for path in TEMPLATES for name in re.findall(r"asset\('([^']+)'\)", path.read_text())
    }
    imported = {
        name for path in SCRIPTS for name in re.findall(r'from "\./([^"]+)"', path.read_text())
    }
    assert asked | imported <= set(assets)


@pytest.mark.parametrize(
    "target",
    ["//evil.example", "/\\evil", "https://evil.example", "javascript:alert(1)", "", "/a\nb"],
)
def test_signing_in_leads_only_to_this_service(target: str) -> None:
    assert safe(target) == "/"


def test_queries_change_by_name() -> None:
    params = QueryParams("knob=a%3D1&knob=b%3D2&sort=number&cursor=x")
    assert with_query(params, cursor=None, sort="-number") == "?knob=a%3D1&knob=b%3D2&sort=-number"
    assert with_query(params, knob=["c=[1,2]"], cursor=None) == "?sort=number&knob=c%3D%5B1%2C2%5D"
    assert safe("/jobs/j_1?task=2") == "/jobs/j_1?task=2"
