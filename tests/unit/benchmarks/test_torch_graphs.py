"""Which graphs of GraphNet's are drawn, and the summary of their races."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from benchmarks.torch.graphnet import Limits, elements, graph, nodes  # noqa: E402
from benchmarks.torch.graphs import checked, compiled_line, scored  # noqa: E402
from benchmarks.torch.judging import NotRun  # noqa: E402

META = """\
class Program_weight_tensor_meta_L_weight_:
    name = "L_weight_"
    shape = [3, 4]
    dtype = "torch.float32"
    device = "cuda:0"
    mean = 0.5
    std = 0.1
    data = None


class Program_weight_tensor_meta_s0:
    name = "s0"
    shape = []
    dtype = "torch.int64"
    device = "cpu"
    mean = None
    std = None
    data = [2]


class Program_weight_tensor_meta_L_x_:
    name = "L_x_"
    shape = [
        2,
        4,
    ]
    dtype = "torch.float32"
    device = "cuda:0"
    mean = 0.0
    std = 1.0
    data = None
"""
MODEL = """\
import torch
from torch import device


class GraphModule(torch.nn.Module):
    def forward(self, L_weight_: torch.Tensor, s0: torch.SymInt, L_x_: torch.Tensor):
        l_x_ = L_x_
        y = torch._C._nn.linear(l_x_, L_weight_)
        l_x_ = None
        ones = torch.ones(s0, 3, device=device(type="cuda", index=0))
        z = y + ones
        y = ones = None
        return (z,)
"""
ENOUGH = Limits(elements=21, work=48, nodes=3)


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    (tmp_path / "weight_meta.py").write_text(META)
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


def test_sizes_are_those_of_the_files() -> None:
    assert elements(META) == 3 * 4 + 1 + 2 * 4
    assert nodes(MODEL) == 3


def test_a_graph_is_a_function_of_the_described_tensors(sample: Path) -> None:
    ENOUGH.check_files(sample)
    model, (weight, number, x) = graph(sample, ENOUGH)
    assert type(number) is int and number == 2
    torch.testing.assert_close(model(weight, number, x)[0], x @ weight.T + 1)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(elements=20, work=48), "too large: its tensors have 21 elements"),
        (Limits(elements=21, work=48, nodes=2), "too large: it has 3 nodes"),
    ],
)
def test_no_file_of_a_large_graph_is_executed(sample: Path, limits: Limits, reason: str) -> None:
    for path in sample.iterdir():
        path.write_text(path.read_text() + "\nraise SystemExit\n")
    assert checked(_never, sample, limits) == {"not_run": reason}


def _never(*case: Any) -> dict[str, Any]:
    raise AssertionError("a process would begin")


def test_a_graph_with_more_work_is_left_out(sample: Path) -> None:
    with pytest.raises(NotRun, match="too large: its products have more than 47 operations"):
        graph(sample, Limits(elements=21, work=47))


def test_a_graph_that_fails_by_itself_is_left_out(sample: Path) -> None:
    (sample / "model.py").write_text(MODEL.replace("ones(s0, 3", "ones(s0, 5"))
    with pytest.raises(NotRun, match="RuntimeError"):
        graph(sample, ENOUGH)


def test_a_compiled_graph_races_with_eager_pytorch(sample: Path) -> None:
    line = compiled_line(sample, ENOUGH, "eager", 1.0)
    assert line["right_from"] == -5
    assert 0.1 < line["speedup"] < 10


@pytest.mark.long  # tunes, a process per compiler
def test_the_line_of_the_backend_counts_its_regions(
    sample: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_DATA_DIR", str(tmp_path_factory.mktemp("data")))
    line = compiled_line(sample, ENOUGH, "tuner", 1.0)
    assert line["right_from"] == -5
    assert (line["in_regions"], line["regions"], line["warnings"]) == (line["calls"], 1, [])


def test_a_summary_counts_what_is_right_wrong_and_raised() -> None:
    counts = {"calls": 4, "in_regions": 3, "regions": 1, "libraries": 1}
    quick = {"speedup": 4.0, "right_from": -5}
    lines: list[dict[str, Any]] = [
        {"inductor": quick, "tuner": quick | counts},
        {"inductor": {"speedup": 1.0, "right_from": -3}, "tuner": {"raised": "ValueError: no"}},
        {"inductor": quick, "tuner": {"speedup": 9.0, "right_from": math.inf} | counts},
    ]
    summary = scored(lines)
    assert summary["inductor"]["right"] == {-5: 2, -3: 3, -1: 3}
    assert summary["inductor"]["mean_speedup"] == pytest.approx(16 ** (1 / 3), abs=1e-3)
    ours = summary["tuner"]
    assert ours["right"] == {-5: 1, -3: 1, -1: 1}
    assert (ours["wrong"], ours["raised"], ours["mean_speedup"]) == (1, 1, 4.0)
    assert ours["S(-5)"] == pytest.approx((4.0 * 0.1 * 0.1) ** (1 / 3), abs=1e-3)
    assert (ours["calls"], ours["in_regions"], ours["libraries"]) == (8, 6, 2)
    assert scored([]) == {}
