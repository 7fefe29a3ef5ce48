"""The log of a benchmark: one line of JSON per workload.

A stopped run goes on from it. Table, picture and measurement are made of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.kernels.contest import Case
from benchmarks.kernels.report import Row, from_line, markdown, measurement, picture, to_line
from benchmarks.measurement import current_commit, file_name, this_machine, to_text
from tuner.target.detect import detect_cpu


class Log:
    """`results.jsonl` of a folder, with `results.md` and `results.svg` made of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "results.jsonl"

    def rows(self) -> dict[str, Row]:
        """The rows by name. Of a workload that was run twice the later line counts."""
        if not self.path.exists():
            return {}
        parsed = (from_line(json.loads(line)) for line in self.path.read_text().splitlines())
        return {row.name: row for row in parsed}

    def append(self, row: Row) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(to_line(row)) + "\n")

    def report(self, order: Sequence[str] = ()) -> str:
        """Write table and picture of all lines and return the table.

        Rows named in `order` come first.
        """
        rows = self.rows()
        first = [name for name in order if name in rows]
        chosen = [rows[name] for name in dict.fromkeys([*first, *rows])]
        text = markdown(chosen)
        (self.folder / "results.md").write_text(text)
        (self.folder / "results.svg").write_text(picture(chosen))
        return text

    def write_measurement(self, suite: str, command: str) -> Path | None:
        """Write all lines as a file for docs/measurements, and return its path.

        None without lines.
        """
        rows = list(self.rows().values())
        if not rows:
            return None
        target = detect_cpu()
        machine = this_machine(str(target.tvm["mcpu"]), rows[0].machine)
        document = measurement(
            rows, suite=suite, machine=machine, commit=current_commit(), command=command
        )
        path = self.folder / file_name(document)
        path.write_text(to_text(document), "utf-8")
        return path


def run(
    cases: Sequence[Case], log: Log, contest: Callable[[Case], Row], *, again: bool = False
) -> None:
    """Runs what the log lacks, all of it with `again`, writing after each workload."""
    logged = {} if again else log.rows()
    for case in cases:
        if case.name in logged:
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
