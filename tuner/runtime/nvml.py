"""NVIDIA's management library by ctypes: a device's clocks, what holds them down, its energy.

It needs the driver only. Where the library, the device or a function is missing, nothing
is known; nothing raises.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

LIBRARY = "libnvidia-ml.so.1"
SM, MEMORY = 1, 2  # nvmlClockType_t
_TEXT_BYTES = 96  # NVML_DEVICE_UUID_V2_BUFFER_SIZE, its longest text here


class ThrottleReason(StrEnum):
    """Why clocks are lower than they could be, as far as it says anything of a sample."""

    POWER_CAP = "power_cap"  # the board draws what it may
    HARDWARE = "hardware"  # temperature or power, by the chip itself
    THERMAL = "thermal"  # temperature, by the driver
    HARDWARE_THERMAL = "hardware_thermal"
    POWER_BRAKE = "power_brake"  # asked for from outside the board
    SYNC_BOOST = "sync_boost"  # clocks are those of a slower GPU of the group


# nvmlClocksEventReason*, from nvml.h. Idle and what an administrator set are no throttling.
REASONS = {
    0x04: ThrottleReason.POWER_CAP,
    0x08: ThrottleReason.HARDWARE,
    0x10: ThrottleReason.SYNC_BOOST,
    0x20: ThrottleReason.THERMAL,
    0x40: ThrottleReason.HARDWARE_THERMAL,
    0x80: ThrottleReason.POWER_BRAKE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockReading:
    """A device's clocks at a moment; 0 and nothing where they are not told."""

    sm_mhz: int = 0
    memory_mhz: int = 0
    reasons: frozenset[ThrottleReason] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A GPU, or a slice of one that is partitioned (MIG)."""

    gpu: int  # NVML's number
    slice: int | None  # within the GPU; None: the whole GPU
    uuid: str  # what CUDA_VISIBLE_DEVICES takes


def partitions() -> tuple[Partition, ...]:
    """Whole GPUs, and in the place of a partitioned one its slices; none without NVML."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        return ()
    if library.nvmlInit_v2() != 0:
        return ()
    try:
        count = _asked(library, "nvmlDeviceGetCount_v2")
        return tuple(part for gpu in range(count) for part in _parts(library, gpu))
    finally:
        library.nvmlShutdown()


def _parts(library: ctypes.CDLL, gpu: int) -> list[Partition]:
    device = ctypes.c_void_p()
    if library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(gpu), ctypes.byref(device)) != 0:
        return []
    pending = ctypes.c_uint()  # the mode after a restart
    if not _asked(library, "nvmlDeviceGetMigMode", device, after=(ctypes.byref(pending),)):
        uuid = _uuid(library, device)
        return [Partition(gpu=gpu, slice=None, uuid=uuid)] if uuid else []
    parts = []
    for number in range(_asked(library, "nvmlDeviceGetMaxMigDeviceCount", device)):
        handle = ctypes.c_void_p()
        status = library.nvmlDeviceGetMigDeviceHandleByIndex(
            device, ctypes.c_uint(number), ctypes.byref(handle)
        )
        if status == 0 and (uuid := _uuid(library, handle)):
            parts.append(Partition(gpu=gpu, slice=number, uuid=uuid))
    return parts


def _asked(
    library: ctypes.CDLL, name: str, *arguments: object, after: tuple[object, ...] = ()
) -> int:
    """A number that a function gives; 0 where there is no such function, or it refuses."""
    value = ctypes.c_uint()
    function = getattr(library, name, None)
    if function is None or function(*arguments, ctypes.byref(value), *after) != 0:
        return 0
    return value.value


def _uuid(library: ctypes.CDLL, device: ctypes.c_void_p) -> str:
    buffer = ctypes.create_string_buffer(_TEXT_BYTES)
    status = library.nvmlDeviceGetUUID(device, buffer, ctypes.c_uint(len(buffer)))
    return buffer.value.decode(errors="replace") if status == 0 else ""


class ManagedDevice:
    """A device as NVML sees it, by its place on the bus. Close it."""

    def __init__(self, pci: str) -> None:
        self._library: ctypes.CDLL | None = None
        self._handle = ctypes.c_void_p()
        try:
            library = ctypes.CDLL(LIBRARY)
        except OSError:
            return
        if library.nvmlInit_v2() != 0:
            return
        self._library = library
        status = library.nvmlDeviceGetHandleByPciBusId_v2(
            ctypes.c_char_p(pci.encode()), ctypes.byref(self._handle)
        )
        if status != 0:
            self.close()

    def clocks(self) -> ClockReading:
        """The clocks now, and what holds them down."""
        return ClockReading(
            sm_mhz=self._clock_mhz(SM),
            memory_mhz=self._clock_mhz(MEMORY),
            reasons=self._reasons(),
        )

    def energy_mj(self) -> int | None:
        """Millijoules since the driver was loaded, of the whole board.

        None before Volta, of slices, and where there is no NVML.
        """
        value = ctypes.c_ulonglong()
        function = "nvmlDeviceGetTotalEnergyConsumption"
        return value.value if self._call(function, self._handle, ctypes.byref(value)) else None

    def driver(self) -> str:
        """The driver's version, e.g. "580.82"; empty where NVML does not say."""
        buffer = ctypes.create_string_buffer(_TEXT_BYTES)
        function = "nvmlSystemGetDriverVersion"
        answered = self._call(function, buffer, ctypes.c_uint(len(buffer)))
        return buffer.value.decode(errors="replace") if answered else ""

    def _clock_mhz(self, domain: int) -> int:
        """0 where NVML does not say."""
        value = ctypes.c_uint()
        given = (self._handle, ctypes.c_uint(domain), ctypes.byref(value))
        return value.value if self._call("nvmlDeviceGetClockInfo", *given) else 0

    def _reasons(self) -> frozenset[ThrottleReason]:
        mask = ctypes.c_ulonglong()
        function = "nvmlDeviceGetCurrentClocksThrottleReasons"
        if not self._call(function, self._handle, ctypes.byref(mask)):
            return frozenset()
        return frozenset(reason for bit, reason in REASONS.items() if mask.value & bit)

    def _call(self, name: str, *arguments: object) -> bool:
        function: Callable[..., int] | None = getattr(self._library, name, None)
        return function is not None and function(*arguments) == 0

    def close(self) -> None:
        library, self._library = self._library, None
        if library is not None:
            library.nvmlShutdown()
