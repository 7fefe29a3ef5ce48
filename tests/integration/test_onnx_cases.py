"""ONNX's own cases of its operators are as right as the recorded table says."""

from __future__ import annotations

from zlib import crc32

import pytest

from benchmarks.models.onnx_cases import cases, kinds, verdict
from docs.generators.onnx_cases import verdicts

pytestmark = pytest.mark.slow
PARTS = 2
RECORDED = verdicts()


@pytest.mark.parametrize("part", range(PARTS))
def test_verdicts_are_the_recorded_ones(part: int) -> None:
    again = "run: python -m benchmarks.models.onnx_cases --write tests/tables/onnx_cases.json"
    members = [case for case in cases() if crc32(case.name.encode()) % PARTS == part]
    assert members and {case.name for case in members} <= RECORDED.keys(), again
    changed = {
        case.name: (RECORDED[case.name], now)
        for case in members
        if kinds({"": (now := verdict(case))}) != kinds({"": RECORDED[case.name]})
    }
    assert not changed, again


def test_nothing_is_wrong() -> None:
    counts = kinds(RECORDED)
    assert counts["wrong"] == 0
    assert counts["refused"] <= 0.03 * len(RECORDED)
