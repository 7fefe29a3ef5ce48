"""What `torch.compile(model, backend="tuner")` takes of networks that people use.

    python -m benchmarks.torch.coverage [--only TEXT] [--training] [--run]

Needs PyTorch and transformers. The networks are those of `benchmarks/models/networks.py`. For
each one a row of a Markdown table: calls of operators and those that lie in regions, graph
breaks, regions, and the greatest error of an output against the uncompiled model on three
inputs; with `--json` a line of JSON that also says what is left to PyTorch. Regions are computed
by PyTorch; with `--run` they are tuned first, one trial for each kernel, so that the error is
that of the libraries.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import transformers as hub

import tuner.torch
from benchmarks.models.networks import NETWORKS, Network

HEADER = """\
| network | calls | in regions | breaks | regions | error |
|---|---|---|---|---|---|"""
SAMPLES = 3  # inputs that outputs are compared on


def measured(network: Network, *, training: bool, run: bool) -> dict[str, Any]:
    """The line of one network. Its error is that of the gradients of all parameters too
    where it is trained."""
    model, inputs = network.built()
    model.train(training)
    begun_s = time.monotonic()
    with torch.set_grad_enabled(training):
        explained = tuner.torch.explain(model, inputs, backward=training)
        options = {"tune": "now" if run else "off", "trials": 1}
        compiled = torch.compile(model, backend="tuner", options=options)
        error = max(_error(model, compiled, network, seed, training) for seed in range(SAMPLES))
    return {
        "calls": sum(explained.operators.values()) + len(explained.left),
        "in_regions": sum(explained.operators.values()),
        "regions": len(explained.regions),
        "graphs": explained.graphs,
        "graph_breaks": sum(explained.graph_breaks.values()),
        "error": error,
        "seconds": round(time.monotonic() - begun_s, 1),
        "left": dict(Counter(f"{left.operator}: {left.reason}" for left in explained.left)),
    }


def _error(model: Any, compiled: Any, network: Network, seed: int, training: bool) -> float:
    """The greatest error of a tensor, relative to its greatest value, on a seed's inputs."""
    torch.manual_seed(seed)
    inputs = tuple(network.inputs().values())
    both = []
    for called in (model, compiled, compiled):  # the first compiled call tries the libraries
        torch.manual_seed(seed)
        tensors = [*_tensors(called(*inputs))]
        if training:
            model.zero_grad()
            sum(tensor.square().mean() for tensor in tensors if tensor.requires_grad).backward()
            tensors += [p.grad.clone() for p in model.parameters() if p.grad is not None]
        both.append(tensors)
    return max(
        float((a - b).abs().max() / b.abs().max().clamp(min=1e-30))
        for tensors in both[1:]
        for a, b in zip(tensors, both[0], strict=True)
        if b.is_floating_point() and b.numel()
    )


def _tensors(result: Any) -> Iterator[Any]:
    for leaf in torch.utils._pytree.tree_leaves(
        result.to_tuple() if hasattr(result, "to_tuple") else result
    ):
        if isinstance(leaf, torch.Tensor):
            yield leaf


def row(name: str, line: Mapping[str, Any]) -> str:
    cells = [name, *(line[key] for key in ("calls", "in_regions", "graph_breaks", "regions"))]
    cells.append(f"{line['error']:.0e}" if line["error"] else 0)
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="part of the networks' names")
    parser.add_argument("--training", action="store_true", help="with backward graphs")
    parser.add_argument("--run", action="store_true", help="by libraries, tuned first")
    parser.add_argument("--json", action="store_true", help="lines of JSON instead of a table")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    hub.logging.set_verbosity_error()
    if not given.json:
        print(HEADER, flush=True)
    for name, network in NETWORKS.items():
        if given.only.lower() not in name.lower():
            continue
        torch._dynamo.reset()
        with torch._dynamo.config.patch(allow_rnn=True):  # recurrent layers are traced
            line = measured(network, training=given.training, run=given.run)
        print(json.dumps({"network": name, **line}) if given.json else row(name, line), flush=True)


if __name__ == "__main__":
    main()
