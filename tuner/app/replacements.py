"""Which calls of a recorded program its kernels answer, and their library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.app.machine import checked_target
from tuner.app.traces import coverage
from tuner.db.engine import Database
from tuner.errors import UsageError
from tuner.export.artifacts import ArtifactStore
from tuner.export.library import function_of
from tuner.models.graph_archive import packed
from tuner.models.library.library import ModelNumbers, model_kernel
from tuner.models.tuning.numerics import NumericsPolicy
from tuner.runtime.link import Function, link
from tuner.settings import Settings
from tuner.trace.record import Trace
from tuner.trace.replacing import Replacement
from tuner.trace.workloads import expressed
from tuner.workers.jobs.model_library import Model, kernels_of

STRICT = NumericsPolicy.of("strict", None)  # what the workloads of calls are tuned under


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacements:
    """The calls that kernels answer, with the shared library of their functions."""

    calls: Sequence[Replacement]
    library: bytes


def replacements(
    database: Database, trace: Trace, settings: Settings, least_share: float
) -> Replacements:
    """The functions of all calls that kernels answer faster than the library does.

    Raises UsageError for a target that is not this machine's CPU, ArtifactError for a kernel
    that is gone, LinkError where the compiler fails.
    """
    target = checked_target(settings)
    if target.on_device:
        raise UsageError(f"calls are answered on the CPU, not on {settings.target}; use cpu")
    calls = list(expressed(trace, least_share))
    result = coverage(database, trace, calls, target, settings.threads)
    store = ArtifactStore(settings.artifacts)
    replaced: list[Replacement] = []
    functions: list[Function] = []
    for each, covered in zip(calls, result.calls, strict=True):
        if not covered.is_answered:
            continue
        binding, symbol = each.binding, f"call_{len(replaced)}"
        assert binding is not None and covered.kernels_s is not None, "an answered call has both"
        model = Model(content=packed(binding.graph), shapes={}, graph=binding.graph)
        kernels = kernels_of(database, model, target, settings.threads, store, STRICT)
        kernel = model_kernel(
            binding.graph, kernels, target, settings.threads, symbol, ModelNumbers()
        )
        functions.append(function_of(kernel))
        replaced.append(
            Replacement(
                call=each.call,
                binding=binding,
                symbol=symbol,
                kernel_s=covered.kernels_s / each.call.count,
            )
        )
    return Replacements(
        calls=replaced,
        library=link("replacements", functions) if functions else b"",
    )
