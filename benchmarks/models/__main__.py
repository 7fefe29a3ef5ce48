"""Tune models like ResNet, MobileNet and BERT, and race them against ONNX Runtime.

    python -m benchmarks.models -o results [--only resnet] [--seconds 1200] [--again]
    python -m benchmarks.models -o results --report

`tuner tune MODEL.onnx` tunes each model, within so many seconds of search for the whole
of it. Then library and ONNX Runtime run in turn on one core, with one thread each. Each
model is a line of results.jsonl; results.md is made of all lines.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from math import exp, log
from pathlib import Path
from typing import Any

from benchmarks.models import nets

MODELS: Mapping[str, Callable[[], Any]] = {
    "resnet": lambda: nets.resnet(size=64, width=32, blocks=(2, 2, 2), classes=100),
    "mobilenet": lambda: nets.mobilenet(
        size=96,
        width=16,
        blocks=((16, 1), (24, 2), (24, 1), (32, 2), (32, 1), (64, 2), (64, 1), (64, 1)),
        classes=100,
    ),
    "bert": lambda: nets.bert(words=128, width=256, heads=4, layers=2, vocabulary=1000),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--only", default=",".join(MODELS))
    parser.add_argument(
        "--seconds",
        type=float,
        default=1050.0,
        help="of search; promotion of the kernels comes on top",
    )
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--core", type=int, default=1)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--report", action="store_true")
    given = parser.parse_args()
    output = given.output.absolute()
    output.mkdir(parents=True, exist_ok=True)
    lines = output / "results.jsonl"
    rows = {
        row["model"]: row
        for row in map(json.loads, lines.read_text().splitlines() if lines.exists() else [])
    }
    for name in () if given.report else given.only.split(","):
        if name in rows and not given.again:
            continue
        rows[name] = _tuned_and_raced(name, output, given)
        with lines.open("a") as file:
            file.write(json.dumps(rows[name]) + "\n")
    report = _report(rows)
    (output / "results.md").write_text(report)
    print(report)


def _tuned_and_raced(name: str, output: Path, given: argparse.Namespace) -> dict[str, Any]:
    file, directory = output / f"{name}.onnx", output / name
    file.write_bytes(nets.serialized(MODELS[name]()))
    command = [
        sys.executable,
        "-m",
        "tuner",
        "--json",
        "--db",
        f"sqlite:///{output}/tuner.sqlite",
        "tune",
        str(file),
    ]
    command += [
        "-o",
        str(directory),
        "--name",
        name,
        "--seconds",
        str(given.seconds),
        "--trials",
        str(given.trials),
    ]
    started = time.monotonic()
    tuned = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    elapsed_s = time.monotonic() - started
    return {
        "model": name,
        "tuned_s": elapsed_s,
        **tuned["model"],
        **_raced(file, directory, name, given.core),
    }


def _raced(file: Path, directory: Path, name: str, core: int) -> dict[str, Any]:
    """In a process of its own, which is pinned."""
    program = (
        "import json, sys\nfrom dataclasses import asdict\nfrom pathlib import Path\nimport onnx\n"
        "from benchmarks.models import nets\nfrom benchmarks.models.race import race\n"
        "file, directory, name, core = sys.argv[1:]\ncontent = Path(file).read_bytes()\n"
        "feeds = nets.feeds(onnx.load_model_from_string(content))\n"
        "print(json.dumps(asdict(race(content, Path(directory), name, feeds, int(core)))))\n"
    )
    command = [sys.executable, "-c", program, str(file), str(directory), name, str(core)]
    result: dict[str, Any] = json.loads(
        subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    )
    return result


def _report(results: Mapping[str, dict[str, Any]]) -> str:
    rows = [
        "| model | kernels | ours ms | ONNX Runtime ms | theirs/ours | error | tuned s |",
        "|---|---|---|---|---|---|---|",
    ]
    ratios = []
    for name, result in results.items():
        ratios.append(result["theirs_s"] / result["ours_s"])
        rows.append(
            f"| {name} | {result['kernels']} | {result['ours_s'] * 1e3:.3f} | "
            f"{result['theirs_s'] * 1e3:.3f} | {ratios[-1]:.2f} "
            f"| {result['error']:.1e} | {result['tuned_s']:.0f} |"
        )
    mean = exp(sum(map(log, ratios)) / len(ratios)) if ratios else float("nan")
    return "\n".join([*rows, "", f"Geometric mean {mean:.2f}."]) + "\n"


if __name__ == "__main__":
    main()
