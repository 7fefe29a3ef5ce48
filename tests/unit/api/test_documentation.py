"""The REST page names every route, every problem code and every limit as the code has
them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tuner.api.body_limit import LEAST_BYTES_PER_S, PAUSE_S
from tuner.api.options import ServiceOptions
from tuner.models.importer import LARGEST_FILE

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs/reference/rest.md").read_text()
DOCUMENT = json.loads((ROOT / "docs/reference/openapi.json").read_text())
ROUTES = sorted(
    f"{method.upper()} {path}" for path, item in DOCUMENT["paths"].items() for method in item
)
SOURCES = "".join(
    path.read_text()
    for path in sorted((ROOT / "api").rglob("*.py"))
    if "dashboard" not in path.parts
)
RAISED = re.findall(r'Problem\(\s*\d+,\s*"([a-z_]+)"', SOURCES) + re.findall(
    r'\bcode="([a-z_]+)"', SOURCES
)


@pytest.mark.parametrize("route", ROUTES)
def test_each_route_has_its_heading(route: str) -> None:
    assert f"### {route}\n" in TEXT


def test_no_route_is_described_that_does_not_exist() -> None:
    assert set(re.findall(r"^### ([A-Z]+ /.*)$", TEXT, re.MULTILINE)) == set(ROUTES)


@pytest.mark.parametrize("code", sorted(set(RAISED)))
def test_each_problem_code_is_listed(code: str) -> None:
    assert f"`{code}`" in TEXT


def test_limits_are_those_of_the_options() -> None:
    options = ServiceOptions(database_url="sqlite:///x", artifacts=Path("x"))
    assert options.max_body_bytes == 1_000_000 and "1,000,000 bytes" in TEXT
    assert f"a pause of {PAUSE_S:.0f} s, {LEAST_BYTES_PER_S} bytes a second" in TEXT
    assert options.max_estimates_bytes == 8 * 2**20 and "estimates 8 MiB" in TEXT
    assert options.max_run_bytes == 64 * 2**20 and "arrays 64 MiB" in TEXT
    assert options.max_model_bytes == LARGEST_FILE and "models 2 GiB" in TEXT
    assert (
        f"{options.requests_per_s:.0f} a second" in TEXT
        and f"bursts of {options.request_burst}" in TEXT
    )
    assert (
        f"counts as {options.submit_cost}" in TEXT
        and f"its quota, else {options.max_active_jobs}" in TEXT
    )
    assert f"| {options.max_waiting_runs} |" in TEXT
    assert f"that lookups queued | {options.max_prepare_jobs} of a service" in TEXT
    assert f"| {options.max_streams} of a process, {options.max_key_streams} of a key" in TEXT
