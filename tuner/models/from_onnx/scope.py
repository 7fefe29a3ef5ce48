"""What the names of an ONNX graph stand for while it is read."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.models.errors import ModelRefused
from tuner.models.operators.stacks import Items
from tuner.models.operators.values import Value


class Scope(dict[str, Value]):
    """Tensors by name, and sequences of tensors."""

    def __init__(self, outer: Scope | None = None) -> None:
        super().__init__(outer or {})
        self.sequences: dict[str, Items] = dict(outer.sequences) if outer is not None else {}
        # Branches around, behind which operators are read on each side.
        self.apart: int = outer.apart if outer is not None else 0

    def note(self, names: Sequence[str], results: Sequence[Value | Items | None]) -> None:
        """Notes the results of an operator, but those that are left out."""
        for name, result in zip(names, results, strict=False):
            if not name or result is None:
                continue
            if isinstance(result, Value):
                self[name] = result
            else:
                self.sequences[name] = result

    def item(self, name: str) -> Value | Items:
        """A tensor or a sequence. Raises ModelRefused where there is none."""
        if name in self.sequences:
            return self.sequences[name]
        if name not in self:
            raise ModelRefused(f"nothing makes {name[:80]!r}, which is an output of a graph")
        return self[name]
