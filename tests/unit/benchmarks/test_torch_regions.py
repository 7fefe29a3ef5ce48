"""How the tables of the PyTorch backend compile a model, and what becomes of a case."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from benchmarks.torch.apart import apart  # noqa: E402
from benchmarks.torch.judging import NotRun  # noqa: E402
from benchmarks.torch.regions import Compiled, counted  # noqa: E402

X = torch.randn(64, 64, generator=torch.Generator().manual_seed(0)) + 16 * torch.eye(64)


def half_ours(x: Any) -> Any:
    return torch.linalg.inv(x @ x) @ x


@pytest.mark.parametrize(
    ("model", "low", "high"),
    [
        (lambda x: (x @ x).relu(), 1.0, 1.0),
        (torch.linalg.inv, 0.0, 0.0),
        (half_ours, 0.01, 0.99),
    ],
)
def test_time_is_that_of_operators_in_regions(model: Any, low: float, high: float) -> None:
    compiled = Compiled(model, "evaluator")
    torch.testing.assert_close(compiled.function(X), model(X), rtol=1e-3, atol=1e-3)
    assert low <= compiled.share_of_time(lambda: compiled.function(X)) <= high


def test_calls_that_stay_are_counted_beside_those_in_regions() -> None:
    compiled = Compiled(half_ours, "evaluator")
    compiled.function(X)
    counts = counted(compiled.backend.parts)
    assert (counts["in_regions"], counts["regions"]) == (2, 2)
    assert counts["calls"] > 2


@pytest.mark.slow  # compiles
def test_libraries_compute_regions() -> None:
    compiled = Compiled(half_ours, "libraries")
    torch.testing.assert_close(compiled.function(X), half_ours(X), rtol=1e-3, atol=1e-3)


def doubled(number: int) -> dict[str, Any]:
    if number == 0:
        raise NotRun("it is nothing")
    if number == 1:
        raise ValueError("it is odd")
    if number == 2:
        os._exit(3)
    if number == 3:
        time.sleep(60)
    return {"double": 2 * number}


@pytest.mark.parametrize(
    ("number", "line"),
    [
        (0, {"not_run": "it is nothing"}),
        (1, {"raised": "ValueError: it is odd"}),
        (2, {"raised": "its process ended with status 3"}),
        (3, {"not_run": "too slow: it took more than 0.5 s"}),
        (4, {"double": 8}),
    ],
)
def test_a_case_ends_alone(number: int, line: dict[str, Any]) -> None:
    assert apart(doubled, number, seconds=0.5 if number == 3 else 30) == line
