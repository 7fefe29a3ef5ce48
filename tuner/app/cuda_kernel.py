"""`CudaKernel`: what tuning for a GPU gives back. A promoted kernel of the database, callable on arrays in that GPU's memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from db.kernels import Kernel as StoredKernel
from tuner.export.artifacts import ArtifactStore
from tuner.runtime.cuda_loader import CudaFunction, CudaLibrary
from tuner.spaces.space import Config
from tuner.workload.workload import Workload


class CudaKernel:
    """A verified kernel. Calling it launches the very library that was measured."""

    def __init__(self, *, stored: StoredKernel, workload: Workload, artifacts: ArtifactStore) -> None:
        """Needs no GPU. Raises ArtifactMissing or ArtifactCorrupt where the store does not hold what was promoted."""
        self.stored, self.workload = stored, workload
        self.path: Path = artifacts.verify(stored.artifact)
        library = CudaLibrary(self.path)
        (symbol,) = library.names
        self._function: CudaFunction = library.function(symbol)

    def __call__(self, *arrays: Any, stream: Any = None) -> None:
        """`kernel(*inputs, *outputs)`: arrays of PyTorch, CuPy or JAX on the GPU; returns once the work is on the stream.

        Raises ArrayError and CudaLibraryError of tuner.runtime.cuda_loader.
        """
        self._function(*arrays, stream=stream)

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
    def verified(self) -> bool:
        return self.stored.verified

    def __repr__(self) -> str:
        return f"<CudaKernel {self.id} of {self.workload.spec}: {self.median_s:.3g} s>"
