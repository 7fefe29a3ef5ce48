"""A program that `torch.export` made, as a graph. It is its owner's own object, so it
is read in this process; files are not."""

from __future__ import annotations

from typing import Any

from tuner.models.assembly import assemble
from tuner.models.errors import ModelRefused
from tuner.models.fusion import fuse
from tuner.models.graph import Graph


def is_exported_program(source: object) -> bool:
    """By its type's name: torch is not loaded for what does not come from it."""
    kind = type(source)
    return kind.__name__ == "ExportedProgram" and kind.__module__.partition(".")[0] == "torch"


def read_exported(program: Any) -> Graph:
    """The fused graph. Raises ModelRefused for one that writes its state, and
    NotImported for what has no expression."""
    from tuner.lowering.importers.relax import import_exported  # noqa: PLC0415  # loads TVM and, through it, torch

    signature = program.graph_signature
    if signature.buffers_to_mutate or signature.user_inputs_to_mutate:
        raise ModelRefused(
            "the program writes its own state or inputs; export it in inference mode (model.eval())"
        )
    found = import_exported(program)
    labels = [
        *map(str, signature.user_inputs),
        *(f"out{number}" for number in range(len(found.outputs))),
    ]
    if len(labels) != len(found.inputs) + len(found.outputs):
        raise ModelRefused(
            "the program takes something besides tensors; export it with tensors alone"
        )
    return fuse(
        assemble(
            inputs=found.inputs,
            constants=found.constants,
            calls=found.calls,
            outputs=found.outputs,
            labels=labels,
        )
    )
