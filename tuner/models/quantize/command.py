"""Quantises an ONNX file that nobody vouches for: in a process that may write nothing."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from tuner.models.arrays import arrays_to
from tuner.models.errors import ModelRefused
from tuner.models.files.input_shapes import InputShapes
from tuner.models.importer import read_file
from tuner.models.process import answer_of
from tuner.models.quantize.data import read_calibration
from tuner.models.quantize.result import Options, Quantized, quantized_from

_LATEST = 2.0  # times the seconds that a network is given, after which its process ends


def quantize_file(path: Path, data: Path, shapes: InputShapes, options: Options) -> Quantized:
    """The quantised network of an .onnx file, calibrated by a file or folder of inputs.

    Raises ModelRefused as `quantizer.quantize` does, with the path in the message, and
    ReaderMissing where the package `onnx` is missing.
    """
    values = read_calibration(data)
    content = read_file(path)
    request = {
        "size": len(content),
        "values": [*values],
        "shapes": dict(shapes),
        "options": asdict(options),
    }
    payload = content + arrays_to([*values.values()])
    try:
        answer = answer_of(
            "tuner.models.quantize", request, payload, max(options.seconds, 30.0) * _LATEST
        )
    except ModelRefused as error:
        raise ModelRefused(f"{path}: {error}") from error
    return quantized_from(answer)
