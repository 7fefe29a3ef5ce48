"""What modules take, by the kernels of a database."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.support.database_samples import sample_kernel  # noqa: E402
from tuner.db import promotions, targets, workloads  # noqa: E402
from tuner.db.engine import open_database  # noqa: E402
from tuner.errors import UsageError  # noqa: E402
from tuner.models.exported_program import read_exported  # noqa: E402
from tuner.models.workloads import workloads_of  # noqa: E402
from tuner.nas import latencies  # noqa: E402
from tuner.target.detect import parse_target  # noqa: E402
from tuner.workload.spec import to_document  # noqa: E402

# What PyTorch says to itself.
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")

INPUTS = (torch.zeros(2, 4, 6, 6),)


def block() -> Any:
    """Two calls of the same kernel, and one of another."""
    first, second = torch.nn.Conv2d(4, 4, 3, padding=1), torch.nn.Conv2d(4, 4, 3, padding=1)
    return torch.nn.Sequential(first, second, torch.nn.Conv2d(4, 8, 1))


def promote_all(db: str, module: Any, median_s: float) -> None:
    """Each kernel of the module with the same time."""
    graph = read_exported(torch.export.export(module.eval(), INPUTS))
    database = open_database(db)
    with database.write() as session:
        key = targets.remember(session, parse_target("cpu"))
        for part in workloads_of(graph):
            new = replace(
                sample_kernel(session, median_s=median_s),
                workload=workloads.remember(session, part.workload, to_document(part.workload)),
                target=key,
                ci95_s=(0.98 * median_s, 1.01 * median_s),
                trial=7,
            )
            promotions.promote(session, new)
    database.close()


def test_a_module_takes_the_sum_of_its_calls(home: Path) -> None:
    db = f"sqlite:///{home}/kernels.sqlite"
    module = block().train()
    promote_all(db, block(), 1e-5)
    measured, nothing = latencies([module, torch.nn.Identity()], INPUTS, db=db)
    assert measured.source == "measured" and measured.median_s == pytest.approx(3e-5)
    assert (measured.low_s, measured.high_s) == pytest.approx((2.94e-5, 3.03e-5))
    assert (nothing.median_s, nothing.high_s) == (0.0, 0.0)
    assert module.training  # as it was


def test_what_is_no_module_on_some_inputs_is_refused() -> None:
    with pytest.raises(UsageError, match=r"builtin_function_or_method is no torch\.nn\.Module"):
        latencies([torch.relu], INPUTS)
    with pytest.raises(UsageError, match="give a list"):
        latencies([block()], INPUTS[0])
