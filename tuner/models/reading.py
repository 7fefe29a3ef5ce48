"""Reads an ONNX file in a confined process: `python -m tuner.models.reading`.

The payload is the file, and arrays that the task needs. The answer is the packed graph,
the outputs of ONNX's reference evaluator, nothing where it does not run the model, or the
verdict on a graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tuner.models.files.input_shapes import InputShapes, shapes_from
from tuner.models.files.input_values import InputValues
from tuner.models.process import ConfinedRequest, serve

if TYPE_CHECKING:
    from tuner.models.graph import Graph


def _answer(request: ConfinedRequest, payload: memoryview) -> bytes:
    """The request has `task`, one of graph, outputs and verdict; `shapes`, the named
    extents; `values`, the names of inputs whose values are given; and `parts`, the bytes
    of the file, of these values, and of what else the task takes but its last part."""
    # Nothing large is loaded before the process is confined.
    from tuner.models.arrays import arrays_from, arrays_to  # noqa: PLC0415
    from tuner.models.errors import NotEvaluated  # noqa: PLC0415
    from tuner.models.files.onnx_file import read_model  # noqa: PLC0415
    from tuner.models.graph_archive import packed, unpacked  # noqa: PLC0415
    from tuner.models.reference.node_check import verdict_on  # noqa: PLC0415
    from tuner.models.reference.onnx_evaluation import evaluate  # noqa: PLC0415
    from tuner.models.reference.verdict import verdict_to  # noqa: PLC0415

    shapes = shapes_from(request["shapes"])
    content, given, *more = _parts(payload, request["parts"])
    values = dict(zip(request["values"], arrays_from(given), strict=True))
    match request["task"]:
        case "graph":
            return packed(read_graph(content, shapes, values))
        case "outputs":
            model = read_model(content, shapes, values=values)
            try:
                return arrays_to(evaluate(model, arrays_from(more[0])))
            except NotEvaluated:
                return b""
        case _:
            model, graph = read_model(content, shapes, values=values), unpacked(more[1])
            return verdict_to(verdict_on(model, graph, arrays_from(more[0]), values))


def _parts(payload: memoryview, sizes: list[int]) -> list[memoryview]:
    """The parts of the payload, without copies: a file may have half a gigabyte."""
    parts, begin = [], 0
    for size in sizes:
        parts.append(payload[begin : begin + size])
        begin += size
    return [*parts, payload[begin:]]


def read_graph(
    content: bytes | memoryview, shapes: InputShapes, values: InputValues | None = None
) -> Graph:
    """The fused graph of an ONNX file or of a packed graph, read in this process.

    Raises ModelRefused and WorkloadError.
    """
    from tuner.models.files.onnx_file import read_model  # noqa: PLC0415  # loads onnx
    from tuner.models.graph_archive import is_packed, unpacked  # noqa: PLC0415
    from tuner.models.passes.copies import with_a_kernel  # noqa: PLC0415
    from tuner.models.passes.equal_nodes import without_equal  # noqa: PLC0415
    from tuner.models.passes.fusion import fuse  # noqa: PLC0415

    if is_packed(content):
        return with_a_kernel(fuse(unpacked(content)))
    model = read_model(content, shapes, values=values)
    return with_a_kernel(fuse(without_equal(recorded(model, values or {}))))


def recorded(model: Any, values: InputValues) -> Graph:
    """The graph of a checked `ModelProto`, before fusion. The model is changed."""
    from tuner.models.files.batch_norms import fold_batch_norms  # noqa: PLC0415  # loads onnx
    from tuner.models.from_onnx.reader import graph_of, without_functions  # noqa: PLC0415

    plain = without_functions(model)
    fold_batch_norms(plain)
    return graph_of(plain, values)


if __name__ == "__main__":
    serve(_answer)
