"""`tuner advise` on kernels that are there already, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tuner.api.schemas import KernelAnswer
from tuner.cli.advise import _compared, _remark
from tuner.workload.nearby import nearby
from tuner.workload.spec import parse_spec


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["matmul:M=100,N=5,K=5", "--extents", "N"], "'N' is no extent"),
        (["matmul:M=5,N=5,K=5"], "no extents near it"),
        (["nothing:M=1"], "unknown operator"),
    ],
)
def test_what_cannot_be_changed_is_refused(
    tuner: Callable[..., Any], home: Path, arguments: list[str], says: str
) -> None:
    called = tuner("advise", *arguments)
    assert called.code == 2 and says in called.err
    assert not (home / "data").exists()


def kernel(name: str, median_s: float, *, disturbed: bool = False) -> KernelAnswer:
    """A kernel with an interval of 2%."""
    fields: dict[str, Any] = {
        "id": name,
        "median_s": median_s,
        "ci95_s": (0.98 * median_s, 1.02 * median_s),
        "disturbed": disturbed,
    }
    return KernelAnswer.model_construct(**fields)


def test_neighbours_are_compared_by_operation_and_in_all() -> None:
    asked = parse_spec("matmul:M=10,N=1000,K=7")
    changed = nearby(asked, ["N"])  # 960, 992, 1008, 1024
    first = kernel("asked", 1e-3)
    medians_s = (9.7e-4, 1.01e-3, 8e-4, 1.1e-3)
    kernels: dict[str, KernelAnswer | None] = {
        each.workload.key: kernel(str(each.extent), median_s)
        for each, median_s in zip(changed, medians_s, strict=True)
    }
    compared = _compared(asked, first, changed, kernels)
    assert [each.nearby.extent for each in compared] == [1008, 960, 992, 1024]
    assert [_remark(each, first) for each in compared] == ["faster", "as fast", "as fast", "slower"]
    assert compared[0].time == pytest.approx(0.8)
    assert compared[0].per_operation == pytest.approx(0.8 * 1000 / 1008)
    kernels[changed[2].workload.key] = None  # nothing could be verified
    assert [each.nearby.extent for each in _compared(asked, first, changed, kernels)] == [
        960,
        992,
        1024,
    ]


def test_what_ran_beside_other_work_decides_nothing() -> None:
    asked = parse_spec("matmul:M=10,N=1000,K=7")
    changed = nearby(asked, ["N"])[:1]
    kernels = {changed[0].workload.key: kernel("a", 1e-4, disturbed=True)}
    (only,) = _compared(asked, kernel("asked", 1e-3), changed, kernels)
    assert _remark(only, kernel("asked", 1e-3)) == "disturbed"
