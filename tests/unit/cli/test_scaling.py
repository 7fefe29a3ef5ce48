"""`tuner tune --threads auto`: which counts are tried, which is best for what, and what it
refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tuner.api.schemas import KernelAnswer
from tuner.cli.scaling import Point, _document, _rows, busiest, fastest, thread_counts
from tuner.workload.spec import parse_spec


def test_counts_double_up_to_all_cores() -> None:
    assert [thread_counts(cores) for cores in (1, 2, 3, 4, 6, 64)] == [
        [1],
        [1, 2],
        [1, 2, 3],
        [1, 2, 4],
        [1, 2, 4, 6],
        [1, 2, 4, 8, 16, 32, 64],
    ]


def point(threads: int, median_s: float, instances: int, calls_per_s: float) -> Point:
    fields: dict[str, Any] = {
        "id": f"k{threads}",
        "threads": threads,
        "median_s": median_s,
        "ci95_s": (0.99 * median_s, 1.01 * median_s),
    }
    return Point(
        threads=threads,
        kernel=KernelAnswer.model_construct(**fields),
        instances=instances,
        calls_per_s=calls_per_s,
    )


CURVE = [point(1, 8e-4, 4, 4800.0), point(2, 4.5e-4, 2, 4100.0), point(4, 3e-4, 1, 3300.0)]


def test_a_call_and_many_calls_have_different_counts() -> None:
    assert (fastest(CURVE).threads, busiest(CURVE).threads) == (4, 1)
    even = [point(1, 3e-4, 4, 3300.0), *CURVE[1:]]
    assert fastest(even).threads == 1, "no more threads than help"
    assert busiest([point(1, 8e-4, 4, 4100.0), *CURVE[1:]]).threads == 2, "no more instances"


def test_the_curve_is_printed_and_a_document() -> None:
    workload = parse_spec("matmul:M=512,N=512,K=512")
    rows = _rows(workload, CURVE)
    assert rows[0][0] == workload.spec and rows[1][0] == rows[2][0] == ""
    assert [row[4] for row in rows] == ["1.00×", "1.78×", "2.67×"]
    assert [(row[5], row[6], row[7]) for row in rows] == [
        ("4", "4,800", "most calls"),
        ("2", "4,100", ""),
        ("1", "3,300", "fastest"),
    ]
    document = _document(workload, CURVE)
    assert document["fastest"] == 4 and document["throughput"] == {"instances": 4, "threads": 1}
    assert [each["calls_per_s"] for each in document["points"]] == [4800.0, 4100.0, 3300.0]
    empty = _document(workload, [])
    assert (empty["points"], empty["fastest"], empty["throughput"]) == ([], None, None)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["net.onnx"], "--threads auto is for single workloads"),
        (["matmul:M=1..64,N=16,K=16"], "give no range of extents"),
        (["matmul:M=8,N=8,K=8", "--target", "cuda:sm_90"], "is elsewhere"),
    ],
)
def test_what_has_no_curve_is_refused(
    tuner: Callable[..., Any], home: Path, arguments: list[str], says: str
) -> None:
    called = tuner("tune", *arguments, "--threads", "auto")
    assert called.code == 2 and says in called.err
    assert not (home / "data").exists()


def test_no_other_word_is_a_count(tuner: Callable[..., Any], home: Path) -> None:
    called = tuner("tune", "matmul:M=8,N=8,K=8", "--threads", "many")
    assert called.code == 2 and "threads is 'many'; give a number, or auto" in called.err
    assert not (home / "data").exists()
