"""Trains a classifier of very many classes in three ways, for as many steps each.

    python -m examples.slide.train [--classes 65536] [--seconds 60] [--smoke]

SLIDE computes of each sample the classes that hash tables choose (Chen et al., MLSys 2020);
the others compute all, by our kernels and by PyTorch, where it is installed. All start from
the same weights, take the same batches and have the same hidden layer. Time is that of steps,
hashing included; kernels are tuned before, and precision is measured beside it. `--smoke` is
a small problem, barely tuned.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import tuner
from examples.slide.data import NOISE, SHOWN, Samples, samples
from examples.slide.layers import MakeKernel, Network, Output, Sizes
from examples.slide.outputs import Dense, Slide, Torch

LABELS = 3  # of a sample
SHARE_ACTIVE = 1 / 200
TESTED, AT_ONCE = 1024, 64  # samples of which precision is measured, in parts
NEAR = 0.98  # of the precision that all reach: what time is told of
# Of Amazon-670K a tenth: it has 135,909 features, 670,091 classes and 490,449 samples.
WHOLE = Sizes(
    features=13_591, classes=65_536, batch=128, depth=128, active=328, drawn=246, groups=32,
    tables=16, bits=11, room=24, rate=4.0, refill=50,
)  # fmt: skip
SMOKE = replace(
    WHOLE, features=800, classes=2000, batch=32, depth=32, active=64, drawn=48, groups=8, tables=8,
    bits=6, rate=1.0,
)  # fmt: skip
SAMPLES, SMOKE_SAMPLES = 49_152, 4096


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a network had come when its precision was measured."""

    steps: int
    seconds: float  # of these steps
    precision: float  # share of samples whose likeliest class is one of their labels


def drawn(sizes: Sizes, count: int, draw: int) -> Samples:
    """Samples of the same classes for each `draw`."""
    return samples(
        classes=sizes.classes, features=sizes.features, labels=LABELS, count=count, seed=7,
        draw=draw,
    )  # fmt: skip


def precision_at_1(network: Network, data: Samples) -> float:
    table, weights, bias = network.weights()
    hidden = np.maximum(table[data.features].sum(1), 0)
    parts = (hidden[start : start + AT_ONCE] for start in range(0, len(hidden), AT_ONCE))
    best = np.concatenate([np.argmax(part @ weights.T + bias, 1) for part in parts])
    return float(np.mean((best[:, None] == data.labels).any(1)))


def train(
    network: Network, data: Samples, test: Samples, *, batch: int, steps: int, every: int
) -> list[Progress]:
    """Progress of training in batches, whose order is the same for each network."""
    rng, progress, seconds = np.random.default_rng(0), list[Progress](), 0.0
    for step in range(1, steps + 1):
        chosen = data.rows(rng.choice(len(data), batch, replace=False))
        start = time.perf_counter()
        network.step(chosen)
        seconds += time.perf_counter() - start
        if step % every == 0:
            precision = precision_at_1(network, test)
            progress.append(Progress(steps=step, seconds=seconds, precision=precision))
    return progress


def outputs(
    sizes: Sizes, counts: Any, kernel: MakeKernel, *, threads: int, seed: int
) -> dict[str, Callable[[], Output]]:
    """How each output layer is made, by its name; `counts` says how often classes are labels."""
    made: dict[str, Callable[[], Output]] = {
        "SLIDE": lambda: Slide(sizes, counts, kernel, seed),
        "SLIDE, bfloat16": lambda: Slide(sizes, counts, kernel, seed, narrow=True),
        "dense": lambda: Dense(sizes, kernel, seed),
    }
    if importlib.util.find_spec("torch") is not None:
        made["PyTorch"] = lambda: Torch(sizes, seed, threads)
    return made


def network(sizes: Sizes, output: Output, kernel: MakeKernel, seed: int) -> Network:
    """The network of an output layer on the generated data."""
    return Network(sizes, output, kernel, LABELS * SHOWN + NOISE, seed)


def report(progress: dict[str, list[Progress]]) -> str:
    """A table: milliseconds of a step and how many times those of the dense layer they are, the
    precision after all steps, and when each network was as precise as all get."""
    reached = NEAR * min(max(each.precision for each in ways) for ways in progress.values())
    to_reach = f"s to P@1 {reached:.3f}"
    lines = [f"{'':16} {'ms a step':>10} {'speed':>7} {'last P@1':>9} {to_reach:>18} {'steps':>6}"]
    times = {name: ways[-1].seconds / ways[-1].steps for name, ways in progress.items()}
    for name, ways in progress.items():
        speed = f"{times['dense'] / times[name]:.2f}" if "dense" in times else ""
        first = next(each for each in ways if each.precision >= reached)
        lines.append(
            f"{name:16} {1e3 * times[name]:10.2f} {speed:>7} {ways[-1].precision:9.3f} "
            f"{first.seconds:18.2f} {first.steps:6}"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> dict[str, list[Progress]]:
    parser = argparse.ArgumentParser(description="SLIDE beside dense layers")
    parser.add_argument("--classes", type=int, default=WHOLE.classes)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--every", type=int, default=50, help="steps between measurements")
    parser.add_argument("--trials", type=int, default=64, help="of each kernel, at most")
    parser.add_argument("--seconds", type=float, default=30, help="of a kernel's search, at most")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--groups", type=int, default=WHOLE.groups, help="of a batch that draw classes apart"
    )
    parser.add_argument("--only", help="one network by its name")
    parser.add_argument("--smoke", action="store_true", help="a small problem, barely tuned")
    args = parser.parse_args(arguments)
    active = max(2 * LABELS, round(args.classes * SHARE_ACTIVE))
    sizes = replace(
        WHOLE, classes=args.classes, active=active, drawn=3 * active // 4, groups=args.groups
    )
    count, steps, every, trials = SAMPLES, args.steps, args.every, args.trials
    if args.smoke:
        sizes, count, steps, every, trials = SMOKE, SMOKE_SAMPLES, 120, 20, 2

    kernels: dict[tuple[object, ...], Callable[..., Any]] = {}

    def kernel(source: str, shapes: dict[str, int] | None) -> Callable[..., Any]:
        key = (source, *(shapes or {}).items())
        if key not in kernels:  # networks have several in common
            kernels[key] = tuner.tune(
                source, shapes=shapes, trials=trials, seconds=args.seconds, threads=args.threads
            )
        return kernels[key]

    data, test = drawn(sizes, count, 0), drawn(sizes, TESTED, 1)
    counts = np.bincount(data.labels.ravel(), minlength=sizes.classes)
    progress: dict[str, list[Progress]] = {}
    for name, make in outputs(sizes, counts, kernel, threads=args.threads, seed=1).items():
        if args.only in (None, name):
            made = network(sizes, make(), kernel, seed=1)
            progress[name] = train(made, data, test, batch=sizes.batch, steps=steps, every=every)
            print(name, *(f"{each.precision:.3f}" for each in progress[name]), flush=True)
    print(report(progress))
    return progress


if __name__ == "__main__":
    main()
