"""What a caller says of a model's inputs: extents that the file names, or whole shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

# Extent by the name that the file gives it, or whole shape by the name of an input.
InputShapes: TypeAlias = Mapping[str, int | tuple[int, ...]]


def shapes_from(document: Mapping[str, Any]) -> dict[str, int | tuple[int, ...]]:
    """The shapes of a JSON document, where tuples are lists. Raises ValueError, TypeError."""
    return {
        str(name): tuple(int(extent) for extent in given) if isinstance(given, list) else int(given)
        for name, given in document.items()
    }
