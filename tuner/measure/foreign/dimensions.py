"""How a foreign kernel of a GPU is launched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tuner.errors import UsageError
from tuner.spaces.cuda.limits import Footprint, block_shared_bytes
from tuner.target.target import Target

# Blocks of a grid along x, y, z: CUDA C++ Programming Guide, "Technical Specifications per
# Compute Capability", the same for all of them.
MOST_BLOCKS = (2**31 - 1, 65535, 65535)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimensions:
    """Blocks, threads and shared memory of one launch."""

    grid: tuple[int, int, int]  # blocks along x, y, z
    block: tuple[int, int, int]  # threads along x, y, z
    shared_bytes: int = 0  # of a block, dynamic, beside what the kernel declares

    def fault(self, target: Target) -> str | None:
        """Why a GPU cannot launch it, None where it can."""
        if min(*self.grid, *self.block) < 1 or self.shared_bytes < 0:
            return (
                f"a grid of {list(self.grid)}, a block of {list(self.block)} and "
                f"{self.shared_bytes} bytes of shared memory; extents are at least 1, bytes 0"
            )
        for axis, blocks, most in zip("xyz", self.grid, MOST_BLOCKS, strict=True):
            if blocks > most:
                return f"{blocks} blocks along {axis}; a grid has at most {most}"
        return Footprint(
            threads=self.block,
            registers=0,  # the compiler counts them
            shared_bytes=self.shared_bytes,
            most_shared_bytes=block_shared_bytes(target),
        ).fault


def dimensions_of(grid: Sequence[int], block: Sequence[int], shared_bytes: int) -> Dimensions:
    """Of one to three extents each. Those left out are 1."""
    return Dimensions(grid=_padded(grid), block=_padded(block), shared_bytes=shared_bytes)


def dimensions_given(
    grid: Sequence[int] | None, block: Sequence[int] | None, shared_bytes: int
) -> Dimensions | None:
    """The dimensions of a source in CUDA C++, None for one in C, which has neither.

    Raises UsageError.
    """
    if grid is None and block is None and shared_bytes == 0:
        return None
    if not all(extents and 1 <= len(extents) <= 3 for extents in (grid, block)):
        raise UsageError(
            f"grid {grid} and block {block}: CUDA C++ comes with both, one to three numbers each"
        )
    assert grid is not None and block is not None, "checked above"
    return dimensions_of(grid, block, shared_bytes)


def dimensions_to_document(dimensions: Dimensions) -> dict[str, Any]:
    """The dimensions as JSON."""
    return asdict(dimensions)


def dimensions_from_document(document: Mapping[str, Any]) -> Dimensions:
    """The inverse of `dimensions_to_document`. Raises KeyError, ValueError or TypeError."""
    return dimensions_of(document["grid"], document["block"], document["shared_bytes"])


def _padded(extents: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*extents, 1, 1)[:3]
    return x, y, z
