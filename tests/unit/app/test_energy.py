"""Energy of a call from two runs, and a machine that does not tell."""

from __future__ import annotations

import pytest

from tests.support.database_samples import sample_workload
from tuner.app.races.energy import energy_of_call
from tuner.app.races.race import RaceError

WORKLOAD = sample_workload()


def test_what_both_runs_have_in_common_does_not_count() -> None:
    starting_j, starting_s, power_w, call_s = 7.0, 0.3, 20.0, 1e-3
    runs = [
        (starting_j + power_w * seconds, starting_s + seconds, call_s) for seconds in (1.0, 4.0)
    ]
    assert energy_of_call(WORKLOAD, *runs) == pytest.approx(power_w * call_s)


def test_a_busy_machine_hides_it() -> None:
    with pytest.raises(RaceError, match="hidden by other work"):
        energy_of_call(WORKLOAD, (50.0, 1.3, 1e-3), (40.0, 4.3, 1e-3))
