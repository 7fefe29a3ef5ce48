"""Tune networks that people use, hold them against PyTorch, race them against runtimes.

    python -m benchmarks.models -o results [--only resnet-50] [--door onnx] [--seconds 300]
    python -m benchmarks.models -o results --door program --race no
    python -m benchmarks.models -o results --report

Each network goes through a door of its own: the file of `torch.onnx.export` (`onnx`), what
`tuner quantize` makes of that file (`int8`), or the program of `torch.export` (`program`).
Its library is held against the network itself, of int8 against ONNX Runtime,
on three inputs, then runs in turn with ONNX Runtime, OpenVINO, PyTorch and its compiler,
as far as they are installed, on as many threads. Each line of results.jsonl is a network
with a door and threads; results.md is made of all lines.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from math import exp, log
from pathlib import Path
from typing import Any

from benchmarks.models.networks import NETWORKS

TOLERANCE = 1e-4  # of the greatest value of an output
INT8_TOLERANCE = 0.05  # the same of 8-bit integers: a few are a step off
RIVALS = ("onnxruntime", "openvino", "eager", "inductor")
Row = Mapping[str, Any]


def main() -> None:
    given = _parser().parse_args()
    output = given.output.absolute()
    output.mkdir(parents=True, exist_ok=True)
    lines = output / "results.jsonl"
    rows = {
        _key(row): row
        for row in map(json.loads, lines.read_text().splitlines() if lines.exists() else [])
    }
    names = [] if given.report else given.only.split(",")
    for name in names:
        key = (name, given.door, given.threads, given.max_error)
        if key in rows and not given.again:
            continue
        # A process of its own: what one network leaves behind must not slow the next.
        command = [sys.executable, "-m", "benchmarks.models.trial", name, str(output)]
        settings = {
            "door": given.door,
            "seconds": given.seconds,
            "trials": given.trials,
            "threads": given.threads,
            "max_error": given.max_error,
            "race": given.race == "yes",
        }
        started = time.monotonic()
        done = subprocess.run(
            [*command, json.dumps(settings)], stdout=subprocess.PIPE, text=True, check=False
        )
        row = {"model": name, **settings, "took_s": time.monotonic() - started}
        last = done.stdout.strip().splitlines()[-1:] or ["{}"]
        row |= (
            json.loads(last[0]) if done.returncode == 0 else {"refused": f"exit {done.returncode}"}
        )
        rows[key] = row
        with lines.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(_line(row), flush=True)
    report = _report(list(rows.values()))
    (output / "results.md").write_text(report)
    print(report)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--only", default=",".join(NETWORKS))
    parser.add_argument("--door", choices=("onnx", "int8", "program"), default="onnx")
    parser.add_argument("--seconds", type=float, help="of a command; default: its own")
    parser.add_argument("--trials", type=int, help="for each kernel; default: its own")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--max-error", type=float)
    parser.add_argument("--race", choices=("yes", "no"), default="yes")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--report", action="store_true")
    return parser


def _key(row: Row) -> tuple[Any, ...]:
    return row["model"], row["door"], row["threads"], row["max_error"]


def _line(row: Row) -> str:
    head = f"{row['model']}, {row['door']}, {row['threads']} threads"
    if "refused" in row:
        return f"{head}: refused: {row['refused']}"
    verdict = "right" if _is_right(row) else "WRONG"
    rivals = ", ".join(f"{name} {ratio:.2f}" for name, ratio in _ratios(row).items())
    return f"{head}: {verdict}, error {row['error']:.1e}, {row['took_s']:.0f} s; {rivals}"


def _is_right(row: Row) -> bool:
    usual = INT8_TOLERANCE if row["door"] == "int8" else TOLERANCE
    tolerance = max(row.get("max_error") or 0.0, usual)
    return bool(row.get("error", 1.0) <= tolerance)


def _ratios(row: Row) -> dict[str, float]:
    """Each rival's time over ours."""
    medians = row.get("medians_s") or {}
    return {name: medians[name] / medians["ours"] for name in RIVALS if name in medians}


def _report(rows: Sequence[Row]) -> str:
    table = [
        "| network | door | threads | kernels | error | tuned in, s | library, ms | "
        + " | ".join(f"{name} / ours" for name in RIVALS)
        + " | fastest / ours |",
        "|---|---|" + "---:|" * (len(RIVALS) + 6),
    ]
    best = []
    for row in rows:
        head = f"| {row['model']} | {row['door']} | {row['threads']} |"
        if "refused" in row:
            table.append(f"{head} refused: {row['refused']} |" + " |" * (len(RIVALS) + 4))
            continue
        ratios = _ratios(row)
        cells = [f"{ratios[name]:.2f}" if name in ratios else "" for name in RIVALS]
        if ratios:
            best.append(min(ratios.values()))
        ours = f"{row['medians_s']['ours'] * 1e3:.3f}" if ratios else ""
        table.append(
            f"{head} {row['kernels']} | {row['error']:.1e} | {row['tuned_s']:.0f} | {ours} | "
            f"{' | '.join(cells)} | {f'{best[-1]:.2f}' if ratios else ''} |"
        )
    right = sum(map(_is_right, rows))
    text = f"{right} of {len(rows)} right to {TOLERANCE:g}, {INT8_TOLERANCE:g} of int8."
    if best:
        text += f" Geometric mean of fastest / ours: {exp(sum(map(log, best)) / len(best)):.2f}."
    return "\n".join([*table, "", text]) + "\n"


if __name__ == "__main__":
    main()
