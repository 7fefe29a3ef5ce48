"""Regions of tensors on a GPU, with the doubles for the driver and compiler, and PyTorch on a
CPU for PyTorch with CUDA: tuned, kept, called, and found again by another process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.device.machine import needs_compiler

ROOT = Path(__file__).resolve().parents[2]
# Traced on a CPU, and said to lie on a GPU, whose memory the double has in the host's.
SCRIPT = """
import warnings
from dataclasses import replace
from types import SimpleNamespace
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from tuner.torch.layouts import Layouts, layouts_of
from tuner.torch.options import options_from
from tuner.torch.partition import partition
from tuner.torch.tuning import Background, RegionSupply

def function(x, w, b):
    return torch.relu(x @ w + b), (x * 2).t()

def failed(*said):
    raise AssertionError(said)

x, w, b = torch.randn(33, 20), torch.randn(20, 50), torch.randn(50)
(region,) = partition(make_fx(function, tracing_mode="fake")(x, w, b).graph).regions
traced = layouts_of(region)
layouts = Layouts(
    inputs=tuple(replace(each, on_gpu=True) for each in traced.inputs),
    outputs=tuple(replace(each, on_gpu=True) for each in traced.outputs),
)
options = options_from("MODE", {"trials": 2, "seconds": 60})
supply = RegionSupply(region.packed, layouts, options, Background())
offered = []
supply.begin(SimpleNamespace(offer=offered.append, give_up=failed, __name__="region_1"))
library = supply.load(offered[0], failed)
named = {"x": x, "w": w, "b": b}
results = library(*(named[node.name[0]] for node in region.part.inputs))
supply.finish()
right = {(33, 50): torch.relu(x @ w + b), (33, 20): x * 2}
for result in results:
    torch.testing.assert_close(result, right[tuple(result.shape)], rtol=1e-4, atol=1e-4)
print("right", len(results))
"""

pytestmark = [
    needs_compiler,
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("fleet"),
]


def test_a_region_is_tuned_and_found_again(doubles: Mapping[str, str], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    plain = {name: value for name, value in os.environ.items() if not name.startswith("TUNER_")}
    environment = (
        plain
        | dict(doubles)
        | {
            "TUNER_DATA_DIR": str(tmp_path / "data"),
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests/device/torch_double"))),
        }
    )
    for mode in ("tune-now", "tune-off"):
        script = tmp_path / "script.py"
        script.write_text(SCRIPT.replace("MODE", mode))
        done = subprocess.run(
            [sys.executable, str(script)],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        assert done.returncode == 0 and done.stdout == "right 2\n", done.stderr
