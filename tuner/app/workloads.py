"""Workloads however they are written: a spec, a notation text, tensors of `tvm.te`, or
a workload made before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tuner.errors import UsageError
from tuner.workload.spec import parse_spec, workload_from_expression, workload_from_notation
from tuner.workload.workload import Workload

Source = (
    str | Workload | Sequence[Any]
)  # a sequence is one of te tensors: inputs and outputs in the order of the kernel's arguments


def as_workload(
    source: Source, *, shapes: Mapping[str, int] | None, constants: Iterable[str], numerics: str
) -> Workload:
    """The workload that `tuner.tune` was given. Raises UsageError for arguments that do
    not belong to its form."""
    declared = tuple(constants)
    if isinstance(source, str) and _is_notation(source):
        return workload_from_notation(source, shapes or {}, declared, numerics)
    if shapes is not None:
        raise UsageError(
            "shapes are the extents of a notation's symbols; a spec and a workload have their own"
        )
    if isinstance(source, str):
        return parse_spec(_with_options(source, declared, numerics))
    if isinstance(source, Workload):
        if declared or numerics != "strict":
            raise UsageError(
                "a Workload has its own constants and numerics; give them when it is made"
            )
        return source
    if isinstance(source, list | tuple) and source:
        from tuner.lowering.importers.lift import lift_te  # noqa: PLC0415  # whoever has te tensors has loaded TVM; nobody else should wait for it

        return workload_from_expression(lift_te(source), declared, numerics)
    raise UsageError(
        f"a workload is a spec, a notation text, te tensors or a Workload, not a "
        f"{type(source).__name__}"
    )


def _is_notation(text: str) -> bool:
    """A notation has a body in braces and several lines; a spec has neither."""
    return "{" in text or "\n" in text.strip()


def _with_options(spec: str, constants: tuple[str, ...], numerics: str) -> str:
    options = [f"const={'+'.join(constants)}"] * bool(constants) + [f"numerics={numerics}"] * (
        numerics != "strict"
    )
    return spec + ("," if ":" in spec else ":") + ",".join(options) if options else spec
