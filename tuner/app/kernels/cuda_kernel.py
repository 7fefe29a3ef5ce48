"""`CudaKernel`: what tuning for a GPU gives back. A promoted kernel of the database,
callable on arrays in that GPU's memory."""

from __future__ import annotations

from typing import Any

from tuner.app.kernels.promoted import Promoted
from tuner.db.kernels import Kernel as StoredKernel
from tuner.export.artifacts import ArtifactStore
from tuner.runtime.cuda_loader import CudaFunction, CudaLibrary
from tuner.workload.workload import Workload


class CudaKernel(Promoted):
    """A verified kernel. Calling it launches the very library that was measured."""

    def __init__(
        self, *, stored: StoredKernel, workload: Workload, artifacts: ArtifactStore
    ) -> None:
        """Needs no GPU. Raises ArtifactMissing or ArtifactCorrupt where the store does
        not hold what was promoted."""
        super().__init__(stored=stored, workload=workload, artifacts=artifacts)
        library = CudaLibrary(self.path)
        (symbol,) = library.names
        self._function: CudaFunction = library.function(symbol)

    def __call__(self, *arrays: Any, stream: Any = None) -> None:
        """`kernel(*inputs, *outputs)`: arrays of PyTorch, CuPy or JAX on the GPU;
        returns once the work is on the stream.

        Raises ArrayError and CudaLibraryError of tuner.runtime.cuda_loader.
        """
        self._function(*arrays, stream=stream)

    def __repr__(self) -> str:
        return f"<CudaKernel {self.id} of {self.workload.spec}: {self.median_s:.3g} s>"
