"""The benchmark's own tuning on a machine whose driver and compiler are doubles: the
promoted kernel joins the candidates; and its race, with PyTorch on a CPU for PyTorch on
the double."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu.build import build
from benchmarks.gpu.carried.kernels import read_module
from benchmarks.gpu.models import ModelRace
from benchmarks.gpu.suite import SUITE, Race
from tests.device.machine import needs_compiler

ROOT = Path(__file__).resolve().parents[2]
TUNE = (
    "import sys; from pathlib import Path; from benchmarks.gpu.tune import tune_races\n"
    "tune_races(Path(sys.argv[1]), arch='sm_90', trials=3, only=[], said=print)"
)

pytestmark = [
    needs_compiler,
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("fleet"),
]


def test_a_tuned_kernel_joins_the_candidates_and_a_race_that_cannot_be_tuned_says_why(
    doubles: Mapping[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "carried"
    folder.mkdir()
    races = [
        {"name": "none", "kind": "softmax", "spec": "softmax:M=0,N=4", "built": {}},
        {"name": "small", "kind": "softmax", "spec": "softmax:M=5,N=77", "built": {}},
    ]
    (folder / "suite.json").write_text(json.dumps({"races": races}))
    plain = {name: value for name, value in os.environ.items() if not name.startswith("TUNER_")}
    places = {
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "PYTHONPATH": str(ROOT),
    }
    environment = plain | places | dict(doubles)
    command = [sys.executable, "-c", TUNE, str(folder)]
    done = subprocess.run(
        command,
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    none, small = json.loads((folder / "suite.json").read_text())["races"]
    assert "M" in none["not_tuned"] and not none["built"]["sm_90"]
    (candidate,) = small["built"]["sm_90"]
    assert candidate["tuned"]["trials"] == 3 and candidate["tuned"]["seconds"] > 0
    assert 0 < candidate["tuned"]["busy"] <= 1
    head, cubins = read_module((folder / candidate["file"]).read_bytes())
    assert [name for name, _ in cubins] == ["sm_90"] and head["launches"]


SMALL = tuple(
    Race(name=name, kind=kind, dtype=dtype, spec=spec, bars={"sm_90": 0.5}, sizes=sizes)
    for name, kind, dtype, spec, sizes in (
        ("product", "matmul", "float16", "matmul:M=128,N=128,K=64,dtype=float16",
         {"M": 128, "N": 128, "K": 64}),
        ("bytes", "bytes_product", "int8", "dense:M=128,N=128,K=128,dtype=int8",
         {"M": 128, "N": 128, "K": 128}),
        ("short", "tf32_product", "float32", "dense:M=64,N=64,K=64,numerics=tensor",
         {"M": 64, "N": 64, "K": 64}),
        ("pixels", "convolution", "float16",
         "conv2d:N=1,H=8,W=8,CI=64,CO=64,KH=3,KW=3,pad=1,dtype=float16",
         {"N": 1, "H": 8, "W": 8, "CI": 64, "CO": 64}),
        ("every_second_pixel", "convolution", "float16",
         "conv2d:N=1,H=16,W=16,CI=64,CO=64,KH=3,KW=3,pad=1,stride=2,dtype=float16",
         {"N": 1, "H": 16, "W": 16, "CI": 64, "CO": 64, "stride": 2}),
        ("rows", "softmax", "float32", "softmax:M=8,N=64", {"M": 8, "N": 64}),
    )
) + tuple(
    replace(race, name="bytes_as_floats", spec="small", sizes={"M": 64, "N": 64, "K": 128})
    for race in SUITE
    if race.name == "dense_fp8"
)  # fmt: skip


NETWORKS = (
    ModelRace(
        name="encoder",
        spec="small encoder",
        network="bert",
        batch=1,
        bars={"sm_90": 0.5},
        sizes={"tokens": 16, "width": 32, "heads": 2, "layers": 2},
    ),
    ModelRace(
        name="residual",
        spec="small residual network",
        network="resnet",
        batch=2,
        bars={"sm_90": 0.5},
        sizes={"size": 16, "width": 8, "blocks": (1, 1), "classes": 10},
    ),
)


def raced(folder: Path, doubles: Mapping[str, str], *arguments: str) -> dict[str, dict[str, Any]]:
    """Rows of a race by name, whose table is written."""
    path = str(ROOT / "tests" / "device" / "torch_double")
    done = subprocess.run(
        [sys.executable, str(folder / "run.py"), *arguments],
        env=dict(os.environ) | dict(doubles) | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (folder / "result.md").read_text() in done.stdout
    rows = json.loads((folder / "result.json").read_text())["races"]
    return {row["name"]: row for row in rows}


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # of PyTorch to itself
def test_networks_are_raced_as_one_graph_of_the_kernels_chosen_on_the_device(
    doubles: Mapping[str, str], gpu_double: None, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    folder = tmp_path / "carried"
    build(
        folder,
        architectures=["sm_90"],
        candidates=2,
        cache=tmp_path / "cubins",
        only=[],
        said=print,
        suite=NETWORKS,
    )
    rows = raced(folder, doubles)
    assert {row["verdict"] for row in rows.values()} == {"met"}, rows
    suite = {
        race["name"]: race for race in json.loads((folder / "suite.json").read_text())["races"]
    }
    for name, row in rows.items():
        built = suite[name]["built"]["sm_90"]
        assert row["wrong"] == 0 and 0 < row["error"] < 0.02
        assert len(row["config"]) == len({each["kernel"] for each in built}) < len(built)
        assert "torch.compile max-autotune" in row["rivals_s"]


def test_a_carried_folder_is_raced_within_its_time(
    doubles: Mapping[str, str], gpu_double: None, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    folder = tmp_path / "carried"
    build(
        folder,
        architectures=["sm_90"],
        candidates=3,
        cache=tmp_path / "cubins",
        only=[],
        said=print,
        suite=SMALL,
    )
    rows = raced(folder, doubles)
    assert {row["verdict"] for row in rows.values()} == {"met"}, rows
    for row in rows.values():
        assert row["wrong"] == 0 and row["candidates"] > 1
        assert set(row["rivals_s"]) > {"torch.compile max-autotune"}
    again = raced(folder, doubles, "--seconds", "10")
    assert {row["verdict"][:7] for row in again.values()} == {"not run"}
