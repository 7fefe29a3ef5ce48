"""Says when a program has imported a library: standard library only, as it runs inside it."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any, Protocol


class Listener(Protocol):
    """Hears of imports in the thread that imports."""

    def after(self, module: ModuleType) -> None:
        """A library has been imported. Raises nothing."""


class Finder:
    """Finds libraries as the others on `sys.meta_path` do, with a loader that says when one
    has been imported."""

    def __init__(self, names: Iterable[str], listener: Listener) -> None:
        self._waiting, self._listener = set(names), listener

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self._waiting:
            return None
        self._waiting.discard(name)
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self._listener)  # type: ignore[assignment]
                return spec
        return None


class _Loader:
    """A library's own loader, which it gets back before it runs."""

    def __init__(self, loader: Any, listener: Listener) -> None:
        self._loader, self._listener = loader, listener

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._listener.after(module)
