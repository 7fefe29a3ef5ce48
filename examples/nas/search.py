"""Chooses a network for handwritten digits by its latency on each of two targets.

    python -m examples.nas.search [--targets cpu,cpu:x86-64-v3] [--bound 0.5] [--trials 48]

Needs PyTorch and scikit-learn. Each of four layers is one of five: nothing, or an inverted
residual with an expansion of 2 or 4 and a kernel of 3 or 5. For each target, the choices'
kernels are tuned, a search learns weights and choices together under a bound on the
expected latency (as ProxylessNAS does, arXiv 1812.00332), and the network that it finds is
trained, tuned as a whole, and timed. The bound is a share of the slowest network's time.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn

import tuner
from tuner.nas import ExpectedLatency, latencies

BATCH, CHANNELS, SIDE, CLASSES = 32, 24, 8, 10
LAYERS = 4
CHOICES = ((0, 0), (2, 3), (2, 5), (4, 3), (4, 5))  # expansion and kernel; no expansion: skip
SEARCH_EPOCHS, TRAIN_EPOCHS = 30, 40
PENALTY = 4.0  # of a loss whose latency is twice the bound
TRAINED_ON = 1280  # of 1797 images


class InvertedResidual(nn.Module):  # type: ignore[misc]  # PyTorch is not followed
    """Expands channels, filters each by itself, and projects back; adds its input."""

    def __init__(self, expansion: int, kernel: int) -> None:
        super().__init__()
        hidden = CHANNELS * expansion
        self.layers = nn.Sequential(
            nn.Conv2d(CHANNELS, hidden, 1),
            nn.ReLU(),
            nn.Conv2d(hidden, hidden, kernel, padding=kernel // 2, groups=hidden),
            nn.ReLU(),
            nn.Conv2d(hidden, CHANNELS, 1),
        )

    def forward(self, x: Any) -> Any:
        return x + self.layers(x)


def choices() -> list[Any]:
    return [InvertedResidual(*each) if each[0] else nn.Identity() for each in CHOICES]


def stem() -> Any:
    return nn.Sequential(nn.Conv2d(1, CHANNELS, 3, padding=1), nn.ReLU())


def head() -> Any:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS, CLASSES))


class Mixture(nn.Module):  # type: ignore[misc]
    """All choices of each layer, weighted by a distribution that is learned."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = stem(), head()
        self.layers = nn.ModuleList(nn.ModuleList(choices()) for _ in range(LAYERS))
        self.logits = nn.Parameter(torch.zeros(LAYERS, len(CHOICES)))

    def forward(self, x: Any, weights: Any) -> Any:
        x = self.stem(x)
        for layer, row in zip(self.layers, weights, strict=True):
            x = sum(weight * choice(x) for weight, choice in zip(row, layer, strict=True))
        return self.head(x)


@dataclass(frozen=True, kw_only=True)
class Digits:
    images: Any  # (n, 1, 8, 8), 0 to 1
    labels: Any  # (n,)

    def batches(self) -> Iterator[tuple[Any, Any]]:
        """Whole batches, in a new order."""
        order = torch.randperm(len(self.images))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            rows = order[start : start + BATCH]
            yield self.images[rows], self.labels[rows]


@dataclass(frozen=True, kw_only=True)
class Times:
    """Seconds on one target."""

    choices_s: tuple[float, ...]  # of a layer
    fixed_s: float  # of the stem and the head

    def of(self, network: Sequence[int]) -> float:
        return self.fixed_s + sum(self.choices_s[choice] for choice in network)


