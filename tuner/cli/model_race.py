"""The table of kernels that are others inside the model than by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner import units

if TYPE_CHECKING:
    from tuner.models.tuning.kernel_race import KernelRace, Reselected

COLUMNS = ("kernel", "calls", "by itself", "inside", "its call, before", "now", "gain")


def rows(race: KernelRace) -> list[tuple[str, ...]]:
    """The largest gain first."""
    return [_row(changed) for changed in race.changed]


def _row(changed: Reselected) -> tuple[str, ...]:
    expression = changed.workload.expression
    shapes = " ".join("×".join(map(str, tensor.shape)) for tensor in expression.inputs[:2])
    return (
        f"{expression.name} {shapes}",
        str(changed.calls),
        changed.promoted,
        changed.chosen,
        units.seconds(changed.promoted_s),
        units.seconds(changed.chosen_s),
        units.percent(1 - changed.chosen_s / changed.promoted_s),
    )
