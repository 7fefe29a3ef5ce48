"""Exported functions as operators of PyTorch: right answers, shapes for tracing,
refusals; nothing of it without torch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tuner.export.kernel import ExportKernel
from tuner.export.library import export_library
from tuner.runtime.toolchain import Toolchain

Make = Callable[..., ExportKernel]
PROGRAM = """
import torch, kit
x = torch.arange(1024, dtype=torch.float32)
double = torch.ops.kit.elementwise_n1024_double
assert torch.equal(double(x), 2 * x)
assert torch.equal(double(x[:512].repeat_interleave(2)), 2 * x[:512].repeat_interleave(2))
assert torch.equal(double(torch.arange(2048, dtype=torch.float32)[::2]), 4 * x)
assert kit.operators.elementwise_n1024_double is kit.operators.operators["elementwise_n1024_double"]
torch.library.opcheck(kit.operators.elementwise_n1024_double, (x,))
compiled = torch.compile(lambda y: double(y + 1) - 1, backend="eager", fullgraph=True)
assert torch.equal(compiled(x), 2 * (x + 1) - 1)
for wrong, error in ((x.double(), kit.DTypeError), (x[:5], kit.ShapeError)):
    try:
        double(wrong)
    except error as caught:
        print(caught)
try:
    compiled(torch.zeros(5))
except Exception as caught:
    print(type(caught).__name__)
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, kernel: Make, toolchain: Toolchain) -> Path:
    directory = tmp_path_factory.mktemp("operators") / "kit"
    export_library([kernel()], directory, "kit", toolchain=toolchain)
    return directory


@pytest.mark.skipif(find_spec("torch") is None, reason="no torch here")
def test_functions_are_operators(exported: Path) -> None:
    command = [sys.executable, "-W", "error::UserWarning", "-c", PROGRAM]
    done = subprocess.run(
        command,
        env={"PYTHONPATH": str(exported)},
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "elementwise_n1024_double: X has dtype torch.float64, expected torch.float32"
    assert lines[1] == "elementwise_n1024_double: X has shape (5,), expected (1024,)"
    assert len(lines) == 3


def test_without_torch_nothing_of_it_is_loaded(exported: Path) -> None:
    program = (
        "import sys; sys.modules['torch.library'] = None; import kit; assert "
        "'kit.operators' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(exported)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    compile((exported / "kit" / "operators.py").read_text(), "operators.py", "exec")
