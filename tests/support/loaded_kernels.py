"""Kernels compiled without a search, to be called."""

from __future__ import annotations

from pathlib import Path

from tests.support.targets import host_target
from tuner.lowering.compiler import compile_kernel
from tuner.runtime.link import Function, link
from tuner.runtime.loader import Library, TunedFunction
from tuner.spaces.core.space import Config
from tuner.workload.workload import Workload


def loaded(
    workload: Workload, path: Path, *, config: Config | None = None, threads: int = 1
) -> TunedFunction:
    """The kernel of a config on this machine, None for the default schedule; `path` becomes
    its library."""
    target = host_target()
    compiled = compile_kernel(
        workload=workload, target=target, threads=threads, config=config, symbol="k"
    )
    function = Function.of(
        workload.expression,
        "k",
        compiled.object_code,
        isa=target.isa,
        threads=threads,
        prepack=compiled.prepack,
    )
    path.write_bytes(link("kernel", [function]))
    return Library(path).function("k")
