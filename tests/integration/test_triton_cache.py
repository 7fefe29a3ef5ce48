"""Triton's tuning results through a service: from one cache into another, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.live_service import LiveService, options_for, serving
from tuner.integrations import triton

HASH = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567ABCDEFGHIJKLMNOPQRST"
CONFIG = {
    "kwargs": {"BLOCK_M": 64, "EVEN": True}, "num_warps": 4, "num_ctas": 1, "num_stages": 3,
    "maxnreg": None, "pre_hook": None, "ir_override": None,
}  # fmt: skip
RESULT = {
    "key": [512, 512, "torch.float16"],
    "configs_timings": [[CONFIG, [0.011, 0.0105, 0.012]], [CONFIG, 0.02]],
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    folder = tmp_path_factory.mktemp("service")
    with serving(options_for(f"sqlite:///{folder}/tuner.sqlite", folder)) as live:
        yield live


def write(cache: Path, hashed: str, name: str, content: str) -> None:
    (cache / hashed).mkdir(parents=True)
    (cache / hashed / f"{name}.autotune.json").write_text(content)


def test_results_go_from_a_cache_into_another(
    service: LiveService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    write(here, HASH, "matmul_kernel", json.dumps(RESULT))
    write(here, "not-a-hash", "matmul_kernel", json.dumps(RESULT))
    write(here, HASH[::-1], "matmul_kernel", "half a fi")
    monkeypatch.setenv("TUNER_SERVER", service.url)
    monkeypatch.setenv("TUNER_TOKEN", service.key("submit"))
    assert [triton.main(["push", str(here)]) for _ in range(2)] == [0, 0]
    assert [triton.main(["pull", str(there)]) for _ in range(2)] == [0, 0]
    said = [line for line in capsys.readouterr().out.splitlines() if " results " in line]
    assert said == ["1 results kept", "0 results kept", "1 results written", "0 results written"]
    (written,) = there.rglob("*.json")
    assert written == there / HASH / "matmul_kernel.autotune.json"
    assert json.loads(written.read_text()) == RESULT


@pytest.mark.parametrize(
    "change",
    [
        {"name": "../../escaped"},
        {"name": "kernel", "result": {**RESULT, "configs_timings": []}},
        {"name": "kernel", "result": {**RESULT, "more": 1}},
        {"name": "kernel", "result": {**RESULT, "configs_timings": [[{"kwargs": {}}, "fast"]]}},
        {"name": "kernel", "result": {**RESULT, "configs_timings": [
            [{**CONFIG, "pre_hook": "os.system"}, 1.0]]}},
        {"name": "kernel", "result": {**RESULT, "configs_timings": [
            [{**CONFIG, "kwargs": {"BLOCK": [1]}}, 1.0]]}},
    ],
)  # fmt: skip
def test_what_is_no_result_is_not_written(
    service: LiveService, tmp_path: Path, change: dict[str, Any]
) -> None:
    client = service.client(service.key("submit"))
    client.put_entry("triton", "Z" * 52, json.dumps({"result": RESULT, **change}))
    triton.pull(client, tmp_path)
    assert not (tmp_path / ("Z" * 52)).exists() and not list(tmp_path.rglob("*escaped*"))


def test_without_a_service_it_says_so(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert triton.main(["push"]) == 1
    assert "no service is named" in capsys.readouterr().err
