"""No commit is named in the product that no test kills the process beside."""

from __future__ import annotations

import re
from pathlib import Path

from tests.integration.failpoints.job_groups import GROUPS
from tests.integration.failpoints.requests import REQUESTS
from tests.integration.failpoints.steps import STEPS

ROOT = Path(__file__).resolve().parents[2]
ALONE = {"submit", "validated", "verdict"}  # each in a test of its own, in test_failpoints.py


def test_every_named_commit_is_tried() -> None:
    failpoints = {
        name
        for package in ("api", "db", "tuner", "workers")
        for file in (ROOT / package).rglob("*.py")
        for name in re.findall(r'\.write\("([a-z-]+)"\)', file.read_text())
    }
    in_jobs = {failpoint.partition(":")[0] for group in GROUPS.values() for failpoint in group}
    assert failpoints == in_jobs | set(STEPS) | set(REQUESTS) | ALONE
