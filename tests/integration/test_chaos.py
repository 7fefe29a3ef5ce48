"""Workers, a raylet and calls between them are lost all the time: each trial is
recorded once and everything is given back."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.chaos import torment

TRIALS = 200

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("fleet"), pytest.mark.timeout(900)]


def test_chaos_costs_no_trial_and_leaves_nothing(tmp_path: Path) -> None:
    survived = torment(tmp_path, TRIALS, timeout_s=700)
    assert survived.faults(TRIALS) == []
    assert survived.kills["raylet/raylet"] == 2 and sum(survived.kills.values()) >= 4
    assert survived.retried > 0
