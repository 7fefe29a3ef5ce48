"""Stream-K: when blocks share tiles, and how much they share."""

from __future__ import annotations

import pytest

from tuner.spaces.program.stream_k import LEAST_STEPS, StreamK


@pytest.mark.parametrize(
    ("tiles", "steps", "is_useful"),
    [
        (132, 64, False),  # one whole wave
        (512, 64, False),  # nearly four
        (133, 64, True),  # one and a little
        (56, 16, True),
        (56, 8, False),  # too little to do for each block
        (1, 64, False),
    ],
)
def test_depths_are_shared_where_blocks_stand_idle(tiles: int, steps: int, is_useful: bool) -> None:
    assert StreamK(tiles=tiles, steps=steps, blocks=132).is_useful == is_useful


@pytest.mark.parametrize("tiles", [56, 131, 133, 200, 264, 300])
def test_each_block_has_one_to_two_tiles_of_shared_ones_after_whole_waves(tiles: int) -> None:
    shares = StreamK(tiles=tiles, steps=20, blocks=132)
    assert shares.waves * shares.blocks + shares.shared == tiles
    each = shares.units / shares.blocks
    assert each < 2 * shares.steps and (tiles < 132 or each >= shares.steps)
    assert each >= LEAST_STEPS
