"""A clock that is set while a lane is held: its job is charged for what has really passed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.workers.fleet import held
from tuner.workers.fleet.held import Held

HOUR_S, DAY_S = 3600.0, 86400.0


@pytest.mark.parametrize("jump_s", [0.0, -HOUR_S, DAY_S])
def test_the_end_is_what_has_passed_after_the_beginning(jump_s: float) -> None:
    epoch_s, steady_s = 1.7e9, 50.0
    lane = Held(epoch_s=lambda: epoch_s, steady_s=lambda: steady_s)
    epoch_s, steady_s = epoch_s + jump_s, steady_s + 2.5
    assert (lane.started_s, lane.now_s) == (1.7e9, 1.7e9 + 2.5)


def test_no_other_file_of_the_fleet_asks_a_clock_that_can_be_set() -> None:
    folder = Path(held.__file__).parent
    asking = {file.name for file in folder.glob("*.py") if "time.time" in file.read_text()}
    assert asking == {"held.py", "lane_calibration.py"}
