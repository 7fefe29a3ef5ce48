"""`torch.compile(model, backend="tuner")`: what is supported runs as tuned regions, the rest
by PyTorch.

To import this is quick: what compiles graphs is loaded with the first one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tuner.torch.backend import tuner
from tuner.torch.einsum import einsum
from tuner.torch.registration import register

if TYPE_CHECKING:
    from tuner.torch.explanation import Explanation, explain

__all__ = ["Explanation", "einsum", "explain", "tuner"]


def __getattr__(name: str) -> Any:
    if name not in ("Explanation", "explain"):
        raise AttributeError(
            f"module 'tuner.torch' has no attribute {name!r}; it has {', '.join(__all__)}"
        )
    from tuner.torch import explanation  # noqa: PLC0415  # with its first use

    return getattr(explanation, name)


def __dir__() -> list[str]:
    return sorted(__all__)


register(tuner)
