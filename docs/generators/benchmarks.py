"""Writes the pages of figures from the files in docs/measurements.

Run as `python -m docs.generators.benchmarks`. It writes docs/reference/benchmarks.md (the
newest measurement of each suite), docs/reference/benchmark-history.md (the older ones) and
the table in README.md. A test holds all three to the files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import fill

from benchmarks.measurement import Measurement, Table, Value, cell_text, read_all
from docs.generators.suites import PARTS, SUITES

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs/measurements"
PAGE, HISTORY = "docs/reference/benchmarks.md", "docs/reference/benchmark-history.md"
README_SUITE = "kernels-metaschedule"
BEGIN, END = "<!-- results -->", "<!-- end of results -->"
MEANS = "Geometric means"  # the title of the tables that the overview reads
OVERVIEW = ("kernels", "kernels-metaschedule", "kernels-two-threads")


def wrapped(text: str, indent: str = "") -> str:
    return fill(text, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def slug(title: str) -> str:
    """The anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def by_suite(measurements: dict[str, Measurement]) -> dict[str, list[str]]:
    """File names of each suite, newest first."""
    names: dict[str, list[str]] = {key: [] for key in SUITES}
    for name, measurement in measurements.items():
        names[measurement.suite].insert(0, name)
    return names


def shown(value: Value) -> str:
    return f"{value:,}" if isinstance(value, int) else cell_text(value)


def header(name: str, unit: str) -> str:
    return name if unit in ("", "ratio") else f"{name}, {unit}"


def markdown(columns: Iterable[str], rows: Iterable[Sequence[Value]]) -> str:
    """A table; columns after the first are right-aligned where they hold numbers."""
    names, cells = list(columns), [list(row) for row in rows]
    texts = [any(isinstance(row[i], str) for row in cells) for i in range(len(names))]
    lines = ["| " + " | ".join(names) + " |"]
    lines.append("|" + "|".join("---" if text else "---:" for text in texts) + "|")
    lines += ["| " + " | ".join(map(shown, row)) + " |" for row in cells]
    return "\n".join(lines)


def table_text(table: Table) -> str:
    columns = [header(name, unit) for name, unit in table.columns.items()]
    title = f"{wrapped(table.title)}:\n\n" if table.title else ""
    return title + markdown(columns, table.rows) + "\n"


def measured(name: str, measurement: Measurement) -> str:
    """Machine, date, command and conditions as a list, then the tables."""
    machine = measurement.machine
    facts = [
        f"Machine: {machine.cpu}; `{machine.target}`. {machine.about}".rstrip(),
        f"Date: {measurement.date}. Data: [{name}](../measurements/{name}).",
        f"Command: `{measurement.command}`",
    ]
    if measurement.commit:
        facts.insert(2, f"Commit: `{measurement.commit}`")
    facts += measurement.conditions
    listed = "\n".join(wrapped(f"- {fact}", "  ") for fact in facts)
    return "\n\n".join([listed, *(table_text(table).rstrip() for table in measurement.tables)])


def overview(measurements: dict[str, Measurement], names: dict[str, list[str]]) -> str:
    """The geometric means of the newest run on each machine."""
    rows: list[list[Value]] = []
    for suite in OVERVIEW:
        machines: set[str] = set()
        for name in names[suite]:
            measurement = measurements[name]
            means = [table for table in measurement.tables if table.title == MEANS]
            if means and measurement.machine.key not in machines:
                machines.add(measurement.machine.key)
                ratio = "MetaSchedule / kernel" if suite == "kernels-metaschedule" else None
                row = mean_cells(means[0], ratio)
                rows.append(
                    [SUITES[suite].title, measurement.machine.target, measurement.date, *row]
                )
    return markdown(
        ["suite", "machine", "date", "all", "compute-bound", "memory-bound", "smallest"], rows
    )


def mean_cells(table: Table, column: str | None) -> list[Value]:
    """The means of one column, by default the first, in the order of the overview."""
    place = list(table.columns).index(column) if column else 1
    cells: list[Value] = []
    for kind in ("all", "compute", "memory", "smallest"):
        matching = [row[place] for row in table.rows if str(row[0]).startswith(kind)]
        cells.append(matching[0] if matching else None)
    return cells


