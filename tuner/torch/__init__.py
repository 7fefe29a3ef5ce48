"""`torch.compile(model, backend="tuner")`: what is supported runs as tuned regions, the rest
by PyTorch."""

from __future__ import annotations

from tuner.torch.backend import tuner
from tuner.torch.einsum import einsum
from tuner.torch.explanation import Explanation, explain
from tuner.torch.registration import register

__all__ = ["Explanation", "einsum", "explain", "tuner"]

register(tuner)
