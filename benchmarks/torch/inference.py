"""Inference of networks compiled with `backend="tuner"`, beside eager and inductor.

    python -m benchmarks.torch.inference [--only NAMES] [--threads N] [--freeze] [--json]
    python -m benchmarks.torch.inference --max-autotune [--only NAMES] [--threads N] [--freeze]
    python -m benchmarks.torch.inference --tune --seconds S [--only NAMES] [--threads N] [--freeze]

Needs PyTorch and transformers; the networks are those of `benchmarks/models/networks.py`, in
float32. Libraries that are kept are used, so they are made before: with `--tune`, which does
nothing else, for S seconds each region. One row of a Markdown table for each network: the median
time of a call by eager PyTorch, inductor and the tuner, timed in turns in one process, how many
times as long the others take, and the greatest error of an output, relative to its greatest value.
Then, in a new process for each backend, whose caches the others before have filled, the time from
`torch.compile` to the end of the first fast call: one that takes at most a quarter more than the
later ones. With `--freeze` both compilers have weights as constants, and with `--max-autotune`
inductor has that mode. The machine should have nothing else to do.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch._inductor.config
import transformers as hub

import tuner.torch  # noqa: F401  # makes the backend's name known
from benchmarks.models.networks import NETWORKS
from tuner.models.reference.accuracy import relative_error

HEADER = """\
| network | eager, ms | inductor, ms | tuner, ms | eager / tuner | inductor / tuner | error | inductor's first, s | tuner's first, s |
|---|---|---|---|---|---|---|---|---|"""  # noqa: E501
COMPILERS = ("inductor", "tuner")
ROUNDS = 11  # of calls in turns, of which medians are taken
SAMPLE_S = 0.05  # of calls in one round, at least
CALLS = 12  # of a new process, until calls are as fast as they get
SLACK = 1.25  # of a fast call's time, of the median of later ones

Call = Callable[[], Any]


@dataclass(frozen=True, kw_only=True)
class Conditions:
    threads: int
    freeze: bool
    max_autotune: bool

    @property
    def arguments(self) -> list[str]:
        """As a new process takes them."""
        names = ("freeze", "max_autotune")
        flags = [f"--{name.replace('_', '-')}" for name in names if getattr(self, name)]
        return ["--threads", str(self.threads), *flags]


def compiled(backend: str, model: Any, given: Conditions, **options: Any) -> Any:
    if backend != "tuner":
        mode = "max-autotune-no-cudagraphs" if given.max_autotune else None
        return torch.compile(model, backend=backend, mode=mode)
    options |= {"threads": given.threads, "freeze": given.freeze}
    return torch.compile(model, backend="tuner", options=options)


def tuned(name: str, given: Conditions, seconds: float) -> dict[str, Any]:
    """The line of a network whose libraries are made now."""
    model, inputs = NETWORKS[name].built()
    begun_s = time.perf_counter()
    function = compiled("tuner", model, given, tune="now", seconds=seconds)
    for _ in range(2):
        function(*inputs)
    return {"tuned_s": round(time.perf_counter() - begun_s, 1)}


def raced(name: str, given: Conditions) -> dict[str, Any]:
    """The line of a network in turns."""
    model, inputs = NETWORKS[name].built()
    calls: dict[str, Call] = {"eager": partial(model, *inputs)}
    for backend in COMPILERS:
        calls[backend] = partial(compiled(backend, model, given, **_kept(backend)), *inputs)
    for call in calls.values():
        for _ in range(3):  # compiled, tried, and warm
            call()
    right, got = _tensor(calls["eager"]()), _tensor(calls["tuner"]())
    samples_s: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            samples_s[name].append(_sample(call))
    return {
        "call_s": {name: statistics.median(samples) for name, samples in samples_s.items()},
        "error": relative_error(got.double().numpy(), right.double().numpy()),
    }


def _kept(backend: str) -> dict[str, Any]:
    return {"tune": "off"} if backend == "tuner" else {}


def _tensor(result: Any) -> Any:
    return torch.utils._pytree.tree_leaves(result)[0]


def _sample(call: Call) -> float:
    """Mean seconds of a call."""
    begun_s, count = time.perf_counter(), 0
    while time.perf_counter() - begun_s < SAMPLE_S:
        call()
        count += 1
    return (time.perf_counter() - begun_s) / count


def first_fast_s(name: str, backend: str, given: Conditions) -> float:
    """Seconds to the end of the first fast call, in this process."""
    model, inputs = NETWORKS[name].built()
    model(*inputs)
    begun_s = time.perf_counter()
    function = compiled(backend, model, given, **_kept(backend))
    ends_s = [begun_s]
    for _ in range(CALLS):
        function(*inputs)
        ends_s.append(time.perf_counter())
    took_s = [end_s - start_s for start_s, end_s in itertools.pairwise(ends_s)]
    settled_s = statistics.median(took_s[CALLS // 2 :])
    return next(
        end_s - begun_s
        for end_s, call_s in zip(ends_s[1:], took_s, strict=True)
        if call_s <= SLACK * settled_s
    )


def in_new_process(name: str, backend: str, given: Conditions) -> float:
    command = [sys.executable, "-m", "benchmarks.torch.inference", "--first", backend]
    done = subprocess.run(
        [*command, "--only", name, *given.arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout.splitlines()[-1])


def row(name: str, line: Mapping[str, Any]) -> str:
    times_s = line["call_s"]
    cells = [name, *(f"{times_s[way] * 1e3:.2f}" for way in ("eager", *COMPILERS))]
    cells += [f"{times_s[way] / times_s['tuner']:.2f}" for way in ("eager", "inductor")]
    cells += [f"{line['error']:.0e}", *(f"{line['first_s'][way]:.1f}" for way in COMPILERS)]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="names of networks, with commas")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--freeze", action="store_true", help="weights are constants")
    parser.add_argument("--max-autotune", action="store_true", help="inductor's mode")
    parser.add_argument("--tune", action="store_true", help="make libraries, and race nothing")
    parser.add_argument("--seconds", type=float, default=1200.0, help="budget of each region")
    parser.add_argument("--json", action="store_true", help="lines of JSON instead of a table")
    parser.add_argument("--first", choices=COMPILERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    given = Conditions(
        threads=options.threads, freeze=options.freeze, max_autotune=options.max_autotune
    )
    warnings.filterwarnings("ignore")
    hub.logging.set_verbosity_error()
    torch.set_num_threads(given.threads)
    torch._inductor.config.freezing = given.freeze
    if not (options.json or options.first or options.tune):
        print(HEADER, flush=True)
    with torch.no_grad():
        for name in options.only.split(",") if options.only else NETWORKS:
            torch._dynamo.reset()
            if options.first:
                print(first_fast_s(name, options.first, given))
                continue
            if options.tune:
                line = tuned(name, given, options.seconds)
            else:
                line = raced(name, given)
                line["first_s"] = {
                    backend: in_new_process(name, backend, given) for backend in COMPILERS
                }
            shown = options.json or options.tune
            print(json.dumps({"network": name, **line}) if shown else row(name, line), flush=True)


if __name__ == "__main__":
    main()
