"""Architectures of `transformers`, made small, through `torch.export` and the reader.

    python -m benchmarks.models.architectures [--only TEXT] [--count N] [--seed 0] [--seconds 90]

Needs PyTorch and transformers. Each architecture of `AutoModel`, in an order drawn by the seed,
is made from its default configuration with few layers, narrow ones where it lets itself be built
so, and random weights. It is exported with inputs after its kind, read, and evaluated in float64
against PyTorch. One JSON line for each: `read`, or `wrong`, with the error beside the greatest
value of an output, `refused` by the reader with its reason, `not exported` by PyTorch, or not
built; a summary last. Each is a process of its own, which ends after so many seconds.
"""

from __future__ import annotations

import argparse
import inspect
import json
import logging
import random
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import transformers as hub
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

from benchmarks.torch.apart import apart
from benchmarks.torch.judging import NotRun, error_of, tensors_of
from tuner.errors import TunerError
from tuner.models.exported_program import read_exported
from tuner.models.reference.accuracy import TOLERANCE
from tuner.models.reference.evaluation import evaluate_graph

MOST_PARAMETERS = 200_000_000
WORDS, VOCABULARY, LAYERS, EXPERTS = 12, 128, 2, 4
# What configurations call numbers of layers, widths, and widths of heads.
_DEPTHS = (
    "num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers",
    "depth", "num_encoder_layers", "num_decoder_layers", "encoder_num_layers",
    "decoder_num_layers",
)  # fmt: skip
_WIDTHS = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "embed_dim", "dim"), 64),
    **dict.fromkeys(("embedding_size", "moe_intermediate_size"), 64),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "n_inner"), 96),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 96),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("attention_heads", "num_key_value_heads"), 4),
}
_HEADS = {"head_dim": 16, "d_kv": 16}


def configurations(name: str) -> Iterator[Any]:
    """Of few layers and narrow ones, then of ever less that is cut."""
    for sizes in ({**_WIDTHS, **_HEADS}, _WIDTHS, {}, None):
        config = CONFIG_MAPPING[name]()
        if sizes is not None:
            _cut(config, sizes)
        config._attn_implementation = "eager"
        yield config


def _cut(config: Any, sizes: Mapping[str, int]) -> None:
    for key, value in vars(config).copy().items():
        if isinstance(value, hub.PretrainedConfig):
            _cut(value, sizes)
        elif key == "layer_types" and isinstance(value, list):
            depth = next((getattr(config, k) for k in _DEPTHS if hasattr(config, k)), LAYERS)
            kinds = [*dict.fromkeys(value)]  # each kind of layer at least once, as far as they go
            setattr(config, key, (kinds * depth)[:depth])
        elif type(value) is int:
            setattr(config, key, min(value, _most(key, value, sizes)))


def _most(key: str, value: int, sizes: Mapping[str, int]) -> int:
    if key in _DEPTHS:
        return LAYERS
    if "expert" in key:
        return LAYERS if "per_tok" in key or "topk" in key else EXPERTS
    if key == "vocab_size":
        return VOCABULARY
    if key.endswith("token_id") and value >= VOCABULARY:
        return 1
    return sizes.get(key, value)


def built(name: str) -> tuple[Any, dict[str, Any]]:
    """The model and its inputs. Raises NotRun with the reason of the first try."""
    reasons: list[Exception] = []
    try:
        for config in configurations(name):
            try:
                with torch.device("meta"):
                    count = sum(p.numel() for p in hub.AutoModel.from_config(config).parameters())
                if count > MOST_PARAMETERS:
                    raise ValueError(f"it has {count} parameters")
                torch.manual_seed(0)
                model = hub.AutoModel.from_config(config).eval()
                return model, fitting(model, config)
            except Exception as error:
                reasons.append(error)
    except Exception as error:  # of the configuration itself
        reasons.append(error)
    raise NotRun(f"not built: {_said(reasons[0])}")


def fitting(model: Any, config: Any) -> dict[str, Any]:
    """The first inputs that the model computes something of. Raises what the first raise."""
    reasons: list[Exception] = [ValueError("none of the inputs are known")]
    for inputs in candidates(model, config):
        try:
            with torch.no_grad():
                if tensors_of(model(**inputs)):
                    return inputs
        except Exception as error:
            reasons.append(error)
    raise reasons[min(1, len(reasons) - 1)]


