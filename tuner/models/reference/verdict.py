"""What the check of an imported graph says of it."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from tuner.models.arrays import Array, arrays_from, arrays_to


@dataclass(frozen=True, kw_only=True)
class Right:
    """The graph computes what the file says."""

    error: float  # largest of its outputs, relative to the greatest value of each
    outputs: tuple[Array, ...]  # of ONNX's evaluator, on the inputs of the check


@dataclass(frozen=True, kw_only=True)
class Wrong:
    """The graph computes something else."""

    message: str  # names the output, and the operator at fault


@dataclass(frozen=True, kw_only=True)
class Unjudged:
    """It is not known."""

    reason: str
    evaluable: bool  # whether ONNX's evaluator runs the model, given time


Verdict = Right | Wrong | Unjudged


def verdict_to(verdict: Verdict) -> bytes:
    """The verdict as bytes, for another process."""
    document: dict[str, object] = {}
    outputs: tuple[Array, ...] = ()
    match verdict:
        case Right(error=error, outputs=outputs):
            document = {"error": error}
        case Wrong(message=message):
            document = {"wrong": message}
        case Unjudged(reason=reason, evaluable=evaluable):
            document = {"reason": reason, "evaluable": evaluable}
    return arrays_to([np.frombuffer(json.dumps(document).encode(), np.uint8), *outputs])


def verdict_from(content: bytes) -> Verdict:
    """The inverse of `verdict_to`. Raises ModelRefused for other bytes."""
    header, *outputs = arrays_from(content)
    document = json.loads(header.tobytes())
    if "wrong" in document:
        return Wrong(message=str(document["wrong"]))
    if "reason" in document:
        return Unjudged(reason=str(document["reason"]), evaluable=bool(document["evaluable"]))
    return Right(error=float(document["error"]), outputs=tuple(outputs))
