"""What a caller says of a model's inputs: extents that the file names, or whole shapes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from tuner.errors import UsageError

# Extent by the name that the file gives it, or whole shape by the name of an input.
InputShapes: TypeAlias = Mapping[str, int | tuple[int, ...]]

_EXTENTS = re.compile("[0-9]{1,18}(x[0-9]{1,18})*")


def parse_shapes(text: str) -> dict[str, int | tuple[int, ...]]:
    """The shapes in `NAME=EXTENT,INPUT=1x3x48x192,…`. Raises UsageError."""
    shapes: dict[str, int | tuple[int, ...]] = {}
    for part in (piece.strip() for piece in text.split(",") if piece.strip()):
        name, _, written = (piece.strip() for piece in part.rpartition("="))
        if not name or not _EXTENTS.fullmatch(written):
            raise UsageError(
                f"the shapes have {part[:60]!r}; write NAME=EXTENT with a whole number, such as "
                f"batch=1, or an input's whole shape, such as x=1x3x48x192"
            )
        if name in shapes:
            raise UsageError(f"the shapes give {name} twice")
        extents = tuple(int(extent) for extent in written.split("x"))
        shapes[name] = extents if len(extents) > 1 else extents[0]
    return shapes


def shapes_from(document: Mapping[str, Any]) -> dict[str, int | tuple[int, ...]]:
    """The shapes of a JSON document, where tuples are lists. Raises ValueError, TypeError."""
    return {
        str(name): tuple(int(extent) for extent in given) if isinstance(given, list) else int(given)
        for name, given in document.items()
    }
