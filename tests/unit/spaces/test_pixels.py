"""Convolutions as products of boxes of pixels: which have the sketch, and their boxes."""

from __future__ import annotations

from math import prod

import pytest

from tests.support.spaces import shared_space
from tests.support.targets import SM_90
from tuner.spaces.cuda.persistent_knobs import CudaPersistentSketch
from tuner.spaces.program.persistent import Pixels

pytestmark = pytest.mark.slow  # a space of a convolution takes a second


def pixels(spec: str) -> Pixels | None:
    every = shared_space(spec, SM_90).sketches.values()
    sketches = (each for sketches in every for each in sketches)
    mine = (each for each in sketches if isinstance(each, CudaPersistentSketch))
    return next((each.shape.pixels for each in mine), None)


@pytest.mark.parametrize(
    ("sizes", "box"),
    [("N=2,H=56,W=56", (1, 8, 8)), ("N=8,H=28,W=28", (4, 4, 4)), ("N=8,H=7,W=7", (8, 1, 8))],
)
def test_a_box_leaves_as_little_outside_as_can_be(sizes: str, box: tuple[int, ...]) -> None:
    given = pixels(f"conv2d:{sizes},CI=64,CO=64,KH=3,KW=3,pad=1,dtype=float16")
    assert given is not None and given.box == box and prod(box) == 64
    assert given.taps == 9 and given.offsets == (0, -1, -1)


@pytest.mark.parametrize("window", [3, 1])
def test_a_copy_takes_each_second_pixel(window: int) -> None:
    spec = f"conv2d:N=8,H=56,W=56,CI=64,CO=64,KH={window},KW={window},pad={window // 2},stride=2"
    given = pixels(f"{spec},dtype=float16")
    assert given is not None and given.strides == (1, 2, 2) and prod(given.box) == 64
    assert given.taps == window**2 and given.offsets == (0, -(window // 2), -(window // 2))


@pytest.mark.parametrize(
    "spec",
    [
        "conv2d:N=2,H=90,W=90,CI=64,CO=64,KH=3,KW=3,stride=9,dtype=float16",
        "conv2d:N=2,H=16,W=8,CI=64,CO=64,KH=3,KW=3,layout=NCHW,dtype=float16",
        "conv2d:N=2,H=16,W=8,CI=64,CO=64,KH=3,KW=3",
        "conv2d:N=1,H=6,W=6,CI=64,CO=64,KH=3,KW=3,dtype=float16",
    ],
)
def test_what_a_copy_of_a_box_cannot_bring_is_left_to_others(spec: str) -> None:
    assert pixels(spec) is None
