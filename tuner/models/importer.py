"""The graph of an ONNX file, read in a confined process and checked again here."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO

from tuner.errors import TunerError
from tuner.models.arrays import Array, arrays_from, arrays_to
from tuner.models.errors import ModelRefused, NotEvaluated
from tuner.models.files.input_shapes import InputShapes
from tuner.models.files.input_values import InputValues
from tuner.models.files.neighbours import with_neighbours
from tuner.models.graph import Graph
from tuner.models.graph_archive import pack, unpacked
from tuner.models.process import TIMEOUT_S, ModelTooSlow, Payload, answer_of
from tuner.models.reference.verdict import Unjudged, Verdict, verdict_from

LARGEST_FILE = (1 << 31) - 1  # bytes; the reader has the same bound


class ReaderMissing(TunerError):
    """This installation cannot read models."""

    code = "models_unavailable"


def available() -> bool:
    """Whether the package `onnx` is installed."""
    return find_spec("onnx") is not None


def _check_available() -> None:
    if not available():
        raise ReaderMissing("models need the package onnx; install tuner[models]")


def import_file(
    path: Path,
    shapes: InputShapes | None = None,
    values: InputValues | None = None,
    *,
    content: bytes | None = None,
) -> Graph:
    """The fused graph of an .onnx file; `content` is what `read_file` gave, if it was read.

    Raises as `import_model` does, with the path in the message.
    """
    given = read_file(path) if content is None else content
    try:
        return import_model(given, shapes, values)
    except ModelRefused as error:
        raise ModelRefused(f"{path}: {error}") from error


def read_file(path: Path) -> bytes:
    """The bytes of a model file, with what it keeps in files beside it inside.

    Raises ModelRefused for a path that is no readable file, or one above LARGEST_FILE,
    and for data that is not there; ReaderMissing as `import_model` does.
    """
    try:
        if not path.is_file():
            raise ModelRefused(f"{path} is no file; give an .onnx file")
        if path.stat().st_size > LARGEST_FILE:
            raise ModelRefused(
                f"{path} has {path.stat().st_size} bytes, the limit is {LARGEST_FILE}"
            )
        content = path.read_bytes()
    except OSError as error:
        raise ModelRefused(f"{path} cannot be read: {error.strerror}") from error
    _check_available()
    try:
        return with_neighbours(path, content)
    except ModelRefused as error:
        raise ModelRefused(f"{path}: {error}") from error


def import_model(
    content: bytes, shapes: InputShapes | None = None, values: InputValues | None = None
) -> Graph:
    """The fused graph of the bytes of an ONNX file, or of a packed graph.

    `shapes` gives the extents that its inputs only name, `values` values of inputs by
    name. Raises ModelRefused for bytes that are no supported model, ReaderMissing where
    the package `onnx` is missing.
    """
    return unpacked(_answer("graph", content, shapes or {}, values or {}))


def reference_outputs(
    content: bytes,
    inputs: Sequence[Array],
    shapes: InputShapes | None = None,
    values: InputValues | None = None,
) -> list[Array]:
    """The outputs of ONNX's reference evaluator on these inputs, in the model's order.

    Raises as `import_model` does, and NotEvaluated where the evaluator does not run it.
    """
    answer = _answer("outputs", content, shapes or {}, values or {}, arrays_to(inputs))
    if not answer:
        raise NotEvaluated("ONNX's reference evaluator does not run the model")
    return arrays_from(answer)


def judged(
    content: bytes,
    graph: Graph,
    inputs: Sequence[Array],
    shapes: InputShapes,
    values: InputValues,
    limit_s: float,
) -> Verdict:
    """Whether the graph that was read computes what ONNX's evaluator does, on these inputs.

    It is not known where that takes more than `limit_s` seconds, or the process fails.
    """
    parts = (arrays_to(inputs), partial(pack, graph))
    try:
        return verdict_from(_answer("verdict", content, shapes, values, *parts, limit_s=limit_s))
    except ModelTooSlow:
        reason = f"evaluating it takes more than {limit_s:g} s"
        return Unjudged(reason=reason, evaluable=True)
    except ModelRefused as error:
        return Unjudged(reason=str(error), evaluable=True)


def _answer(
    task: str,
    content: bytes,
    shapes: InputShapes,
    values: InputValues,
    *more: Payload,
    limit_s: float = TIMEOUT_S,
) -> bytes:
    """The answer of a confined reader, started for this one request.

    The size of its last part is what the others leave, since one may be written by a
    function.
    """
    _check_available()
    parts: list[Payload] = [content, arrays_to([*values.values()]), *more]
    request = {
        "task": task,
        "shapes": dict(shapes),
        "values": list(values),
        "parts": [len(part) for part in parts[:-1] if isinstance(part, bytes)],
    }

    def write(stream: BinaryIO) -> None:
        for part in parts:
            if callable(part):
                part(stream)
            else:
                stream.write(part)

    return answer_of("tuner.models.reading", request, write, limit_s)
