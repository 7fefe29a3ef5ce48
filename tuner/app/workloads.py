"""Workloads however they are written: spec, notation text, the user's own te tensors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tuner.errors import UsageError
from tuner.workload.spec import parse_spec, workload_from_notation
from tuner.workload.workload import Workload

NOTATION = re.compile(r"\s*kernel\s")


def as_workload(
    source: str | Workload | Sequence[Any], *, shapes: Mapping[str, int] | None, constants: Iterable[str], numerics: str
) -> Workload:
    """The workload that `tuner.tune` was given. Raises UsageError for arguments that do not belong to its form."""
    if isinstance(source, str) and _is_notation(source):
        return workload_from_notation(source, shapes or {}, constants, numerics)
    if shapes is not None:
        raise UsageError("shapes are the extents of a notation's symbols; a spec, a workload and te tensors have their own")
    if isinstance(source, str):
        return parse_spec(_with_options(source, constants, numerics))
    if isinstance(source, Workload):
        if tuple(constants) or numerics != "strict":
            raise UsageError("a Workload has its own constants and numerics; give them when it is made")
        return source
    raise UsageError(f"a workload is a spec, a notation text or a Workload, not a {type(source).__name__}")


def _is_notation(text: str) -> bool:
    lines = (line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    return "{" in text and NOTATION.match(next(lines, "") + " ") is not None


def _with_options(spec: str, constants: Iterable[str], numerics: str) -> str:
    joined = "+".join(constants)
    separator = "," if ":" in spec else ":"
    extra = ([f"const={joined}"] if joined else []) + ([f"numerics={numerics}"] if numerics != "strict" else [])
    return separator.join([spec, ",".join(extra)]) if extra else spec
