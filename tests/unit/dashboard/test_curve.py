"""The curve's thinning keeps what matters: every record, and a picture that stays small."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.api.dashboard.charts import curve as curves
from tuner.api.dashboard.charts.curve import (
    DEFAULT,
    Axes,
    Curve,
    Level,
    first_of_columns,
    record_mask,
    thinned,
)
from tuner.api.dashboard.charts.terminal import plot

MEDIANS = st.lists(st.floats(1e-6, 1.0, allow_nan=False), min_size=1, max_size=200)


def curve_of(
    medians: list[float], *, failed: int = 0, levels: tuple[Level, ...] = (), axes: Axes = DEFAULT
) -> Curve:
    numbers, values = np.arange(len(medians)), np.array(medians, np.float64)
    records = record_mask(values)
    kept = thinned(numbers, values, end=float(len(medians)), keep=records, axes=axes)
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
        levels=levels,
        axes=axes,
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


@given(MEDIANS, st.booleans(), st.booleans())
def test_every_trial_lies_within_the_drawing_in_order(
    medians: list[float], x_log: bool, y_log: bool
) -> None:
    curve = curve_of(medians, axes=Axes(x_log=x_log, y_log=y_log))
    points = curves.points_json(curve)
    assert points == sorted(points, key=lambda point: (point[0], point[2]))
    for x, y, number, _ in points:
        assert curves.LEFT <= x <= curves.WIDTH - curves.RIGHT
        assert curves.TOP <= y <= curves.HEIGHT - curves.BOTTOM
        assert medians[number] == curve.medians_s[curve.numbers.tolist().index(number)]


def test_a_logarithmic_axis_gives_early_trials_their_room() -> None:
    medians = [1e-3 - 1e-9 * number for number in range(10_000)]
    linear, log = (curve_of(medians, axes=Axes(x_log=x_log)) for x_log in (False, True))
    place = {point[2]: point[0] for point in curves.points_json(log)}
    assert place[100] - place[10] > 200
    assert {point[2]: point[0] for point in curves.points_json(linear)}[100] < curves.LEFT + 20


def test_of_the_fastest_share_slower_lines_are_left_out() -> None:
    levels = tuple(
        Level(name=name, seconds=seconds, kind="rival")
        for name, seconds in (("slow", 5.0), ("quick", 1e-3))
    )
    axes = Axes(top_percent=5.0)
    drawn = curves.draw(curve_of([2e-3, 1.5e-3], levels=levels, axes=axes))
    assert ">quick<" in drawn and ">slow<" not in drawn
    assert ">slow<" in curves.draw(curve_of([2e-3, 1.5e-3], levels=levels))