def candidates(model: Any, config: Any) -> Iterator[dict[str, Any]]:
    """Inputs by the names that the model's forward has."""
    names = inspect.signature(model.forward).parameters
    others = {"use_cache": False} if "use_cache" in names else {}
    main = getattr(model, "main_input_name", "input_ids")
    sets = [
        [main],
        ["input_ids", "pixel_values"],
        ["pixel_values"],
        ["input_ids"],
        [main, "decoder_input_ids"],
        ["input_ids", "input_features"],
        ["inputs_embeds"],
    ]
    for tensors in _tensors(config):
        for chosen in sets:
            if all(key in tensors and key in names for key in chosen):
                yield {**{key: tensors[key] for key in chosen}, **others}


def _tensors(config: Any) -> Iterator[dict[str, Any]]:
    """Texts, images, films and sounds of several shapes."""
    vision = getattr(config, "vision_config", None) or getattr(config, "backbone_config", None)
    vision = vision or config
    size = getattr(vision, "image_size", None) or getattr(config, "image_size", None) or 64
    size = tuple(size) if isinstance(size, list | tuple) else (size, size)
    channels = getattr(vision, "num_channels", 3) or 3
    frames = getattr(config, "num_frames", None) or 8
    bins = getattr(config, "num_mel_bins", None) or 80
    steps = 2 * (getattr(config, "max_source_positions", None) or 50)
    torch.manual_seed(1)
    words = torch.randint(3, 90, (1, WORDS))
    texts = {
        "input_ids": words,
        "decoder_input_ids": words[:, :4],
        "inputs_embeds": torch.randn(1, WORDS, getattr(config, "hidden_size", None) or 64),
    }
    for image in dict.fromkeys([size, (64, 64), (224, 224)]):
        film = torch.randn(1, frames, channels, *image)
        sounds: Sequence[tuple[Any, Any]] = [
            (torch.randn(1, 4000), torch.randn(1, bins, steps)),
            (torch.randn(1, 1024, 128), torch.randn(1, 60, bins)),
            (torch.randn(1, 1, 2000), torch.randn(1, 60, bins)),
        ]
        pictures = [torch.randn(1, channels, *image), film, film]
        for (values, features), picture in zip(sounds, pictures, strict=True):
            yield {
                **texts,
                "pixel_values": picture,
                "pixel_values_videos": film,
                "input_values": values,
                "input_features": features,
            }


class Plain(torch.nn.Module):  # type: ignore[misc]
    """A model of tensors alone, which gives those of numbers."""

    def __init__(self, model: Any, names: Collection[str], others: Mapping[str, Any]) -> None:
        super().__init__()
        self.model, self.names, self.others = model, names, others

    def forward(self, *tensors: Any) -> Any:
        result = self.model(**dict(zip(self.names, tensors, strict=True)), **self.others)
        return tuple(tensor for tensor in tensors_of(result) if tensor.dtype != torch.bool)


def measured(name: str) -> dict[str, Any]:
    """The line of one architecture."""
    torch.set_num_threads(1)
    _silence()
    model, inputs = built(name)
    tensors = {key: value for key, value in inputs.items() if isinstance(value, torch.Tensor)}
    others = {key: value for key, value in inputs.items() if key not in tensors}
    given = tuple(tensors.values())
    with torch.no_grad():
        try:
            program = torch.export.export(Plain(model, tensors.keys(), others), given)
        except Exception as error:
            return {"is": "not exported", "reason": _said(error)}
        try:
            graph = read_exported(program)
        except TunerError as error:
            return {"is": "refused", "reason": _said(error)}
        right = program.module()(*given)
    with np.errstate(all="ignore"):
        values = evaluate_graph(graph, [tensor.numpy() for tensor in given])
    got = [
        torch.from_numpy(np.array(values[name])).to(tensor.dtype).reshape(tensor.shape)
        for name, tensor in zip(graph.outputs, right, strict=True)
    ]
    worst = max(map(error_of, got, right), default=0.0)
    verdict = "read" if worst <= TOLERANCE else "wrong"
    return {"is": verdict, "nodes": len(graph.nodes), "error": worst}


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]


def _silence() -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    hub.logging.set_verbosity_error()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="part of the architectures' names")
    parser.add_argument("--count", type=int, help="architectures")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=int, default=90, help="of each architecture, at most")
    given = parser.parse_args()
    names = [name for name in MODEL_MAPPING_NAMES if given.only in name]
    random.Random(given.seed).shuffle(names)
    counts: Counter[str] = Counter()
    for name in names[: given.count]:
        line = apart(measured, name, seconds=given.seconds)
        kind = next((key for key in ("not_run", "raised") if key in line), "")
        counts[line.get("is", kind)] += 1
        print(json.dumps({"architecture": name, **line}), flush=True)
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
