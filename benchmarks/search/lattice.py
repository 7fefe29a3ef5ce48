"""Choose the sub-lattice of a space that a table records.

It has fewer values of each knob, evenly spaced, and every combination of them. Points
that are neighbours in the sub-lattice are alike in the space, too, so that explorers walk
a table as they walk the space.
"""

from __future__ import annotations

from math import prod

from tuner.spaces.core.space import Combination, Knob, Space

_HALVINGS = 40


def sublattice(space: Space, most: int) -> Space:
    """A sub-lattice with at most `most` points, shared alike by the sketches.

    What a small sketch leaves goes to the others. Each knob that has a choice keeps at
    least two values, so a sketch of k such knobs keeps at least 2**k points even beyond
    `most`.
    """
    shares: dict[str, Combination] = {}
    left = most
    by_size = sorted(space.combinations, key=lambda sketch: sketch.size)
    for place, sketch in enumerate(by_size):
        share = max(1, left // (len(by_size) - place))
        shares[sketch.name] = _thinned(sketch, share)
        left = max(0, left - shares[sketch.name].size)
    return _consistent(space, shares)


def _thinned(sketch: Combination, most: int) -> Combination:
    """The largest exponent a at which thinned knobs span no more than `most` points.

    A knob of n values keeps n**a of them, and at least 2.
    """
    low, high = 0.0, 1.0
    if sketch.size <= most:
        return sketch
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if prod(_counts(sketch, middle)) <= most else (low, middle)
    counts = _counts(sketch, low)
    return Combination(
        name=sketch.name,
        knobs=tuple(_spaced(knob, count) for knob, count in zip(sketch.knobs, counts, strict=True)),
    )


def _counts(sketch: Combination, exponent: float) -> list[int]:
    return [
        min(len(knob.values), max(2, round(len(knob.values) ** exponent))) for knob in sketch.knobs
    ]


def _spaced(knob: Knob, count: int) -> Knob:
    """The middle of each of `count` equal parts of the values.

    The ends would be extremes.
    """
    size = len(knob.values)
    return Knob(
        name=knob.name,
        values=tuple(knob.values[(2 * place + 1) * size // (2 * count)] for place in range(count)),
    )


def _consistent(space: Space, chosen: dict[str, Combination]) -> Space:
    """Sketches that share a knob share its values: the fewest that one of them kept."""
    kept: dict[str, Knob] = {}
    for sketch in chosen.values():
        for knob in sketch.knobs:
            if knob.name not in kept or len(knob.values) < len(kept[knob.name].values):
                kept[knob.name] = knob
    return Space(
        tuple(
            Combination(
                name=sketch.name, knobs=tuple(kept[knob.name] for knob in chosen[sketch.name].knobs)
            )
            for sketch in space.combinations
        )
    )
