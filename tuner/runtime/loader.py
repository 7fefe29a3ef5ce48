"""Calls of a tuned library from Python, by ctypes and NumPy alone.

This file is copied into every exported Python package, so it needs nothing but NumPy and the
file of signatures beside it.
"""

from __future__ import annotations

import ctypes
import json
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from .signature import NUMPY, Argument, Prepack, ShapeError, Signature, signature_of

ALIGNMENT = 64  # bytes
STATUS: Mapping[int, str] = MappingProxyType(
    {
        1: "null",
        2: "alignment",
        3: "overlap",
        4: "extent",
        5: "isa",
        6: "memory",
        7: "internal",
        9: "value",
    }
)
Array = np.ndarray[Any, np.dtype[Any]]


class LibraryError(RuntimeError):
    """A library that cannot be loaded, or a call that failed in it.

    `status` is the call's error code, 0 where there was no call.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.kind = STATUS.get(status, "")


class DTypeError(TypeError):
    """An array of another dtype than the function takes, or no array at all."""


def aligned_empty(shape: Sequence[int], dtype: str | np.dtype[Any]) -> Array:
    """An uninitialised C-contiguous array that begins at a multiple of 64 bytes.

    `dtype` may be "bfloat16" (uint16).
    """
    kind = np.dtype(NUMPY.get(dtype, dtype)) if isinstance(dtype, str) else np.dtype(dtype)
    nbytes = prod(shape) * kind.itemsize
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    # In two steps: NumPy gives an empty slice the address of the array that it is of.
    return raw[start:][:nbytes].view(kind).reshape(tuple(shape))


@dataclass(frozen=True)
class _Kept:
    """Packed buffers, and the arrays that they were made of.

    An entry ends with the first of these.
    """

    constants: list[weakref.ref[Array]]
    packed: list[Array]


class Library:
    """A loaded library.

    Thread-safe: calls share nothing but the library's own thread pool and the packed
    constants.

    A constant that a kernel takes packed is packed when an array is first passed for
    it, and kept as long as that array lives. Until then its values must not change,
    unless `forget` is called.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self._library = ctypes.CDLL(str(self.path.resolve()))
            describe = self._library.tuner_library_json
        except (OSError, AttributeError) as error:
            raise LibraryError(f"cannot load {self.path} as a tuned library: {error}") from error
        describe.restype = ctypes.c_char_p
        text = json.loads(describe().decode())
        self.name: str = text["name"]
        self.signatures: Mapping[str, Signature] = MappingProxyType(
            {entry["symbol"]: signature_of(entry) for entry in text["functions"]}
        )
        self._entries = {
            symbol: self._entry(symbol, signature) for symbol, signature in self.signatures.items()
        }
        self._packers = {
            signature.prepack.symbol: self._packer(signature.prepack)
            for signature in self.signatures.values()
            if signature.prepack
        }
        self._kept: dict[tuple[object, ...], _Kept] = {}  # by pack function and arrays' identities
        self._time = self._library[f"{self.name}_time"]
        self._time.argtypes = [
            ctypes.c_char_p,
            ctypes.c_void_p,
            ctypes.c_int64,
            ctypes.c_int64,
            ctypes.c_void_p,
        ]
        self._last_error = self._library[f"{self.name}_last_error"]
        self._last_error.restype = ctypes.c_char_p
        self._set_num_threads = self._library[f"{self.name}_set_num_threads"]
        # Libraries that were made before there was such a function do not tell.
        self._workspace_bytes = getattr(self._library, f"{self.name}_workspace_bytes", None)
        if self._workspace_bytes is not None:
            self._workspace_bytes.restype = ctypes.c_size_t

    def _entry(self, symbol: str, signature: Signature) -> Any:
        inputs = (
            len(signature.inputs) if signature.prepack is None else len(signature.prepack.passed)
        )
        entry = self._library[symbol]
        entry.argtypes = [ctypes.c_void_p] * (inputs + len(signature.outputs)) + [
            ctypes.c_int64
        ] * (signature.rows is not None)
        return entry

    def _packer(self, prepack: Prepack) -> Any:
        packer = self._library[prepack.symbol]
        packer.argtypes = [ctypes.c_void_p] * (len(prepack.constants) + len(prepack.packed))
        return packer

    def set_num_threads(self, count: int) -> None:
        """Set the threads of all later calls; 0: as many as each kernel was tuned for."""
        self._raise(self._set_num_threads(ctypes.c_int(count)))

    def workspace_bytes(self) -> int | None:
        """The most memory for temporaries that all threads held together so far, in bytes.

        None of a library that does not tell.
        """
        return None if self._workspace_bytes is None else int(self._workspace_bytes())

    def last_error(self) -> str:
        """The calling thread's last error text."""
        return str(self._last_error().decode(errors="replace"))

    def call(self, symbol: str, arrays: Sequence[Array]) -> None:
        """Run a function on C-contiguous arrays, inputs then outputs, in place.

        Raises ShapeError, DTypeError, and LibraryError with the library's status and
        text (misaligned, overlapping, …).
        """
        signature = self.signature(symbol).of(arrays)
        _check(signature, arrays)
        # `buffers` lives until the kernel has ended, whoever drops them meanwhile.
        buffers, rows = self._passed(signature, arrays)
        self._raise(self._entries[symbol](*(buffer.ctypes.data for buffer in buffers), *rows))

    def time(self, symbol: str, arrays: Sequence[Array], number: int, repeat: int) -> list[float]:
        """Seconds of one call: `repeat` samples, each the mean of `number` calls.

        The calls are made by a loop in C. Constants are packed before, which is not
        timed.
        """
        signature = self.signature(symbol).of(arrays)
        _check(signature, arrays)
        buffers, rows = self._passed(signature, arrays)
        passed = [*(buffer.ctypes.data for buffer in buffers), *rows]
        samples = (ctypes.c_double * max(repeat, 1))()
        self._raise(
            self._time(
                symbol.encode(), (ctypes.c_void_p * len(passed))(*passed), number, repeat, samples
            )
        )
        return list(samples)

    def forget(self) -> None:
        """Drop all packed constants.

        The next call packs the arrays that it is given as they then are.
        """
        self._kept.clear()

    def _passed(
        self, signature: Signature, arrays: Sequence[Array]
    ) -> tuple[Sequence[Array], list[int]]:
        """What the C function takes, and the number of rows where that has a range.

        Packed buffers stand in the place of constants that are packed.
        """
        prepack, count = signature.prepack, len(signature.inputs)
        rows = [] if signature.count is None else [signature.count]
        if prepack is None:
            return arrays, rows
        places = [
            *arrays[:count],
            *self._packed(prepack, [arrays[place] for place in prepack.constants]),
        ]
        return [*(places[place] for place in prepack.passed), *arrays[count:]], rows

    def _packed(self, prepack: Prepack, constants: Sequence[Array]) -> list[Array]:
        key = (prepack.symbol, *(id(array) for array in constants))
        entry = self._kept.get(key)
        if entry is not None and all(
            reference() is array
            for reference, array in zip(entry.constants, constants, strict=True)
        ):
            return entry.packed
        packed = [
            aligned_empty(argument.shape, argument.numpy_dtype) for argument in prepack.packed
        ]
        for array in packed:
            # Not a number, so that what packing leaves out by mistake shows.
            array.reshape(-1).view(np.uint8).fill(0xFF)
        usable = [array if _usable(array) else _copied(array) for array in constants]
        self._raise(
            self._packers[prepack.symbol](*(array.ctypes.data for array in (*usable, *packed)))
        )
        # No lock: a dictionary's single operations are atomic, and of two threads that
        # pack at once each uses its own buffers.
        references = [
            weakref.ref(array, lambda _: self._kept.pop(key, None)) for array in constants
        ]
        self._kept[key] = _Kept(references, packed)
        return packed

    def signature(self, symbol: str) -> Signature:
        if symbol not in self.signatures:
            raise LibraryError(
                f"{self.path.name} has no function {symbol!r}; it has {', '.join(self.signatures)}"
            )
        return self.signatures[symbol]

    def function(self, symbol: str) -> TunedFunction:
        return TunedFunction(self, self.signature(symbol))

    def _raise(self, status: int) -> None:
        if status != 0:
            raise LibraryError(self.last_error(), status)


