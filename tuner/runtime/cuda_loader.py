"""Calls of an exported CUDA library on arrays of any package that speaks DLPack.

PyTorch, CuPy, JAX. This file is shipped with exported libraries, so it needs nothing
but Python. Models also take NumPy's arrays, and need it for these.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CUDA_DEVICES = (2, 13)  # DLPack's kDLCUDA and kDLCUDAManaged
ALIGNMENT = 16
# DLPack's (code, bits) of each dtype; an int8 is no bool, although both have 8 bits.
DTYPES = {
    "float64": (2, 64), "float32": (2, 32), "float16": (2, 16), "bfloat16": (4, 16),
    "int64": (0, 64), "int32": (0, 32), "int16": (0, 16), "int8": (0, 8),
    "uint64": (1, 64), "uint32": (1, 32), "uint16": (1, 16), "uint8": (1, 8), "bool": (6, 8),
}  # fmt: skip


class ArrayError(TypeError):
    """An array that the function does not take: its device, dtype, shape or layout."""


class CudaLibraryError(RuntimeError):
    """The library reported an error; `status` is its number."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


@dataclass(frozen=True)
class Held:
    """An array as DLPack describes it. It keeps the memory alive."""

    address: int
    device_type: int
    code: int
    bits: int
    shape: tuple[int, ...]
    dense: bool  # row-major without gaps
    capsule: object


def held(array: Any, stream: int | None = None) -> Held:
    """What an array's `__dlpack__` says.

    `stream` is where it will be used, for producers that must order their work before
    it. Raises ArrayError for what has no `__dlpack__`.
    """
    if not hasattr(array, "__dlpack__"):
        raise ArrayError(
            f"{type(array).__name__} is no array with __dlpack__; pass a tensor of PyTorch, "
            f"CuPy or JAX"
        )
    capsule = array.__dlpack__() if stream is None else array.__dlpack__(stream=stream)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = _DLTensor.from_address(pointer(capsule, b"dltensor"))
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    strides = (
        None if not tensor.strides else tuple(tensor.strides[axis] for axis in range(tensor.ndim))
    )
    return Held(
        address=(tensor.data or 0) + tensor.byte_offset,
        device_type=tensor.device_type,
        code=tensor.code,
        bits=tensor.bits if tensor.lanes == 1 else 0,
        shape=shape,
        dense=strides is None or _is_dense(shape, strides),
        capsule=capsule,
    )


def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


class CudaLibrary:
    """An exported library. `names` are its functions."""

    def __init__(self, path: str | Path) -> None:
        self._library = ctypes.CDLL(str(path))
        describe = self._library.tuner_library_json
        describe.restype = ctypes.c_char_p
        document = json.loads(describe())
        if document.get("kind") != "cuda":
            raise CudaLibraryError(f"{path} is no library of CUDA kernels", 0)
        self._error = getattr(self._library, f"{document['name']}_last_error")
        self._error.restype = ctypes.c_char_p
        self._functions = {function["symbol"]: function for function in document["functions"]}
        self.names = tuple(self._functions)

    def function(self, symbol: str) -> CudaFunction:
        """The function; a `CudaModelFunction` where it is of a model."""
        described = self._functions[symbol]
        arguments = described["arguments"]
        call = self._symbol(symbol, len(arguments) + 1)
        if "steps" not in described:
            return CudaFunction(symbol, arguments, call, self._error)
        return self.model(symbol)

    def model(self, symbol: str) -> CudaModelFunction:
        """The function of a model. Raises CudaLibraryError for that of a kernel."""
        described = self._functions[symbol]
        if "steps" not in described:
            raise CudaLibraryError(f"{symbol} is no model", 0)
        count = len(described["arguments"])
        return CudaModelFunction(
            symbol,
            described["arguments"],
            self._symbol(symbol, count + 1),
            self._error,
            host=self._symbol(f"{symbol}_host", count),
            times=self._symbol(f"{symbol}_times", count + 2),
            steps=described["steps"],
        )

    def _symbol(self, name: str, arguments: int) -> Any:
        """A C function that takes so many addresses."""
        function = getattr(self._library, name)
        function.restype, function.argtypes = ctypes.c_int, (ctypes.c_void_p,) * arguments
        return function


