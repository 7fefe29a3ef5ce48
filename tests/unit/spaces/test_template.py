"""Knobs of templates: what each kind offers, how a config answers, what is refused."""

from __future__ import annotations

import json
from math import prod

import pytest

from tuner.errors import UsageError
from tuner.spaces.core.space import Config
from tuner.spaces.core.template import Knobs


def test_splits_are_all_the_ways_to_factor_an_extent() -> None:
    knobs = Knobs()
    assert knobs.split("i", 12, parts=3) == (12, 1, 1)
    (knob,) = knobs.space("t").combinations[0].knobs
    assert len(knob.values) == len(set(knob.values)) == 18
    assert all(
        isinstance(value, tuple) and prod(value) == 12 and len(value) == 3 for value in knob.values
    )
    assert Knobs().split("i", 7) == (7, 1)


def test_the_last_factor_may_be_bounded() -> None:
    knobs = Knobs()
    knobs.split("i", 64, innermost=8)
    assert knobs.space("t").combinations[0].knobs[0].values == ((64, 1), (32, 2), (16, 4), (8, 8))


def test_a_config_answers_every_knob() -> None:
    config = json.loads(
        '{"sketch": "t", "i": [4, 3], "order": [2, 0, 1], "fast": 1, "how": "b", "n": 16}'
    )
    knobs = Knobs(config)
    assert knobs.split("i", 12) == (4, 3)
    assert knobs.order("order", ["x", "y", "z"]) == ["z", "x", "y"]
    assert knobs.boolean("fast") is True
    assert knobs.choice("how", ["a", "b"]) == "b"
    assert knobs.integer("n", [0, 16]) == 16
    assert knobs.unused() == set()
    assert knobs.space("t").size == 6 * 6 * 2 * 2 * 2


@pytest.mark.parametrize(
    ("use", "why"),
    [
        (lambda knobs: knobs.split("i", 0), "at least 1"),
        (lambda knobs: knobs.choice("c", []), "0 values"),
        (lambda knobs: knobs.choice("c", range(5000)), "5000 values"),
        (lambda knobs: knobs.choice("sketch", [1]), "another name"),
        (lambda knobs: knobs.order("o", list(range(7))), "at most 6"),
        (lambda knobs: (knobs.choice("c", [1, 2]), knobs.choice("c", [1, 3])), "defined twice"),
        (lambda knobs: knobs.space("t"), "uses no knob"),
    ],
)
def test_what_makes_no_knob_is_refused(use: object, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        use(Knobs())  # type: ignore[operator]  # each is a function of the knobs


@pytest.mark.parametrize(
    ("config", "why"), [({}, "is not in the config"), ({"c": 9}, "has no value 9")]
)
def test_configs_of_another_space_are_refused(config: Config, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        Knobs(config).choice("c", [1, 2])
