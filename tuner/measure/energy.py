"""Energy that the machine's processors took: RAPL's counters of CPUs, NVML's of GPUs.

A package's counter counts microjoules of all its cores, caches and memory controller, and
begins again at its range: Documentation/power/powercap/powercap.rst of the kernel. A GPU's
counts millijoules of the whole board: nvmlDeviceGetTotalEnergyConsumption of nvml.h.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tuner.errors import UsageError
from tuner.runtime.nvml import ManagedDevice

POWERCAP = Path("/sys/class/powercap")
PACKAGE = "package-"  # what names of packages begin with; their parts are counted in them
MICRO, MILLI = 1e-6, 1e-3


class NoEnergyCounters(UsageError):
    """The machine does not say what it takes, or not to this user."""

    code = "no_energy_counters"


class Counter(Protocol):
    """What counts the energy of one processor."""

    def read(self) -> int: ...

    def joules(self, before: int, after: int) -> float:
        """Between two readings."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageCounter:
    """One package's counter."""

    path: Path  # of the number
    range_uj: int  # after which it begins again

    def read(self) -> int:
        return int(self.path.read_text(encoding="ascii"))

    def joules(self, before: int, after: int) -> float:
        """Between two readings, less than a range apart: at 100 W that is most of an hour."""
        return (after - before) % (self.range_uj + 1) * MICRO


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardCounter:
    """A GPU's counter. It does not begin again until the driver is loaded anew."""

    pci: str  # the GPU's place on the bus

    def read(self) -> int:
        """Raises NoEnergyCounters where NVML does not tell."""
        device = ManagedDevice(self.pci)
        try:
            millijoules = device.energy_mj()
        finally:
            device.close()
        if millijoules is None:
            raise NoEnergyCounters(
                f"energy of a GPU is read from NVML's counter, and NVML has none of {self.pci}: "
                f"the driver's libnvidia-ml.so.1 is missing, the GPU is a slice, or it is older "
                f"than Volta; choose another objective"
            )
        return millijoules

    def joules(self, before: int, after: int) -> float:
        return (after - before) * MILLI


def board_counter(pci: str) -> BoardCounter:
    """The counter of the GPU at a place on the bus. Raises NoEnergyCounters."""
    counter = BoardCounter(pci=pci)
    counter.read()
    return counter


def package_counters(powercap: Path = POWERCAP) -> tuple[PackageCounter, ...]:
    """The counters of this machine's packages. Raises NoEnergyCounters, naming what is missing."""
    zones = [zone for zone in sorted(powercap.glob("*")) if _name(zone).startswith(PACKAGE)]
    if not zones:
        raise NoEnergyCounters(
            f"energy is read from RAPL's counters, and {powercap} has no zone {PACKAGE}0: the "
            f"processor has none, or a virtual machine hides them; choose another objective"
        )
    counters = []
    for zone in zones:
        try:
            limit = int((zone / "max_energy_range_uj").read_text(encoding="ascii"))
            counter = PackageCounter(path=zone / "energy_uj", range_uj=limit)
            counter.read()
        except (OSError, ValueError) as error:
            raise NoEnergyCounters(
                f"energy is read from RAPL's counters, and {zone / 'energy_uj'} cannot be read "
                f"({error}); run as root, or let this user read it"
            ) from error
        counters.append(counter)
    return tuple(counters)


def readings(counters: Sequence[Counter]) -> list[int]:
    return [counter.read() for counter in counters]


def joules_between(
    counters: Sequence[Counter], before: Sequence[int], after: Sequence[int]
) -> float:
    """Of all packages."""
    return sum(
        counter.joules(*pair)
        for counter, pair in zip(counters, zip(before, after, strict=True), strict=True)
    )


def _name(zone: Path) -> str:
    try:
        return (zone / "name").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
