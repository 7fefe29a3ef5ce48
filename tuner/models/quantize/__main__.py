"""Quantises a network in a confined process: `python -m tuner.models.quantize`.

The payload is the file and the calibration data. The answer is the quantised file with
what was measured.
"""

from __future__ import annotations

from tuner.models.files.input_shapes import shapes_from
from tuner.models.process import ConfinedRequest, serve


def _answer(request: ConfinedRequest, payload: memoryview) -> bytes:
    """The request has `size`, the bytes of the file; `values`, the names of the arrays
    behind it; `shapes`, and `options`, the fields of `result.Options`."""
    # Nothing large is loaded before the process is confined.
    from tuner.models.arrays import arrays_from  # noqa: PLC0415
    from tuner.models.quantize.quantizer import quantize  # noqa: PLC0415
    from tuner.models.quantize.result import Options, quantized_to  # noqa: PLC0415

    content, arrays = payload[: request["size"]], arrays_from(payload[request["size"] :])
    values = dict(zip(request["values"], arrays, strict=True))
    given = request["options"]
    options = Options(**{**given, "keep": tuple(given["keep"])})
    return quantized_to(quantize(content, values, shapes_from(request["shapes"]), options))


if __name__ == "__main__":
    serve(_answer)
