"""Cook and Toom's short convolutions: exact in rational numbers."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest

from tuner.spaces.rewrite.cook_toom import POINTS, Matrix, Transform, transforms
from tuner.spaces.rewrite.winograd_tile import TILES

SIZES = sorted({(tile.outputs, tile.window) for tile in TILES} | {(1, 3), (3, 3), (6, 3), (3, 4)})


def applied(matrix: Matrix, vector: list[Fraction]) -> list[Fraction]:
    return [
        sum((factor * value for factor, value in zip(row, vector, strict=True)), Fraction(0))
        for row in matrix
    ]


def unit(length: int, place: int) -> list[Fraction]:
    return [Fraction(int(place == other)) for other in range(length)]


@pytest.mark.parametrize(("outputs", "window"), SIZES)
def test_they_compute_the_correlation_exactly(outputs: int, window: int) -> None:
    """It is bilinear, so that pairs of unit vectors stand for all inputs and windows."""
    length, made = outputs + window - 1, transforms(outputs, window)
    for place, step in product(range(length), range(window)):
        weights = applied(made.window.rows, unit(window, step))
        inputs = applied(made.inputs.rows, unit(length, place))
        products = [left * right for left, right in zip(weights, inputs, strict=True)]
        want = [Fraction(int(first + step == place)) for first in range(outputs)]
        assert applied(made.outputs.rows, products) == want


@pytest.mark.parametrize(("outputs", "window"), SIZES)
def test_groups_add_up_to_their_rows(outputs: int, window: int) -> None:
    made = transforms(outputs, window)
    for matrix in (made.window, made.inputs, made.outputs):
        for number, row in enumerate(matrix.rows):
            summed = dict.fromkeys(range(len(row)), Fraction(0))
            for group in matrix.groups(number):
                assert group.terms[0][1] > 0
                for column, factor in group.terms:
                    summed[column] += group.factor * factor
            assert tuple(summed.values()) == row


def distinct_groups(matrix: Transform) -> int:
    return len(
        {
            group.terms
            for number in range(len(matrix.rows))
            for group in matrix.groups(number)
            if len(group.terms) > 1
        }
    )


def test_rows_of_opposite_points_share_their_sums() -> None:
    """Of F(4, 3) four rows of the inputs and of the outputs are made of four sums."""
    made = transforms(4, 3)
    assert distinct_groups(made.inputs) == 4 + 2  # those of zero and of infinity are alone
    assert distinct_groups(made.outputs) == 4


def test_there_are_as_many_outputs_as_points_allow() -> None:
    most = len(POINTS) + 2 - 3
    transforms(most, 3)
    with pytest.raises(ValueError, match="points"):
        transforms(most + 1, 3)
