"""T4 documents: what is written holds to the schema's words, what others write is read,
what is none is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tuner.errors import UsageError
from tuner.measure.outcome import Failed, FailureKind, Timed
from tuner.replay.t4 import Result, read_t4, t4_document

INVALIDITY = ["timeout", "compile", "runtime", "correctness", "constraints", "correct"]
# The schema's own requirements, version 1.0.0.
RESULT = {"configuration": dict, "times": dict, "invalidity": str, "correctness": (int, float)}


def result(outcome: str = "ok", median_s: float | None = 2e-3, **config: Any) -> Result:
    return Result(
        config=config or {"tile": 8},
        outcome=outcome,
        median_s=median_s if outcome == "ok" else None,
        build_s=0.5,
        measure_s=0.1,
        created_at=datetime(2026, 1, 2, tzinfo=UTC),
    )


def kernel_tuner(time_ms: float | None, word: str = "correct", **config: Any) -> dict[str, Any]:
    """A result as Kernel Tuner writes it."""
    measured = [] if time_ms is None else [{"name": "time", "value": time_ms, "unit": "ms"}]
    return {
        "configuration": config,
        "times": {"compilation": 1.0, "runtimes": []},
        "invalidity": word,
        "correctness": 1,
        "measurements": [*measured, {"name": "GFLOP/s", "value": 3.0, "unit": ""}],
        "objectives": ["time"],
    }


def write(path: Path, results: list[dict[str, Any]], **more: Any) -> Path:
    path.write_text(json.dumps({"schema_version": "1.0.0", "results": results, **more}))
    return path


@pytest.mark.parametrize("kind", ["ok", *FailureKind])
def test_what_is_written_holds_to_the_schema(kind: str) -> None:
    document = t4_document([result(str(kind))])
    (written,) = document["results"]
    for name, expected in RESULT.items():
        assert isinstance(written[name], expected)  # type: ignore[arg-type]  # a table of types
    assert written["invalidity"] in INVALIDITY
    assert (written["invalidity"] == "correct") == (kind == "ok")
    assert written["correctness"] == (kind != FailureKind.WRONG_ANSWER)
    assert json.loads(json.dumps(document)) == document


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "own.json"
    results = [
        Result(
            config={},
            outcome="ok",
            median_s=9e-3,
            build_s=0,
            measure_s=0,
            created_at=datetime(2026, 1, 2, tzinfo=UTC),
        ),
        result(tile=(8, 4), unroll=2),
        result("wrong_answer", tile=(8, 4), unroll=1),
        result(median_s=1e-3, tile=(2, 16), unroll=2),
    ]
    path.write_text(json.dumps(t4_document(results)))
    table = read_t4(path)
    assert table.default_median_s == pytest.approx(9e-3)
    assert table.optimum_s == pytest.approx(1e-3)
    outcomes = [table.outcome(row) for row in range(3)]
    assert [type(outcome) for outcome in outcomes] == [Timed, Failed, Timed]
    configs = [table.space.config(point) for point in table.points]
    assert configs[1]["tile"] == (8, 4) and configs[1]["unroll"] == 1


def test_what_kernel_tuner_writes_is_read(tmp_path: Path) -> None:
    path = write(
        tmp_path / "convolution.json",
        [
            kernel_tuner(0.5, block_size_x=16, use_cache=True),
            kernel_tuner(0.25, block_size_x=128, use_cache=True),
            kernel_tuner(None, "compile", block_size_x=1024, use_cache=False),
            kernel_tuner(9.0, block_size_x=16, use_cache=True),  # again
        ],
        metadata={"timeunit": "milliseconds"},
    )
    table = read_t4(path)
    assert (table.name, len(table.points)) == ("convolution", 3)
    assert table.optimum_s == pytest.approx(0.25e-3)
    assert sorted(table.median_s) == pytest.approx([0.25e-3, 0.5e-3])
    knobs = {knob.name: knob.values for knob in table.space.knobs}
    assert knobs["block_size_x"] == (16, 128, 1024)


def test_strategies_are_compared_on_it(tuner: Callable[..., Any], tmp_path: Path) -> None:
    results = [
        kernel_tuner(1.0 + abs(x - 5) + y, block_size_x=2**x, tile=y)
        for x in range(8)
        for y in range(4)
    ]
    path = write(tmp_path / "other.json", results)
    called = tuner("replay", str(path), "--seeds", "3", "--budget", "16", "--json")
    assert called.code == 0, called.err
    (table,) = called.document["tables"]
    assert (table["configs"], table["features"]) == (32, "knobs")
    assert table["best_s"] == pytest.approx(1e-3)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "[" * 100_000,
        '{"results": []}',
        '{"results": [{"configuration": {"a": 1}, "invalidity": "correct", "measurements":'
        f' [{{"name": "time", "value": 1{"0" * 400}}}]}}]}}',
        '{"results": [{"configuration": {"a": 1}, "invalidity": "luck"}]}',
        '{"results": [{"configuration": {"a": 1}, "invalidity": "correct", "measurements": []}]}',
        '{"results": [{"configuration": {"a": {}}, "invalidity": "compile"}]}',
        '{"results": [{"configuration": {"a": 1}, "invalidity": "compile"}]}',
        '{"results": [{"configuration": {"a": 1}, "invalidity": "compile"},'
        ' {"configuration": {"b": 1}, "invalidity": "compile"}]}',
        '{"results": [{"configuration": {"a": 1}, "invalidity": "correct", "measurements":'
        ' [{"name": "time", "value": 1, "unit": "fortnights"}]}]}',
    ],
)
def test_what_is_none_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t4.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"t4\.json is no T4 file"):
        read_t4(path)
