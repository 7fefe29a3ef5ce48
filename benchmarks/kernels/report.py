"""The report of a kernel benchmark: ratios, their means, a table, a picture, a measurement.

A ratio is the median over the rounds of the race of (rival's time / kernel's time), so
that one disturbed round decides nothing. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from math import exp, log
from statistics import fmean
from typing import Any, Literal

from benchmarks.kernels.rival import METASCHEDULE
from benchmarks.measurement import Machine, Measurement, Table, Value
from tuner.cli.svg import bars, document
from tuner.measure.rivals.rivals import RIVALS as LIBRARIES

# How tables call the contenders.
TITLES = {
    "kernel": "kernel",
    "default": "default",
    "numpy": "NumPy",
    "scipy": "SciPy",
    "torch": "PyTorch",
    "onednn": "oneDNN packed",
    "mkl": "MKL",
    "taco": "taco",
    METASCHEDULE: "MetaSchedule",
}
Bound = Literal["compute", "memory"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One workload: everything its line in the log holds."""

    name: str
    spec: str
    bound: Bound  # what bounds it by the machine's limits, measured in this run
    flops: int  # that are needed
    threads: int
    trials: int  # of ours, at most
    tuned_s: float  # wall time of our tuning, promotion included
    peak_flops: float  # of the threads' cores, fused multiply-adds, measured in this run
    # What bytes, instructions and multiply-adds need at the limits measured in this run.
    allowed_s: float
    # By contender: kernel, default (of the promotion race), libraries, metaschedule.
    median_s: Mapping[str, float]
    ci95_s: Mapping[str, tuple[float, float]]
    ratios: Mapping[str, float]  # contender's time over the kernel's: median of the rounds
    # The same, round by round.
    rounds: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)  # who could not take part, and why
    metaschedule_trials: int = 0
    metaschedule_s: float | None = None  # wall time of its tuning
    verified: bool = False  # our kernel
    failure: str | None = None  # why there is no kernel; the numbers are empty then
    notation: str | None = None  # the program, where it is no operator's
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
    def over_metaschedule(self) -> float | None:
        return self.ratios.get(METASCHEDULE)

    @property
    def wall_ratio(self) -> float | None:
        """MetaSchedule's tuning time over ours."""
        return (
            None
            if self.metaschedule_s is None or not self.tuned_s
            else self.metaschedule_s / self.tuned_s
        )

    @property
    def share(self) -> float | None:
        """The share of the multiply-add peak where compute-bound.

        Where memory-bound, the share of what bandwidth and the number of instructions
        allow.
        """
        if "kernel" not in self.median_s:
            return None
        median_s = self.median_s["kernel"]
        return (
            self.flops / median_s / self.peak_flops
            if self.bound == "compute"
            else self.allowed_s / median_s
        )


DERIVED = ("library", "ratio", "over_metaschedule", "wall_ratio", "share")


def to_line(row: Row) -> dict[str, Any]:
    return {**asdict(row), **{name: getattr(row, name) for name in DERIVED}}


def from_line(line: Mapping[str, Any]) -> Row:
    """Raises KeyError or TypeError for what is no line of a log."""
    fields = {name: value for name, value in line.items() if name not in DERIVED}
    fields["ci95_s"] = {name: (low, high) for name, (low, high) in fields["ci95_s"].items()}
    fields["rounds"] = {name: tuple(values) for name, values in fields["rounds"].items()}
    return Row(**fields)


def geometric_mean(ratios: Iterable[float | None]) -> float | None:
    """The geometric mean of the ratios that are not None. None without any."""
    logarithms = [log(ratio) for ratio in ratios if ratio is not None]
    return exp(fmean(logarithms)) if logarithms else None