def page(measurements: dict[str, Measurement]) -> str:
    """The newest measurement of each suite."""
    names = by_suite(measurements)
    parts = [HEAD.format(overview=overview(measurements, names))]
    for part in PARTS:
        parts.append(f"## {part.title}\n" + (f"\n{wrapped(part.about)}\n" if part.about else ""))
        for key, suite in part.suites.items():
            newest, *older = names[key]
            text = f"### {suite.title}\n\n{wrapped(suite.about)}\n\n"
            text += measured(newest, measurements[newest]) + "\n"
            if older:
                runs = "Older run" if len(older) == 1 else f"{len(older)} older runs"
                text += f"\n{runs}: [history](benchmark-history.md#{slug(suite.title)}).\n"
            parts.append(text)
    return "\n".join(parts)


def history(measurements: dict[str, Measurement]) -> str:
    """The measurements that are not the newest of their suite."""
    parts = [HISTORY_HEAD]
    for key, names in by_suite(measurements).items():
        if names[1:]:
            parts.append(f"## {SUITES[key].title}\n")
        for name in names[1:]:
            measurement = measurements[name]
            title = name.removesuffix(".json").replace(f"-{key}", "")
            parts.append(f"### {title}\n\n{measured(name, measurement)}\n")
    return "\n".join(parts)


def readme_table(measurements: dict[str, Measurement]) -> str:
    """The table of the README, with its source, between the two markers."""
    name = by_suite(measurements)[README_SUITE][0]
    measurement = measurements[name]
    first, *rest = measurement.tables
    shown_columns = [
        "workload",
        "fastest library / kernel",
        "MetaSchedule / kernel",
        "MetaSchedule's tuning time / ours",
    ]
    places = [list(first.columns).index(column) for column in shown_columns]
    rows = [[row[place] for place in places] for row in first.rows]
    for table in rest:
        if table.title == MEANS:
            rows += [["**geometric mean**", *row[1:]] for row in table.rows if row[0] == "all 16"]
    caption = wrapped(
        f"{measurement.machine.cpu} (`{measurement.machine.target}`), {measurement.date}, one "
        f"thread, `{measurement.command}` ([data](docs/measurements/{name})):"
    )
    return f"{BEGIN}\n{caption}\n\n{markdown(shown_columns, rows)}\n{END}"


def with_results(readme: str, measurements: dict[str, Measurement]) -> str:
    """The README with the current table."""
    before, _, rest = readme.partition(BEGIN)
    return before + readme_table(measurements) + rest.partition(END)[2]


HEAD = """# Benchmarks

Figures of speed, each with its machine, date and command. `python -m docs.generators.benchmarks`
writes this page from the files in `docs/measurements`. Each section shows the newest measurement of
a suite; [older ones](benchmark-history.md) have a page of their own.

`CONTRIBUTING.md` says how to add a measurement.

## In short

Geometric means of the ratios, the newest run on each machine: the fastest library's time over the
kernel's, and for MetaSchedule its kernel's time over ours.

{overview}

## How kernels are measured

- Races are interleaved. Each round times every contestant once, in turn, in fresh processes pinned
  to the same cores. `tuner bench SPEC --against default,numpy` runs one.
- Times are medians, with a 95% confidence interval of the median.
- A ratio is the median over the rounds of (rival's time / kernel's time), so that one disturbed
  round decides nothing. The default schedule was raced when the kernel was promoted.
- A workload is *compute-bound* where sums of products take longest at the machine's limits. It is
  *memory-bound* where bytes or other vector instructions do.
- *Share*: of the multiply-add peak where compute-bound. Where memory-bound, of what the bandwidth
  measured at the working set and the number of instructions allow. It may exceed 100%.
- Limits are means of those measured just before a race and just after it, because clocks of shared
  machines drift.
- Tuning time is wall time from the call to the promoted kernel. MetaSchedule's is from its start to
  its last measurement. Both include loading.

A run may be stopped: each workload is a line of `FOLDER/results.jsonl` and is not run again.
`--again` runs it again, `--only NAME,…` takes a part of a suite, `--report` only writes the report.
With the defaults a workload takes at most two and a half minutes, and about two seconds for each of
MetaSchedule's trials.
"""

HISTORY_HEAD = """# Benchmark history

Measurements that a newer one of the same suite has replaced, newest first. The
[current figures](benchmarks.md) have a page of their own. `python -m docs.generators.benchmarks`
writes this page.
"""


def main() -> None:
    measurements = read_all(FOLDER)
    readme = (ROOT / "README.md").read_text("utf-8")
    for name, text in {
        PAGE: page(measurements),
        HISTORY: history(measurements),
        "README.md": with_results(readme, measurements),
    }.items():
        (ROOT / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
