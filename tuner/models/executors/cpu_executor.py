"""The executor of CPUs, here or elsewhere: generated C that calls the kernels in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tuner.export.kernel import ExportKernel
from tuner.export.library import export_library, function_of
from tuner.export.manifest import Manifest
from tuner.export.signature import Signer
from tuner.models.arrays import Array
from tuner.models.executors.checking import Checked
from tuner.models.executors.library_calls import LibraryCalls
from tuner.models.graph import Graph
from tuner.models.library.concurrency import (
    Concurrency,
    Fork,
    forks_of,
    is_sequential,
    node_seconds,
)
from tuner.models.library.library import ModelNumbers, model_kernel
from tuner.runtime.link import link, system_toolchain
from tuner.runtime.toolchain import Toolchain
from tuner.scratch import temporary_folder
from tuner.target.target import Target

_PROFILED = "profiled"
_WORTH = 0.01  # of a call, which running nodes side by side must save
_RUNS = 2  # in turn, with forks and without


@dataclass(frozen=True, slots=True)
class CpuExecutor:
    """An `Executor`."""

    machine: LibraryCalls
    toolchain: Toolchain = field(default_factory=system_toolchain)  # for that machine

    @property
    def switching(self) -> LibraryCalls:
        return self.machine

    def refuse(self, graph: Graph) -> None:
        self.machine.refuse(graph)

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
        return model_kernel(
            graph,
            kernels,
            target,
            threads,
            symbol,
            numbers,
            forks=forks,
            pack=self.machine.packed,
        )

    def concurrency(
        self,
        graph: Graph,
        kernels: Mapping[str, ExportKernel],
        target: Target,
        threads: int,
        inputs: Sequence[Array],
    ) -> Concurrency | None:
        """Forks that the times of nodes suggest, if the library is faster by them."""
        if threads == 1 or is_sequential(graph):
            return None
        profiled = self._profiled(graph, kernels, target, threads)
        spent = self._step_seconds(profiled, inputs, (threads, 1))
        together_s, alone_s = (node_seconds(graph, seconds) for seconds in spent)
        forks = forks_of(graph, together_s, alone_s, threads)
        if not forks:
            return None
        sequential_s, concurrent_s = self._medians(
            [
                self.build(graph, kernels, target, threads, symbol, ModelNumbers(), some)
                for symbol, some in (("sequential", ()), ("concurrent", forks))
            ],
            inputs,
        )
        if concurrent_s > (1 - _WORTH) * sequential_s:
            return None
        return Concurrency(forks=forks, sequential_s=sequential_s, concurrent_s=concurrent_s)

    def _medians(self, built: Sequence[ExportKernel], inputs: Sequence[Array]) -> list[float]:
        """Seconds of a call of each model, the least of a few runs in turn."""
        with temporary_folder("tuner-scratch-model-") as folder:
            libraries = [(folder / f"{model.symbol}.so", str(model.symbol)) for model in built]
            for model, (path, _) in zip(built, libraries, strict=True):
                path.write_bytes(self.link(model))
            runs = [
                [self.run(path, symbol, inputs).median_s for path, symbol in libraries]
                for _ in range(_RUNS)
            ]
        return [min(medians) for medians in zip(*runs, strict=True)]

    def link(self, kernel: ExportKernel) -> bytes:
        return link("model", [function_of(kernel)], toolchain=self.toolchain)

    def run(self, library: Path, symbol: str, inputs: Sequence[Array]) -> Checked:
        return self.machine.run(library, symbol, inputs)

    def node_seconds(
        self,
        graph: Graph,
        kernels: Mapping[str, ExportKernel],
        target: Target,
        threads: int,
        inputs: Sequence[Array],
    ) -> Sequence[float]:
        """Medians of calls of a library that writes them, with warm caches."""
        profiled = self._profiled(graph, kernels, target, threads)
        (spent,) = self._step_seconds(profiled, inputs, (threads,))
        return spent

    def _profiled(
        self,
        graph: Graph,
        kernels: Mapping[str, ExportKernel],
        target: Target,
        threads: int,
    ) -> ExportKernel:
        return model_kernel(
            graph,
            kernels,
            target,
            threads,
            _PROFILED,
            ModelNumbers(),
            profiled=True,
            pack=self.machine.packed,
        )

    def _step_seconds(
        self, profiled: ExportKernel, inputs: Sequence[Array], counts: Sequence[int]
    ) -> list[Sequence[float]]:
        """Of each expression, for each number of threads in `counts`."""
        with temporary_folder("tuner-scratch-model-") as folder:
            path = folder / "profiled.so"
            path.write_bytes(link("profiled", [function_of(profiled)], toolchain=self.toolchain))
            return [
                self.machine.spent(path, _PROFILED, inputs, threads=count)[0].steps
                for count in counts
            ]

    def export(
        self,
        kernel: ExportKernel,
        directory: Path,
        name: str,
        signer: Signer | None,
        frameworks: Sequence[str] = (),
    ) -> Manifest:
        return export_library(
            [kernel],
            directory,
            name,
            toolchain=self.toolchain,
            signer=signer,
            frameworks=frameworks,
        )
