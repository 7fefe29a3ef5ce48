"""The log of a benchmark: a line of JSON a workload, so that a stopped run goes on;
table and picture come from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.kernels.contest import Case
from benchmarks.kernels.report import Row, from_line, markdown, picture, to_line


class Log:
    """`results.jsonl` of a folder, with `results.md` and `results.svg` made of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "results.jsonl"

    def rows(self) -> dict[str, Row]:
        """By name; of a workload that was run twice the later line."""
        if not self.path.exists():
            return {}
        found = (from_line(json.loads(line)) for line in self.path.read_text().splitlines())
        return {row.name: row for row in found}

    def append(self, row: Row) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(to_line(row)) + "\n")

    def report(self, order: Sequence[str] = ()) -> str:
        """Writes table and picture of all lines there are, those named in `order`
        first; gives the table."""
        rows = self.rows()
        first = [name for name in order if name in rows]
        chosen = [rows[name] for name in dict.fromkeys([*first, *rows])]
        text = markdown(chosen)
        (self.folder / "results.md").write_text(text)
        (self.folder / "results.svg").write_text(picture(chosen))
        return text


def run(
    cases: Sequence[Case], log: Log, contest: Callable[[Case], Row], *, again: bool = False
) -> None:
    """Runs what the log lacks, all of it with `again`, writing after each workload."""
    known = {} if again else log.rows()
    for case in cases:
        if case.name in known:
            print(f"{case.name}: in {log.path} already", flush=True)
            continue
        print(f"{case.name}: {case.workload.notation or case.workload.spec}", flush=True)
        row = contest(case)
        log.append(row)
        ratios = ", ".join(f"{name} {ratio:.2f}" for name, ratio in row.ratios.items())
        said = [f"tuned in {row.tuned_s:.0f} s", f"time over the kernel's: {ratios or row.failure}"]
        said += [] if row.share is None else [f"share {row.share:.0%} ({row.bound})"]
        said += (
            []
            if row.wall_ratio is None
            else [f"MetaSchedule tuned {row.wall_ratio:.1f} times as long"]
        )
        print(f"{case.name}: {'; '.join(said)}", flush=True)
