"""`torch.compile(model, backend="tuner")` with real tuning: right before, during and after it,
and tuned from the first call in a second process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.model_programs import ROOT, run_program
from tests.support.small_disk import empty, fill_up, small_disk

pytest.importorskip("torch")

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
RegionCall.offer = lambda call, path, *known: (tuned.append(call), offer(call, path, *known))[1]
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


def run(tune: str, data: Path, program: str = PROGRAM) -> list[str]:
    done = run_program(program, tune, home=data, timeout_s=900)
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


ENDLESS = """
import sys, torch
import tuner.torch
torch.set_num_threads(1)
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 7))
call = torch.compile(net, backend="tuner", options={"tune": sys.argv[1], "trials": 2})
x = torch.randn(8, 32)
with torch.no_grad():
    while True:
        torch.testing.assert_close(call(x), net(x), rtol=1e-4, atol=1e-5)
        print("right", flush=True)
        if sys.argv[1] == "now" or not sys.stdin.readline():
            break
"""


def started(tune: str, data: Path) -> subprocess.Popen[str]:
    """A process that calls a model, in the background once for each line that it is sent."""
    return subprocess.Popen(
        [sys.executable, "-c", ENDLESS, tune],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={
            "PYTHONPATH": str(ROOT),
            "PATH": "/usr/bin:/bin:/usr/local/bin",
            "HOME": str(data),
            "TUNER_DATA_DIR": str(data),
        },
    )


def right_again(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "right\n"


def child_of(pid: int) -> int:
    """The process that makes its libraries, once it is there."""
    children = Path(f"/proc/{pid}/task")
    deadline_s = time.monotonic() + 120
    while time.monotonic() < deadline_s:
        for task in children.iterdir():
            for child in (task / "children").read_text().split():
                if b"region_process" in Path(f"/proc/{child}/cmdline").read_bytes():
                    return int(child)
        time.sleep(0.1)
    raise TimeoutError(f"process {pid} makes no library")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_killed_maker_leaves_the_model_to_pytorch(tmp_path: Path) -> None:
    process = started("background", tmp_path)
    right_again(process)
    child = child_of(process.pid)
    time.sleep(5)  # it is at work
    os.kill(child, signal.SIGKILL)
    time.sleep(5)
    for _ in range(3):
        right_again(process)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0 and said.count("TunerWarning") == 1, said
    assert "its process ended with status -9" in said


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_killed_model_ends_its_maker_and_the_next_processes_go_on(tmp_path: Path) -> None:
    process = started("background", tmp_path)
    right_again(process)
    child = child_of(process.pid)
    time.sleep(5)
    process.kill()
    process.communicate(timeout=60)
    deadline_s = time.monotonic() + 300
    while Path(f"/proc/{child}").exists():
        assert time.monotonic() < deadline_s
        time.sleep(0.5)
    both = [started("now", tmp_path) for _ in range(2)]
    for other in both:
        answered, said = other.communicate(timeout=500)
        assert (other.returncode, answered) == (0, "right\n"), said
        assert "TunerWarning" not in said
    assert len(list((tmp_path / "torch").rglob("*.so"))) == 1


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_disk_that_fills_leaves_the_model_to_pytorch_and_loses_nothing(tmp_path: Path) -> None:
    """With one warning; once there is room, the next process makes the library."""
    with small_disk(tmp_path / "disk", megabytes=24) as disk:
        process = started("background", disk)
        right_again(process)
        child = Path(f"/proc/{child_of(process.pid)}")
        deadline_s = time.monotonic() + 300
        while not (disk / "tuner.db").exists():
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        fill_up(disk, leave_bytes=0)
        while child.exists():
            assert time.monotonic() < deadline_s
            right_again(process)
            time.sleep(0.5)
        time.sleep(1)
        for _ in range(3):
            right_again(process)
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0 and said.count("TunerWarning") == 1, said
        # SQLite says the one or the other, by what it was writing.
        assert "no space left on its disk" in said or "disk I/O error" in said, said
        assert not list(disk.rglob("*.so"))
        empty(disk)
        answered, said = started("now", disk).communicate(timeout=500)
        assert answered == "right\n" and "TunerWarning" not in said, said
        assert len(list((disk / "torch").rglob("*.so"))) == 1


FROZEN = """
import sys, torch
import tuner.torch
from tuner.torch.frozen_call import FrozenCall
torch.set_num_threads(1)
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(32, 48), torch.nn.ReLU(), torch.nn.Linear(48, 7)).eval()
x = torch.randn(8, 32)
calls = []
freeze = FrozenCall._freeze
FrozenCall._freeze = lambda call, tensors: calls.append(freeze(call, tensors)) or calls[-1]
options = {"tune": sys.argv[1], "trials": 1, "seconds": 60, "freeze": True}
compiled = torch.compile(net, backend="tuner", options=options)
with torch.no_grad():
    for step in range(4):
        torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)
        if step == 2:
            print(len(calls[0].weights))
            net[0].weight += 1  # from now on they are passed
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_frozen_weights_are_constants_until_they_change(tmp_path: Path) -> None:
    for tune in ("now", "off"):  # a second process finds what the first one has made
        assert run(tune, tmp_path, FROZEN) == ["4"]
    # One of the frozen weights, and one that takes them.
    assert len({path.parent for path in tmp_path.glob("torch/*/*.so")}) == 2
