"""What quantising a network gives: the file, and what each layer loses and gains."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tuner.models.quantize.layers import FloatOperator
from tuner.models.quantize.ranges import Method
from tuner.models.workloads import ModelWorkload
from tuner.workload.spec import from_document, to_document

_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a network is quantised."""

    method: Method = "max"
    percentile: float = 99.99  # of the numbers of a tensor that its range keeps
    max_loss: float = 0.05  # relative error of the outputs that is allowed
    rows: int = 512  # of calibration data, at most
    keep: tuple[str, ...] = ()  # names of operators that stay in float
    seconds: float = 300.0  # for all of it, about
    kernels: bool = False  # whether the result has the kernels of each choice


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerLoss:
    """A layer that can be quantised, and what that does alone."""

    name: str
    op: str
    loss: float  # relative error of the network's outputs where only this is quantised
    float_bytes: int  # of its weights
    nbytes: int  # of its weights as integers
    quantized: bool  # in the file that is written


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The network with some layers in float, those that lose most alone; at last with all."""

    floats: int  # layers in float
    loss: float  # relative error of the outputs
    agreement: float | None  # share of rows whose greatest output is the same; None: no rows
    nbytes: int  # of all constants
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantized:
    """A quantised network. `content` is the ONNX file."""

    content: bytes
    layers: tuple[LayerLoss, ...]  # in the network's order
    choices: tuple[Choice, ...]  # each loses less than those with fewer layers in float
    left: tuple[FloatOperator, ...]
    float_bytes: int  # of all constants of the float network
    rows: int  # of calibration data that were used
    measured_rows: int  # of these, on which losses were measured
    kernels: tuple[tuple[ModelWorkload, ...], ...] = ()  # of each choice, if they were asked for

    @property
    def choice(self) -> Choice:
        """Of the file."""
        return next(choice for choice in self.choices if choice.chosen)

    @property
    def document(self) -> dict[str, Any]:
        """Everything but the file and the kernels as JSON values."""
        left_out = ("content", "kernels")
        document = {name: getattr(self, name) for name in self.__slots__ if name not in left_out}
        for name in ("layers", "choices", "left"):
            document[name] = [asdict(entry) for entry in document[name]]
        return document


def quantized_to(result: Quantized) -> bytes:
    """The result as bytes, for another process."""
    kernels = [
        [(to_document(part.workload), part.calls) for part in parts] for parts in result.kernels
    ]
    header = json.dumps({**result.document, "kernels": kernels}).encode()
    return _LENGTH.pack(len(header)) + header + result.content


def quantized_from(message: bytes) -> Quantized:
    """The inverse of `quantized_to`."""
    (length,) = _LENGTH.unpack_from(message)
    begin = _LENGTH.size
    given: Mapping[str, Any] = json.loads(message[begin : begin + length])
    return Quantized(
        content=message[begin + length :],
        layers=tuple(LayerLoss(**entry) for entry in given["layers"]),
        choices=tuple(Choice(**entry) for entry in given["choices"]),
        left=tuple(FloatOperator(**entry) for entry in given["left"]),
        float_bytes=given["float_bytes"],
        rows=given["rows"],
        measured_rows=given["measured_rows"],
        kernels=tuple(
            tuple(
                ModelWorkload(workload=from_document(document), calls=calls)
                for document, calls in parts
            )
            for parts in given["kernels"]
        ),
    )
