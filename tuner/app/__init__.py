"""Composition: database, workers and tuning behind `tuner.tune`."""

from tuner.app.kernel import Kernel
from tuner.app.tune import NotVerified, tune

__all__ = ["Kernel", "NotVerified", "tune"]
