"""What recording costs a program: `python -m benchmarks.tracing [--rounds N]`.

Each program times its own work, after its imports and a first part, and writes the seconds
to a file. It runs in turn with and without `tuner trace`; the ratio is of the medians of
pairs, with its interval. Nothing else may run beside it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tuner.measure.statistics import median_ci95

LIMIT_S = 600
HEAD = """
import sys, time
{setup}
def work(seconds):
    calls, ends = 0, time.perf_counter() + seconds
    while time.perf_counter() < ends:
        for _ in range({inner}):
            {body}
        calls += {inner}
    return calls
work(1.0)
begun = time.perf_counter()
calls = work(float(sys.argv[2]))
open(sys.argv[1], "w").write(str((time.perf_counter() - begun) / calls))
"""
TRANSFORMER = """import torch
from transformers import BertConfig, BertModel
torch.set_num_threads(1)
config = BertConfig(hidden_size=256, num_hidden_layers=4, num_attention_heads=4,
                    intermediate_size=1024, vocab_size=1000)
model, ids = BertModel(config).eval(), torch.randint(0, 1000, (2, 64))
torch.set_grad_enabled(False)"""
NUMPY = "import numpy as np\na = np.ones(({0}, {0}), 'float32')"
PROGRAMS = {
    "numpy, 4 elements a call": HEAD.format(
        setup=NUMPY.format(2), inner=1000, body="np.add(a, a); a * a"
    ),
    "numpy, 4,096 elements a call": HEAD.format(
        setup=NUMPY.format(64), inner=100, body="np.exp(a); a @ a; a.sum(axis=1)"
    ),
    "transformer of 4 layers": HEAD.format(setup=TRANSFORMER, inner=1, body="model(ids)"),
}


def seconds(program: Path, out: Path, work_s: float, *, traced: bool) -> float:
    """Seconds of a unit of a program's work."""
    command = [sys.executable, str(program), str(out), str(work_s)]
    if traced:
        record = str(out.with_suffix(".json"))
        command = [sys.executable, "-m", "tuner", "trace", "-o", record, "--", *command]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run(command, check=True, timeout=LIMIT_S, env=environment)
    return float(out.read_text())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="pairs of runs of each program")
    parser.add_argument("--seconds", type=float, default=8, help="of work in a run")
    parser.add_argument("--only", choices=PROGRAMS, help="this program alone")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tuner-tracing-") as folder:
        for name in [options.only] if options.only else PROGRAMS:
            program, out = Path(folder, "program.py"), Path(folder, "seconds")
            program.write_text(PROGRAMS[name])
            ratios = sorted(
                seconds(program, out, options.seconds, traced=True)
                / seconds(program, out, options.seconds, traced=False)
                for _ in range(options.rounds)
            )
            low, high = median_ci95(ratios)
            middle = ratios[len(ratios) // 2]
            print(f"{name}: {middle:.3f} ({low:.3f} to {high:.3f})", flush=True)


if __name__ == "__main__":
    main()
