"""Trees with other names of tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tuner.workload.expression import Read, Scalar, Stage, rewrite


def rename_reads(node: Scalar, names: Mapping[str, str]) -> Scalar:
    """The tree with the tensors that it reads renamed; others keep their names."""

    def change(part: Scalar) -> Scalar | None:
        if not isinstance(part, Read):
            return None
        name = names.get(part.tensor, part.tensor)
        return Read(name, tuple(rewrite(index, change) for index in part.indices), part.pad)

    return rewrite(node, change)


def anonymous(stages: Sequence[Stage]) -> tuple[Any, ...]:
    """The stages without the names that they were given when they were recorded."""
    names = {stage.name: f"s{number}" for number, stage in enumerate(stages)}

    def plain(stage: Stage) -> Stage:
        return replace(stage, name=names[stage.name], body=rename_reads(stage.body, names))

    return tuple(plain(stage) for stage in stages)