def markdown(rows: Sequence[Row]) -> str:
    """A table of the workloads, and the geometric means below it."""
    names = [
        name
        for name in ("kernel", "default", *LIBRARIES, METASCHEDULE)
        if any(name in row.median_s for row in rows)
    ]
    libraries = any(row.library for row in rows)
    rival = any(row.metaschedule_trials for row in rows)
    columns = ["workload", "bound", *(f"{name}, ms" for name in names)]
    columns += ["fastest library", "library / kernel"] if libraries else []
    columns += ["MetaSchedule / kernel", "its tuning / ours"] if rival else []
    columns += ["share", "tuned, s"]
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        cells = [row.name if row.notation else f"{row.name} `{row.spec}`", row.bound]
        cells += [
            f"{1e3 * row.median_s[name]:.4g}" if name in row.median_s else "" for name in names
        ]
        cells += [row.library or "", _number(row.ratio)] if libraries else []
        cells += [_number(row.over_metaschedule), _number(row.wall_ratio)] if rival else []
        cells += ["" if row.share is None else f"{row.share:.0%}", f"{row.tuned_s:.0f}"]
        lines.append("| " + " | ".join(cells) + " |")
    about = (
        "Share: of the multiply-add peak where compute-bound; where memory-bound, of what the "
        "bandwidth measured at the working set and the number of vector instructions allow."
    )
    return "\n".join([*lines, "", *_means(rows), "", about, *_notes(rows), ""])


# What geometric means are taken of.
MEASURES: Mapping[str, Callable[[Row], float | None]] = {
    "Fastest library / kernel": lambda row: row.ratio,
    "MetaSchedule / kernel": lambda row: row.over_metaschedule,
    "MetaSchedule's tuning time / ours": lambda row: row.wall_ratio,
}


def _means(rows: Sequence[Row]) -> list[str]:
    lines = []
    for label, measure in MEASURES.items():
        measured = [row for row in rows if measure(row) is not None]
        if not measured:
            continue
        kinds: dict[str, Sequence[Row]] = {"all": measured}
        kinds |= {
            f"{kind}-bound": [row for row in measured if row.bound == kind]
            for kind in ("compute", "memory")
        }
        means = {
            kind: geometric_mean(map(measure, chosen)) for kind, chosen in kinds.items() if chosen
        }
        said = [f"{kind} {_number(mean)} of {len(kinds[kind])}" for kind, mean in means.items()]
        worst = min(measured, key=lambda row: measure(row) or 0.0)
        lines.append(
            f"{label}, geometric mean: {', '.join(said)}; smallest {_number(measure(worst))} "
            f"({worst.name})."
        )
    lost = [row.name for row in rows if row.ratios.get("default", 1.0) < 1.0]
    bad = [row.name for row in rows if not row.verified]
    lines.append(
        f"Not verified: {', '.join(bad) or 'none'}. Slower than the default schedule: "
        f"{', '.join(lost) or 'none'}."
    )
    return ["  \n".join(lines)]


def _notes(rows: Sequence[Row]) -> list[str]:
    notes = [f"- {row.name}: no kernel: {row.failure}" for row in rows if row.failure]
    notes += [
        f"- {row.name}: {name} did not take part: {why}"
        for row in rows
        for name, why in row.absent.items()
    ]
    peaks = sorted(row.peak_flops / 1e9 for row in rows)
    about = "; ".join(sorted({_conditions(row) for row in rows}))
    range_text = f"{peaks[0]:.1f} to {peaks[-1]:.1f}" if peaks else "unknown"
    return [
        "",
        f"{about}; multiply-add peak {range_text} GFLOP/s.",
        *([""] if notes else []),
        *notes,
    ]


def _conditions(row: Row) -> str:
    rival = f", MetaSchedule {row.metaschedule_trials}" if row.metaschedule_trials else ""
    return f"{row.machine}, {row.date}, {row.threads} thread(s), at most {row.trials} trials{rival}"


