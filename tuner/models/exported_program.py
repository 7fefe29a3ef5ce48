"""The graph of a program that `torch.export` made.

The program is an object of the caller, so it is read in this process. Files are read in
a confined one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tuner.models.errors import ModelRefused
from tuner.models.graph import Array, Graph
from tuner.models.passes.equal_nodes import without_equal
from tuner.models.passes.fusion import fuse


def is_exported_program(source: object) -> bool:
    """Whether this is a `torch.export.ExportedProgram`.

    Decided by the name of its type, because torch is not loaded for anything else.
    """
    kind = type(source)
    return kind.__name__ == "ExportedProgram" and kind.__module__.partition(".")[0] == "torch"


def read_exported(program: Any) -> Graph:
    """The fused graph of the program.

    Raises ModelRefused for a program that writes its state or takes something besides
    tensors, and for an operator that has no expression.
    """
    signature = program.graph_signature
    if signature.buffers_to_mutate or signature.user_inputs_to_mutate:
        raise ModelRefused(
            "the program writes its own state or inputs; export it in inference mode (model.eval())"
        )
    from tuner.models.from_torch.reader import graph_of_program  # noqa: PLC0415  # loads torch

    return fuse(without_equal(graph_of_program(program)))


def program_outputs(program: Any, graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    """The program's outputs as PyTorch computes them, in the graph's shapes. Sorts take equal
    elements in the order of their positions, which PyTorch leaves open."""
    import torch  # noqa: PLC0415  # loaded by whoever has a program

    from tuner.models.from_torch.stable_order import StableOrder  # noqa: PLC0415  # loads torch

    with torch.no_grad(), StableOrder():
        result = program.module()(*(torch.from_numpy(array.copy()) for array in inputs))
    tensors = [result] if isinstance(result, torch.Tensor) else list(result)
    shapes = [graph.tensor(output).shape for output in graph.outputs]
    return [tensor.numpy().reshape(shape) for tensor, shape in zip(tensors, shapes, strict=True)]
