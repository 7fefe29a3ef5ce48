"""NVIDIA's driver by ctypes: one device's memory, streams, events and graphs.

It needs no toolkit and no other package. Handles and addresses are integers. Every call
raises CudaError; after a sticky one the process can no longer use the device.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p
from functools import cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tuner.errors import TunerError

LIBRARY = "libcuda.so.1"
VISIBLE = "CUDA_VISIBLE_DEVICES"  # variable of the environment: the devices of a process
# The driver's numbers, from cuda.h; a test holds these and the prototypes to the toolkit's own.
OUT_OF_MEMORY = 2
# ECC, addresses, time, assertion, instruction, launch failures.
STICKY = frozenset({214, 700, 702, 710, 714, 715, 716, 717, 718, 719})
ATTRIBUTES = {
    "max_threads_per_block": 1, "max_shared_memory_per_block": 8, "warp_size": 10,
    "registers_per_block": 12, "clock_khz": 13, "multiprocessors": 16, "memory_clock_khz": 36,
    "memory_bus_bits": 37, "l2_bytes": 38, "capability_major": 75, "capability_minor": 76,
    "shared_bytes_per_multiprocessor": 81, "registers_per_multiprocessor": 82,
    "max_dynamic_shared_memory_per_block": 97,
}  # fmt: skip
# Name in the library -> argument types; all return an int.
PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetPCIBusId": (c_char_p, c_int, c_int),
    "cuDeviceTotalMem_v2": (POINTER(c_size_t), c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), c_int),
    "cuCtxSetCurrent": (c_void_p,),
    "cuMemAlloc_v2": (POINTER(c_uint64), c_size_t),
    "cuMemFree_v2": (c_uint64,),
    "cuMemcpyHtoDAsync_v2": (c_uint64, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoH_v2": (c_void_p, c_uint64, c_size_t),
    "cuMemsetD8Async": (c_uint64, c_ubyte, c_size_t, c_void_p),
    "cuStreamCreate": (POINTER(c_void_p), c_uint),
    "cuStreamSynchronize": (c_void_p,),
    "cuStreamBeginCapture_v2": (c_void_p, c_int),
    "cuStreamEndCapture": (c_void_p, POINTER(c_void_p)),
    "cuGraphInstantiateWithFlags": (POINTER(c_void_p), c_void_p, ctypes.c_ulonglong),
    "cuGraphUpload": (c_void_p, c_void_p),
    "cuGraphLaunch": (c_void_p, c_void_p),
    "cuGraphExecDestroy": (c_void_p,),
    "cuGraphDestroy": (c_void_p,),
    "cuEventCreate": (POINTER(c_void_p), c_uint),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventSynchronize": (c_void_p,),
    "cuEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "cuModuleLoadData": (POINTER(c_void_p), c_void_p),
    "cuModuleGetFunction": (POINTER(c_void_p), c_void_p, c_char_p),
    "cuFuncSetAttribute": (c_void_p, c_int, c_int),
    "cuLaunchKernel": (c_void_p, *(c_uint,) * 7, c_void_p, POINTER(c_void_p), POINTER(c_void_p)),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
}
# Those that drivers before CUDA 12.4 lack.
LATER_PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "cuFuncGetParamInfo": (c_void_p, c_size_t, POINTER(c_size_t), POINTER(c_size_t)),
}
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
_PAGEABLE_MEMORY_ACCESS = 88  # CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS
_CAPTURE_THREAD_LOCAL = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL


class NoDriver(TunerError):
    """This machine has no NVIDIA driver, or no device that it can use."""

    code = "no_gpu"


class CudaError(TunerError):
    """The driver reported an error.

    After a `sticky` one the process must end before the device works again.
    """

    code = "cuda"

    def __init__(self, function: str, number: int, name: str, text: str) -> None:
        super().__init__(f"{function}: {name} ({text})")
        self.number = number

    @property
    def sticky(self) -> bool:
        return self.number in STICKY

    @property
    def out_of_memory(self) -> bool:
        return self.number == OUT_OF_MEMORY


@cache
def _library() -> ctypes.CDLL:
    """The loaded and initialised driver. Raises NoDriver."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise NoDriver(f"this machine has no NVIDIA driver: {error}") from error
    for name, arguments in (*PROTOTYPES.items(), *LATER_PROTOTYPES.items()):
        function = getattr(library, name, None)
        if function is None:
            if name in LATER_PROTOTYPES:
                continue
            raise NoDriver(f"this machine's NVIDIA driver is too old: it has no {name}")
        function.argtypes, function.restype = arguments, c_int
    status = library.cuInit(0)
    if status != 0:
        raise NoDriver(
            f"this machine's NVIDIA driver finds no device it can use: "
            f"{_error_text(library, status)[0]}"
        )
    return library


