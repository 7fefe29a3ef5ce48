"""A machine with thousands of served kernels, on a virtual clock: what races would say.

Times are true ones disturbed as real ones are: by noise, by other work on the machine, by a
race in which a kernel's memory lay badly, by a machine that is slower as a whole from some
day on, by libraries that are upgraded. Some kernels lose for good, which is planted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np

from tuner.measure.regression import Contest, Kind, RaceRecord
from tuner.measure.statistics import Ratio

NOISE = 0.008  # of a race, as a part of the time
INTERVAL = 0.015  # half of an interval, likewise
DISTURBED, SHIFTED = 0.04, 0.02  # shares of races
UPGRADE_DAY, SLOW_MACHINE_DAY, LOSS_DAY = 60, 40, 50


@dataclass(kw_only=True)
class Served:
    """One kernel: its true time, and the libraries' times as multiples of it."""

    median_s: float
    libraries: Mapping[str, float]
    loss: Kind | None = None  # planted
    factor: float = 1.0  # by which it is lost


@dataclass(kw_only=True)
class Simulation:
    rng: np.random.Generator
    start: datetime
    kernels: dict[str, Served] = field(default_factory=dict)  # by id

    def plant(self, ids: list[str], each: int) -> set[tuple[str, str]]:
        """Gives every id a kernel, and `each` of every kind of loss; returns (kernel, kind)."""
        for kernel in ids:
            # Many are as fast as the library, some were always behind.
            ratios = {
                "numpy": float(self.rng.lognormal(0.7, 0.5)),
                "torch": float(self.rng.choice([1.0, self.rng.lognormal(0.3, 0.3)])),
                "default": float(self.rng.lognormal(1.5, 0.5)),
            }
            median_s = float(self.rng.lognormal(-10, 2))
            self.kernels[kernel] = Served(median_s=median_s, libraries=ratios)
        chosen = self.rng.choice(len(ids), size=3 * each, replace=False)
        kinds = [Kind.SLOWER, Kind.OVERTAKEN, Kind.FAILED]
        planted = set()
        for place, index in enumerate(chosen):
            served, kind = self.kernels[ids[index]], kinds[place % 3]
            served.loss = kind
            served.factor = float(self.rng.uniform(1.2, 2.0))
            # So that it is ahead by less than it will lose, or by more than it could.
            ahead = 1.02 if kind is Kind.OVERTAKEN else 3.0
            served.libraries = {**served.libraries, "torch": ahead}
            if kind is Kind.SLOWER:
                served.libraries = {name: 3.0 for name in served.libraries}
            planted.add((ids[index], str(kind)))
        return planted

    def libraries(self, now: datetime) -> dict[str, str]:
        torch = "2.14" if self._day(now) >= UPGRADE_DAY else "2.13"
        return {"numpy": "2.4", "torch": torch, "default": "0.25"}

    def race(self, kernel: str, now: datetime) -> RaceRecord | str:
        served, day = self.kernels[kernel], self._day(now)
        lost = served.loss if day >= LOSS_DAY else None
        if lost is Kind.FAILED:
            return "run_crash: signal 4"
        machine = 1.2 if day >= SLOW_MACHINE_DAY else 1.0
        own_s = served.median_s * machine * (served.factor if lost is Kind.SLOWER else 1.0)
        if self.rng.random() < SHIFTED:
            own_s *= 1.08
        busy = 1.5 if self.rng.random() < DISTURBED else 1.0
        own_s *= self._noise() * float(self.rng.uniform(1.0, busy))
        width = INTERVAL if busy == 1.0 else 0.2
        contests = []
        for name, multiple in served.libraries.items():
            other_s = served.median_s * machine * multiple * self._noise()
            if name == "torch" and day >= UPGRADE_DAY:
                other_s /= served.factor if served.loss is Kind.OVERTAKEN else 1.0
                # It became faster where it was far behind, too: no kernel lost by that.
                other_s /= 1.3 if multiple > 2.0 else 1.0
            ratio = other_s / own_s
            contests.append(
                Contest(
                    contender=name,
                    version=self.libraries(now)[name],
                    median_s=other_s,
                    ci95_s=_around(other_s, INTERVAL),
                    ratio=Ratio(value=ratio, ci95=_around(ratio, width)),
                )
            )
        return RaceRecord(median_s=own_s, ci95_s=_around(own_s, width), contests=tuple(contests))

    def _noise(self) -> float:
        return float(np.exp(self.rng.normal(0, NOISE)))

    def _day(self, now: datetime) -> int:
        return (now - self.start).days


def _around(value: float, part: float) -> tuple[float, float]:
    return value * (1 - part), value * (1 + part)
