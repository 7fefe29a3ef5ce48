"""Composition: database, workers and tuning behind `tuner.tune`."""

from tuner.app.kernel import Kernel
from tuner.app.tune import NoKernel, tune

__all__ = ["Kernel", "NoKernel", "tune"]
