"""The sub-lattice a table records: bounded, a part of its space, with every knob that
has a choice still varying."""

from __future__ import annotations

import pytest

from benchmarks.search.lattice import sublattice
from tests.support.synthetic_spaces import large_space, small_space
from tests.support.targets import ZEN5
from tuner.spaces.by_target import space_of
from tuner.spaces.core.space import Space
from tuner.workload.spec import parse_spec

SPECS = (
    "matmul:M=128,N=128,K=128",
    "conv2d:N=1,H=14,W=14,CI=32,CO=32,KH=3,KW=3,pad=1",
    "transpose:M=512,N=512",
    "softmax:M=64,N=512",
)


def spaces() -> list[Space]:
    return [
        large_space(),
        small_space(),
        *(space_of(parse_spec(spec), ZEN5, 1).space for spec in SPECS),
    ]


@pytest.mark.parametrize("most", [600, 3000])
@pytest.mark.parametrize("number", range(6))
def test_it_is_bounded_and_part_of_the_space(number: int, most: int) -> None:
    whole = spaces()[number]
    part = sublattice(whole, most)
    floor = sum(
        2 ** sum(len(knob.values) > 1 for knob in sketch.knobs) for sketch in whole.combinations
    )
    assert part.size <= max(most, floor)
    assert part.size >= min(whole.size, most) / 3
    assert [sketch.name for sketch in part.combinations] == [
        sketch.name for sketch in whole.combinations
    ]
    for thin, full in zip(part.combinations, whole.combinations, strict=True):
        for knob, before in zip(thin.knobs, full.knobs, strict=True):
            assert knob.name == before.name
            assert [value for value in before.values if value in knob.values] == list(
                knob.values
            ), "in their order"
            assert len(knob.values) >= min(2, len(before.values))


def test_a_small_space_is_taken_whole() -> None:
    assert sublattice(small_space(), 100) == small_space()


def test_what_a_small_sketch_leaves_goes_to_the_others() -> None:
    part = sublattice(large_space(), 3000)
    assert part.size > 2000
