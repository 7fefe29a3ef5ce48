"""`torch.compile(model, backend="tuner")` with real tuning: right before, during and after it,
and tuned from the first call in a second process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tuner

pytest.importorskip("torch")

ROOT = Path(tuner.__file__).parents[1]

PROGRAM = """
import sys, torch
import tuner.torch
from tuner.torch.call import RegionCall
torch.set_num_threads(1)
torch.manual_seed(0)
nn = torch.nn
mlp = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
conv = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 4))
tuned = []
offer = RegionCall.offer
RegionCall.offer = lambda call, path: (tuned.append(call), offer(call, path))[1]
options = {"tune": sys.argv[1], "trials": 1, "seconds": 120}
for net, x in ((mlp, torch.randn(8, 16)), (conv, torch.randn(2, 3, 8, 8))):
    # Both nets have the same code: of the second, PyTorch would take the batch as dynamic.
    compiled = torch.compile(net, backend="tuner", options=options, dynamic=False)
    for step in range(3):
        for given in (compiled, net):
            net.zero_grad()
            given(x).square().mean().backward()
            gradients = [p.grad.clone() for p in net.parameters()]
            if given is compiled:
                ours = gradients
        torch.testing.assert_close(ours, gradients, rtol=1e-4, atol=1e-6)
print(len(tuned), sum(call._supply.cache.race(call._supply.key) is not None for call in tuned))
print("tvm" in sys.modules, "ray" in sys.modules)
"""


def run(tune: str, data: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, tune],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
        env={
            "PYTHONPATH": str(ROOT),
            "PATH": "/usr/bin:/bin:/usr/local/bin",
            "HOME": str(data),
            "TUNER_DATA_DIR": str(data),
        },
    )
    assert done.returncode == 0, done.stderr
    assert "TunerWarning" not in done.stderr, done.stderr
    return done.stdout.splitlines()


@pytest.mark.long
@pytest.mark.timeout(2000)
def test_a_second_process_starts_tuned(tmp_path: Path) -> None:
    """Forward and backward graphs, whose libraries are all right and raced at the first call."""
    counts, loaded = run("now", tmp_path)
    regions, raced = map(int, counts.split())
    assert regions >= 4 and raced == regions
    assert loaded == "False False"
    assert run("off", tmp_path) == [counts, loaded]
