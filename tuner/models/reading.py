"""Reads an ONNX file in a confined process: `python -m tuner.models.reading`.

The payload is the file, and the answer is the packed graph. Where arrays follow the
file, the answer is the outputs of ONNX's reference evaluator for these inputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.models.input_shapes import InputShapes, shapes_from
from tuner.models.process import ConfinedRequest, serve

if TYPE_CHECKING:
    from tuner.models.graph import Graph


def _answer(request: ConfinedRequest, payload: bytes) -> bytes:
    """The request has `shapes`, the named extents, and `bytes`, the size of the file."""
    shapes = shapes_from(request["shapes"])
    content, inputs = payload[: request["bytes"]], payload[request["bytes"] :]
    if inputs:
        return _evaluated(content, shapes, inputs)
    # Nothing large is loaded before the process is confined.
    from tuner.models.graph import packed  # noqa: PLC0415

    return packed(read_graph(content, shapes))


def _evaluated(content: bytes, shapes: InputShapes, inputs: bytes) -> bytes:
    from tuner.models.arrays import arrays_from, arrays_to  # noqa: PLC0415
    from tuner.models.onnx_file import evaluate, read_model  # noqa: PLC0415  # loads onnx

    return arrays_to(evaluate(read_model(content, shapes), arrays_from(inputs)))


def read_graph(content: bytes, shapes: InputShapes) -> Graph:
    """The fused graph of an ONNX file, read in this process.

    Raises ModelRefused and WorkloadError.
    """
    from tuner.models.batch_norms import fold_batch_norms  # noqa: PLC0415  # loads onnx
    from tuner.models.from_onnx.reader import graph_of, without_functions  # noqa: PLC0415
    from tuner.models.fusion import fuse  # noqa: PLC0415
    from tuner.models.onnx_file import read_model  # noqa: PLC0415

    model = without_functions(read_model(content, shapes))
    fold_batch_norms(model)
    return fuse(graph_of(model))


if __name__ == "__main__":
    serve(_answer)
