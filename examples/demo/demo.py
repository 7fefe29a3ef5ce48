"""The main job once through, in about two minutes: tune two kernels, race them, export
them, call them from C.

Uses the public command alone and a database of its own. Ends with an error unless each
kernel beats the default schedule, the matrix product beats NumPy, and the C program
finds every element right.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
OUTPUT = HERE.parent.parent / "demo-output"
MATMUL = ["matmul:M=512,N=512,K=512"]
MLP = ["--notation", str(HERE / "mlp.kernel"), "--shapes", "M=127,N=251,K=193"]
BUDGET = ["--threads", "1", "--trials", "64", "--seconds", "40"]
COMMAND_LIMIT_S = 300


def tuner(*arguments: str) -> Any:
    """Runs a command, shows it, and gives its JSON document; its progress goes to this terminal."""
    print(f"\n$ tuner {' '.join(arguments)}", flush=True)
    command = [sys.executable, "-m", "tuner", "--json", *arguments]
    ended = subprocess.run(command, stdout=subprocess.PIPE, check=False, timeout=COMMAND_LIMIT_S)
    if ended.returncode != 0:
        sys.exit(f"demo: tuner ended with exit code {ended.returncode}")
    return json.loads(ended.stdout)


def table(races: list[tuple[str, dict[str, Any]]]) -> None:
    print(
        f"\n{'median of one call':<24}{'kernel':>12}{'default':>12}{'NumPy':>12}{'default/kernel':>18}{'NumPy/kernel':>14}"  # noqa: E501
    )
    for name, race in races:
        times = {entry["name"]: entry["median_s"] for entry in race["entries"]}
        cells = [
            f"{times[who] * 1e6:.1f} us" if who in times else "-"
            for who in ("kernel", "default", "numpy")
        ]
        ratios = [
            f"{race['ratios'][who]:.2f}" if who in race["ratios"] else "-"
            for who in ("default", "numpy")
        ]
        print(f"{name:<24}{cells[0]:>12}{cells[1]:>12}{cells[2]:>12}{ratios[0]:>18}{ratios[1]:>14}")


def call_from_c(library: Path) -> None:
    """Compiles main.c against the exported library, and runs it."""
    compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
    program = OUTPUT / "main"
    lib = library / "lib"
    build = [
        compiler,
        "-O2",
        "-o",
        str(program),
        str(HERE / "main.c"),
        f"-I{library / 'include'}",
        f"-L{lib}",
        "-ldemo",
    ]
    build += [f"-Wl,-rpath,{lib}", "-lm"]
    print(f"\n$ {' '.join(build)}\n$ {program}", flush=True)
    if subprocess.run(build, check=False, timeout=60).returncode != 0:
        sys.exit("demo: the C program does not compile")
    if subprocess.run([str(program)], check=False, timeout=60).returncode != 0:
        sys.exit("demo: the C program did not get the right result from the library")


def main() -> None:
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir()
    with tempfile.TemporaryDirectory(prefix="tuner-demo-") as data:
        os.environ["TUNER_DATA_DIR"] = data
        races = []
        for name, workload, rivals in (
            ("matmul 512x512x512", MATMUL, "default,numpy"),
            ("mlp 127x251x193", MLP, "default"),
        ):
            tuner("tune", *workload, *BUDGET)
            (race,) = tuner("bench", *workload, "--threads", "1", "--against", rivals)["results"]
            races.append((name, race))
        tuner("export", "--all", "-o", str(OUTPUT / "library"), "--name", "demo")
        call_from_c(OUTPUT / "library")
    table(races)
    slower = [
        f"{name} ({rival})"
        for name, race in races
        for rival, ratio in race["ratios"].items()
        if ratio <= 1.0
    ]
    if slower or "numpy" not in races[0][1]["ratios"]:
        sys.exit(f"demo: the kernel did not win: {', '.join(slower) or 'NumPy did not take part'}")
    print(f"\nThe kernels won and are right. The library is in {OUTPUT / 'library'}.")


if __name__ == "__main__":
    main()
