"""`tuner.grad`: the derivative of a workload as a workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.app.workloads import Source, as_workload
from tuner.workload.derivative.workload import derivative_of
from tuner.workload.workload import Numerics, Workload


def grad(
    source: Source,
    wrt: str | Sequence[str] | None = None,
    *,
    shapes: Mapping[str, int] | None = None,
    numerics: Numerics = "strict",
) -> Workload:
    """The derivative of an expression by its inputs, as a program in the tensor notation.

    `source` is a spec, a text in the notation with its symbols' extents in `shapes`, a
    list of `tvm.te` tensors, or a `Workload`, as of `tuner.tune`. The result is a
    `Workload` to tune, export and differentiate again; its `notation` is the program.

    It is the vector-Jacobian product of reverse mode. Inputs are those of the expression
    that it needs, in their order, then `dY` for each output `Y`, of its shape and dtype:
    the derivative of a loss by `Y`. Outputs are `dA` of the shape and dtype of `A` for
    each `A` in `wrt`, a name or several, by default for every input that has a derivative.
    Declared constants are inputs like others.

    Raises WorkloadError: for a source that is no workload, for an input in `wrt` that does
    not exist, holds integers, or acts by steps, conditions and indices alone; and where
    the program is beyond the limits of the notation, which fewer inputs may keep.
    """
    workload = as_workload(source, shapes=shapes, constants=(), numerics=numerics)
    return derivative_of(workload, (wrt,) if isinstance(wrt, str) else wrt)
