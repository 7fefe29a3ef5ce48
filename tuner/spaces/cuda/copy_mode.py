"""How an operand is read: where it lies, or from a copy in shared memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedCopy:
    """A copy of an operand's box in shared memory."""

    width: int  # elements of one load, at most
    transposed: bool  # dimensions that the reduction moves along come first
    padded: bool  # rows are stretched against bank conflicts


def stored_copy(copy: SharedCopy | None) -> str:
    """The copy as configs hold it; None is an operand that is read where it lies."""
    if copy is None:
        return "direct"
    transposed = " turned" if copy.transposed else ""
    padded = " padded" if copy.padded else ""
    return f"shared {copy.width}{transposed}{padded}"
