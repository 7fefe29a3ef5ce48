"""Networks of the races as functions of their weights, in PyTorch alone.

Both halves of the benchmark read them: one exports a program to build kernels for, the
other calls the same function as the rival. Batch normalisations are folded into their
convolutions beforehand, as inference does. Images have channels last; weights of
convolutions are HWIO, those of dense layers have a row for each output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import prod, sqrt
from typing import Any, NamedTuple


class Network(NamedTuple):
    """A network at one size of its input."""

    call: Callable[..., Any]  # (x, *weights) -> output
    written_out: Callable[..., Any]  # the same, where `call` is a library's own kernel
    input: tuple[int, ...]
    weights: tuple[tuple[int, ...], ...]


class _Weights:
    """Declares weights in the order in which a network takes them."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, ...]] = []

    def add(self, *shapes: tuple[int, ...]) -> list[int]:
        places = range(len(self.shapes), len(self.shapes) + len(shapes))
        self.shapes += shapes
        return [*places]


def scale_of(shape: Sequence[int]) -> float:
    """Of a weight's random values, so that activations neither die nor grow."""
    if len(shape) == 1:
        return 0.1
    return sqrt(2.0 / (shape[1] if len(shape) == 2 else prod(shape[:3])))


def resnet(
    torch: Any,
    batch: int,
    *,
    size: int = 224,
    width: int = 64,
    blocks: Sequence[int] = (3, 4, 6, 3),
    classes: int = 1000,
) -> Network:
    """ResNet v1.5 of bottlenecks (He et al., 2016); 50 layers by default."""
    f, weights = torch.nn.functional, _Weights()
    convolutions: list[list[int]] = []

    def declare(read: int, written: int, kernel: int) -> None:
        convolutions.append(weights.add((kernel, kernel, read, written), (written,)))

    declare(3, width, 7)
    channels = width
    for stage, count in enumerate(blocks):
        inner = width << stage
        for block in range(count):
            declare(channels, inner, 1)
            declare(inner, inner, 3)
            declare(inner, 4 * inner, 1)
            if block == 0:
                declare(channels, 4 * inner, 1)
            channels = 4 * inner
    dense = weights.add((classes, channels), (classes,))

    def call(x: Any, *given: Any) -> Any:
        ready = iter(convolutions)

        def conv(value: Any, stride: int = 1) -> Any:
            kernel, bias = (given[place] for place in next(ready))
            padding = kernel.shape[0] // 2
            return f.conv2d(value, kernel.permute(3, 2, 0, 1), bias, stride, padding)

        value = f.relu(conv(x.permute(0, 3, 1, 2), 2))
        value = f.max_pool2d(value, 3, 2, 1)
        for stage, count in enumerate(blocks):
            for block in range(count):
                stride = 2 if block == 0 and stage else 1
                inner = f.relu(conv(value))
                inner = f.relu(conv(inner, stride))
                inner = conv(inner)
                value = f.relu(inner + (conv(value, stride) if block == 0 else value))
        kernel, bias = (given[place] for place in dense)
        return f.linear(value.mean((2, 3)), kernel, bias)

    return Network(call, call, (batch, size, size, 3), tuple(weights.shapes))


def bert(
    torch: Any,
    batch: int,
    *,
    tokens: int = 128,
    width: int = 768,
    heads: int = 12,
    layers: int = 12,
) -> Network:
    """The encoder of BERT (Devlin et al., 2019), from embedded tokens; base by default."""
    f, weights = torch.nn.functional, _Weights()
    dense = [
        *[(width, width), (width,)] * 4,  # queries, keys, values, what becomes of them
        *[(width,), (width,)],
        *[(4 * width, width), (4 * width,), (width, 4 * width), (width,)],
        *[(width,), (width,)],
    ]
    places = [weights.add(*dense) for _ in range(layers)]

    def attention(q: Any, k: Any, v: Any) -> Any:
        scores = q @ k.transpose(2, 3) * (width // heads) ** -0.5
        return torch.softmax(scores, 3) @ v

    def layer(mix: Callable[..., Any], value: Any, own: Iterator[Any]) -> Any:
        def linear(source: Any) -> Any:
            return f.linear(source, next(own), next(own))

        def normalised(source: Any) -> Any:
            return f.layer_norm(source, (width,), next(own), next(own), 1e-12)

        split = (batch, tokens, heads, width // heads)
        q, k, v = (linear(value).view(split).transpose(1, 2) for _ in range(3))
        mixed = mix(q, k, v).transpose(1, 2).reshape(batch, tokens, width)
        value = normalised(value + linear(mixed))
        return normalised(value + linear(f.gelu(linear(value))))

    def encoder(mix: Callable[..., Any], x: Any, *given: Any) -> Any:
        value = x
        for own in places:
            value = layer(mix, value, iter([given[place] for place in own]))
        return value

    return Network(
        partial(encoder, f.scaled_dot_product_attention),
        partial(encoder, attention),
        (batch, tokens, width),
        tuple(weights.shapes),
    )


# Name -> how it is made, the batch given.
NETWORKS: Mapping[str, Callable[..., Network]] = {"resnet": resnet, "bert": bert}
