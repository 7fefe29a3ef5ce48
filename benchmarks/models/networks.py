"""Architectures that people use, built by `transformers` from their published configurations.

Weights are random, of the libraries' own initialisation but for convolutions, which have
He's, with batch normalisations settled on the inputs; widths, images, classes and
vocabularies are those of the published networks. Both doors are fed from here: the program
that `torch.export` makes, and the file that `torch.onnx.export` writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
import transformers as hub

Tensor: TypeAlias = Any
Module: TypeAlias = Any
CLASSES = 1000  # of images, those of ImageNet


class FirstOutput(torch.nn.Module):  # type: ignore[misc]
    """A network of `transformers` with positional inputs and its first output alone."""

    def __init__(self, network: Module, names: Sequence[str]) -> None:
        super().__init__()
        self.network, self.names = network, tuple(names)

    def forward(self, *inputs: Tensor) -> Any:
        result = self.network(**dict(zip(self.names, inputs, strict=True)))
        return result if isinstance(result, torch.Tensor) else result[0]


@dataclass(frozen=True, kw_only=True)
class Network:
    """How an architecture is made, and its inputs by name."""

    make: Callable[[], Module]
    inputs: Callable[[], Mapping[str, Tensor]]

    def built(self) -> tuple[Module, tuple[Tensor, ...]]:
        """The network in evaluation mode, always with the same weights, and inputs."""
        torch.manual_seed(0)
        inputs = dict(self.inputs())
        network = FirstOutput(self.make(), list(inputs)).eval()
        _settle(network, inputs)
        return network, tuple(inputs.values())


def _settle(network: Module, inputs: Mapping[str, Tensor]) -> None:
    """Draws the convolutions anew, and gives batch normalisations the statistics of what
    they read, as training would: else a deep network gives nothing but zeros. Some
    configurations draw the scales of these around zero; each is 1 here."""
    for module in network.modules():
        if isinstance(module, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(module.weight)
    norms = [module for module in network.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.reset_parameters()
        norm.train().momentum = 1.0
    with torch.no_grad():
        network(*inputs.values())
    network.eval()


def image(size: int = 224, channels: int = 3) -> Callable[[], Mapping[str, Tensor]]:
    return lambda: {"pixel_values": torch.rand(1, channels, size, size)}


def words(count: int, *, masked: bool = False) -> Callable[[], Mapping[str, Tensor]]:
    def made() -> Mapping[str, Tensor]:
        given = {"input_ids": torch.randint(0, 1000, (1, count))}
        mask = {"attention_mask": torch.ones(1, count, dtype=torch.int64)} if masked else {}
        return given | mask

    return made


class Tagger(torch.nn.Module):  # type: ignore[misc]
    """Two bidirectional LSTM layers over embedded words, and a class for each word."""

    def __init__(self) -> None:
        super().__init__()
        self.embedded = torch.nn.Embedding(10_000, 128)
        self.layers = torch.nn.LSTM(128, 256, num_layers=2, bidirectional=True, batch_first=True)
        self.classes = torch.nn.Linear(512, 32)

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.classes(self.layers(self.embedded(input_ids))[0])


class Recurrent(torch.nn.Module):  # type: ignore[misc]
    """A recurrent layer of PyTorch's over vectors, 32 steps of 64."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer = getattr(torch.nn, kind)(64, 128, batch_first=True)

    def forward(self, input: Tensor) -> Tensor:
        return self.layer(input)[0]


