"""`tuner.grad_model`: PyTorch's derivatives of the same network, and what is no model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tuner
from tests.support.graph_values import graph_outputs
from tuner.errors import UsageError
from tuner.models.errors import ModelRefused


def network(torch: Any) -> tuple[Any, dict[str, Any]]:
    """A convolutional network whose parameters are arguments, and these."""
    functional = torch.nn.functional
    shapes = {
        "x": (2, 3, 8, 8),
        "kernel": (4, 3, 3, 3),
        "shift": (4,),
        "w1": (6, 16),
        "b1": (6,),
        "scale": (6,),
        "w2": (5, 6),
    }

    class Network(torch.nn.Module):  # type: ignore[misc]
        def forward(
            self, x: Any, kernel: Any, shift: Any, w1: Any, b1: Any, scale: Any, w2: Any
        ) -> Any:
            image = functional.relu(functional.conv2d(x, kernel, shift, stride=2, padding=1))
            hidden = functional.linear(functional.max_pool2d(image, 2).flatten(1), w1, b1)
            hidden = functional.gelu(functional.layer_norm(hidden, (6,), scale))
            return functional.log_softmax(functional.linear(hidden, w2), 1)

    torch.manual_seed(0)
    return Network(), {name: torch.randn(shape) for name, shape in shapes.items()}


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # of PyTorch to itself
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", ["program", "file"])
def test_derivatives_are_pytorchs(kind: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model, arguments = network(torch)
    inputs = tuple(arguments.values())
    if kind == "file":
        pytest.importorskip("onnx")
        path = tmp_path / "net.onnx"
        names = [name.replace(".", "_") for name in arguments]
        torch.onnx.export(model, inputs, path, input_names=names, output_names=["y"], dynamo=False)
        made = tuner.grad_model(path)
        assert made.labels[len(names)] == "dy" and made.labels[-1] == f"d{names[-1]}"
    else:
        made = tuner.grad_model(torch.export.export(model, inputs))
    leaves = [value.clone().requires_grad_() for value in inputs]
    result = model(*leaves)
    weight = torch.randn_like(result)
    result.backward(weight)
    got = graph_outputs(made, [value.numpy() for value in (*inputs, weight)])
    assert len(got) == len(leaves)
    for array, leaf in zip(got, leaves, strict=True):
        np.testing.assert_allclose(array, leaf.grad.numpy(), rtol=1e-3, atol=1e-5)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"builtins\.int is no model; give the path"):
        tuner.grad_model(3)
    with pytest.raises(UsageError, match=r"belong to an \.onnx file"):
        tuner.grad_model(3, shapes={"N": 4})
    with pytest.raises(ModelRefused, match="is no file"):
        tuner.grad_model(tmp_path / "net.onnx")
