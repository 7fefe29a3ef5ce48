"""Starts recording a library as soon as the program has imported it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import ModuleType

from ..imports import Finder
from . import numpy_calls, onnxruntime_calls, torch_calls
from .output import Output

FOLDER, SHARE = "TUNER_TRACE_FOLDER", "TUNER_TRACE_SHARE"


class Recorder:
    """What records in this process."""

    def __init__(self, folder: str, share: float) -> None:
        self.folder = folder
        self.share = share
        self.output = Output(folder)
        self._after_fork: list[Callable[[], None]] = []
        os.register_at_fork(after_in_child=self._forked)

    def after(self, module: ModuleType) -> None:
        """Begins to record a library that has been imported."""
        try:
            self._record(module)
        except Exception as error:
            self.output.note(f"{module.__name__}'s calls are not recorded: {error!r}")

    def _record(self, module: ModuleType) -> None:
        if module.__name__ == "numpy":
            restart = numpy_calls.record(module, self.output, self.folder, self.share / 2)
            if restart is not None:
                self._after_fork.append(restart)
        elif module.__name__ == "onnxruntime":
            onnxruntime_calls.record(module, self.output)
        elif module.__name__ == "torch":
            restart = torch_calls.record(module, self.output, self.share)
            if restart is not None:
                self._after_fork.append(restart)

    def _forked(self) -> None:
        try:
            self.output.reopen()
            for restart in self._after_fork:
                restart()
        except Exception as error:
            self.output.note(f"a forked process is not recorded: {error!r}")


def start() -> None:
    """Begins to wait for imports, in a process that the environment says to record."""
    recorder = Recorder(os.environ[FOLDER], float(os.environ.get(SHARE, "0.02")))
    sys.meta_path.insert(0, Finder(("numpy", "torch", "onnxruntime"), recorder))
