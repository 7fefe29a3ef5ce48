"""docs/how-to/add-an-operator.md, carried out on a copy of the source."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import how_to

pytestmark = pytest.mark.slow

EVALUATED = """
import numpy as np
from tuner.lowering.compiler import program_text
from tuner.spaces.default_schedule import default_program
from tuner.workload.reference import evaluate
from tuner.workload.spec import parse_spec

workload = parse_spec("sum_squares:M=3,N=4")
x = np.arange(12, dtype=np.float32).reshape(3, 4)
(y,) = evaluate(workload.expression, {"X": x}).values()
assert np.array_equal(y, (x * x).sum(1)), y
assert "T.prim_func" in program_text(default_program(workload), "kernel")
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root, edited = how_to.carry_out("add-an-operator.md", tmp_path_factory.mktemp("page"))
    assert edited == [
        "tuner/workload/rowwise.py",
        "tuner/workload/catalogue.py",
        "tests/unit/workload/operators.py",
    ]
    return root


def test_the_catalogue_keeps_its_promises(source: Path) -> None:
    suite = ("-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-k", "sum_squares")
    assert " passed" in how_to.run(source, *suite, "tests/unit/workload/test_catalogue.py")


def test_the_reference_page_has_it(source: Path) -> None:
    assert "sum_squares" in how_to.run(source, "-m", "tuner.workload.handbook")


def test_it_is_evaluated_and_lowered(source: Path) -> None:
    how_to.run(source, "-c", EVALUATED)
