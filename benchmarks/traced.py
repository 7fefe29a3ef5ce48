"""Whether traced programs get faster by what coverage says: `python -m benchmarks.traced`.

Each program does a fixed amount of work and writes the seconds of it to a file. It is
recorded, its kernels are tuned for `--seconds`, and it runs in turn as it is and by `tuner
run`. Beside the measured time stands the one that coverage promises: the time as it is less
the gain. Nothing else may run beside it. `--overhead` measures what a call takes beside its
kernel instead, on which coverage's gain is based.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tuner.measure.statistics import median_ci95

LIMIT_S = 3600
TAIL = """
run()
begun = time.perf_counter()
for _ in range({calls}):
    run()
open(sys.argv[1], "w").write(str(time.perf_counter() - begun))
"""
# BERT of Devlin et al., 2019, as the transformers library has it, with weights drawn at random.
TRANSFORMER = """
import sys, time
import torch
from transformers import BertConfig, BertModel
torch.set_num_threads(1)
torch.set_grad_enabled(False)
config = BertConfig(hidden_size=256, num_hidden_layers=4, num_attention_heads=4,
                    intermediate_size=1024, vocab_size=1000)
model, ids = BertModel(config).eval(), torch.randint(0, 1000, (2, 64))
def run():
    model(ids)
"""
# GPT-2's forward pass (Radford et al., 2019), as programs in NumPy write it.
NUMPY = """
import sys, time
import numpy as np
rng = np.random.default_rng(0)
tokens, width, heads, layers = 128, 256, 4, 2
def weights(*shape):
    return (0.02 * rng.standard_normal(shape)).astype("float32")
blocks = [
    {"q": weights(width, width), "k": weights(width, width), "v": weights(width, width),
     "o": weights(width, width), "up": weights(width, 4 * width), "down": weights(4 * width, width),
     "bias": weights(4 * width)}
    for _ in range(layers)
]
x0 = rng.standard_normal((tokens, width)).astype("float32")
mask = np.where(np.tril(np.ones((tokens, tokens), bool)), 0.0, -1e10).astype("float32")
def gelu(x):
    return x * 0.5 * (1.0 + np.tanh(0.7978846 * (x + 0.044715 * (x * x * x))))
def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)
def norm(x):
    centred = x - np.mean(x, axis=-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + 1e-5)
def split(x):
    parts = x.reshape(tokens, heads, width // heads)
    return np.ascontiguousarray(parts.transpose(1, 0, 2))
def run():
    x = x0
    for w in blocks:
        h = norm(x)
        q, k, v = split(h @ w["q"]), split(h @ w["k"]), split(h @ w["v"])
        scores = np.matmul(q, np.ascontiguousarray(k.transpose(0, 2, 1))) * 0.125 + mask
        mixed = np.matmul(softmax(scores), v).transpose(1, 0, 2)
        x = x + np.ascontiguousarray(mixed).reshape(tokens, width) @ w["o"]
        x = x + gelu(norm(x) @ w["up"] + w["bias"]) @ w["down"]
"""
PROGRAMS = {
    "transformer in PyTorch": (TRANSFORMER, 500),
    "transformer in NumPy": (NUMPY, 500),
}
OVERHEAD = {
    "numpy": "import numpy as np\nx = np.ones((8, 8), 'float32')\ndef run():\n    np.exp(x)\n",
    "torch": "import torch\ntorch.set_num_threads(1)\nx = torch.ones(8, 8)\n"
    "def run():\n    torch.exp(x)\n",
}


def tuner(folder: Path, *arguments: str) -> str:
    """Standard output of a command on the folder's own database."""
    environment = {
        **os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
        "TUNER_DB": f"sqlite:///{folder}/tuner.db", "TUNER_ARTIFACTS": str(folder / "artifacts"),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "tuner", *arguments],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=LIMIT_S,
        env=environment,
    )
    return done.stdout


