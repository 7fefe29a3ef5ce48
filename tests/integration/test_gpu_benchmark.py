"""The benchmark's own tuning on a machine whose driver and compiler are doubles: the
promoted kernel joins the candidates."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks.gpu.standalone import read_module
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
        {"name": "none", "spec": "softmax:M=0,N=4", "built": {}},
        {"name": "small", "spec": "softmax:M=5,N=77", "built": {}},
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
    head, cubins = read_module((folder / candidate["file"]).read_bytes())
    assert [name for name, _ in cubins] == ["sm_90"] and head["launches"]
