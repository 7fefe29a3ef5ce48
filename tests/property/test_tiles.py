"""Tiles of an axis: whatever the sizes, all elements are covered and none is left."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from tests.support.program_interpreter import function_of
from tuner.spaces.program.tiles import TiledAxis, fit_block
from tuner.workload.expression import Axis


@st.composite
def tiled(draw: st.DrawFn) -> TiledAxis:
    extent = draw(st.integers(1, 97))
    lanes = draw(st.sampled_from([size for size in (1, 2, 4, 8, 16) if size <= extent]))
    tile = lanes * draw(st.integers(1, extent // lanes))
    whole = TiledAxis(axis=Axis(name="i", extent=extent), tile=tile, lanes=lanes)
    block = draw(
        st.one_of(
            st.integers(1, whole.tiles),
            st.integers(1, 200).map(lambda target: fit_block(whole.tiles, target)),
        )
    )
    return TiledAxis(axis=whole.axis, tile=tile, block=block, lanes=lanes)


@given(tiled())
def test_every_element_is_covered_and_none_outside(axis: TiledAxis) -> None:
    ranges = [range(part.extent) for part in axis.axes]
    index = function_of(axis.index, [part.name for part in axis.axes])
    assert {index(*point) for point in product(*ranges)} == set(range(axis.axis.extent))


@given(st.integers(1, 3000), st.integers(1, 3000))
def test_a_fitted_block_wastes_at_most_a_tenth(tiles: int, target: int) -> None:
    block = fit_block(tiles, target)
    assert 1 <= block <= tiles
    assert (-(-tiles // block) * block - tiles) * 10 <= tiles
