"""NVIDIA's management library by ctypes: what a device's clocks are and what holds them down.

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
            sm_mhz=self.number("nvmlDeviceGetClockInfo", SM),
            memory_mhz=self.number("nvmlDeviceGetClockInfo", MEMORY),
            reasons=self._reasons(),
        )

    def number(self, function: str, *arguments: int) -> int:
        """What a function of the device says; 0 where it says nothing."""
        value = ctypes.c_uint()
        given = (self._handle, *map(ctypes.c_uint, arguments), ctypes.byref(value))
        return value.value if self._call(function, *given) else 0

    def text(self, function: str) -> str:
        """A text of the device; empty where there is none."""
        return self._text(function, self._handle)

    def driver(self) -> str:
        """The driver's version, e.g. "580.82"."""
        return self._text("nvmlSystemGetDriverVersion")

    def _text(self, function: str, *arguments: object) -> str:
        buffer = ctypes.create_string_buffer(_TEXT_BYTES)
        answered = self._call(function, *arguments, buffer, ctypes.c_uint(len(buffer)))
        return buffer.value.decode(errors="replace") if answered else ""

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
