"""Six thousand trials that are next to nothing: no process grows with them, no
descriptor and no zombie is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.soak import soak

TRIALS = 6_000  # of which the first 3,000 are for warming up

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("fleet"), pytest.mark.timeout(900)]


def test_a_soak_leaves_every_process_as_it_was(tmp_path: Path) -> None:
    soaked = soak(tmp_path, TRIALS, timeout_s=800)
    assert soaked.faults(TRIALS) == []
    assert {"orchestrator", "driver", "builder", "runner", "runner process", "compiler"} <= {
        growth.kind for growth in soaked.growth
    }