class CudaFunction:
    """A function of a library: `f(*inputs, *outputs, stream=...)`.

    Arrays are in the GPU's memory. It returns once the work is on the stream.
    """

    def __init__(
        self, symbol: str, arguments: Sequence[dict[str, Any]], call: Any, error: Any
    ) -> None:
        self.symbol, self.arguments = symbol, tuple(arguments)
        self._call, self._error = call, error

    def __call__(self, *arrays: Any, stream: Any = None) -> None:
        """Call the function on arrays.

        `stream`: None (the default stream), an address, or an object of PyTorch or CuPy
        for one. Raises ArrayError for arrays that it does not take, CudaLibraryError
        where the launch fails.
        """
        address = stream_address(stream)
        if len(arrays) != len(self.arguments):
            names = ", ".join(argument["name"] for argument in self.arguments)
            raise ArrayError(
                f"{self.symbol} takes {len(self.arguments)} arrays ({names}), {len(arrays)} "
                f"were given"
            )
        operands = [
            self._held(array, argument, address)
            for array, argument in zip(arrays, self.arguments, strict=True)
        ]
        self.launch([operand.address for operand in operands], address)

    def launch(self, addresses: Sequence[int], stream: int = 0) -> None:
        """Call the function on device addresses. Only the library checks them."""
        self._done(self._call(*addresses, stream))

    def _done(self, status: int) -> None:
        """Raises CudaLibraryError for what is no success."""
        if status != 0:
            raise CudaLibraryError(self._error().decode(errors="replace"), status)

    def _held(self, array: Any, argument: dict[str, Any], stream: int) -> Held:
        where = f"{self.symbol}: {argument['name']}"
        device = array.__dlpack_device__()[0] if hasattr(array, "__dlpack_device__") else None
        if device is not None and int(device) not in CUDA_DEVICES:
            raise ArrayError(
                f"{where} is not in memory of a GPU (DLPack's device type is {int(device)})"
            )
        # 1 is the legacy default stream in DLPack's convention.
        operand = held(array, stream or 1)
        fault = misfit(operand, argument["dtype"], tuple(argument["shape"]))
        if fault is not None:
            raise ArrayError(f"{where} {fault}")
        return operand


class CudaModelFunction(CudaFunction):
    """The function of a model.

    `f(*inputs)` takes NumPy's arrays and gives new ones. `f(*inputs, *outputs, stream=...)`
    takes arrays in the GPU's memory, as that of a kernel does.
    """

    def __init__(
        self,
        symbol: str,
        arguments: Sequence[dict[str, Any]],
        call: Any,
        error: Any,
        *,
        host: Any,
        times: Any,
        steps: Sequence[int | None],
    ) -> None:
        super().__init__(symbol, arguments, call, error)
        self.inputs = tuple(argument for argument in arguments if argument["role"] == "in")
        self.outputs = tuple(argument for argument in arguments if argument["role"] == "out")
        self.steps = tuple(steps)  # the number of the kernel of each; None of a copy
        self._host, self._times = host, times

    def __call__(self, *arrays: Any, stream: Any = None) -> Any:
        """Call the model. Returns arrays where NumPy's were given, else None.

        A model without inputs is called on arrays of the host. Raises ArrayError and
        CudaLibraryError, as calls of kernels do.
        """
        if all(hasattr(array, "__array_interface__") for array in arrays):
            results = self.host(*arrays)
            return results[0] if len(results) == 1 else results
        super().__call__(*arrays, stream=stream)
        return None

    def host(self, *inputs: Any) -> tuple[Any, ...]:
        """New arrays of NumPy, of the model's outputs. bfloat16 is held by uint16.

        Waits for the call. Raises ArrayError and CudaLibraryError.
        """
        import numpy as np  # noqa: PLC0415  # only callers with arrays of NumPy have it

        if len(inputs) != len(self.inputs):
            names = ", ".join(argument["name"] for argument in self.inputs)
            raise ArrayError(
                f"{self.symbol} takes {len(self.inputs)} arrays ({names}), {len(inputs)} were given"
            )
        given = []
        for array, argument in zip(inputs, self.inputs, strict=True):
            dtype, shape = _held_by(argument["dtype"]), tuple(argument["shape"])
            if array.dtype != dtype or array.shape != shape:
                raise ArrayError(
                    f"{self.symbol}: {argument['name']} must be {dtype} of shape {list(shape)}; "
                    f"it is {array.dtype} of shape {list(array.shape)}"
                )
            given.append(np.ascontiguousarray(array))
        results = tuple(
            np.empty(argument["shape"], _held_by(argument["dtype"])) for argument in self.outputs
        )
        self._done(self._host(*(array.ctypes.data for array in (*given, *results))))
        return results

    def times(self, addresses: Sequence[int], stream: int = 0) -> list[float]:
        """Seconds of each step on device addresses, one step after another. Waits for them."""
        seconds = (ctypes.c_double * max(len(self.steps), 1))()
        self._done(self._times(*addresses, stream, ctypes.addressof(seconds)))
        return list(seconds)[: len(self.steps)]


def _held_by(dtype: str) -> str:
    """The name of NumPy's dtype that holds one of ours."""
    return "uint16" if dtype == "bfloat16" else dtype


def misfit(array: Held, dtype: str, shape: tuple[int, ...]) -> str | None:
    """Why an array cannot be passed for an argument, in words; None where it can."""
    if (array.code, array.bits) != DTYPES[dtype]:
        return f"must be {dtype}; DLPack gives code {array.code} with {array.bits} bits"
    if array.shape != shape:
        return f"has shape {list(array.shape)}, {list(shape)} is wanted"
    if not array.dense or array.address % ALIGNMENT:
        return f"must be dense, row-major and aligned to {ALIGNMENT} bytes; pass a contiguous copy"
    return None


def stream_address(stream: Any) -> int:
    """The driver's handle of a stream.

    PyTorch's `cuda_stream`, CuPy's `ptr`, or the number itself.
    """
    if stream is None:
        return 0
    for name in ("cuda_stream", "ptr"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    return int(stream)
