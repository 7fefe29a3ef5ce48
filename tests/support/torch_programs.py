"""Functions of PyTorch exported, read as graphs and held against themselves."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.graph_values import graph_outputs
from tuner.models.exported_program import read_exported
from tuner.models.graph import check_graph


def exported(function: Any, *inputs: Any) -> Any:
    """The program of a function of tensors, or of a module."""
    import torch  # noqa: PLC0415  # may be missing

    if isinstance(function, torch.nn.Module):
        return torch.export.export(function, inputs)

    class Net(torch.nn.Module):  # type: ignore[misc]
        def forward(self, *tensors: Any) -> Any:
            return function(*tensors)

    return torch.export.export(Net(), inputs)


def assert_reads_as(function: Any, *inputs: Any, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    """The graph gives what the function does, in its dtypes."""
    import torch  # noqa: PLC0415

    graph = read_exported(exported(function, *inputs))
    check_graph(graph)
    with torch.no_grad():
        results = function(*inputs)
    expected = [results] if isinstance(results, torch.Tensor) else list(results)
    got = graph_outputs(graph, [tensor.numpy() for tensor in inputs])
    for number, (array, right) in enumerate(zip(got, expected, strict=True)):
        right = right.detach()
        array = array.reshape(right.shape)
        assert array.dtype == right.numpy().dtype, number
        np.testing.assert_allclose(array, right.numpy(), rtol, atol, err_msg=str(number))
