"""The graph of an ONNX file, read in a confined process and checked again here."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from tuner.errors import TunerError
from tuner.models.arrays import Array, arrays_from, arrays_to
from tuner.models.errors import ModelRefused
from tuner.models.graph import Graph, unpacked
from tuner.models.input_shapes import InputShapes
from tuner.models.input_values import InputValues
from tuner.models.process import answer_of

LARGEST_FILE = 1 << 29  # bytes; the reader has the same bound


class ReaderMissing(TunerError):
    """This installation cannot read models."""

    code = "models_unavailable"


def available() -> bool:
    """Whether the package `onnx` is installed."""
    return find_spec("onnx") is not None


def import_file(
    path: Path, shapes: InputShapes | None = None, values: InputValues | None = None
) -> Graph:
    """The fused graph of an .onnx file.

    Raises as `import_model` does, with the path in the message.
    """
    content = read_file(path)
    try:
        return import_model(content, shapes, values)
    except ModelRefused as error:
        raise ModelRefused(f"{path}: {error}") from error


def read_file(path: Path) -> bytes:
    """The bytes of a model file.

    Raises ModelRefused for a path that is no readable file, or one above LARGEST_FILE.
    """
    try:
        if not path.is_file():
            raise ModelRefused(f"{path} is no file; give an .onnx file")
        if path.stat().st_size > LARGEST_FILE:
            raise ModelRefused(
                f"{path} has {path.stat().st_size} bytes, the limit is {LARGEST_FILE}"
            )
        return path.read_bytes()
    except OSError as error:
        raise ModelRefused(f"{path} cannot be read: {error.strerror}") from error


def import_model(
    content: bytes, shapes: InputShapes | None = None, values: InputValues | None = None
) -> Graph:
    """The fused graph of an ONNX file's bytes.

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

    Raises as `import_model` does.
    """
    return arrays_from(_answer("outputs", content, shapes or {}, values or {}, arrays_to(inputs)))


def _answer(
    task: str, content: bytes, shapes: InputShapes, values: InputValues, *more: bytes
) -> bytes:
    """The answer of a confined reader, started for this one request."""
    if not available():
        raise ReaderMissing("models need the package onnx; install tuner[models]")
    parts = [content, arrays_to([*values.values()]), *more]
    request = {
        "task": task,
        "shapes": dict(shapes),
        "values": list(values),
        "parts": [len(part) for part in parts],
    }
    return answer_of("tuner.models.reading", request, b"".join(parts))
