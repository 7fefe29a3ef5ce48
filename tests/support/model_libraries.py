"""Libraries of models, imported as their users do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from benchmarks.models.race import loaded
from tests.support.targets import host_target
from tuner.export.kernel import ExportKernel
from tuner.export.library import export_library
from tuner.models.graph import Graph
from tuner.models.library.library import ModelNumbers, model_kernel


def exported(
    graph: Graph, kernels: Mapping[str, ExportKernel], directory: Path, name: str
) -> ModuleType:
    kernel = model_kernel(graph, kernels, host_target(), 1, f"run_{name}", ModelNumbers())
    export_library([kernel], directory, name)
    return loaded(directory, name)
