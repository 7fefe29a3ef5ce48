"""Short labels of workloads: the operator with the parameters that are not its defaults."""

from __future__ import annotations

from tuner.db.workloads import StoredWorkload
from tuner.errors import WorkloadError
from tuner.workload.catalogue import operator


def label(stored: StoredWorkload) -> str:
    """The label of a workload, such as `matmul:M=512,N=512,K=512`.

    A workload without an operator has its stored spec as label.
    """
    params = stored.document.get("params")
    if stored.op is None:
        shapes = stored.document.get("shapes")
        extents = (
            ",".join(f"{name}={value}" for name, value in shapes.items())
            if isinstance(shapes, dict)
            else ""
        )
        return f"{stored.spec}[{extents}]" if extents else stored.spec
    if not isinstance(params, dict):
        return stored.spec
    try:
        defaults = {param.name: param.default for param in operator(stored.op).params}
    except WorkloadError:
        return stored.spec
    kept = [
        f"{name}={_written(value)}" for name, value in params.items() if value != defaults.get(name)
    ]
    extra = [f"numerics={stored.numerics}"] if stored.numerics != "strict" else []
    return ":".join([stored.op, ",".join(kept + extra)]) if kept + extra else stored.op


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
