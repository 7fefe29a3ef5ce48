"""Programs of torch.export: read as graphs that compute the same; what is no such
program is refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tuner
from tests.unit.models.graph_values import graph_outputs
from tuner.errors import UsageError
from tuner.models.errors import ModelRefused
from tuner.models.exported_program import is_exported_program, read_exported


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"builtins\.int is no model; give the path"):
        tuner.tune_model(3, tmp_path / "out")
    assert not is_exported_program(SimpleNamespace()) and not (tmp_path / "out").exists()


def test_a_program_that_writes_its_state_is_refused() -> None:
    signature = SimpleNamespace(buffers_to_mutate={"running_mean": "m"}, user_inputs_to_mutate={})
    with pytest.raises(ModelRefused, match=r"model\.eval"):
        read_exported(SimpleNamespace(graph_signature=signature))


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # of PyTorch to itself
def test_a_graph_computes_what_the_program_does() -> None:
    torch = pytest.importorskip("torch")
    nn = torch.nn
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, stride=2),
        nn.BatchNorm2d(8),
        nn.ReLU6(),
        nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 16),
        nn.GELU(),
        nn.LayerNorm(16),
        nn.Linear(16, 5),
        nn.Softmax(dim=-1),
    ).eval()
    x = torch.randn(2, 3, 16, 16)
    program = torch.export.export(net, (x,))
    assert is_exported_program(program)
    graph = read_exported(program)
    assert len(graph.labels) == 2 and graph.labels[1] == "out0"
    (output,) = graph_outputs(graph, [x.numpy()])
    np.testing.assert_allclose(output, net(x).detach().numpy(), rtol=1e-4, atol=1e-6)
