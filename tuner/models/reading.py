"""What reads a model: `python -m tuner.models.reading`, the file on its input, the
packed graph as its answer.

With inputs behind the file, an archive of arrays, the answer is what ONNX's reference
evaluator makes of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tuner.models.process import Asked, serve

if TYPE_CHECKING:
    from tuner.models.graph import Graph


def _answer(asked: Asked, given: bytes) -> bytes:
    """`shapes` of named extents, and how many `bytes` of what was given are the model."""
    shapes = {str(name): int(extent) for name, extent in asked["shapes"].items()}
    content, inputs = given[: asked["bytes"]], given[asked["bytes"] :]
    if inputs:
        return _evaluated(content, shapes, inputs)
    from tuner.models.graph import packed  # noqa: PLC0415  # nothing large is loaded before the process is confined

    return packed(read_graph(content, shapes))


def _evaluated(content: bytes, shapes: Mapping[str, int], inputs: bytes) -> bytes:
    from tuner.models.arrays import arrays_from, arrays_to  # noqa: PLC0415
    from tuner.models.onnx_file import evaluate, read_model  # noqa: PLC0415  # loads onnx

    return arrays_to(evaluate(read_model(content, shapes), arrays_from(inputs)))


def read_graph(content: bytes, shapes: Mapping[str, int]) -> Graph:
    """The fused graph of an ONNX file, read in this process. Raises ModelRefused and
    WorkloadError."""
    from tuner.lowering.importers.relax import import_onnx  # noqa: PLC0415  # loads TVM
    from tuner.models.assembly import assemble  # noqa: PLC0415
    from tuner.models.fusion import fuse  # noqa: PLC0415
    from tuner.models.normal_form import fold_batch_norms  # noqa: PLC0415  # loads onnx
    from tuner.models.onnx_file import argument_names, read_model  # noqa: PLC0415

    model = read_model(content, shapes)
    fold_batch_norms(model)
    found = import_onnx(model)
    return fuse(
        assemble(
            inputs=found.inputs,
            constants=found.constants,
            calls=found.calls,
            outputs=found.outputs,
            labels=argument_names(model),
        )
    )


if __name__ == "__main__":
    serve(_answer)
