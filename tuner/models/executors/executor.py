"""The contract of an executor: how models run on one kind of target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from tuner.export.kernel import ExportKernel
from tuner.export.manifest import Manifest
from tuner.export.signature import Signer
from tuner.models.arrays import Array
from tuner.models.executors.checking import Checked
from tuner.models.executors.library_calls import LibraryCalls
from tuner.models.graph import Graph
from tuner.models.library.concurrency import Concurrency, Fork
from tuner.models.library.library import ModelNumbers
from tuner.target.target import Target


class Executor(Protocol):
    """Models on one machine or GPU, from their kernels to an exported library.

    What calls a library raises DeviceError too, where the machine is another one.
    """

    @property
    def switching(self) -> LibraryCalls | None:
        """Where libraries are measured that hold several kernels of a node.

        None where the executor makes no such libraries: then no kernels race inside a
        model, nodes have strict numerics, and a library has one model.
        """
        ...

    def refuse(self, graph: Graph) -> None:
        """Raises ModelRefused, with the node's name, for a model that cannot run there."""
        ...

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
        """The model as one kernel. `kernels` are those of its workloads, by their keys.

        The nodes of `forks` run side by side. Raises LinkError, ModelRefused.
        """
        ...

    def concurrency(
        self,
        graph: Graph,
        kernels: Mapping[str, ExportKernel],
        target: Target,
        threads: int,
        inputs: Sequence[Array],
    ) -> Concurrency | None:
        """The nodes that should run side by side, as measured; None where none should, and
        where the device sees to it by itself.

        Raises LinkError, ModelRefused.
        """
        ...

    def link(self, kernel: ExportKernel) -> bytes:
        """A shared library with the function of a model that was built. Raises LinkError."""
        ...

    def run(self, library: Path, symbol: str, inputs: Sequence[Array]) -> Checked:
        """The outputs of a call, and its time. Raises ModelRefused where the call fails."""
        ...

    def node_seconds(
        self,
        graph: Graph,
        kernels: Mapping[str, ExportKernel],
        target: Target,
        threads: int,
        inputs: Sequence[Array],
    ) -> Sequence[float]:
        """Seconds that each of the graph's expressions takes in a call, all its iterations.

        Raises LinkError, ModelRefused.
        """
        ...

    def export(
        self,
        kernel: ExportKernel,
        directory: Path,
        name: str,
        signer: Signer | None,
        frameworks: Sequence[str] = (),
    ) -> Manifest:
        """Writes the library `name` of one model, whole or not at all; it is for the
        frameworks of `tuner.export.frameworks` too.

        Raises ExportRefused, LinkError and ExportError.
        """
        ...
