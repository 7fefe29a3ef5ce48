"""The bits by which trials are found are stored: they must stay what they are."""

from __future__ import annotations

from tuner.db.knob_bits import BITS, knob_bits
from tuner.spaces.core.space import Value


def test_the_bits_are_the_same_in_every_release() -> None:
    assert knob_bits({}) == 0
    knobs: dict[str, Value] = {"unroll": 64, "sketch": "tiles", "tile": (4, 8)}
    assert [hex(knob_bits({name: value})) for name, value in knobs.items()] == [
        "0x4000008000000",
        "0x800008",
        "0x40004000000000",
    ]


def test_a_config_has_the_bits_of_each_of_its_knobs() -> None:
    config: dict[str, Value] = {"sketch": "tiles", "tile": (4, 8), "unroll": 64, "ü": ""}
    for name, value in config.items():
        assert knob_bits({name: value}) & ~knob_bits(config) == 0
    assert knob_bits(config) < 1 << BITS
    assert knob_bits({"tile": [4, 8]}) == knob_bits({"tile": (4, 8)}) != knob_bits({"tile": (8, 4)})


def test_values_that_differ_rarely_share_their_bits() -> None:
    bits = [knob_bits({"unroll": value}) for value in range(1000)]
    assert sum(each & ~bits[0] == 0 for each in bits) < 5
