"""The latency of a mixture of architectures, as a differentiable function of its weights."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

import torch

from tuner.errors import UsageError

_ROUNDINGS = 16  # of a probability, in float32 or a narrower type, by which a sum may miss 1


class ExpectedLatency(torch.nn.Module):  # type: ignore[misc]  # PyTorch is not followed
    """Seconds that a network takes in expectation, of which each layer is drawn.

    A layer's choice k is drawn with probability p[k] and takes times[k] seconds, so the
    expectation is the sum over the layers of the dot products of both (ProxylessNAS, arXiv
    1812.00332, section 3.3). Its gradient by p[k] is times[k].
    """

    def __init__(self, times_s: Sequence[Sequence[float]], *, fixed_s: float = 0.0) -> None:
        """`times_s` has a sequence for each layer, which has the seconds of each choice.

        `fixed_s` is what the layers take that are not searched. Raises UsageError for a
        layer without choices and for a time that is negative or not finite.
        """
        super().__init__()
        if not times_s:
            raise UsageError("there are no layers; give the seconds of each layer's choices")
        for layer, choices in enumerate(times_s):
            if not len(choices):
                raise UsageError(f"layer {layer} has no choices; give the seconds of each")
            for choice, seconds in enumerate(choices):
                _check_seconds(f"choice {choice} of layer {layer}", seconds)
            self.register_buffer(f"times_{layer}", torch.tensor(choices, dtype=torch.float64))
        _check_seconds("fixed_s", fixed_s)
        self.fixed_s = float(fixed_s)
        self.layers = len(times_s)

    def forward(self, probabilities: Sequence[Any]) -> Any:
        """Expected seconds, of the shape that all but the last axes of the probabilities have.

        `probabilities` has a tensor for each layer, (..., choices), whose last axis sums to
        1: the softmax of the layer's parameters, or a draw of Gumbel's. Raises UsageError
        for another number of layers or choices, and for what is no distribution.
        """
        if len(probabilities) != self.layers:
            raise UsageError(
                f"{len(probabilities)} layers' probabilities were given for {self.layers} layers"
            )
        expected = [self._layer(layer, each) for layer, each in enumerate(probabilities)]
        return torch.stack(torch.broadcast_tensors(*expected)).sum(dim=0) + self.fixed_s

    def _layer(self, layer: int, probabilities: Any) -> Any:
        times = getattr(self, f"times_{layer}")
        if probabilities.ndim == 0 or probabilities.shape[-1] != len(times):
            raise UsageError(
                f"layer {layer} has {len(times)} choices, its probabilities have the shape "
                f"{tuple(probabilities.shape)}; their last axis counts choices"
            )
        if not probabilities.is_floating_point():
            raise UsageError(
                f"layer {layer}: the probabilities are {probabilities.dtype}; convert them to "
                f"torch.float32, of one-hot choices too"
            )
        _check_distribution(layer, probabilities.detach())
        return probabilities @ times.to(probabilities.dtype)


def _check_seconds(name: str, seconds: float) -> None:
    if not (isfinite(seconds) and seconds >= 0):
        raise UsageError(f"{name} takes {seconds} s; give a finite time, 0 or more")


def _check_distribution(layer: int, probabilities: Any) -> None:
    sums = probabilities.sum(dim=-1)
    rounding = max(torch.finfo(dtype).eps for dtype in (probabilities.dtype, torch.float32))
    allowed = _ROUNDINGS * rounding
    # Written so that NaN is refused.
    if not bool(((sums - 1).abs() <= allowed).all() and (probabilities >= 0).all()):
        worst = float(sums.flatten()[(sums - 1).abs().argmax()])
        raise UsageError(
            f"layer {layer}: the probabilities sum to {worst:.6g}, with a least of "
            f"{float(probabilities.min()):.3g}; give the softmax of the layer's parameters"
        )
