"""What `tuner serve` loads before it answers: the search, its cost model and Ray are
the business of other processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tuner
from tuner.app.service.serve import as_variables
from tuner.settings import load_settings

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


@pytest.mark.parametrize("given", [{}, {"max_error": 1e-3, "numerics": "fast", "seconds": 5.0}])
def test_the_orchestrator_reads_the_servers_settings(
    given: dict[str, object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Those without a value, too, which have no text."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUNER_DATA_DIR", str(tmp_path))
    settings = load_settings(given, given_as="argument {}").values
    for name, value in as_variables(settings).items():
        monkeypatch.setenv(name, value)
    assert load_settings().values == settings
