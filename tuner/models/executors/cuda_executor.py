"""The executor of NVIDIA GPUs: all launches of a call in one graph, weights on the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.export.cuda_model import export_cuda_model
from tuner.export.errors import ExportRefused
from tuner.export.kernel import ExportKernel
from tuner.export.manifest import Manifest
from tuner.export.signature import Signer
from tuner.measure.gpu.runner import GpuLane
from tuner.models.arrays import Array
from tuner.models.executors.checking import Checked
from tuner.models.executors.cuda_checking import run_cuda_library
from tuner.models.graph import Graph
from tuner.models.library.concurrency import Concurrency, Fork
from tuner.models.library.cuda_library import cuda_model_kernel, expressions_of_steps, refuse
from tuner.models.library.library import ModelNumbers
from tuner.runtime.cuda_model import unpacked_model
from tuner.runtime.cuda_model_link import link_cuda_model
from tuner.scratch import temporary_folder
from tuner.target.target import Target

_PROFILED = "profiled"


@dataclass(frozen=True, slots=True)
class CudaExecutor:
    """An `Executor`."""

    lane: GpuLane

    @property
    def switching(self) -> None:
        return None

    def refuse(self, graph: Graph) -> None:
        refuse(graph)

    def build(
        self,
        graph: Graph,
        kernels: Mapping[str, ExportKernel],
        target: Target,
        threads: int,
        symbol: str,
        numbers: ModelNumbers,
        forks: Sequence[Fork] = (),
    ) -> ExportKernel:
        return cuda_model_kernel(graph, kernels, target, threads, symbol, numbers)

    def concurrency(
        self,
        graph: Graph,
        kernels: Mapping[str, ExportKernel],
        target: Target,
        threads: int,
        inputs: Sequence[Array],
    ) -> Concurrency | None:
        """None: a call's graph holds independent launches side by side."""
        return None

    def link(self, kernel: ExportKernel) -> bytes:
        return link_cuda_model("model", unpacked_model(kernel.object_code))

    def run(self, library: Path, symbol: str, inputs: Sequence[Array]) -> Checked:
        """In a process that owns the device."""
        return run_cuda_library(library, symbol, inputs, self.lane)[0]

    def node_seconds(
        self,
        graph: Graph,
        kernels: Mapping[str, ExportKernel],
        target: Target,
        threads: int,
        inputs: Sequence[Array],
    ) -> Sequence[float]:
        """Of a few launches of each kernel in a row: within a call some run at one time."""
        built = self.build(graph, kernels, target, threads, _PROFILED, ModelNumbers())
        with temporary_folder("tuner-scratch-model-") as folder:
            path = folder / "profiled.so"
            path.write_bytes(self.link(built))
            _, steps = run_cuda_library(path, _PROFILED, inputs, self.lane)
        seconds = [0.0] * len(graph.expressions)
        for number, step_s in zip(expressions_of_steps(graph, kernels), steps, strict=True):
            if number is not None:
                seconds[number] += step_s
        return seconds

    def export(
        self,
        kernel: ExportKernel,
        directory: Path,
        name: str,
        signer: Signer | None,
        frameworks: Sequence[str] = (),
    ) -> Manifest:
        if frameworks:
            raise ExportRefused(f"a library for a GPU is for none of {', '.join(frameworks)}")
        return export_cuda_model(kernel, directory, name, signer=signer)
