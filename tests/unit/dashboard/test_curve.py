"""The curve's thinning keeps what matters: every record, and a picture that stays small."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.api.dashboard.charts import curve as curves
from tuner.api.dashboard.charts.curve import Curve, Level, first_of_columns, record_mask, thinned
from tuner.api.dashboard.charts.terminal import plot

MEDIANS = st.lists(st.floats(1e-6, 1.0, allow_nan=False), min_size=1, max_size=200)


def curve_of(medians: list[float], *, failed: int = 0, levels: tuple[Level, ...] = ()) -> Curve:
    numbers, values = np.arange(len(medians)), np.array(medians, np.float64)
    records = record_mask(values)
    kept = thinned(numbers, values, end=float(len(medians)), keep=records)
    marks = np.arange(failed)
    return Curve(
        total=len(medians) + failed,
        failed=failed,
        axis="trial",
        end=float(len(medians)),
        numbers=numbers[kept],
        positions=numbers[kept].astype(np.float64),
        medians_s=values[kept],
        record_numbers=numbers[records],
        record_positions=numbers[records].astype(np.float64),
        record_medians_s=values[records],
        failure_positions=marks.astype(np.float64),
        failure_numbers=marks,
        levels=levels,
    )


@given(MEDIANS)
def test_records_are_the_trials_faster_than_all_before(medians: list[float]) -> None:
    mask = record_mask(np.array(medians))
    assert mask.tolist() == [
        value < min(medians[:number], default=float("inf")) for number, value in enumerate(medians)
    ]


@given(MEDIANS)
def test_every_record_is_drawn(medians: list[float]) -> None:
    curve = curve_of(medians)
    assert set(curve.record_numbers.tolist()) <= set(curve.numbers.tolist())
    assert curve.record_medians_s[-1] == min(medians)


def test_a_hundred_thousand_trials_fit_in_a_small_picture() -> None:
    rng = np.random.default_rng(0)
    medians = (1e-3 * rng.lognormal(0, 1, 100_000)).tolist()
    curve = curve_of(medians, failed=5000)
    assert len(curve.numbers) <= curves.MOST_POINTS + len(curve.record_numbers)
    assert len(curves.draw(curve)) + len(json.dumps(curves.points_json(curve))) < 300_000
    assert len(first_of_columns(np.arange(50_000), 100_000.0)) < 600


def test_the_drawing_has_no_inline_style_and_stays_within_its_frame() -> None:
    levels = (
        Level(name="default", seconds=0.5, kind="default"),
        Level(name="<b>", seconds=1e-4, kind="rival"),
    )
    text = curves.draw(curve_of([0.3, 0.2, 0.25, 0.001], failed=3, levels=levels))
    assert "style=" not in text and "<b>" not in text and "&lt;b&gt;" in text
    for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", text):
        assert 0 <= float(x) <= curves.WIDTH and 0 <= float(y) <= curves.HEIGHT


@pytest.mark.parametrize("medians", [[], [1e-3], [1e-3, 1e-3]])
def test_little_data_is_drawn_too(medians: list[float]) -> None:
    curve = curve_of(medians)
    assert curves.draw(curve).startswith("<svg")
    assert ("No trial" in curves.summary(curve)) == (not medians)
    assert plot(curve)


def test_the_terminal_shows_the_best_at_the_right_end() -> None:
    lines = plot(curve_of([1.0, 0.1, 0.5, 0.01]), width=60, height=10)
    assert all(len(line) <= 60 for line in lines)
    assert "█" in lines[9] and lines[9].rstrip().endswith("█") and lines[0].count("█") >= 1
    assert lines[-1].rstrip().endswith("4")
