"""The table of a model's time against its error, a row for each choice of numerics tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner import units

if TYPE_CHECKING:
    from tuner.models.tuning.numerics import NumericsChoice, Tried

COLUMNS = ("fast calls", "time", "error", "chosen")
_MOST_ALONE = 10  # rows of calls that were fast by themselves, those of most error


def rows(choice: NumericsChoice) -> list[tuple[str, ...]]:
    """The strict choice first. Of single fast calls only those of the greatest errors."""
    alone = sorted(
        (tried for tried in choice.tried if len(tried.fast) == 1), key=lambda tried: -tried.error
    )
    left_out = [tried for tried in alone[_MOST_ALONE:] if tried is not choice.chosen]
    return [_row(tried, choice) for tried in choice.tried if tried not in left_out]


def _row(tried: Tried, choice: NumericsChoice) -> tuple[str, ...]:
    most = max(len(other.fast) for other in choice.tried)
    match len(tried.fast):
        case 0:
            name = "none"
        case 1:
            name = choice.nodes[next(iter(tried.fast))].label
        case count:
            name = f"{count} of {most}"
    return (
        name,
        units.seconds(tried.seconds),
        f"{tried.error:.1e}",
        "yes" if tried is choice.chosen else "",
    )