class TunedFunction:
    """A kernel as a Python callable: arrays in, arrays out.

    NumPy's, or anything with `__dlpack__`.
    """

    def __init__(self, library: Library, signature: Signature) -> None:
        self.library = library
        self.signature = signature
        self.__name__ = signature.symbol
        self.__doc__ = ", ".join(
            f"{argument.name}: {argument.dtype}{list(argument.shape)} ({argument.role})"
            for argument in signature.arguments
        )

    def __call__(self, *inputs: Any, out: Array | Sequence[Array] | None = None) -> Any:
        """The output array, or a tuple of them.

        An output whose extents are computed is cut to them, and the output that holds them
        is left out; `out` gets both as the C function writes them.

        Inputs that are misaligned, strided or overlap an output are copied. `out` is
        written in place, through a copy where it cannot be passed as it is.
        """
        parameters = self.signature.inputs
        if len(inputs) != len(parameters):
            names = ", ".join(argument.name for argument in parameters)
            raise ShapeError(
                f"{self.__name__} takes {len(parameters)} inputs ({names}), got {len(inputs)}"
            )
        # Something with DLPack alone has an extent once it is an array.
        if self.signature.rows is not None:
            inputs = tuple(
                value if hasattr(value, "shape") else _from_dlpack(self.__name__, argument, value)
                for argument, value in zip(parameters, inputs, strict=True)
            )
        signature = self.signature.of(inputs)
        parameters, outputs = signature.inputs, signature.outputs
        arrays = [
            _as_array(self.__name__, argument, value)
            for argument, value in zip(parameters, inputs, strict=True)
        ]
        results = self._results(outputs, out)
        targets = [
            array
            if _usable(array) and array.flags.writeable
            else aligned_empty(array.shape, array.dtype)
            for array in results
        ]
        for index, target in enumerate(targets):
            if any(np.may_share_memory(target, other) for other in targets[:index]):
                raise ShapeError(f"{self.__name__}: outputs share memory; give each its own array")
        # Passed as they are, since a copy would be packed anew in each call.
        consumed = self.signature.consumed
        passed = [
            array
            if place in consumed
            or (
                _usable(array) and not any(np.may_share_memory(array, target) for target in targets)
            )
            else _copied(array)
            for place, array in enumerate(arrays)
        ]
        self.library.call(self.__name__, [*passed, *targets])
        for result, target in zip(results, targets, strict=True):
            if result is not target:
                result[...] = target
        if out is None:
            results = _cut(outputs, results)
        return results[0] if len(results) == 1 else tuple(results)

    def _results(
        self, outputs: tuple[Argument, ...], out: Array | Sequence[Array] | None
    ) -> list[Array]:
        if out is None:
            return [aligned_empty(argument.shape, argument.numpy_dtype) for argument in outputs]
        results = [out] if isinstance(out, np.ndarray) else list(out)
        if len(results) != len(outputs):
            raise ShapeError(
                f"{self.__name__} has {len(outputs)} outputs, got {len(results)} in out="
            )
        for argument, array in zip(outputs, results, strict=True):
            _check_one(self.__name__, argument, array)
            if not array.flags.writeable:
                raise ShapeError(f"{self.__name__}: output {argument.name} is read-only")
        return results