def measurement(
    rows: Sequence[Row], *, suite: str, machine: Machine, commit: str | None, command: str
) -> Measurement:
    """The rows in the format of docs/measurements. Raises ValueError without rows."""
    if not rows:
        raise ValueError("nothing was measured")
    peaks = sorted(row.peak_flops / 1e9 for row in rows)
    conditions = [
        f"{rows[0].threads} thread(s), at most {rows[0].trials} trials.",
        f"Multiply-add peak {peaks[0]:.1f} to {peaks[-1]:.1f} GFLOP/s.",
    ]
    unverified = [row.name for row in rows if not row.verified]
    slower = [row.name for row in rows if row.ratios.get("default", 1.0) < 1.0]
    conditions.append(f"Not verified: {', '.join(unverified) or 'none'}.")
    conditions.append(f"Slower than the default schedule: {', '.join(slower) or 'none'}.")
    conditions += [f"{row.name}: no kernel: {row.failure}" for row in rows if row.failure]
    return Measurement(
        suite=suite,
        date=max(row.date for row in rows),
        machine=machine,
        commit=commit,
        command=command,
        conditions=conditions,
        tables=[_workloads_table(rows), _means_table(rows)],
    )


def _workloads_table(rows: Sequence[Row]) -> Table:
    """A row for each workload, without the columns that no row has."""
    cells: dict[str, tuple[str, list[Value]]] = {
        "workload": ("", [row.name for row in rows]),
        "bound": ("", [row.bound for row in rows]),
    }
    for name, title in TITLES.items():
        times = [row.median_s.get(name) for row in rows]
        cells[title] = ("ms", [None if time is None else significant(1e3 * time) for time in times])
    for label, measure in MEASURES.items():
        title = label[0].lower() + label[1:] if label.startswith("Fastest") else label
        cells[title] = ("ratio", [hundredths(measure(row)) for row in rows])
    libraries: list[Value] = [TITLES[row.library] if row.library else None for row in rows]
    cells["library"] = ("", libraries)
    shares: list[Value] = [None if row.share is None else round(100 * row.share) for row in rows]
    cells["share"] = ("%", shares)
    cells["tuned"] = ("s", [round(row.tuned_s) for row in rows])
    kept = {
        title: column for title, column in cells.items() if any(v is not None for v in column[1])
    }
    return Table(
        title="",
        columns={title: unit for title, (unit, _) in kept.items()},
        rows=[list(row) for row in zip(*(column for _, column in kept.values()), strict=True)],
    )


def _means_table(rows: Sequence[Row]) -> Table:
    """Geometric means over all rows and by bound, and the smallest ratios."""
    measures = {
        label[0].lower() + label[1:] if label.startswith("Fastest") else label: measure
        for label, measure in MEASURES.items()
        if any(measure(row) is not None for row in rows)
    }
    groups = {f"all {len(rows)}": list(rows)}
    for bound in ("compute", "memory"):
        members = [row for row in rows if row.bound == bound]
        if members:
            groups[f"{bound}-bound ({len(members)})"] = members
    lines: list[list[Value]] = [
        [title, *(hundredths(geometric_mean(map(measure, group))) for measure in measures.values())]
        for title, group in groups.items()
    ]
    smallest = [
        min((ratio for row in rows if (ratio := measure(row)) is not None), default=None)
        for measure in measures.values()
    ]
    lines.append(["smallest", *map(hundredths, smallest)])
    columns = {"of": "", **dict.fromkeys(measures, "ratio")}
    return Table(title="Geometric means", columns=columns, rows=lines)


def significant(value: float) -> Decimal:
    """Four significant digits, without an exponent."""
    rounded = Decimal(f"{value:#.4g}")
    exponent = rounded.as_tuple().exponent
    return rounded.quantize(Decimal(1)) if isinstance(exponent, int) and exponent > 0 else rounded


def hundredths(value: float | None) -> Decimal | None:
    return None if value is None else Decimal(f"{value:.2f}")


def picture(rows: Sequence[Row]) -> str:
    """Bars of each rival's time over the kernel's, as SVG."""
    groups = {
        row.name: {
            name: ratio for name, ratio in row.ratios.items() if name in (*LIBRARIES, METASCHEDULE)
        }
        for row in rows
    }
    charts = [bars("Time of a rival over the kernel's", groups, y="times as long", line=1.0)]
    walls = {row.name: {METASCHEDULE: row.wall_ratio} for row in rows if row.wall_ratio is not None}
    if walls:
        charts.append(
            bars("MetaSchedule's tuning time over ours", walls, y="times as long", line=1.0)
        )
    return document(charts)


def _number(value: float | None) -> str:
    return "—" if value is None else f"{value:.2f}"
