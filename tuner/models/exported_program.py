"""The graph of a program that `torch.export` made.

The program is an object of the caller, so it is read in this process. Files are read in
a confined one.
"""

from __future__ import annotations

from typing import Any

from tuner.models.errors import ModelRefused
from tuner.models.graph import Graph
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
