"""The workloads of recorded calls: what a kernel could compute in their place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.errors import TunerError
from tuner.models.errors import ModelRefused
from tuner.models.files.input_shapes import InputShapes
from tuner.models.graph import Graph
from tuner.models.importer import import_file
from tuner.models.passes.fusion import fuse
from tuner.models.workloads import ModelWorkload, workloads_of
from tuner.trace.binding import Binding
from tuner.trace.from_numpy import bound_numpy
from tuner.trace.from_torch import bound_torch
from tuner.trace.record import Trace, TracedCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Expressed:
    """Calls of one kind, and the kernels that could compute them."""

    call: TracedCall
    # The kernels of one call, each with how often it is called; none with a reason.
    parts: tuple[ModelWorkload, ...] = ()
    reason: str | None = None  # why no kernel could
    binding: Binding | None = None  # None with a reason; its graph is fused


def expressed(trace: Trace, least_share: float = 0.0) -> Iterator[Expressed]:
    """The calls of a trace, the longest in all first.

    Those that take less than `least_share` of the time of all are left out.
    """
    for call in trace.calls:
        if call.total_s >= least_share * trace.total_s:
            yield express(call)


def express(call: TracedCall) -> Expressed:
    """What could compute a call."""
    try:
        binding = _binding(call)
        parts = () if binding is None else tuple(workloads_of(binding.graph))
    except TunerError as error:
        return Expressed(call=call, reason=str(error))
    if not parts:
        return Expressed(call=call, reason="computes nothing")
    return Expressed(call=call, parts=parts, binding=binding)


def _binding(call: TracedCall) -> Binding | None:
    """The fused graph of a call, and its arguments. Raises TunerError for one without."""
    if call.library == "onnxruntime":
        return Binding(graph=_model_of(call), inputs=(), result=None)
    binding = bound_numpy(call) if call.library == "numpy" else bound_torch(call)
    return None if binding is None else replace(binding, graph=fuse(binding.graph))


def _model_of(call: TracedCall) -> Graph:
    model, *inputs = call.arguments or ({},)
    if model.get("value") is None:
        raise ModelRefused("the session's model came from memory; give the session a path")
    shapes: InputShapes = {
        str(given.get("name")): tuple(given["shape"]) for given in inputs if given.get("shape")
    }
    return import_file(Path(str(model["value"])), shapes)


def weighted(calls: Sequence[Expressed]) -> dict[str, ModelWorkload]:
    """The distinct workloads of all calls by key, each with how often it is called."""
    whole: dict[str, tuple[ModelWorkload, float]] = {}
    for each in calls:
        for part in each.parts:
            _, count = whole.get(part.workload.key, (part, 0.0))
            whole[part.workload.key] = part, count + part.calls * each.call.count
    return {
        key: ModelWorkload(workload=part.workload, calls=max(round(count), 1))
        for key, (part, count) in whole.items()
    }