def digits() -> tuple[Digits, Digits]:
    """To train on, and to test on."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32)[:, None] / 16
    labels = torch.tensor(data.target)
    order = torch.randperm(len(images))
    first, rest = order[:TRAINED_ON], order[TRAINED_ON:]
    return (
        Digits(images=images[first], labels=labels[first]),
        Digits(images=images[rest], labels=labels[rest]),
    )


def times_on(target: str, trials: int) -> Times:
    """Of the choices, the stem and the head, tuned where they have no kernel yet."""
    inside = torch.zeros(BATCH, CHANNELS, SIDE, SIDE)
    layer = latencies(choices(), [inside], target=target, trials=trials)
    (first,) = latencies(
        [stem()], [torch.zeros(BATCH, 1, SIDE, SIDE)], target=target, trials=trials
    )
    (last,) = latencies([head()], [inside], target=target, trials=trials)
    return Times(
        choices_s=tuple(each.median_s for each in layer), fixed_s=first.median_s + last.median_s
    )


def search(times: Times, bound_s: float, data: Digits) -> tuple[int, ...]:
    """The likeliest network of the learned distribution that keeps the bound."""
    mixture = Mixture()
    latency = ExpectedLatency([times.choices_s] * LAYERS, fixed_s=times.fixed_s)
    weights_of = [p for name, p in mixture.named_parameters() if name != "logits"]
    optimizer = torch.optim.Adam(
        [{"params": weights_of, "lr": 3e-3}, {"params": [mixture.logits], "lr": 0.03}]
    )
    for epoch in range(SEARCH_EPOCHS):
        # Choices learn alone first: untrained, they are worse than nothing.
        warm = epoch < SEARCH_EPOCHS // 2
        for images, labels in data.batches():
            logits = torch.zeros_like(mixture.logits) if warm else mixture.logits
            weights = nn.functional.gumbel_softmax(logits, hard=True, dim=-1)
            loss = nn.functional.cross_entropy(mixture(images, weights), labels)
            expected = latency(list(torch.softmax(mixture.logits, dim=-1)))
            if not warm:
                loss = loss + PENALTY * torch.relu(expected / bound_s - 1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    logs = torch.log_softmax(mixture.logits, dim=-1).tolist()
    networks: list[tuple[int, ...]] = [
        network
        for network in product(range(len(CHOICES)), repeat=LAYERS)
        if times.of(network) <= bound_s
    ]

    def likelihood(network: Sequence[int]) -> float:
        return sum(float(row[choice]) for row, choice in zip(logs, network, strict=True))

    return max(networks, key=likelihood)


def trained(network: Sequence[int], data: Digits) -> Any:
    layers = [choices()[choice] for choice in network]
    model = nn.Sequential(stem(), *layers, head())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(TRAIN_EPOCHS):
        for images, labels in data.batches():
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.eval()


def measured_s(model: Any, target: str, trials: int) -> float:
    """Of one call of the tuned network's library."""
    program = torch.export.export(model, (torch.zeros(BATCH, 1, SIDE, SIDE),))
    with TemporaryDirectory() as folder:
        return tuner.tune_model(
            program, Path(folder) / "network", target=target, trials=trials
        ).median_s


def written(network: Sequence[int]) -> str:
    return " ".join(
        "skip" if not CHOICES[each][0] else "e{}k{}".format(*CHOICES[each]) for each in network
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--targets", default="cpu,cpu:x86-64-v3")
    parser.add_argument("--bound", type=float, default=0.5, help="share of the slowest network")
    parser.add_argument("--trials", type=int, default=48, help="of each kernel")
    chosen = parser.parse_args()
    torch.manual_seed(0)
    train, test = digits()
    for target in chosen.targets.split(","):
        times = times_on(target, chosen.trials)
        bound_s = chosen.bound * times.of([times.choices_s.index(max(times.choices_s))] * LAYERS)
        network = search(times, bound_s, train)
        model = trained(network, train)
        right = float((model(test.images).argmax(-1) == test.labels).float().mean())
        call_s = measured_s(model, target, chosen.trials)
        print(
            f"{target}: {written(network)}; bound {1e6 * bound_s:.1f} µs, "
            f"expected {1e6 * times.of(network):.1f} µs, measured {1e6 * call_s:.1f} µs; "
            f"{100 * right:.1f}% right",
            flush=True,
        )


if __name__ == "__main__":
    main()
