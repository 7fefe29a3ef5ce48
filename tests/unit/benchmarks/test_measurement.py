"""Files of measurements: what they must say, and that figures keep their digits."""

from __future__ import annotations

from decimal import Decimal

import pytest

from benchmarks.measurement import (
    FILE_NAME,
    BadMeasurement,
    Machine,
    Measurement,
    Table,
    file_name,
    from_text,
    read_all,
    to_text,
)
from docs.generators.benchmarks import FOLDER, markdown
from docs.generators.suites import SUITES

RECORDED = read_all(FOLDER)
EXAMPLE = Measurement(
    suite="kernels",
    date="2026-11-20",
    machine=Machine(key="zen5", cpu="AMD EPYC", cores=2, target="znver5"),
    commit=None,
    command="python -m benchmarks.kernels",
    conditions=["Nothing else was running."],
    tables=[
        Table(
            title="",
            columns={"workload": "", "kernel": "ms", "NumPy / kernel": "ratio"},
            rows=[["mm512", Decimal("1.10"), Decimal("1.00")], ["gemv", Decimal("2.3e-6"), None]],
        )
    ],
)


@pytest.mark.parametrize("name", RECORDED)
def test_a_measurement_lies_under_its_name(name: str) -> None:
    match = FILE_NAME.fullmatch(name)
    assert match is not None
    assert name == file_name(RECORDED[name], int(match[4] or 1))
    assert RECORDED[name].suite in SUITES


def test_every_suite_has_a_measurement() -> None:
    assert {measurement.suite for measurement in RECORDED.values()} == set(SUITES)


def test_figures_keep_their_digits() -> None:
    text = to_text(EXAMPLE)
    assert from_text(text) == EXAMPLE
    assert '["mm512", 1.10, 1.00]' in text and '["gemv", 2.3e-6, null]' in text


def test_a_table_is_shown_with_its_digits() -> None:
    assert markdown(["workload", "ms"], [["mm512", Decimal("1.10")], ["gemv", 4127]]) == (
        "| workload | ms |\n|---|---:|\n| mm512 | 1.10 |\n| gemv | 4,127 |"
    )


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ('"suite": "kernels",', "", "suite"),
        ('"suite": "kernels"', '"suite": ""', "suite is empty"),
        ('"cpu": "AMD EPYC", ', "", "cpu"),
        ('"target": "znver5"', '"target": ""', "machine.target is empty"),
        ("2026-11-20", "20-11-2026", "isoformat"),
        ('"command": "python -m benchmarks.kernels"', '"command": ""', "command is empty"),
        ('"kernel": "ms"', '"kernel": "fortnights"', "unknown unit 'fortnights'"),
        ("1.10, 1.00", "1.10", "2 cells for 3 columns"),
        ('"tables"', '"pictures"', "tables"),
    ],
)
def test_what_is_no_measurement_is_refused(before: str, after: str, reason: str) -> None:
    text = to_text(EXAMPLE)
    assert before in text
    with pytest.raises(BadMeasurement, match=reason):
        from_text(text.replace(before, after))


def test_runs_of_a_day_are_in_their_order() -> None:
    runs = [name for name, run in RECORDED.items() if run.suite == "service-kills"]
    assert runs == ["2026-11-20-zen5-service-kills.json", "2026-11-20-zen5-service-kills-2.json"]
