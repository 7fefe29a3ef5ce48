"""The backend's name in PyTorch's table of backends."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

NAME = "tuner"
_GROUP = "torch_dynamo_backends"


def register(backend: Callable[..., Any]) -> None:
    """Makes the name known to PyTorch.

    Does nothing where the package is installed, since PyTorch then takes the name from
    the package's entry point, and allows no second registration.
    """
    if not entry_points(group=_GROUP, name=NAME):
        # Loads Dynamo, which an installed package leaves to the first call.
        from torch._dynamo.backends.registry import register_backend  # noqa: PLC0415

        register_backend(backend, name=NAME)
