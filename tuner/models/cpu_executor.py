"""The executor of CPUs: generated C that calls the kernels in order, on some cores."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.export.kernel import ExportKernel
from tuner.export.library import export_library, function_of
from tuner.export.manifest import Manifest
from tuner.export.signature import Signer
from tuner.models.arrays import Array
from tuner.models.checking import Checked, run_library
from tuner.models.graph import Graph
from tuner.models.library import ModelNumbers, model_kernel
from tuner.models.profile import step_seconds
from tuner.runtime.link import link
from tuner.target.target import Target

_PROFILED = "profiled"


@dataclass(frozen=True, slots=True)
class CpuExecutor:
    """An `Executor`."""

    cores: Sequence[int]

    @property
    def switching_cores(self) -> Sequence[int]:
        return self.cores

    def refuse(self, graph: Graph) -> None:
        """Takes every model."""

    def build(
        self,
        graph: Graph,
        kernels: Mapping[str, ExportKernel],
        target: Target,
        threads: int,
        symbol: str,
        numbers: ModelNumbers,
    ) -> ExportKernel:
        return model_kernel(graph, kernels, target, threads, symbol, numbers)

    def link(self, kernel: ExportKernel) -> bytes:
        return link("model", [function_of(kernel)])

    def run(self, library: Path, symbol: str, inputs: Sequence[Array]) -> Checked:
        """In a confined process."""
        return run_library(library, symbol, inputs, self.cores)

    def node_seconds(
        self,
        graph: Graph,
        kernels: Mapping[str, ExportKernel],
        target: Target,
        threads: int,
        inputs: Sequence[Array],
    ) -> Sequence[float]:
        """Medians of calls of a library that writes them, with warm caches."""
        built = model_kernel(
            graph, kernels, target, threads, _PROFILED, ModelNumbers(), profiled=True
        )
        with tempfile.TemporaryDirectory(prefix="tuner-model-") as folder:
            path = Path(folder, "profiled.so")
            path.write_bytes(link("profiled", [function_of(built)]))
            return step_seconds(path, _PROFILED, inputs, self.cores)

    def export(
        self, kernel: ExportKernel, directory: Path, name: str, signer: Signer | None
    ) -> Manifest:
        return export_library([kernel], directory, name, signer=signer)
