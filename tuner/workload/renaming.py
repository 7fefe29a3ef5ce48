"""Trees with other names of tensors."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.workload.expression import Read, Scalar, rewrite


def rename_reads(node: Scalar, names: Mapping[str, str]) -> Scalar:
    """The tree with the tensors that it reads renamed; others keep their names."""

    def change(part: Scalar) -> Scalar | None:
        if not isinstance(part, Read):
            return None
        name = names.get(part.tensor, part.tensor)
        return Read(name, tuple(rewrite(index, change) for index in part.indices), part.pad)

    return rewrite(node, change)
