"""Starts recording a library as soon as the program has imported it."""

from __future__ import annotations

import importlib.machinery
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from . import numpy_calls, onnxruntime_calls, torch_calls
from .output import Output

FOLDER, SHARE = "TUNER_TRACE_FOLDER", "TUNER_TRACE_SHARE"


class Recorder:
    """What records in this process."""

    def __init__(self, folder: str, share: float) -> None:
        self.folder = folder
        self.share = share / 2  # a program may use both NumPy and PyTorch
        self.output = Output(folder)
        self._after_fork: list[Callable[[], None]] = []
        os.register_at_fork(after_in_child=self._forked)

    def before(self, name: str) -> None:
        if name == "torch":
            torch_calls.quiet()

    def after(self, module: ModuleType) -> None:
        """Begins to record a library that has been imported."""
        try:
            self._record(module)
        except Exception as error:
            self.output.note(f"{module.__name__}'s calls are not recorded: {error!r}")

    def _record(self, module: ModuleType) -> None:
        if module.__name__ == "numpy":
            restart = numpy_calls.record(module, self.output, self.folder, self.share)
            if restart is not None:
                self._after_fork.append(restart)
        elif module.__name__ == "onnxruntime":
            onnxruntime_calls.record(module, self.output)
        elif module.__name__ == "torch":
            sampler = torch_calls.record(module, self.output, self.share)
            if sampler is not None:
                self._after_fork.append(sampler.forked)

    def _forked(self) -> None:
        try:
            self.output.reopen()
            for restart in self._after_fork:
                restart()
        except Exception as error:
            self.output.note(f"a forked process is not recorded: {error!r}")


class Finder:
    """Finds the libraries as the others on `sys.meta_path` do, with a loader that says when
    one has been imported."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._waiting = {"numpy", "torch", "onnxruntime"}

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
                    spec.loader = _Loader(spec.loader, self._recorder)  # type: ignore[assignment]
                return spec
        return None


class _Loader:
    """A library's own loader, which it gets back before it runs."""

    def __init__(self, loader: Any, recorder: Recorder) -> None:
        self._loader, self._recorder = loader, recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._recorder.before(module.__name__)
        self._loader.exec_module(module)
        self._recorder.after(module)


def start() -> None:
    """Begins to wait for imports, in a process that the environment says to record."""
    recorder = Recorder(os.environ[FOLDER], float(os.environ.get(SHARE, "0.02")))
    sys.meta_path.insert(0, Finder(recorder))
