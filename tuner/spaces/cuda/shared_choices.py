"""Choices that sketches of GPUs share, each for the owner of the knob."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import permutations
from typing import TypeVar

from tuner.spaces.core.choice import Choice, choice
from tuner.spaces.core.roles import KnobRole
from tuner.spaces.cuda.block_order import BlockOrder
from tuner.spaces.cuda.block_shapes import BlockShape, stored_shape
from tuner.spaces.cuda.pipelining import Pipelining
from tuner.spaces.program.persistent import Bands, Side

Shape = TypeVar("Shape", bound=BlockShape)

BAND_WIDTHS = (8, 4, 16)


def block_choice(owner: str, shapes: Iterable[Shape]) -> Choice[Shape]:
    """What a block computes."""
    return choice(owner, KnobRole.BLOCK_TILE, shapes, stored_shape)


def pipelining_choice(owner: str, ways: Iterable[Pipelining]) -> Choice[Pipelining]:
    """How copies to shared memory overlap with computing."""
    return choice(owner, KnobRole.PIPELINE, ways, lambda way: way.stored)


def block_order_choice(owner: str) -> Choice[BlockOrder]:
    """Whether blocks are numbered along rows or columns first."""
    return choice(owner, KnobRole.BLOCK_ORDER, BlockOrder, lambda order: order.value)


def axis_order_choice(
    owner: str, axes: Sequence[str], major: Sequence[str]
) -> Choice[tuple[str, ...]]:
    """The order in which blocks are numbered along axes: those without threads first, then
    the `major` ones in any order."""
    rest = [axis for axis in axes if axis not in major]
    stored = tuple(permutations(range(len(major))))
    orders = tuple((*rest, *(major[position] for position in order)) for order in stored)
    return Choice(owner=owner, role=KnobRole.BLOCK_ORDER, values=orders, stored=stored)


def bands_choice(owner: str) -> Choice[Bands]:
    """Bands of adjacent tiles along either side."""
    every = (Bands(along=side, width=width) for side in Side for width in BAND_WIDTHS)
    return choice(owner, KnobRole.BLOCK_ORDER, every, _stored_bands)


def _stored_bands(bands: Bands) -> str:
    return f"{bands.width} {'rows' if bands.along is Side.LEFT else 'columns'}"
