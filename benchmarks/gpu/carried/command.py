"""Check and race the candidates of this folder on a machine with a GPU.

This is the second half of the benchmark. It needs Python 3.10, PyTorch with CUDA and
this folder, and nothing of the tuner. Candidates run on PyTorch's own stream and memory.
All contenders are timed in the same way: as CUDA graphs of many calls, between events,
in turn. The result is a table in result.md, written anew after each race.

    python run.py [--seconds 480] [RACE]

Races come in the order of their importance. Each first meets the library, then what
`torch.compile` makes, which takes long: a race that is cut off keeps what it has.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from . import model_race, operator_race
from .kernels import Refused, load_torch
from .report import header, table

SECONDS = 480.0  # of all races together
# Of one race: what it may take, of an operator or a network, and without which none is begun.
MOST_S, NETWORK_S, LEAST_S = 90.0, 120.0, 15.0


def alone(folder: Path, suite: dict[str, Any], name: str) -> None:
    """Run one race in this process and write its row into its folder."""
    race = next(race for race in suite["races"] if race["name"] == name)
    torch = load_torch()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.manual_seed(0)
    torch.zeros(1, device="cuda")  # makes the context that candidates are loaded into
    arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
    run = model_race.run if race["kind"] == "network" else operator_race.run
    for row in run(torch, ctypes.CDLL("libcuda.so.1"), folder, race, arch):
        written = folder / name / "row.json.new"
        written.write_text(json.dumps(row))
        written.replace(folder / name / "row.json")


def row_of(folder: Path, race: dict[str, Any], arch: str, limit_s: float) -> dict[str, Any]:
    """Run a race in a process of its own, because an error of the device ends the process.

    Gives its row, or the reason of its failure.
    """
    plain = {
        "name": race["name"],
        "spec": race["spec"],
        "candidates": len(race["built"][arch]),
        "wrong": 0,
    }
    if limit_s < LEAST_S:
        return {**plain, "verdict": f"not run: {max(limit_s, 0.0):.0f} s were left"}
    file = folder / race["name"] / "row.json"
    file.parent.mkdir(exist_ok=True)
    file.unlink(missing_ok=True)
    limit_s = min(limit_s, NETWORK_S if race["kind"] == "network" else MOST_S)
    said = folder / race["name"] / "said.txt"
    with said.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, str(folder / "run.py"), race["name"]],
            stdout=stream,
            stderr=stream,
            start_new_session=True,  # with the compilers that it starts
        )
        try:
            ended = f"failed with status {process.wait(limit_s)}"
        except subprocess.TimeoutExpired:
            ended = f"cut off after {limit_s:.0f} s"
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    words = said.read_text(errors="replace")
    sys.stderr.write(words)
    if not file.is_file():
        last = (words.strip().splitlines() or ["nothing"])[-1]
        return {**plain, "verdict": f"{ended}: {last[:200]}"}
    row: dict[str, Any] = json.loads(file.read_text())
    if process.returncode != 0:
        row["verdict"] += f", without torch.compile: {ended}"
    return row


def main(folder: Path, race: str | None, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    suite = json.loads((folder / "suite.json").read_text())
    if race is not None:
        alone(folder, suite, race)
        return
    torch = load_torch()
    arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
    built = sorted({name for race in suite["races"] for name in race["built"]})
    if arch not in built:
        raise Refused(
            f"this GPU is {arch}, and the folder has candidates for {', '.join(built)}; build "
            f"it with --arch {arch}"
        )
    document = header(torch, suite, arch)
    for each in suite["races"]:
        print(each["spec"], file=sys.stderr, flush=True)
        document["races"].append(row_of(folder, each, arch, deadline - time.monotonic()))
        (folder / "result.json").write_text(json.dumps(document, indent=1))
        (folder / "result.md").write_text(table(document))
    print(table(document))


def command(folder: Path) -> int | str:
    """Run what the command line says in the folder; the status of the process."""
    parser = argparse.ArgumentParser(description="Race the candidates of this folder.")
    parser.add_argument("race", nargs="?", help="this one alone, in this process")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of all races together")
    given = parser.parse_args()
    try:
        main(folder, given.race, given.seconds)
    except Refused as reason:
        return f"error: {reason}"
    return 0
