"""PyTorch with CUDA that is PyTorch on a CPU, for programs beside the double of NVIDIA's driver.

Tensors "on the GPU" lie in the host's memory, as all memory of the double does, and the
driver's launches compute on them. Graphs run once when they are captured. No time means
anything: every event is a millisecond after the one before. Python imports this module
at its start from a folder on its path.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class OnTheHost(TorchFunctionMode):  # type: ignore[misc]  # PyTorch is Any to mypy
    """Makes tensors of the device in the host's memory."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        given = dict(kwargs or {})
        if given.get("device") == "cuda":
            given["device"] = "cpu"
            open_device()
        return func(*args, **given)


def open_device() -> None:
    """A context of the double, current in this thread."""
    driver, device, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
    for status in (
        driver.cuInit(0),
        driver.cuDeviceGet(ctypes.byref(device), 0),
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
        driver.cuCtxSetCurrent(context),
    ):
        assert status == 0


class Event:
    def __init__(self, enable_timing: bool) -> None: ...
    def record(self) -> None: ...
    def synchronize(self) -> None: ...
    def elapsed_time(self, other: Event) -> float:
        return 1.0


class Stream:
    cuda_stream = 0

    def wait_stream(self, other: Stream) -> None: ...


@contextmanager
def within(what: object) -> Iterator[None]:
    yield


def synchronize() -> None:
    assert ctypes.CDLL("libcuda.so.1").cuStreamSynchronize(ctypes.c_void_p(0)) == 0


PATCHES = {
    "is_available": lambda: True,
    "get_device_capability": lambda: (9, 0),
    "get_device_name": lambda: "double of a GPU",
    "current_stream": Stream,
    "synchronize": synchronize,
    "CUDAGraph": lambda: SimpleNamespace(replay=lambda: None),
    "graph": within,
    "Stream": Stream,
    "stream": within,
    "Event": Event,
}
for name, patch in PATCHES.items():
    setattr(torch.cuda, name, patch)
torch.compile = lambda call, **options: call
OnTheHost().__enter__()
