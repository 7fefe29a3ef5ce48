"""Begins to answer a library's calls as soon as the program has imported it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import ModuleType

from ..imports import Finder
from . import numpy_calls, torch_calls
from .plan import Plan

FOLDER = "TUNER_RUN_FOLDER"


class Replacer:
    """What answers calls in this process."""

    def __init__(self, folder: str) -> None:
        self._plan = Plan(folder)
        self._after_fork: list[Callable[[], None]] = []
        os.register_at_fork(after_in_child=self._forked)

    def after(self, module: ModuleType) -> None:
        try:
            if module.__name__ == "numpy":
                restart = numpy_calls.replace(module, self._plan)
                if restart is not None:
                    self._after_fork.append(restart)
            elif module.__name__ == "torch":
                torch_calls.replace(module, self._plan)
        except Exception as error:
            self._plan.output.note(f"{module.__name__}'s calls are left to it: {error!r}")

    def _forked(self) -> None:
        try:
            self._plan.reopen()
            for restart in self._after_fork:
                restart()
        except Exception as error:
            self._plan.output.note(f"a forked process is not counted: {error!r}")


def start() -> None:
    """Begins to wait for imports, in a process that the environment says to help."""
    replacer = Replacer(os.environ[FOLDER])
    sys.meta_path.insert(0, Finder(("numpy", "torch"), replacer))
