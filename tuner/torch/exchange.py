"""A library's function as a built-in function of Python that takes PyTorch's tensors."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from tuner.runtime.interfaces import DLPACK_EXCHANGE
from tuner.runtime.loader import LibraryError

_FASTCALL = 0x80  # METH_FASTCALL: arguments come as an array


class _Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("text", ctypes.c_char_p),
    ]


class _Binding(ctypes.Structure):
    """`struct tuner_binding` of the C runtime."""

    _fields_ = [("api", ctypes.c_void_p), ("strides", ctypes.POINTER(ctypes.c_int64))]


def bound(path: Path, symbol: str, inputs: Sequence[Sequence[int]]) -> Callable[..., int]:
    """The function of a library on tensors, inputs then outputs, whose result is a status.

    `inputs` are the strides that its inputs must have, in elements. Raises LibraryError.
    """
    numbers = [number for strides in inputs for number in (len(strides), *strides)]
    binding = _Binding(_exchange_api(), (ctypes.c_int64 * len(numbers))(*numbers))
    entry = ctypes.CDLL(str(path))[DLPACK_EXCHANGE.symbol.format(symbol=symbol)]
    address = ctypes.cast(entry, ctypes.c_void_p).value
    method = _Method(symbol.encode(), address, _FASTCALL, None)
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, *[ctypes.py_object] * 2]
    # In the place of its module the function keeps what it points to.
    function: Callable[..., int] = new(
        ctypes.addressof(method), ctypes.addressof(binding), (method, binding)
    )
    return function


def _exchange_api() -> Any:
    """The address of the functions by which C code reads PyTorch's tensors (DLPack 1.2).

    Raises LibraryError where this PyTorch has none.
    """
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        raise LibraryError(
            f"PyTorch {torch.__version__} has no DLPack exchange API; a later version does"
        )
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return get(capsule, b"dlpack_exchange_api")
