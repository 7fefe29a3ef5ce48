"""A compiled CUDA kernel as plain data: its cubins, its launches and its buffers."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import Any

from tuner.errors import TunerError
from tuner.workload.dtypes import DTYPE_BYTES
from tuner.workload.expression import Tensor

_MAGIC = b"tuner-cuda-1\n"
# CUtensorMapDataType of cuda.h, of the dtypes that kernels copy in boxes.
TENSOR_MAP_TYPES: Mapping[str, int] = {
    "int8": 0, "uint8": 0, "int32": 3, "float16": 6, "float32": 7, "bfloat16": 9,
}  # fmt: skip
TF32_MAP_TYPE = 11  # of float32 that is rounded as it is copied
MAX_MAP_DIMENSIONS = 5
MAX_BOX_SIDE = 256  # elements
SWIZZLED_BYTES = 128  # of a box's row, at most
MAP_STRIDE_BYTES = 16  # what divides the distance between rows
MAX_MAP_STEP = 8  # elements from one that is copied to the next
_ARCH = re.compile(r"sm_(\d+)(\d)\Z")


class CudaModuleError(TunerError):
    """Bytes that are no module, or a module that contradicts itself."""

    code = "cuda_module"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMap:
    """A buffer as the tensor memory accelerator sees it: the boxes that one copy moves.

    Rows of a box are 128 bytes in shared memory, their pieces permuted (128-byte
    swizzle). What lies outside the shape is read as zeros and never written. Limits:
    CUDA driver API, `cuTensorMapEncodeTiled`.
    """

    buffer: str
    shape: tuple[int, ...]  # the buffer's elements, row-major: as many as it has, or fewer
    box: tuple[int, ...]  # elements along each dimension
    rounded: bool = False  # float32 to the nearest tf32 as it is copied
    # Elements from one of a box to the next along each dimension; empty: 1 each.
    steps: tuple[int, ...] = ()

    @property
    def distances(self) -> tuple[int, ...]:
        """`steps` of every dimension."""
        return self.steps or (1,) * len(self.box)

    def type_of(self, tensor: Tensor) -> int:
        """CUtensorMapDataType of the tensor's elements."""
        return TF32_MAP_TYPE if self.rounded else TENSOR_MAP_TYPES[tensor.dtype]

    def fault(self, tensor: Tensor) -> str | None:
        """Why the accelerator cannot copy such boxes of the tensor, None where it can."""
        itemsize = DTYPE_BYTES[tensor.dtype]
        if tensor.dtype not in TENSOR_MAP_TYPES:
            return f"has elements of {tensor.dtype}"
        if self.rounded and tensor.dtype != "float32":
            return f"rounds elements of {tensor.dtype}"
        if len(self.shape) != len(self.box) or not 2 <= len(self.shape) <= MAX_MAP_DIMENSIONS:
            return f"has {len(self.shape)} dimensions and boxes of {len(self.box)}"
        if prod(self.shape) > prod(tensor.shape):
            return f"is {list(self.shape)} of a buffer of {list(tensor.shape)}"
        if len(self.distances) != len(self.box) or self.distances[-1] != 1:
            return f"takes each {list(self.steps)}-th element; of a row it takes all"
        if not all(1 <= step <= MAX_MAP_STEP for step in self.distances):
            return f"takes each {list(self.steps)}-th element; at most the {MAX_MAP_STEP}-th"
        spans = [side * step for side, step in zip(self.box, self.distances, strict=True)]
        if not all(1 <= span <= MAX_BOX_SIDE for span in spans):
            return f"has boxes of {spans}, whose sides are 1 to {MAX_BOX_SIDE} long"
        if self.box[-1] * itemsize > SWIZZLED_BYTES:
            return f"has rows of {self.box[-1] * itemsize} bytes in a box, {SWIZZLED_BYTES} at most"
        if self.shape[-1] * itemsize % MAP_STRIDE_BYTES:
            return (
                f"has rows of {self.shape[-1] * itemsize} bytes, which {MAP_STRIDE_BYTES} must "
                "divide"
            )
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One launch of a device function. A module's launches follow one another on a stream."""

    kernel: str  # its name in the cubin
    arguments: tuple[str, ...]  # names of the buffers it takes, in its order
    grid: tuple[int, int, int]  # blocks along x, y, z
    block: tuple[int, int, int]  # threads along x, y, z
    shared_bytes: int  # dynamic, beside what the cubin declares
    maps: tuple[TensorMap, ...] = ()  # its first parameters, before the buffers

    @property
    def buffers(self) -> tuple[str, ...]:
        """Names of all buffers that it reads or writes; one may occur twice."""
        return (*(each.buffer for each in self.maps), *self.arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaModule:
    """What a schedule was compiled to.

    Arguments are device pointers of dense row-major buffers, inputs before outputs.
    """

    symbol: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    workspace: tuple[Tensor, ...]  # between the launches, in global memory
    launches: tuple[Launch, ...]
    # (architecture, code). All are of the same source, or at least have the same launches.
    cubins: tuple[tuple[str, bytes], ...]

    @property
    def buffers(self) -> tuple[Tensor, ...]:
        """Inputs, outputs, workspace: what launches name."""
        return (*self.inputs, *self.outputs, *self.workspace)

    def named(self, arguments: Sequence[str]) -> CudaModule:
        """The same module with its arguments named so. Workspace is renamed where names meet.

        Raises CudaModuleError for more or fewer names.
        """
        own = [tensor.name for tensor in (*self.inputs, *self.outputs)]
        if len(arguments) != len(own):
            raise CudaModuleError(f"{self.symbol} has {len(own)} arguments, not {list(arguments)}")
        new = dict(zip(own, arguments, strict=True))
        for tensor in self.workspace:
            name = tensor.name
            while name in new.values():
                name += "_"
            new[tensor.name] = name

        def renamed(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return tuple(replace(tensor, name=new[tensor.name]) for tensor in tensors)

        return replace(
            self,
            inputs=renamed(self.inputs),
            outputs=renamed(self.outputs),
            workspace=renamed(self.workspace),
            launches=tuple(
                replace(
                    launch,
                    arguments=tuple(new[name] for name in launch.arguments),
                    maps=tuple(replace(each, buffer=new[each.buffer]) for each in launch.maps),
                )
                for launch in self.launches
            ),
        )

    def check(self) -> None:
        """Check the module against itself.

        Raises CudaModuleError for a launch of an unknown buffer or with an empty grid,
        for a tensor map that cannot be, and for an unknown form of architecture.
        """
        tensors = {tensor.name: tensor for tensor in self.buffers}
        names = [tensor.name for tensor in self.buffers]
        if len(set(names)) != len(names):
            raise CudaModuleError(f"{self.symbol}: buffers {names} are not named apart")
        for launch in self.launches:
            unknown = [name for name in launch.buffers if name not in names]
            if unknown or min(*launch.grid, *launch.block) < 1:
                raise CudaModuleError(
                    f"{self.symbol}: {launch.kernel} takes {unknown or launch}, which it cannot"
                )
            for each in launch.maps:
                fault = each.fault(tensors[each.buffer])
                if fault is not None:
                    raise CudaModuleError(f"{self.symbol}: the tensor map of {each.buffer} {fault}")
        for arch, _ in self.cubins:
            capability(arch)

    def pack(self) -> bytes:
        """The module as bytes: a JSON head with sizes, then the cubins."""
        head: dict[str, Any] = {
            "symbol": self.symbol,
            "inputs": [asdict(tensor) for tensor in self.inputs],
            "outputs": [asdict(tensor) for tensor in self.outputs],
            "workspace": [asdict(tensor) for tensor in self.workspace],
            "launches": [_document(launch) for launch in self.launches],
            "cubins": [[arch, len(code)] for arch, code in self.cubins],
        }
        text = json.dumps(head, sort_keys=True, separators=(",", ":")).encode()
        return (
            _MAGIC + struct.pack("<I", len(text)) + text + b"".join(code for _, code in self.cubins)
        )


def unpacked(data: bytes) -> CudaModule:
    """The inverse of `pack`. Raises CudaModuleError."""
    try:
        if not data.startswith(_MAGIC):
            raise CudaModuleError(f"these {len(data)} bytes are no packed CUDA module")
        start = len(_MAGIC) + 4
        (length,) = struct.unpack("<I", data[len(_MAGIC) : start])
        head = json.loads(data[start : start + length])
        end, cubins = start + length, []
        for arch, size in head["cubins"]:
            cubins.append((str(arch), data[end : end + size]))
            end += size
        if end != len(data):
            raise CudaModuleError(f"a CUDA module has {len(data)} bytes where its head says {end}")
        module = CudaModule(
            symbol=str(head["symbol"]),
            inputs=_tensors(head["inputs"]),
            outputs=_tensors(head["outputs"]),
            workspace=_tensors(head["workspace"]),
            launches=tuple(_launch(launch) for launch in head["launches"]),
            cubins=tuple(cubins),
        )
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise CudaModuleError(f"a malformed CUDA module: {error!r}") from error
    module.check()
    return module


def capability(arch: str) -> tuple[int, int]:
    """(major, minor) of `sm_90`. Raises CudaModuleError."""
    match = _ARCH.match(arch)
    if match is None:
        raise CudaModuleError(f"{arch!r} names no architecture; it is written like sm_90")
    return int(match[1]), int(match[2])


def nbytes(tensor: Tensor) -> int:
    return prod(tensor.shape) * DTYPE_BYTES[tensor.dtype]


def _tensors(documents: list[dict[str, Any]]) -> tuple[Tensor, ...]:
    return tuple(
        Tensor(name=document["name"], shape=tuple(document["shape"]), dtype=document["dtype"])
        for document in documents
    )


def _document(launch: Launch) -> dict[str, Any]:
    """As modules hold it. Most have no tensor maps and no word of them."""
    document = asdict(launch)
    for each in document["maps"]:
        for field in ("rounded", "steps"):
            if not each[field]:
                del each[field]
    if not launch.maps:
        del document["maps"]
    return document


def _launch(document: dict[str, Any]) -> Launch:
    def extents(name: str) -> tuple[int, int, int]:
        x, y, z = document[name]
        return int(x), int(y), int(z)

    return Launch(
        kernel=document["kernel"],
        arguments=tuple(document["arguments"]),
        grid=extents("grid"),
        block=extents("block"),
        shared_bytes=int(document["shared_bytes"]),
        maps=tuple(
            TensorMap(
                buffer=each["buffer"],
                shape=tuple(map(int, each["shape"])),
                box=tuple(map(int, each["box"])),
                rounded=bool(each.get("rounded", False)),
                steps=tuple(map(int, each.get("steps", ()))),
            )
            for each in document.get("maps", ())
        ),
    )
