"""What `torch.compile(model, backend="tuner")` takes of networks that people use.

    python -m benchmarks.torch.coverage [--only TEXT] [--training] [--run]

Needs PyTorch and transformers. The networks have published widths, fewer layers and random
weights. For each one: calls of operators and the share that lies in regions, graph breaks,
regions, the greatest error of the outputs against the uncompiled model on three inputs, and
what is left to PyTorch. Regions are computed by PyTorch; with `--run` they are tuned first,
one trial for each kernel, so that the error is that of the libraries. One JSON line each.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import transformers as hub

import tuner.torch

SAMPLES = 3  # inputs that outputs are compared on
_EAGER = {"attn_implementation": "eager"}


@dataclass(frozen=True, kw_only=True)
class Network:
    """A network and what it takes."""

    make: Callable[[], Any]
    inputs: Callable[[], Sequence[Any]]


def words(count: int, vocabulary: int = 1000) -> Callable[[], Sequence[Any]]:
    return lambda: (torch.randint(0, vocabulary, (1, count)),)


def image(size: int, channels: int = 3) -> Callable[[], Sequence[Any]]:
    return lambda: (torch.rand(1, channels, size, size),)


NETWORKS: dict[str, Network] = {
    "MLP": Network(
        make=lambda: torch.nn.Sequential(
            torch.nn.Linear(128, 256), torch.nn.GELU(), torch.nn.Linear(256, 10)
        ),
        inputs=lambda: (torch.rand(16, 128),),
    ),
    "LSTM": Network(
        make=lambda: torch.nn.LSTM(64, 128, batch_first=True),
        inputs=lambda: (torch.rand(1, 32, 64),),
    ),
    "convolutional autoencoder": Network(
        make=lambda: torch.nn.Sequential(
            torch.nn.Conv2d(3, 32, 3, 2, 1), torch.nn.GroupNorm(8, 32), torch.nn.SiLU(),
            torch.nn.Upsample(scale_factor=2, mode="nearest"), torch.nn.Conv2d(32, 3, 3, 1, 1),
        ),
        inputs=image(64),
    ),
    "BERT, 2 layers": Network(
        make=lambda: hub.BertModel(hub.BertConfig(num_hidden_layers=2, **_EAGER)),
        inputs=words(64),
    ),
    "DistilBERT, 2 layers": Network(
        make=lambda: hub.DistilBertModel(hub.DistilBertConfig(n_layers=2)), inputs=words(64)
    ),
    "GPT-2, 2 layers": Network(
        make=lambda: hub.GPT2LMHeadModel(hub.GPT2Config(n_layer=2, use_cache=False)),
        inputs=words(32),
    ),
    "Llama, 2 layers": Network(
        make=lambda: hub.LlamaForCausalLM(
            hub.LlamaConfig(
                vocab_size=4096, hidden_size=512, intermediate_size=1376, num_hidden_layers=2,
                num_attention_heads=8, num_key_value_heads=4, use_cache=False,
            )
        ),
        inputs=words(32),
    ),
    "T5 encoder, 2 layers": Network(
        make=lambda: hub.T5EncoderModel(hub.T5Config(num_layers=2)), inputs=words(64)
    ),
    "ViT, 2 layers": Network(
        make=lambda: hub.ViTModel(hub.ViTConfig(num_hidden_layers=2)), inputs=image(224)
    ),
    "CLIP vision, 2 layers": Network(
        make=lambda: hub.CLIPVisionModel(hub.CLIPVisionConfig(num_hidden_layers=2)),
        inputs=image(224),
    ),
    "ResNet-18": Network(
        make=lambda: hub.ResNetForImageClassification(
            hub.ResNetConfig(
                hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic"
            )
        ),
        inputs=image(224),
    ),
    "ResNet-50": Network(
        make=lambda: hub.ResNetForImageClassification(hub.ResNetConfig()), inputs=image(224)
    ),
    "MobileNetV2": Network(
        make=lambda: hub.MobileNetV2ForImageClassification(hub.MobileNetV2Config()),
        inputs=image(224),
    ),
    "EfficientNet-B0": Network(
        make=lambda: hub.EfficientNetForImageClassification(
            hub.EfficientNetConfig(
                width_coefficient=1.0, depth_coefficient=1.0, image_size=224, hidden_dim=1280
            )
        ),
        inputs=image(224),
    ),
    "ConvNeXt, 5 blocks": Network(
        make=lambda: hub.ConvNextForImageClassification(
            hub.ConvNextConfig(depths=[1, 1, 2, 1])
        ),
        inputs=image(224),
    ),
    "MobileViT": Network(
        make=lambda: hub.MobileViTForImageClassification(hub.MobileViTConfig()),
        inputs=image(256),
    ),
    "Swin2SR, 1 block": Network(
        make=lambda: hub.Swin2SRForImageSuperResolution(
            hub.Swin2SRConfig(depths=[1], num_heads=[6], embed_dim=60, image_size=64)
        ),
        inputs=image(64),
    ),
    "Whisper encoder, 2 layers": Network(
        make=lambda: hub.WhisperModel(
            hub.WhisperConfig(encoder_layers=2, decoder_layers=1)
        ).encoder,
        inputs=lambda: (torch.rand(1, 80, 3000),),
    ),
}  # fmt: skip


def measured(network: Network, *, training: bool, run: bool) -> dict[str, Any]:
    """The line of one network. Its error is that of the gradients of all parameters too
    where it is trained."""
    torch.manual_seed(0)
    model = network.make().train(training)
    begun_s = time.monotonic()
    with torch.set_grad_enabled(training):
        explained = tuner.torch.explain(model, network.inputs(), backward=training)
        options = {"tune": "now" if run else "off", "trials": 1}
        compiled = torch.compile(model, backend="tuner", options=options)
        error = max(
            _error(model, compiled, network.inputs(), seed, training) for seed in range(SAMPLES)
        )
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


def _error(model: Any, compiled: Any, inputs: Sequence[Any], seed: int, training: bool) -> float:
    """The greatest error of a tensor, relative to its greatest value."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="part of the networks' names")
    parser.add_argument("--training", action="store_true", help="with backward graphs")
    parser.add_argument("--run", action="store_true", help="by libraries, tuned first")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    hub.logging.set_verbosity_error()
    for name, network in NETWORKS.items():
        if given.only.lower() not in name.lower():
            continue
        torch._dynamo.reset()
        line = measured(network, training=given.training, run=given.run)
        print(json.dumps({"network": name, **line}), flush=True)


if __name__ == "__main__":
    main()
