"""Workloads from what `tuner.tune` accepts: a spec, a notation text, `te` tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tuner.errors import UsageError
from tuner.workload.patterns import spec_of_pattern
from tuner.workload.spec import parse_spec, workload_from_expression, workload_from_notation
from tuner.workload.workload import Workload

# A sequence has te tensors: inputs and outputs in the order of the kernel's arguments.
Source = str | Workload | Sequence[Any]


def as_workload(
    source: Source,
    *,
    shapes: Mapping[str, int] | None,
    constants: Iterable[str],
    numerics: str,
    pattern: Any = None,
) -> Workload:
    """The workload in any of its forms; `pattern` is the sparse matrix of a spec.

    Raises UsageError for arguments that do not belong to the form, WorkloadError for a
    workload that is not accepted.
    """
    declared = tuple(constants)
    if pattern is not None:
        if not isinstance(source, str) or _is_notation(source):
            raise UsageError("a pattern is the sparse matrix of a spec, such as spmm:K=64")
        source = spec_of_pattern(source, pattern)
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
        # Loads TVM, which a caller with te tensors has loaded already.
        from tuner.lowering.importers.lift import lift_te  # noqa: PLC0415

        return workload_from_expression(lift_te(source), declared, numerics)
    raise UsageError(
        f"a workload is a spec, a notation text, te tensors or a Workload, not a "
        f"{type(source).__name__}"
    )


def _is_notation(text: str) -> bool:
    """Whether a text is a notation: it has braces or several lines, a spec has neither."""
    return "{" in text or "\n" in text.strip()


def _with_options(spec: str, constants: tuple[str, ...], numerics: str) -> str:
    """The spec with constants and numerics appended."""
    options = [f"const={'+'.join(constants)}"] * bool(constants) + [f"numerics={numerics}"] * (
        numerics != "strict"
    )
    return spec + ("," if ":" in spec else ":") + ",".join(options) if options else spec
