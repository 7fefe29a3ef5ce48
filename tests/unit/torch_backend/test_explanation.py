"""`tuner.torch.explain`, the backend's name, and that importing `tuner` needs no PyTorch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tuner.torch  # noqa: E402
from tuner.errors import UsageError  # noqa: E402

ROOT = Path(tuner.__file__).parents[1]

pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:torch")


def test_what_is_left_is_named_with_its_reason() -> None:
    def function(x: Any) -> Any:
        y = torch.special.i1(x.tanh() @ x)
        torch._dynamo.graph_break()
        return y.exp() + y.exp().sum()

    seen = tuner.torch.explain(function, torch.randn(3, 3))
    assert seen.operators["aten.exp.default"] == 2 and seen.operators["aten.mm.default"] == 1
    assert len(seen.regions) == 2 and seen.graphs == 2
    assert sum(seen.graph_breaks.values()) == 1
    assert [left.operator for left in seen.left] == ["aten.special_i1.default"]
    assert seen.share == sum(seen.operators.values()) / (sum(seen.operators.values()) + 1)
    text = str(seen)
    assert text.startswith("2 graphs, 1 graph breaks, 2 regions; 6 of 7 calls in regions")
    assert "left to PyTorch: aten.special_i1.default ×1: operator aten.special_i1" in text


def test_backward_graphs_are_explained_and_gradients_left_alone() -> None:
    net = torch.nn.Linear(3, 2)
    seen = tuner.torch.explain(net, torch.randn(4, 3), backward=True)
    assert seen.graphs == 2 and seen.operators["aten.mm.default"] >= 1
    assert net.weight.grad is None
    with pytest.raises(UsageError, match="have no gradient"):
        tuner.torch.explain(lambda x: x * 2, torch.randn(3), backward=True)


def run(code: str, *paths: Path) -> str:
    """The output of a process that imports from these folders first."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": ":".join(map(str, (*paths, ROOT))), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_tuner_loads_no_pytorch() -> None:
    assert run("import tuner, sys; print('torch' in sys.modules)") == "False\n"


LOADED = """
import sys, torch
before = {*sys.modules}
import tuner.torch
new = {*sys.modules} - before
ours = sorted(name for name in new if name.startswith("tuner"))
print(len(new - {*ours}), "torch._dynamo" in new, *ours)
"""


@pytest.mark.slow
def test_importing_the_backend_loads_what_its_name_needs(tmp_path: Path) -> None:
    """What compiles graphs comes with the first one."""
    installed = tmp_path / "named-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: named\nVersion: 1\n")
    (installed / "entry_points.txt").write_text(
        "[torch_dynamo_backends]\ntuner = tuner.torch:tuner\n"
    )
    others, dynamo, *ours = run(LOADED, tmp_path).split()
    assert dynamo == "False" and int(others) <= 30
    assert ours == [
        "tuner",
        "tuner.torch",
        "tuner.torch.backend",
        "tuner.torch.einsum",
        "tuner.torch.registration",
        "tuner.version",
    ]


USE = "x = torch.ones(2); print(torch.compile(lambda x: x * 2, backend='tuner')(x).tolist())"


@pytest.mark.slow
def test_the_import_makes_the_name_known() -> None:
    assert run(f"import torch, tuner.torch; {USE}") == "[2.0, 2.0]\n"


@pytest.mark.slow
@pytest.mark.parametrize("before", ["", "import tuner.torch; "])
def test_the_entry_point_makes_the_name_known(tmp_path: Path, before: str) -> None:
    """As an installation has it, with and without the import."""
    installed = tmp_path / "named-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: named\nVersion: 1\n")
    (installed / "entry_points.txt").write_text(
        "[torch_dynamo_backends]\ntuner = tuner.torch:tuner\n"
    )
    assert run(f"import torch; {before}{USE}", tmp_path) == "[2.0, 2.0]\n"
