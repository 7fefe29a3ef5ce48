"""Warnings of the backend: of each kind only the first."""

from __future__ import annotations

import warnings

from tuner.torch.forks import ProcessLock


class TunerWarning(UserWarning):
    """Something failed, and PyTorch computes what was to be tuned."""


class Notices:
    """Gives warnings. May be shared by threads."""

    def __init__(self) -> None:
        self._given: set[str] = set()
        self._lock = ProcessLock()

    def warn(self, kind: str, message: str) -> None:
        """Warns, unless it has for this kind of trouble."""
        with self._lock:
            if kind in self._given:
                return
            self._given.add(kind)
        warnings.warn(f"{message}; PyTorch computes it instead", TunerWarning, stacklevel=3)
