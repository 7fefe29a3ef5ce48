"""docs/how-to/add-a-strategy.md, carried out on a copy of the source."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import how_to

pytestmark = pytest.mark.slow

SERVED = """
import json, sys
from pathlib import Path

import httpx
from tests.support.live_service import options_for, serving

folder = Path(sys.argv[1])
with serving(options_for(f"sqlite:///{folder}/tuner.sqlite", folder)) as service:
    cookies = {"tuner_session": service.key("admin")}
    with httpx.Client(base_url=service.url, cookies=cookies, verify=False) as pages:
        schemas = pages.get("/openapi.json").json()["components"]["schemas"]
        names = schemas["JobRequest"]["properties"]["strategy"]["enum"]
        offered = {"enum": names, "form": pages.get("/submit").text}
(folder / "offered.json").write_text(json.dumps(offered))
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root, edited = how_to.carry_out("add-a-strategy.md", tmp_path_factory.mktemp("page"))
    assert edited == ["tuner/search/mirrored.py", "tuner/search/strategies.py"]
    return root


def test_the_strategy_keeps_the_contract(source: Path) -> None:
    suite = ("-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-k", "mirrored")
    assert " passed" in how_to.run(source, *suite, "tests/contracts/test_searcher.py")


@pytest.mark.parametrize("command", ["tune", "submit", "replay"])
def test_commands_offer_it(source: Path, command: str) -> None:
    printed = how_to.run(source, "-m", "tuner", command, "--help", COLUMNS="200")
    assert "mirrored" in printed


def test_settings_take_it(source: Path) -> None:
    printed = how_to.run(source, "-m", "tuner", "config", "show", TUNER_STRATEGY="mirrored")
    assert "mirrored" in printed


def test_a_replay_runs_it(source: Path) -> None:
    table = how_to.ROOT / "tests/tables/softmax.npz"
    options = ("--strategies", "mirrored", "--seeds", "2", "--budget", "8", "--json")
    printed = json.loads(how_to.run(source, "-m", "tuner", "replay", str(table), *options))
    assert [entry["strategy"] for entry in printed["results"]] == ["mirrored"]


def test_the_service_offers_it(source: Path, tmp_path: Path) -> None:
    how_to.run(source, "-c", SERVED, str(tmp_path))
    offered = json.loads((tmp_path / "offered.json").read_text())
    assert offered["enum"][-1] == "mirrored"
    assert "<option>mirrored</option>" in offered["form"]
