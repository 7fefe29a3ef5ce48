"""What searches learn of a trial: its time, or with more objectives their product."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.database_samples import failed, timed
from tuner.measure.objective import FASTEST, Goal, goal_of
from tuner.measure.outcome import Timed, Trial
from tuner.search.domain import Domain
from tuner.search.ledger import Ledger
from tuner.spaces.core.space import Combination, Knob, Space

SPACE = Space(
    combinations=(Combination(name="tiles", knobs=(Knob(name="tile", values=(1, 2, 4, 8)),)),)
)


def trial(number: int, seconds: float, code_bytes: int, workspace_bytes: int = 0) -> Trial:
    made = timed(number, seconds)
    assert isinstance(made.outcome, Timed)
    outcome = replace(made.outcome, workspace_bytes=workspace_bytes)
    config = {"sketch": "tiles", "tile": 2**number}
    return replace(made, config=config, outcome=outcome, code_bytes=code_bytes)


@pytest.mark.parametrize(
    ("goal", "labels"),
    [
        (FASTEST, [1.0, 0.5, 0.0]),
        (goal_of("energy"), [1.0, 0.5, 0.0]),
        (goal_of("code_size"), [1.0, 1.0, 0.0]),
        (goal_of("time,memory"), [0.5, 1.0, 0.0]),
    ],
)
def test_labels_follow_the_goal(goal: Goal, labels: list[float]) -> None:
    ledger = Ledger(Domain(SPACE), goal)
    ledger.tell(trial(0, 1e-3, 64 * 15, workspace_bytes=3 * 4096))
    ledger.tell(trial(1, 2e-3, 64 * 7))
    ledger.tell(replace(failed(2), config={"sketch": "tiles", "tile": 4}))
    np.testing.assert_allclose(ledger.labels, labels, rtol=1e-6)
