"""The kinds of target there are. A further one is a line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.target.target import Target
from tuner.workers.backends.backend import Backend
from tuner.workers.backends.cpu import CpuBackend
from tuner.workers.backends.cuda import CudaBackend

BACKENDS: Mapping[str, Backend[Any]] = {"cpu": CpuBackend(), "cuda": CudaBackend()}


def backend_of(target: Target) -> Backend[Any]:
    """The backend of a target's kind."""
    return BACKENDS[target.kind]
