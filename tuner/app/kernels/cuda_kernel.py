"""`CudaKernel`: a promoted kernel for a GPU, callable on arrays in its memory."""

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
        """Raises ArtifactMissing or ArtifactCorrupt if the store lacks the library.

        Needs no GPU.
        """
        super().__init__(stored=stored, workload=workload, artifacts=artifacts)
        library = CudaLibrary(self.path)
        (self.symbol,) = library.names
        self._function: CudaFunction = library.function(self.symbol)

    def __call__(self, *arrays: Any, stream: Any = None) -> None:
        """Launches the kernel on `inputs`, then `outputs`: PyTorch, CuPy or JAX arrays.

        Returns once the work is on the stream. Raises ArrayError and CudaLibraryError of
        tuner.runtime.cuda_loader.
        """
        self._function(*arrays, stream=stream)

    def __repr__(self) -> str:
        return f"<CudaKernel {self.id} of {self.workload.spec}: {self.median_s:.3g} s>"
