"""`Kernel`: a promoted kernel for a CPU, callable on NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tuner.app.kernels.promoted import Promoted
from tuner.db.kernels import Kernel as StoredKernel
from tuner.export.artifacts import ArtifactStore
from tuner.runtime.loader import Library, TunedFunction
from tuner.runtime.signature import Signature
from tuner.workload.workload import Workload

Array = np.ndarray[Any, np.dtype[Any]]


class Kernel(Promoted):
    """A verified kernel. Calling it runs the very library that was measured."""

    def __init__(
        self, *, stored: StoredKernel, workload: Workload, artifacts: ArtifactStore
    ) -> None:
        """Raises ArtifactMissing or ArtifactCorrupt if the store lacks the library."""
        super().__init__(stored=stored, workload=workload, artifacts=artifacts)
        library = Library(self.path)
        (self.symbol,) = library.signatures
        self._function: TunedFunction = library.function(self.symbol)

    def __call__(self, *inputs: Any, out: Array | None = None) -> Any:
        """The output array, or a tuple of several.

        Inputs come in the workload's order and have its shapes and dtypes. Misaligned or
        strided arrays are copied. Raises ShapeError, DTypeError or LibraryError of
        tuner.runtime.loader.
        """
        return self._function(*inputs, out=out)

    @property
    def signature(self) -> Signature:
        """Names, dtypes and shapes of inputs and outputs."""
        return self._function.signature

    @property
    def gflops(self) -> float:
        """10⁹ operations a second."""
        return self.stored.gflops

    @property
    def roofline_fraction(self) -> float | None:
        """Share of the speed that the machine's measured limits allow.

        None where they do not bound this workload.
        """
        return self.stored.roofline_fraction

    @property
    def max_rel_error(self) -> float:
        """Largest error against the float64 reference.

        Normalised as decision 7 of docs/explanation/architecture.md says.
        """
        return self.stored.max_rel_error

    @property
    def job(self) -> str | None:
        """Id of the job it came from."""
        return self.stored.job

    @property
    def rivals(self) -> Mapping[str, Any]:
        """Times of all contenders in the same race, by name."""
        return self.stored.race

    def __repr__(self) -> str:
        return (
            f"<Kernel {self.id} of {self.workload.spec}: {self.median_s:.3g} s, threads "
            f"{self.stored.threads}>"
        )