def _error_text(library: ctypes.CDLL, number: int) -> tuple[str, str]:
    name, text = c_char_p(), c_char_p()
    library.cuGetErrorName(number, ctypes.byref(name))
    library.cuGetErrorString(number, ctypes.byref(text))
    return (name.value or b"unknown error").decode(), (text.value or b"no text").decode()


def call(name: str, *arguments: Any) -> None:
    """Call a function of the driver. Raises CudaError or NoDriver."""
    library = _library()
    function = getattr(library, name, None)
    if function is None:
        raise NoDriver(f"this machine's NVIDIA driver is too old: it has no {name}")
    number = function(*arguments)
    if number != 0:
        raise CudaError(name, number, *_error_text(library, number))


def device_count() -> int:
    """How many devices this process may use. Raises NoDriver."""
    count = c_int()
    call("cuDeviceGetCount", ctypes.byref(count))
    return count.value


def device_facts(ordinal: int) -> dict[str, int | str]:
    """Name, memory, place on the bus, and ATTRIBUTES of a device. Makes no context.

    Raises NoDriver where there is none of this number.
    """
    count = device_count()
    if not 0 <= ordinal < count:
        raise NoDriver(f"there is no GPU {ordinal}; this process may use {count}, numbered from 0")
    device, total = c_int(), c_size_t()
    name, bus = ctypes.create_string_buffer(256), ctypes.create_string_buffer(32)
    call("cuDeviceGet", ctypes.byref(device), ordinal)
    call("cuDeviceGetName", name, len(name), device)
    call("cuDeviceGetPCIBusId", bus, len(bus), device)
    call("cuDeviceTotalMem_v2", ctypes.byref(total), device)
    facts: dict[str, int | str] = {
        "name": name.value.decode(errors="replace"),
        "memory_bytes": total.value,
    }
    # NVML identifies devices by it, as its numbers are in another order.
    facts["pci"] = bus.value.decode()
    for attribute, number in ATTRIBUTES.items():
        facts[attribute] = _attribute(number, device)
    return facts


def reaches_host_memory(ordinal: int) -> bool:
    """Whether kernels of a device can use all memory of its process (HMM, ATS), by address."""
    device = c_int()
    call("cuDeviceGet", ctypes.byref(device), ordinal)
    return _attribute(_PAGEABLE_MEMORY_ACCESS, device) != 0


def _attribute(number: int, device: c_int) -> int:
    value = c_int()
    call("cuDeviceGetAttribute", ctypes.byref(value), number, device)
    return value.value


