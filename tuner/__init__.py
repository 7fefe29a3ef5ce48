"""Finds fast schedules for tensor kernels. `tuner.tune` is the entry point.

`import tuner` is quick: the names here load their modules when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tuner.version import __version__

if TYPE_CHECKING:
    from tuner.app.einsum import einsum
    from tuner.app.grad import grad
    from tuner.app.grad_model import grad_model
    from tuner.app.judge import c_signature, cuda_signature, judge
    from tuner.app.kernels.kernel import Kernel
    from tuner.app.tune import tune
    from tuner.app.tune_model import tune_model
    from tuner.errors import DatabaseError, TunerError, UsageError, WorkloadError
    from tuner.models.gguf import GgufFile
    from tuner.settings import Settings

__all__ = [
    "DatabaseError",
    "GgufFile",
    "Kernel",
    "Settings",
    "TunerError",
    "UsageError",
    "WorkloadError",
    "__version__",
    "c_signature",
    "cuda_signature",
    "einsum",
    "grad",
    "grad_model",
    "judge",
    "tune",
    "tune_model",
]

_HOMES = MappingProxyType(
    {
        "Kernel": "tuner.app.kernels.kernel",
        "c_signature": "tuner.app.judge",
        "cuda_signature": "tuner.app.judge",
        "einsum": "tuner.app.einsum",
        "grad": "tuner.app.grad",
        "grad_model": "tuner.app.grad_model",
        "judge": "tuner.app.judge",
        "tune": "tuner.app.tune",
        "tune_model": "tuner.app.tune_model",
        "DatabaseError": "tuner.errors",
        "GgufFile": "tuner.models.gguf",
        "TunerError": "tuner.errors",
        "UsageError": "tuner.errors",
        "WorkloadError": "tuner.errors",
        "Settings": "tuner.settings",
    }
)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(
            f"module 'tuner' has no attribute {name!r}; it has {', '.join(__all__)}"
        )
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