class Sequential(torch.nn.Sequential):  # type: ignore[misc]
    """Layers one after the other, with a name for their input."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input)


def perceptron() -> Module:
    nn = torch.nn
    return Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 10))


def autoencoder() -> Module:
    nn = torch.nn
    return Sequential(
        nn.Conv2d(3, 32, 3, 2, 1),
        nn.GroupNorm(8, 32),
        nn.SiLU(),
        nn.Upsample(scale_factor=2, mode="nearest"),
        nn.Conv2d(32, 3, 3, 1, 1),
    )


def drawn(*shape: int) -> Callable[[], Mapping[str, Tensor]]:
    return lambda: {"input": torch.rand(shape)}


def classifier(kind: str, **options: Any) -> Callable[[], Module]:
    """A network for the classification of images by its name in `transformers`."""

    def made() -> Module:
        config = getattr(hub, f"{kind}Config")(num_labels=CLASSES, **options)
        return getattr(hub, f"{kind}ForImageClassification")(config)

    return made


def base(kind: str, **options: Any) -> Callable[[], Module]:
    """The network without a head by its name in `transformers`."""

    def made() -> Module:
        return getattr(hub, f"{kind}Model")(getattr(hub, f"{kind}Config")(**options))

    return made


def whisper_encoder(layers: int) -> Callable[[], Module]:
    config = hub.WhisperConfig
    return lambda: hub.WhisperModel(config(encoder_layers=layers, decoder_layers=1)).encoder


def efficientnet() -> Module:
    config = hub.EfficientNetConfig(
        width_coefficient=1.0,
        depth_coefficient=1.0,
        image_size=224,
        hidden_dim=1280,
        num_labels=CLASSES,
    )
    network = hub.EfficientNetForImageClassification(config)
    # The window of the published pooler is 1280 wide, cut to the picture's 7: OpenVINO refuses
    # it, and inductor goes through all of it.
    network.efficientnet.pooler = torch.nn.AdaptiveAvgPool2d(1)
    return network


SPEECH = {"input_features": (1, 80, 3000)}

# Whole networks, for times.
WHOLE: Mapping[str, Network] = {
    "resnet-50": Network(make=classifier("ResNet"), inputs=image()),
    "mobilenet-v2": Network(make=classifier("MobileNetV2"), inputs=image()),
    "efficientnet-b0": Network(make=efficientnet, inputs=image()),
    "bert-base": Network(make=base("Bert"), inputs=words(128, masked=True)),
    "vit-b16": Network(make=base("ViT"), inputs=image()),
    "gpt2": Network(
        make=lambda: hub.GPT2LMHeadModel(hub.GPT2Config(use_cache=False)), inputs=words(128)
    ),
    "gpt2-token": Network(
        make=lambda: hub.GPT2LMHeadModel(hub.GPT2Config(use_cache=False)), inputs=words(1)
    ),
    "whisper-tiny": Network(
        make=whisper_encoder(4),
        inputs=lambda: {name: torch.rand(shape) for name, shape in SPEECH.items()},
    ),
    "lstm-tagger": Network(make=Tagger, inputs=words(64)),
}

# More kinds, with fewer layers: what they are made of is the same.
SHORT: Mapping[str, Network] = {
    "distilbert": Network(make=base("DistilBert", n_layers=2), inputs=words(64)),
    "roberta": Network(make=base("Roberta", num_hidden_layers=2), inputs=words(64)),
    "t5-encoder": Network(
        make=lambda: hub.T5EncoderModel(hub.T5Config(num_layers=2)), inputs=words(64)
    ),
    "llama": Network(
        make=lambda: hub.LlamaForCausalLM(
            hub.LlamaConfig(
                vocab_size=4096,
                hidden_size=512,
                intermediate_size=1376,
                num_hidden_layers=2,
                num_attention_heads=8,
                num_key_value_heads=4,
                use_cache=False,
            )
        ),
        inputs=words(32),
    ),
    "resnet-18": Network(
        make=classifier(
            "ResNet", hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic"
        ),
        inputs=image(),
    ),
    "mobilenet-v1": Network(make=classifier("MobileNetV1"), inputs=image()),
    "mobilevit": Network(make=classifier("MobileViT"), inputs=image(256)),
    "convnext": Network(make=classifier("ConvNext", depths=[1, 1, 2, 1]), inputs=image()),
    "regnet": Network(make=classifier("RegNet", depths=[1, 1, 2, 1]), inputs=image()),
    "swin": Network(make=classifier("Swin", depths=[1, 1, 1, 1]), inputs=image()),
    "deit": Network(make=base("DeiT", num_hidden_layers=2), inputs=image()),
    "beit": Network(make=base("Beit", num_hidden_layers=2), inputs=image()),
    "clip-vision": Network(make=base("CLIPVision", num_hidden_layers=2), inputs=image()),
    "dinov2": Network(make=base("Dinov2", num_hidden_layers=2), inputs=image()),
    "vit-msn": Network(make=base("ViTMSN", num_hidden_layers=2), inputs=image()),
    "segformer": Network(
        make=lambda: hub.SegformerForSemanticSegmentation(
            hub.SegformerConfig(depths=[1, 1, 1, 1], num_labels=150)
        ),
        inputs=image(256),
    ),
    "poolformer": Network(make=classifier("PoolFormer", depths=[1, 1, 2, 1]), inputs=image()),
    "swin2sr": Network(
        make=lambda: hub.Swin2SRForImageSuperResolution(
            hub.Swin2SRConfig(depths=[1], num_heads=[6], embed_dim=60, image_size=64)
        ),
        inputs=image(64),
    ),
    "electra": Network(make=base("Electra", num_hidden_layers=2), inputs=words(64)),
    "albert": Network(
        make=base(
            "Albert",
            hidden_size=768,
            intermediate_size=3072,
            num_attention_heads=12,
            num_hidden_layers=2,
        ),
        inputs=words(64),
    ),
    "mpnet": Network(make=base("MPNet", num_hidden_layers=2), inputs=words(64)),
    "opt": Network(
        make=lambda: hub.OPTForCausalLM(hub.OPTConfig(num_hidden_layers=2, use_cache=False)),
        inputs=words(32),
    ),
    "qwen2": Network(
        make=lambda: hub.Qwen2ForCausalLM(
            hub.Qwen2Config(
                vocab_size=4096,
                hidden_size=896,
                intermediate_size=4864,
                num_hidden_layers=2,
                num_attention_heads=14,
                num_key_value_heads=2,
                use_cache=False,
            )
        ),
        inputs=words(32),
    ),
    "mlp": Network(make=perceptron, inputs=drawn(16, 128)),
    "autoencoder": Network(make=autoencoder, inputs=drawn(1, 3, 64, 64)),
    "lstm": Network(make=lambda: Recurrent("LSTM"), inputs=drawn(1, 32, 64)),
    "gru": Network(make=lambda: Recurrent("GRU"), inputs=drawn(1, 32, 64)),
}

NETWORKS: Mapping[str, Network] = {**WHOLE, **SHORT}
