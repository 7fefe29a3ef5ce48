"""A training step of networks compiled with `backend="tuner"`, beside eager and inductor.

    python -m benchmarks.torch.training [--only TEXT] [--seconds S] [--threads N] [--json]

A step is forward, backward and Adam. Each network is trained three times from the same weights
on the same data: by PyTorch alone, with model and optimiser compiled by inductor, and compiled
by the tuner, whose regions are tuned first for S seconds each. One row of a Markdown table for
each: the median time of a step by each, timed in turns on this machine, how many times as long
the others take, and the greatest relative difference of a loss from eager's over all steps; with
`--json` a line of JSON. The machine should have nothing else to do.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

import tuner.torch  # noqa: F401  # makes the backend's name known

Tensor: TypeAlias = Any
Module: TypeAlias = Any
HEADER = """\
| network | eager, ms | inductor, ms | tuner, ms | eager / tuner | inductor / tuner | inductor's losses | tuner's losses |
|---|---|---|---|---|---|---|---|"""  # noqa: E501
BATCHES = 8  # that are trained on by turns
ROUNDS = 30  # timed steps of each backend
WARM = 3  # untimed ones before


class Residual(torch.nn.Module):  # type: ignore[misc]
    """Two 3×3 convolutions with batch normalisation, beside the input (He et al., 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = torch.nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = torch.nn.ModuleList(torch.nn.BatchNorm2d(outputs) for _ in range(2))
        self.beside = (
            torch.nn.Identity()
            if stride == 1 and inputs == outputs
            else torch.nn.Conv2d(inputs, outputs, 1, stride, bias=False)
        )

    def forward(self, images: Tensor) -> Tensor:
        inner = torch.relu(self.norms[0](self.first(images)))
        return torch.relu(self.norms[1](self.second(inner)) + self.beside(images))


class Encoder(torch.nn.Module):  # type: ignore[misc]
    """BERT's layers (Devlin et al., 2019) over tokens, narrower; the first position decides."""

    def __init__(self, vocabulary: int, length: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.tokens = torch.nn.Embedding(vocabulary, width)
        self.positions = torch.nn.Parameter(torch.randn(length, width) * 0.02)
        layer = torch.nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True
        )
        self.layers = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = torch.nn.Linear(width, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layers(self.tokens(tokens) + self.positions)[:, 0])


@dataclass(frozen=True, kw_only=True)
class Network:
    """How a classifier is made, and a batch of its inputs."""

    make: Callable[[], Module]
    inputs: Callable[[], Tensor]
    classes: int

    def built(self) -> tuple[Module, list[tuple[Tensor, Tensor]]]:
        """The network, always with the same weights, and batches with labels."""
        torch.manual_seed(0)
        network = self.make().train()
        batches = []
        for _ in range(BATCHES):
            inputs = self.inputs()
            batches.append((inputs, torch.randint(self.classes, (len(inputs),))))
        return network, batches


def _mlp() -> Module:
    nn = torch.nn
    return nn.Sequential(
        nn.Linear(784, 512), nn.GELU(), nn.Linear(512, 256), nn.GELU(), nn.Linear(256, 10)
    )


def _resnet() -> Module:
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        Residual(16, 16, 1),
        Residual(16, 32, 2),
        Residual(32, 64, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


NETWORKS: Mapping[str, Network] = {
    "MLP 784-512-256-10, batch 64": Network(
        make=_mlp, inputs=lambda: torch.randn(64, 784), classes=10
    ),
    "ResNet of 3 blocks, batch 16 of 32×32": Network(
        make=_resnet, inputs=lambda: torch.randn(16, 3, 32, 32), classes=10
    ),
    "BERT of 2 layers, 128 wide, batch 8 of 64 tokens": Network(
        make=lambda: Encoder(1000, 64, 128, 4, 2),
        inputs=lambda: torch.randint(1000, (8, 64)),
        classes=2,
    ),
}


class Trainer:
    """Trains a copy of a network, compiled in one way."""

    def __init__(self, network: Module, compiled: Mapping[str, Any] | None) -> None:
        """`compiled` are the arguments of `torch.compile`; None: PyTorch alone."""
        self.network = copy.deepcopy(network)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=1e-3)
        if compiled is None:
            self.model, self.update = self.network, self.optimizer.step
        else:
            self.model = torch.compile(self.network, **compiled)
            self.update = torch.compile(self.optimizer.step, **compiled)

    def step(self, inputs: Tensor, labels: Tensor) -> float:
        """One step; the loss before it."""
        loss = torch.nn.functional.cross_entropy(self.model(inputs), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.update()
        return float(loss.detach())


def measured(network: Network, ways: Mapping[str, Any], steps: int, rounds: int) -> dict[str, Any]:
    """Losses and times of one network by way of training; the first way is the reference."""
    model, batches = network.built()
    trainers = {name: Trainer(model, compiled) for name, compiled in ways.items()}
    losses = {
        name: [trainer.step(*batches[step % BATCHES]) for step in range(steps)]
        for name, trainer in trainers.items()
    }
    times_s: dict[str, list[float]] = {name: [] for name in trainers}
    for turn in range(WARM + rounds):
        for name, trainer in trainers.items():
            begun_s = time.perf_counter()
            trainer.step(*batches[turn % BATCHES])
            if turn >= WARM:
                times_s[name].append(time.perf_counter() - begun_s)
    reference = losses[next(iter(ways))]
    return {
        "step_s": {name: statistics.median(times) for name, times in times_s.items()},
        "loss_difference": {name: _difference(given, reference) for name, given in losses.items()},
        "losses": {name: [given[0], given[-1]] for name, given in losses.items()},
    }


def _difference(losses: Sequence[float], reference: Sequence[float]) -> float:
    """The greatest relative difference."""
    return max(abs(a - b) / max(abs(b), 1e-6) for a, b in zip(losses, reference, strict=True))


def row(name: str, line: Mapping[str, Any]) -> str:
    times_s, differences = line["step_s"], line["loss_difference"]
    cells = [name, *(f"{times_s[way] * 1e3:.2f}" for way in ("eager", "inductor", "tuner"))]
    cells += [f"{times_s[way] / times_s['tuner']:.2f}" for way in ("eager", "inductor")]
    cells += [f"{differences[way]:.0e}" for way in ("inductor", "tuner")]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="part of the networks' names")
    parser.add_argument("--seconds", type=float, default=300.0, help="budget of each region")
    parser.add_argument("--trials", type=int, help="of each kernel, on average")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=100, help="whose losses are compared")
    parser.add_argument("--json", action="store_true", help="lines of JSON instead of a table")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    budget = {"seconds": given.seconds} | ({"trials": given.trials} if given.trials else {})
    ways = {
        "eager": None,
        "inductor": {"backend": "inductor", "dynamic": False},
        "tuner": {
            "backend": "tuner",
            "dynamic": False,
            "options": {"tune": "now", "threads": given.threads, **budget},
        },
    }
    if not given.json:
        print(HEADER, flush=True)
    for name, network in NETWORKS.items():
        if given.only.lower() not in name.lower():
            continue
        torch._dynamo.reset()
        line = measured(network, ways, given.steps, ROUNDS)
        print(json.dumps({"network": name, **line}) if given.json else row(name, line), flush=True)


if __name__ == "__main__":
    main()