def _cut(outputs: Sequence[Argument], arrays: Sequence[Array]) -> list[Array]:
    """The outputs without what lies behind their extents, and without these."""
    named = {argument.name: array for argument, array in zip(outputs, arrays, strict=True)}
    held = {argument.extents for argument in outputs}
    results = []
    for argument, array in zip(outputs, arrays, strict=True):
        if argument.name in held:
            continue
        numbers = named[argument.extents].tolist() if argument.extents else []
        there = dict(zip(argument.axes, numbers, strict=True))
        results.append(array[tuple(slice(0, there.get(axis)) for axis in range(array.ndim))])
    return results


def _as_array(symbol: str, argument: Argument, value: Any) -> Array:
    if isinstance(value, np.generic):  # a number, as functions give one
        value = np.asarray(value)
    array: Array = value if isinstance(value, np.ndarray) else _from_dlpack(symbol, argument, value)
    _check_one(symbol, argument, array)
    return array


def _from_dlpack(symbol: str, argument: Argument, value: Any) -> Array:
    if not hasattr(value, "__dlpack__"):
        raise DTypeError(
            f"{symbol}: {argument.name} is a {type(value).__name__}, not an array; use "
            f"numpy.asarray or DLPack"
        )
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise DTypeError(
            f"{symbol}: {argument.name} does not convert by DLPack: {error}"
        ) from error


def _check(signature: Signature, arrays: Sequence[Array]) -> None:
    if len(arrays) != len(signature.arguments):
        raise ShapeError(
            f"{signature.symbol} takes {len(signature.arguments)} arrays, got {len(arrays)}"
        )
    for place, (argument, array) in enumerate(zip(signature.arguments, arrays, strict=True)):
        _check_one(signature.symbol, argument, array)
        if not array.flags.c_contiguous and place not in signature.consumed:
            raise ShapeError(
                f"{signature.symbol}: {argument.name} is not C-contiguous; use "
                f"numpy.ascontiguousarray"
            )


def _check_one(symbol: str, argument: Argument, array: Array) -> None:
    if not isinstance(array, np.ndarray):
        raise DTypeError(
            f"{symbol}: {argument.name} is a {type(array).__name__}, not a NumPy array"
        )
    # An extension of NumPy may have a bfloat16.
    if array.dtype != argument.numpy_dtype and array.dtype.name != argument.dtype:
        raise DTypeError(
            f"{symbol}: {argument.name} has dtype {array.dtype}, expected {argument.dtype} "
            f"({argument.numpy_dtype})"
        )
    # A number may be a vector of one element.
    if array.shape != argument.shape and (argument.shape or array.shape != (1,)):
        raise ShapeError(
            f"{symbol}: {argument.name} has shape {array.shape}, expected {argument.shape}"
        )


def _usable(array: Array) -> bool:
    return bool(array.flags.c_contiguous) and array.ctypes.data % ALIGNMENT == 0


def _copied(array: Array) -> Array:
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy
