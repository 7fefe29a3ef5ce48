"""What a run of the kernel benchmark says: ratios to the fastest library, their means, a table and a picture. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import exp, log
from statistics import fmean
from typing import Any, Literal

from tuner.cli.svg import bars, document

METASCHEDULE = "metaschedule"
LIBRARIES = ("numpy", "torch")
Bound = Literal["compute", "memory"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One workload: everything its line in the log holds."""

    name: str
    spec: str
    bound: Bound  # what the roofline says limits it, from the limits measured in this run
    flops: int
    threads: int
    trials: int
    tuned_s: float  # wall time of tuning, promotion included
    peak_flops: float  # of the threads' cores, fused multiply-adds, measured in this run
    least_s: float  # the roofline's time
    median_s: Mapping[str, float]  # by contender: kernel, default, numpy, torch, metaschedule
    ci95_s: Mapping[str, tuple[float, float]]
    ratios: Mapping[str, float]  # contender's time over the kernel's, round by round
    absent: Mapping[str, str] = field(default_factory=dict)  # who could not take part, and why
    metaschedule_s: float | None = None  # wall time of its tuning
    failure: str | None = None  # why there is no kernel; the numbers are empty then
    machine: str = ""
    date: str = ""

    @property
    def library(self) -> str | None:
        """The fastest library."""
        raced = [name for name in LIBRARIES if name in self.ratios]
        return min(raced, key=self.ratios.__getitem__) if raced else None

    @property
    def ratio(self) -> float | None:
        """How many times faster than the fastest library."""
        return None if self.library is None else self.ratios[self.library]

    @property
    def peak_share(self) -> float | None:
        """Share of the multiply-add peak; None for what memory bounds."""
        if self.bound == "memory" or "kernel" not in self.median_s:
            return None
        return self.flops / self.median_s["kernel"] / self.peak_flops


def to_line(row: Row) -> dict[str, Any]:
    return {**asdict(row), "library": row.library, "ratio": row.ratio, "peak_share": row.peak_share}


def from_line(line: Mapping[str, Any]) -> Row:
    """Raises KeyError or TypeError for what is no line of a log."""
    derived = ("library", "ratio", "peak_share")
    fields = {name: value for name, value in line.items() if name not in derived}
    fields["ci95_s"] = {name: (low, high) for name, (low, high) in fields["ci95_s"].items()}
    return Row(**fields)


def geometric_mean(ratios: Iterable[float | None]) -> float | None:
    """Of the ratios there are; None without any."""
    found = [log(ratio) for ratio in ratios if ratio is not None]
    return exp(fmean(found)) if found else None


def markdown(rows: Sequence[Row]) -> str:
    """A table of the workloads, and the geometric means below it."""
    names = [name for name in ("kernel", "default", *LIBRARIES, METASCHEDULE) if any(name in row.median_s for row in rows)]
    columns = ["workload", "bound", *(f"{name}, ms" for name in names), "fastest library", "ratio", "of peak", "tuned, s"]
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        cells = [f"{row.name} `{row.spec}`", row.bound]
        cells += [f"{1e3 * row.median_s[name]:.4g}" if name in row.median_s else "" for name in names]
        share = "" if row.peak_share is None else f"{row.peak_share:.0%}"
        cells += [row.library or "", _number(row.ratio), share, f"{row.tuned_s:.0f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *_means(rows), *_notes(rows), ""])


def _means(rows: Sequence[Row]) -> list[str]:
    kinds: dict[str, Sequence[Row]] = {
        "all": rows,
        "compute-bound": [row for row in rows if row.bound == "compute"],
        "memory-bound": [row for row in rows if row.bound == "memory"],
    }
    said = [f"{kind} {_number(geometric_mean(row.ratio for row in chosen))}" for kind, chosen in kinds.items() if chosen]
    lines = ["Geometric mean of the speed over the fastest library: " + ", ".join(said) + "."]
    raced = [row for row in rows if METASCHEDULE in row.ratios]
    if raced:
        speed = geometric_mean(row.ratios[METASCHEDULE] for row in raced)
        time = geometric_mean(row.metaschedule_s / row.tuned_s for row in raced if row.metaschedule_s)
        lines.append(f"Over MetaSchedule: kernels {_number(speed)} times faster, tuned in 1/{_number(time)} of the time.")
    return ["  \n".join(lines)]


def _notes(rows: Sequence[Row]) -> list[str]:
    notes = [f"- {row.name}: no kernel: {row.failure}" for row in rows if row.failure]
    notes += [f"- {row.name}: {name} did not take part: {why}" for row in rows for name, why in row.absent.items()]
    peaks = sorted(row.peak_flops / 1e9 for row in rows)
    about = ", ".join(sorted({f"{row.machine}, {row.date}, {row.threads} thread(s)" for row in rows}))
    range_text = f"{peaks[0]:.1f} to {peaks[-1]:.1f}" if peaks else "unknown"
    return ["", f"{about}; multiply-add peak {range_text} GFLOP/s.", *([""] if notes else []), *notes]


def picture(rows: Sequence[Row]) -> str:
    """Bars of each rival's time over the kernel's, as SVG."""
    groups = {row.name: {name: ratio for name, ratio in row.ratios.items() if name in (*LIBRARIES, METASCHEDULE)} for row in rows}
    return document([bars("Time of a rival over the kernel's", groups, y="times as long", line=1.0)])


def _number(value: float | None) -> str:
    return "—" if value is None else f"{value:.2f}"
