"""`Kernel`: what tuning gives back. A promoted kernel of the database, callable on NumPy arrays through its compiled library."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from db.kernels import Kernel as StoredKernel
from tuner.export.artifacts import ArtifactStore
from tuner.runtime.loader import Library, Signature, TunedFunction
from tuner.spaces.space import Config
from tuner.workload.workload import Workload

Array = np.ndarray[Any, np.dtype[Any]]


class Kernel:
    """A verified kernel. Calling it runs the very library that was measured."""

    def __init__(self, *, stored: StoredKernel, workload: Workload, artifacts: ArtifactStore) -> None:
        """Raises ArtifactMissing or ArtifactCorrupt where the store does not hold what was promoted."""
        self.stored = stored
        self.workload = workload
        self.path: Path = artifacts.verify(stored.artifact)  # of the compiled library
        library = Library(self.path)
        (symbol,) = library.signatures
        self._function: TunedFunction = library.function(symbol)

    def __call__(self, *inputs: Any, out: Array | None = None) -> Any:
        """The output array, or a tuple of them; inputs in the workload's order, dense, of its shapes and dtypes.

        Misaligned or strided arrays are copied. Raises ShapeError, DTypeError or LibraryError of tuner.runtime.loader.
        """
        return self._function(*inputs, out=out)

    @property
    def signature(self) -> Signature:
        """Names, dtypes and shapes of inputs and outputs."""
        return self._function.signature

    @property
    def id(self) -> str:
        return self.stored.id

    @property
    def config(self) -> Config:
        """The winning config; empty where the default schedule won."""
        return self.stored.config

    @property
    def median_s(self) -> float:
        """Seconds of one call, median of the race it won."""
        return self.stored.median_s

    @property
    def ci95_s(self) -> tuple[float, float]:
        """95% confidence interval of that median, seconds."""
        return self.stored.ci95_s

    @property
    def default_median_s(self) -> float | None:
        """Seconds of the default schedule in the same race."""
        return self.stored.default_median_s

    @property
    def gflops(self) -> float:
        return self.stored.gflops

    @property
    def roofline_fraction(self) -> float | None:
        """Share of what the machine's measured limits allow; None where they do not bound this workload."""
        return self.stored.roofline_fraction

    @property
    def max_rel_error(self) -> float:
        """Largest error against the float64 reference, normalised as docs/architecture.md says."""
        return self.stored.max_rel_error

    @property
    def verified(self) -> bool:
        return self.stored.verified

    @property
    def job(self) -> str | None:
        """Id of the job it came from."""
        return self.stored.job

    @property
    def rivals(self) -> Mapping[str, Any]:
        """What else was timed in the same race."""
        return self.stored.race

    def __repr__(self) -> str:
        return f"<Kernel {self.id} of {self.workload.spec}: {self.median_s:.3g} s, threads {self.stored.threads}>"
