"""What `tuner serve` loads before it answers: the search, its cost model and Ray are
the business of other processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import tuner

NOT_NEEDED = (
    *("ray", "tvm", "xgboost", "scipy"),
    *(
        "tuner.cost_model.ranker",
        "tuner.tuning",
        "tuner.lowering",
        "tuner.workers.jobs.orchestrator",
    ),
)


def test_the_server_starts_without_search_cost_model_and_cluster() -> None:
    program = (
        f"import sys, tuner.app.service.serve; print([name for name in {NOT_NEEDED!r} if name "
        f"in sys.modules])"
    )
    command, root = [sys.executable, "-c", program], Path(tuner.__file__).parent.parent
    shown = subprocess.run(
        command, cwd=root, capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert shown.strip() == "[]"