class Device:
    """A device in this process: its primary context, one stream, two events."""

    def __init__(self, ordinal: int = 0) -> None:
        device, context = c_int(), c_void_p()
        call("cuDeviceGet", ctypes.byref(device), ordinal)
        call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        call("cuCtxSetCurrent", context)
        self.ordinal = ordinal
        stream = c_void_p()
        call("cuStreamCreate", ctypes.byref(stream), _NON_BLOCKING)
        self.stream = int(stream.value or 0)
        self._events = tuple(self._event() for _ in range(2))

    def _event(self) -> int:
        event = c_void_p()
        call("cuEventCreate", ctypes.byref(event), 0)
        return int(event.value or 0)

    def allocate(self, nbytes: int) -> int:
        """An address aligned to 256 bytes."""
        address = c_uint64()
        call("cuMemAlloc_v2", ctypes.byref(address), max(nbytes, 1))
        return address.value

    def free(self, address: int) -> None:
        call("cuMemFree_v2", address)

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        """Set bytes, in the stream's order."""
        if nbytes:
            call("cuMemsetD8Async", address, byte, nbytes, self.stream)

    def upload(self, address: int, array: NDArray[Any]) -> None:
        """Copy a row-major array to the device, in the stream's order. Waits for it.

        cuMemcpyHtoD would return before bytes of ordinary memory are on the device, in
        the order of another stream.
        """
        dense = np.ascontiguousarray(array)
        if dense.nbytes:
            call(
                "cuMemcpyHtoDAsync_v2",
                address,
                dense.ctypes.data_as(c_void_p),
                dense.nbytes,
                self.stream,
            )
        self.wait()

    def download(self, address: int, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """A copy of what is there once the stream is done."""
        self.wait()
        array = np.empty(shape, dtype)
        if prod(shape):
            call("cuMemcpyDtoH_v2", array.ctypes.data_as(c_void_p), address, array.nbytes)
        return array

    def wait(self) -> None:
        call("cuStreamSynchronize", self.stream)

    def seconds(
        self, work: Callable[[], None], meanwhile: Callable[[], None] = lambda: None
    ) -> float:
        """Seconds between two events around what `work` puts on the stream.

        `meanwhile` is called while the device works.
        """
        start, stop = self._events
        call("cuEventRecord", start, self.stream)
        work()
        call("cuEventRecord", stop, self.stream)
        meanwhile()
        call("cuEventSynchronize", stop)
        elapsed = c_float()
        call("cuEventElapsedTime", ctypes.byref(elapsed), start, stop)
        return elapsed.value / 1e3

    def captured(self, work: Callable[[], None], times: int) -> Graph:
        """`work`, put on the stream `times` times, as one graph to launch.

        So the device never waits for the processor.
        """
        graph = c_void_p()
        call("cuStreamBeginCapture_v2", self.stream, _CAPTURE_THREAD_LOCAL)
        try:
            for _ in range(times):
                work()
        finally:
            call("cuStreamEndCapture", self.stream, ctypes.byref(graph))
        return Graph(graph, self.stream)


class Graph:
    """A graph, launched on the stream that it was captured on. Whoever makes it closes it."""

    def __init__(self, graph: c_void_p, stream: int) -> None:
        self._stream, self._executable = stream, c_void_p()
        try:
            call("cuGraphInstantiateWithFlags", ctypes.byref(self._executable), graph, 0)
        finally:
            call("cuGraphDestroy", graph)

    def upload(self) -> None:
        """Put on the stream what its first launch would do besides."""
        call("cuGraphUpload", self._executable, self._stream)

    def launch(self) -> None:
        call("cuGraphLaunch", self._executable, self._stream)

    def close(self) -> None:
        call("cuGraphExecDestroy", self._executable)


class Clock:
    """Seconds of one call of `work` by CUDA events: a `tuner.measure.timing.Clock`."""

    def __init__(
        self,
        device: Device,
        work: Callable[[], None],
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """`meanwhile` is called once in each sample, while the device works."""
        self._device, self._work, self._meanwhile = device, work, meanwhile

    def __call__(self, number: int, repeat: int) -> Sequence[float]:
        if number == 1:
            return [self._device.seconds(self._work, self._meanwhile) for _ in range(repeat)]
        graph = self._device.captured(self._work, number)
        try:
            graph.launch()  # the first launch of a graph also uploads it
            self._device.wait()
            return [
                self._device.seconds(graph.launch, self._meanwhile) / number for _ in range(repeat)
            ]
        finally:
            graph.close()
