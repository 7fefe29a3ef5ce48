"""Workloads of nearly the extents of another, among which some may be faster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tuner.errors import WorkloadError
from tuner.workload.catalogue import operator
from tuner.workload.dtypes import DTYPE_BYTES
from tuner.workload.spec import workload_from_params
from tuner.workload.workload import Workload

_LINE_BYTES = 64  # of a cache line, and of the widest vector
_FARTHEST = 0.15  # relative change of an extent
_LEAST = 8  # extents below are windows, or too small to change


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearby:
    """A workload with one extent changed."""

    workload: Workload
    parameter: str
    extent: int


def nearby(workload: Workload, parameters: Sequence[str] = ()) -> list[Nearby]:
    """The workload with each of the extents (default: all from 8 on) changed a little.

    The next multiples of one and of four cache lines on either side are tried, since
    vectors and tiles are such; and an extent that is one of these moved by a line, since
    rows whose distance is a power of two compete for few sets of a cache. No change is
    beyond 15%.

    Raises WorkloadError for a workload of the notation and for a parameter that is no
    extent of the operator.
    """
    if workload.op is None:
        raise WorkloadError(
            "the extents of a program depend on each other; give a SPEC, such as "
            "matmul:M=512,N=500,K=512"
        )
    extents = _extents(workload)
    for name in parameters:
        if name not in extents:
            raise WorkloadError(
                f"{name!r} is no extent of {workload.op} to change; they are "
                f"{', '.join(extents) or 'all too small'}",
                parameter=name,
            )
    line = _LINE_BYTES // DTYPE_BYTES[workload.expression.inputs[0].dtype]
    return list(_changed(workload, {name: extents[name] for name in parameters or extents}, line))


def _extents(workload: Workload) -> dict[str, int]:
    assert workload.op is not None
    return {
        param.name: extent
        for param in operator(workload.op).params
        if param.kind == "extent"
        and isinstance(extent := workload.params[param.name], int)
        and extent >= _LEAST
    }


def _changed(workload: Workload, extents: dict[str, int], line: int) -> Iterator[Nearby]:
    assert workload.op is not None
    for name, extent in extents.items():
        for value in _values(extent, (line, 4 * line)):
            try:
                changed = workload_from_params(
                    workload.op,
                    {**workload.params, name: value},
                    constants=workload.constants,
                    numerics=workload.numerics,
                )
            except WorkloadError:
                continue  # of extents that must divide each other
            yield Nearby(workload=changed, parameter=name, extent=value)


def _values(extent: int, steps: Iterable[int]) -> list[int]:
    values = set()
    for step in steps:
        below = extent // step * step
        values |= {below, below + step}
    least = min(steps)
    if extent % least == 0:
        values |= {extent - least, extent + least}
    near = {value for value in values if abs(value - extent) <= _FARTHEST * extent}
    return sorted(near - {extent})
