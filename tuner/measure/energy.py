"""Energy that the machine's processors took, by RAPL's counters as Linux shows them.

A package's counter counts microjoules of all its cores, caches and memory controller, and
begins again at its range: Documentation/power/powercap/powercap.rst of the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import UsageError

POWERCAP = Path("/sys/class/powercap")
PACKAGE = "package-"  # what names of packages begin with; their parts are counted in them
MICRO = 1e-6


class NoEnergyCounters(UsageError):
    """The machine does not say what it takes, or not to this user."""

    code = "no_energy_counters"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """One package's counter."""

    path: Path  # of the number
    range_uj: int  # after which it begins again

    def read(self) -> int:
        return int(self.path.read_text(encoding="ascii"))

    def joules(self, before: int, after: int) -> float:
        """Between two readings, less than a range apart: at 100 W that is most of an hour."""
        return (after - before) % (self.range_uj + 1) * MICRO


def package_counters(powercap: Path = POWERCAP) -> tuple[Counter, ...]:
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
            counter = Counter(path=zone / "energy_uj", range_uj=limit)
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
