"""Candidates of the folder, launched by NVIDIA's driver beside PyTorch."""

from __future__ import annotations

import ctypes
import itertools
import json
import logging
import os
import struct
from collections.abc import Callable, Mapping
from operator import mul
from typing import Any

MAGIC = b"tuner-cuda-1\n"
MAX_DYNAMIC_SHARED_SIZE_BYTES = 8  # of CUfunction_attribute
TENSOR_MAP_BYTES = 128  # of a CUtensorMap, and its alignment
# CUtensorMapDataType, by PyTorch's names.
TENSOR_MAP_TYPES = {
    "torch.int8": 0, "torch.uint8": 0, "torch.int32": 3, "torch.float16": 6, "torch.float32": 7,
    "torch.bfloat16": 9,
}  # fmt: skip
TF32_MAP_TYPE = 11


class Refused(Exception):
    """Why nothing can be timed here, in one line."""


def load_torch() -> Any:
    quiet()
    try:
        import torch  # noqa: PLC0415  (its absence is a refusal in one line, not a traceback)
    except ImportError as error:
        raise Refused(
            "PyTorch is not installed; install a CUDA build of it, and run this again"
        ) from error
    if not torch.cuda.is_available():
        raise Refused(
            "PyTorch finds no GPU (torch.cuda.is_available() is false); carry this folder to a "
            "machine with one"
        )
    return torch


def quiet() -> None:
    """Silence PyTorch's compiler before it is imported.

    It logs all that it tries. Errors of it are reported here in one line.
    """
    os.environ |= {
        "TRITON_PRINT_AUTOTUNING": "0",
        "TORCHINDUCTOR_MAX_AUTOTUNE_REPORT_CHOICES_STATS": "0",
    }
    # PyTorch sets the levels of its loggers itself, and logs each kernel that does not fit.
    logging.disable(logging.CRITICAL)


def read_module(data: bytes) -> tuple[dict[str, Any], list[tuple[str, bytes]]]:
    """Head and cubins of a packed module."""
    if not data.startswith(MAGIC):
        raise Refused("a candidate's file is damaged; build the folder again")
    start = len(MAGIC) + 4
    (length,) = struct.unpack("<I", data[len(MAGIC) : start])
    head = json.loads(data[start : start + length])
    offset, cubins = start + length, []
    for arch, size in head["cubins"]:
        cubins.append((arch, data[offset : offset + size]))
        offset += size
    return head, cubins


class Kernel:
    """A candidate: its device functions launched one after another on PyTorch's current stream."""

    def __init__(self, torch: Any, driver: Any, data: bytes) -> None:
        self._torch, self._driver = torch, driver
        self.head, ((_, code),) = read_module(data)
        module = ctypes.c_void_p()
        checked(driver, driver.cuModuleLoadData(ctypes.byref(module), code))
        self._launches = []
        for launch in self.head["launches"]:
            function = ctypes.c_void_p()
            checked(
                driver,
                driver.cuModuleGetFunction(
                    ctypes.byref(function), module, launch["kernel"].encode()
                ),
            )
            if launch["shared_bytes"] > 0:
                checked(
                    driver,
                    driver.cuFuncSetAttribute(
                        function, MAX_DYNAMIC_SHARED_SIZE_BYTES, launch["shared_bytes"]
                    ),
                )
            self._launches.append((function, launch))

    def launches(self, inputs: list[Any], outputs: list[Any]) -> list[tuple[Any, ...]]:
        """Of a call on these tensors: functions, their grids, blocks and bytes, addresses of
        their parameters, and what must live as long. Each has a workspace of its own."""
        named = {
            tensor["name"]: self._torch.empty(
                tensor["shape"], dtype=getattr(self._torch, tensor["dtype"]), device="cuda"
            )
            for tensor in self.head["workspace"]
        }
        named |= {
            entry["name"]: tensor for entry, tensor in zip(self.head["inputs"], inputs, strict=True)
        }
        named |= {
            entry["name"]: tensor
            for entry, tensor in zip(self.head["outputs"], outputs, strict=True)
        }
        ready = []
        for function, launch in self._launches:
            addresses = [ctypes.c_void_p(named[name].data_ptr()) for name in launch["arguments"]]
            maps = [
                tensor_map(self._driver, named[each["buffer"]], each)
                for each in launch.get("maps", ())
            ]
            pointers = (ctypes.c_void_p * (len(maps) + len(addresses)))(
                *(aligned(room) for room in maps),
                *(ctypes.addressof(entry) for entry in addresses),
            )
            ready.append(
                (
                    function,
                    (*launch["grid"], *launch["block"], launch["shared_bytes"]),
                    pointers,
                    (addresses, maps, named),
                )
            )
        return ready

    def bind(self, inputs: list[Any], outputs: list[Any]) -> Callable[[], None]:
        """A call on these tensors."""
        ready = self.launches(inputs, outputs)

        def call() -> None:
            stream = ctypes.c_void_p(self._torch.cuda.current_stream().cuda_stream)
            for function, sizes, pointers, _ in ready:
                checked(
                    self._driver,
                    self._driver.cuLaunchKernel(
                        function, *map(ctypes.c_uint, sizes), stream, pointers, None
                    ),
                )

        return call


def aligned(room: Any) -> int:
    """Where a tensor map lies in the room for it."""
    return -(-ctypes.addressof(room) // TENSOR_MAP_BYTES) * TENSOR_MAP_BYTES


def tensor_map(driver: Any, tensor: Any, described: Mapping[str, Any]) -> Any:
    """What the copy engine knows of a tensor: twice the bytes of a map, for its alignment.

    128-byte swizzle, as `tuner/runtime/src/tuner_cuda.c` has it.
    """
    shape = described["shape"][::-1]
    steps = described.get("steps", [1] * len(shape))[::-1]
    box = [side * step for side, step in zip(described["box"][::-1], steps, strict=True)]
    strides = [tensor.element_size() * step for step in itertools.accumulate(shape[:-1], mul)]
    rank, room = len(shape), (ctypes.c_ubyte * (2 * TENSOR_MAP_BYTES))()
    checked(
        driver,
        driver.cuTensorMapEncodeTiled(
            ctypes.c_void_p(aligned(room)),
            TF32_MAP_TYPE if described.get("rounded") else TENSOR_MAP_TYPES[str(tensor.dtype)],
            ctypes.c_uint(rank),
            ctypes.c_void_p(tensor.data_ptr()),
            (ctypes.c_uint64 * rank)(*shape),
            (ctypes.c_uint64 * rank)(*strides),
            (ctypes.c_uint32 * rank)(*box),
            (ctypes.c_uint32 * rank)(*steps),
            *(0, 3, 2, 0),
        ),
    )
    return room


def checked(driver: Any, status: int) -> None:
    if status != 0:
        name = ctypes.c_char_p()
        driver.cuGetErrorName(status, ctypes.byref(name))
        raise RuntimeError(f"the driver says {(name.value or b'unknown').decode()}")
