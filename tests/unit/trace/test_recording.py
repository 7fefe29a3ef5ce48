"""Programs that are recorded as a user has them: in a process of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuner.errors import UsageError
from tuner.trace.program import BOOTSTRAP
from tuner.trace.record import Trace
from tuner.trace.recording import recorded

CALLS = """
import numpy as np
a, b = np.ones((40, 30), "float32"), np.ones((30, 20), "float32")
for _ in range(7):
    a @ b
    a.T @ a
    np.add(a, 1.0, out=a)
    a.sum(axis=0)
    np.sum(a, axis=1)
    np.einsum("ij,jk->ik", a, b)
"""


def run(program: str, tmp_path: Path, share: float = 1.0) -> Trace:
    path = tmp_path / "program.py"
    path.write_text(program)
    return recorded([sys.executable, str(path)], share)


def counts(trace: Trace) -> dict[str, float]:
    return {f"{call.operator} {call.shapes}": call.count for call in trace.calls}


def test_each_call_is_counted_with_its_operands(tmp_path: Path) -> None:
    trace = run(CALLS, tmp_path)
    expected = {
        "numpy.matmul 40×30 30×20": 7, "numpy.matmul 30×40* 40×30": 7, "numpy.add 40×30": 7,
        "numpy.einsum 40×30 30×20": 7,
    }  # fmt: skip
    assert counts(trace).items() >= expected.items()
    sums = [call for call in trace.calls if call.operator == "numpy.sum"]
    assert [(call.count, call.shapes) for call in sums] == [(7, "40×30"), (7, "40×30")]
    axes = [argument["value"] for call in sums for argument in call.arguments[1:]]
    assert sorted(axes) == [0, 1]
    assert all(0 < call.total_s < trace.elapsed_s for call in trace.calls)
    matmul = next(call for call in trace.calls if call.shapes == "30×40* 40×30")
    assert matmul.arguments[0] == {"shape": [30, 40], "strides": [1, 30], "dtype": "float32"}


OWN = """
import os, sys
import numpy as np
try:
    np.add(np.ones(2), np.ones(3))
except ValueError as error:
    print("refused", error)
print(type(np.add).__name__, isinstance(np.exp, np.ufunc), np.add.reduce(np.arange(4)))
print("sitecustomize" in sys.modules, [p for p in sys.path if "bootstrap" in p])
sys.stderr.write("own\\n")
sys.exit(7)
"""


def test_streams_exit_code_and_errors_are_the_programs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    trace = run(OWN, tmp_path)
    written = capfd.readouterr()
    plain = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")], capture_output=True, text=True, check=False
    )
    assert (trace.exit_code, plain.returncode) == (7, 7)
    assert written.out.replace("True []", "") == plain.stdout.replace("False []", "")
    assert written.err == plain.stderr == "own\n"


ENDS = {
    "os._exit": ("os._exit(3)", 3),
    "killed": ("os.kill(os.getpid(), 9)", 128 + 9),
    "terminated": ("os.kill(os.getpid(), 15)", 128 + 15),
}


@pytest.mark.parametrize("end", sorted(ENDS))
def test_nothing_is_lost_with_a_process_that_ends_at_once(tmp_path: Path, end: str) -> None:
    line, code = ENDS[end]
    trace = run(f"import os\n{CALLS}\n{line}\n", tmp_path)
    assert trace.exit_code == code and counts(trace)["numpy.matmul 40×30 30×20"] == 7


CHILDREN = f"""
import os, subprocess, sys
{CALLS}
pid = os.fork()
if pid == 0:
    a @ b
    a @ np.ones((30, 2), "float32")
    os._exit(0)
os.waitpid(pid, 0)
subprocess.run([sys.executable, "-c", "import numpy as np; np.ones((5, 6)) @ np.ones((6, 5))"])
"""


def test_children_are_part_of_the_record(tmp_path: Path) -> None:
    trace = run(CHILDREN, tmp_path)
    counted = counts(trace)
    assert counted["numpy.matmul 40×30 30×20"] == 8
    assert counted["numpy.matmul 40×30 30×2"] == counted["numpy.matmul 5×6 6×5"] == 1
    assert len({process.pid for process in trace.processes}) == 3


MANY = """
import numpy as np
a, large = np.ones(4), np.ones(40_000)
for _ in range(100_000):
    np.add(a, a)
for _ in range(5):
    np.add(large, large)
"""


def test_many_small_calls_are_sampled_and_large_ones_are_not(tmp_path: Path) -> None:
    counted = counts(run(MANY, tmp_path, share=0.001))
    assert counted["numpy.add 40000 40000"] == 5
    # 4,096 are counted whatever they cost, then about one of up to 1,024.
    assert counted["numpy.add 4 4"] == pytest.approx(100_000, rel=0.5)
    assert counted["numpy.add 4 4"] != 100_000


def test_a_program_that_cannot_be_started_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be started: No such file"):
        recorded([str(tmp_path / "nothing")], 0.02)


@pytest.fixture
def sleeping(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A recorded program that answers a signal."""
    (tmp_path / "program.py").write_text(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
        "print('ready', flush=True)\ntime.sleep(60)\n"
    )
    (tmp_path / "trace.py").write_text(
        "import sys\nfrom tuner.trace.recording import recorded\n"
        "sys.exit(recorded(sys.argv[1:], 0.02).exit_code)\n"
    )
    command = [sys.executable, str(tmp_path / "trace.py")]
    environment = {**os.environ, "PYTHONPATH": str(BOOTSTRAP.parents[2])}
    process = subprocess.Popen(
        [*command, sys.executable, str(tmp_path / "program.py")],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    yield process
    process.kill()
    process.communicate()


def test_signals_are_the_programs_to_answer(sleeping: subprocess.Popen[str]) -> None:
    assert sleeping.stdout is not None and sleeping.stdout.readline() == "ready\n"
    sleeping.send_signal(signal.SIGTERM)
    assert sleeping.wait(timeout=30) == 5