def seconds(folder: Path, program: Path, *prefix: str) -> float:
    """Seconds of a program's work, run behind a command of tuner or as it is."""
    out = folder / "seconds"
    if prefix:
        tuner(folder, "-q", *prefix, "--", sys.executable, str(program), str(out))
    else:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, str(program), str(out)]
        subprocess.run(command, check=True, timeout=LIMIT_S, env=environment)
    return float(out.read_text())


def measured(name: str, budget_s: float, rounds: int) -> Mapping[str, Any]:
    """What a program takes as it is, by `tuner run`, and by coverage, in seconds."""
    text, calls = PROGRAMS[name]
    with tempfile.TemporaryDirectory(prefix="tuner-traced-") as place:
        folder = Path(place)
        program, record = folder / "program.py", str(folder / "trace.json")
        program.write_text(text + TAIL.format(calls=calls))
        seconds(folder, program, "trace", "-o", record)
        tuner(folder, "tune", "--trace", record, "--seconds", str(budget_s), "--threads", "1")
        covered = json.loads(tuner(folder, "coverage", record, "--threads", "1", "--json"))
        pairs = [
            (
                seconds(folder, program),
                seconds(folder, program, "run", "--trace", record, "--threads", "1"),
            )
            for _ in range(rounds)
        ]
    plain_s, run_s = (median(times) for times in zip(*pairs, strict=True))
    ratios = sorted(plain / run for plain, run in pairs)
    # The record has one more call of the work, which is not timed.
    gain_s = covered["run_gain_s"] * calls / (calls + 1)
    return {
        "program": name,
        "plain_s": plain_s,
        "run_s": run_s,
        "promised_s": plain_s - gain_s,
        "speedup": median(ratios),
        "ci95": median_ci95(ratios),
        "promised": plain_s / (plain_s - gain_s),
    }


def overhead(library: str, rounds: int) -> float:
    """Seconds that a call of 64 elements takes by `tuner run` beside its kernel, where the
    record has the library's time."""
    with tempfile.TemporaryDirectory(prefix="tuner-traced-") as place:
        folder = Path(place)
        program, record = folder / "program.py", str(folder / "trace.json")
        calls = 200_000
        head = "import sys, time\n"
        program.write_text(head + OVERHEAD[library] + TAIL.format(calls=calls))
        seconds(folder, program, "trace", "-o", record)
        tuner(folder, "tune", "--trace", record, "--trials", "4", "--threads", "1")
        covered = json.loads(tuner(folder, "coverage", record, "--threads", "1", "--json"))
        (call,) = (each for each in covered["items"] if each["operator"].endswith("exp"))
        # So that the call is answered although its kernel saves nothing.
        document = json.loads(Path(record).read_text())
        for each in document["calls"]:
            each["total_s"] *= 1000
        Path(record).write_text(json.dumps(document))
        command = ("run", "--trace", record, "--threads", "1")
        plain_s = median(seconds(folder, program) / calls for _ in range(rounds))
        run_s = median(seconds(folder, program, *command) / calls for _ in range(rounds))
    library_s, kernel_s = (call[name] / call["count"] for name in ("total_s", "kernels_s"))
    return float((run_s - kernel_s) - (plain_s - library_s))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600, help="of tuning, for each program")
    parser.add_argument("--rounds", type=int, default=7, help="pairs of runs of each program")
    parser.add_argument("--only", choices=PROGRAMS, help="this program alone")
    parser.add_argument("--overhead", action="store_true", help="only what a call takes")
    options = parser.parse_args(arguments)
    if options.overhead:
        for library in OVERHEAD:
            print(f"{library}: {overhead(library, options.rounds) * 1e6:.2f} µs", flush=True)
        return
    for name in [options.only] if options.only else PROGRAMS:
        row = measured(name, options.seconds, options.rounds)
        low, high = row["ci95"]
        print(
            f"{name}: {row['plain_s']:.3f} s as it is, {row['run_s']:.3f} s by tuner run: "
            f"{row['speedup']:.3f} ({low:.3f} to {high:.3f}) times as fast; coverage promised "
            f"{row['promised']:.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
