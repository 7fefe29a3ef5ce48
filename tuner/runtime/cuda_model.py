"""A model compiled for a GPU as plain data: its kernels, its steps, its memory."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from tuner.runtime.cuda_module import CudaModule, CudaModuleError, nbytes, unpacked
from tuner.workload.dtypes import DType
from tuner.workload.expression import Tensor

ALIGNMENT = 256  # bytes, of every buffer in the model's memory; what the driver's own have
_MAGIC = b"tuner-cuda-model-1\n"
_SIZE = struct.Struct("<Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePlace:
    """Where a buffer lies: in an argument, or in the model's own memory."""

    kind: Literal["argument", "memory"]
    position: int = 0  # of the argument: inputs, then outputs
    offset: int = 0  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLaunch:
    """One launch of a kernel."""

    kernel: int  # number among the modules
    launch: int  # number among its launches
    places: tuple[DevicePlace, ...]  # of the module's buffers
    after: tuple[int, ...]  # numbers of steps that end before


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCopy:
    """Bytes copied from one place to another."""

    source: DevicePlace
    destination: DevicePlace
    nbytes: int
    after: tuple[int, ...]

    @property
    def places(self) -> tuple[DevicePlace, ...]:
        return (self.source, self.destination)


ModelStep = ModelLaunch | ModelCopy


@dataclass(frozen=True, kw_only=True)
class CudaModel:
    """A model's kernels and how one call uses them.

    The memory holds the constants, then what is between steps. Steps are in an order in
    which each comes after those that it waits for.
    """

    symbol: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    kernels: tuple[CudaModule, ...]
    steps: tuple[ModelStep, ...]
    constants: bytes = field(repr=False)
    memory_bytes: int

    @property
    def architectures(self) -> tuple[str, ...]:
        """Those that every kernel has code for."""
        of_each = [{arch for arch, _ in kernel.cubins} for kernel in self.kernels]
        return tuple(sorted(set.intersection(*of_each))) if of_each else ()

    def check(self) -> None:
        """Check the model against itself.

        Raises CudaModuleError for steps of unknown kernels, for waits that are no earlier
        steps, and for places outside of arguments and memory.
        """
        arguments = [nbytes(tensor) for tensor in (*self.inputs, *self.outputs)]
        for kernel in self.kernels:
            kernel.check()
        for number, step in enumerate(self.steps):
            sizes = self._sizes(step, number)
            if len(sizes) != len(step.places) or not all(
                0 <= earlier < number for earlier in step.after
            ):
                raise CudaModuleError(f"{self.symbol}: step {number} has places or waits for none")
            for place, size in zip(step.places, sizes, strict=True):
                memory = place.kind == "memory"
                if not memory and not 0 <= place.position < len(arguments):
                    raise CudaModuleError(f"{self.symbol}: there is no argument {place.position}")
                room = self.memory_bytes if memory else arguments[place.position]
                if not 0 <= place.offset <= place.offset + size <= room:
                    raise CudaModuleError(f"{self.symbol}: step {number} leaves its buffers")

    def _sizes(self, step: ModelStep, number: int) -> list[int]:
        """The bytes of a step's buffers."""
        if isinstance(step, ModelCopy):
            return [step.nbytes, step.nbytes]
        if not (
            0 <= step.kernel < len(self.kernels)
            and 0 <= step.launch < len(self.kernels[step.kernel].launches)
        ):
            raise CudaModuleError(f"{self.symbol}: step {number} launches what does not exist")
        return [nbytes(tensor) for tensor in self.kernels[step.kernel].buffers]

    def pack(self) -> bytes:
        """The model as bytes: a JSON head with sizes, then the kernels and the constants."""
        packed = [kernel.pack() for kernel in self.kernels]
        head: dict[str, Any] = {
            "symbol": self.symbol,
            "inputs": [_tensor_document(tensor) for tensor in self.inputs],
            "outputs": [_tensor_document(tensor) for tensor in self.outputs],
            "kernels": [len(kernel) for kernel in packed],
            "steps": [_step_document(step) for step in self.steps],
            "constants": len(self.constants),
            "memory_bytes": self.memory_bytes,
        }
        text = json.dumps(head, sort_keys=True, separators=(",", ":")).encode()
        return b"".join([_MAGIC, _SIZE.pack(len(text)), text, *packed, self.constants])


def unpacked_model(data: bytes) -> CudaModel:
    """The inverse of `pack`. Raises CudaModuleError."""
    if not data.startswith(_MAGIC):
        raise CudaModuleError(f"these {len(data)} bytes are no packed CUDA model")
    try:
        start = len(_MAGIC) + _SIZE.size
        (length,) = _SIZE.unpack(data[len(_MAGIC) : start])
        head = json.loads(data[start : start + length])
        end, kernels = start + length, []
        for size in head["kernels"]:
            kernels.append(unpacked(data[end : end + size]))
            end += size
        if end + head["constants"] != len(data):
            raise CudaModuleError(f"a CUDA model has {len(data)} bytes, not those of its head")
        model = CudaModel(
            symbol=str(head["symbol"]),
            inputs=tuple(_tensor(document) for document in head["inputs"]),
            outputs=tuple(_tensor(document) for document in head["outputs"]),
            kernels=tuple(kernels),
            steps=tuple(_step(document) for document in head["steps"]),
            constants=data[end:],
            memory_bytes=int(head["memory_bytes"]),
        )
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise CudaModuleError(f"a malformed CUDA model: {error!r}") from error
    model.check()
    return model


def _tensor_document(tensor: Tensor) -> list[Any]:
    return [tensor.name, tensor.dtype, list(tensor.shape)]


def _tensor(document: Sequence[Any]) -> Tensor:
    name, dtype, shape = document
    return Tensor(name=str(name), dtype=cast(DType, dtype), shape=tuple(map(int, shape)))


def _place_document(place: DevicePlace) -> list[Any]:
    return [place.kind, place.position, place.offset]


def _place(document: Sequence[Any]) -> DevicePlace:
    kind, position, offset = document
    if kind not in ("argument", "memory"):
        raise ValueError(f"{kind!r} is no kind of place")
    return DevicePlace(kind=kind, position=int(position), offset=int(offset))


def _step_document(step: ModelStep) -> dict[str, Any]:
    document: dict[str, Any] = {
        "places": [_place_document(place) for place in step.places],
        "after": list(step.after),
    }
    if isinstance(step, ModelCopy):
        return document | {"nbytes": step.nbytes}
    return document | {"kernel": step.kernel, "launch": step.launch}


def _step(document: Mapping[str, Any]) -> ModelStep:
    places = tuple(_place(place) for place in document["places"])
    after = tuple(int(number) for number in document["after"])
    if "kernel" in document:
        return ModelLaunch(
            kernel=int(document["kernel"]),
            launch=int(document["launch"]),
            places=places,
            after=after,
        )
    source, destination = places
    return ModelCopy(
        source=source, destination=destination, nbytes=int(document["nbytes"]), after=after
    )
