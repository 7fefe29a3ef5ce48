"""Training steps beside eager: the networks run, and losses are compared step by step."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from benchmarks.torch import training  # noqa: E402  # after the check for PyTorch


@pytest.mark.parametrize("name", training.NETWORKS)
def test_networks_learn(name: str) -> None:
    network, batches = training.NETWORKS[name].built()
    trainer = training.Trainer(network, None)
    losses = [trainer.step(*batches[0]) for _ in range(2)]
    assert len(batches) == training.BATCHES and losses[1] < losses[0]


@pytest.mark.slow
def test_compiled_losses_are_compared_with_eagers() -> None:
    network = training.Network(
        make=lambda: torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()),
        inputs=lambda: torch.randn(8, 4),
        classes=3,
    )
    ours: dict[str, Any] = {"backend": "tuner", "options": {"tune": "off"}}
    ways = {"eager": None, "inductor": {"backend": "eager"}, "tuner": ours}
    line = training.measured(network, ways, 4, 1)
    assert 0 <= line["loss_difference"]["tuner"] < 1e-5
    assert training.row("small", line).count("|") == training.HEADER.splitlines()[0].count("|")
