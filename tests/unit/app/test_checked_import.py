"""What a command does with the check of an import, and how it divides its seconds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support import onnx_networks as nets
from tuner.app.models import checked_import as module
from tuner.app.models.checked_import import checked_import
from tuner.app.models.command_time import CommandTime
from tuner.models.reading import read_graph
from tuner.models.reference.verdict import Right, Unjudged, Verdict, Wrong
from tuner.models.tuning.kernel_race import race_s
from tuner.workers.jobs.model_library import Model, ModelWrong


class Clock:
    def __init__(self) -> None:
        self.now_s = 7.0

    def __call__(self) -> float:
        return self.now_s


def small() -> Model:
    content = nets.serialized(nets.perceptron(rows=2, sizes=(4, 3)))
    return Model(content=content, shapes={}, graph=read_graph(content, {}))


def checked(
    verdict: Verdict, monkeypatch: pytest.MonkeyPatch, seconds: float | None = None
) -> tuple[Model, list[str], CommandTime, list[float]]:
    """The model after a check that takes 2 s, its notes, and the limit that it was given."""
    clock, notes, limits = Clock(), list[str](), list[float]()
    command = CommandTime(seconds=seconds, clock=clock)

    def judged(*given: object) -> Verdict:
        limits.append(float(given[-1]))  # type: ignore[arg-type]  # the limit
        clock.now_s += 2.0
        return verdict

    monkeypatch.setattr(module, "judged", judged)
    return checked_import(small(), command, notes.append), notes, command, limits


def test_right_outputs_are_kept_for_the_export(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = (np.ones((2, 3), np.float32),)
    model, notes, command, limits = checked(Right(error=1e-7, outputs=outputs), monkeypatch)
    assert model.right is outputs and "is right, error 1.0e-07" in notes[0]
    assert command.evaluation_s == 2.0 and limits == [60.0]


def test_a_wrong_import_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelWrong, match="operator is Exp; nothing was tuned"):
        checked(Wrong(message="the first wrong operator is Exp"), monkeypatch)


def test_a_slow_check_is_noted_and_keeps_to_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = Unjudged(reason="evaluating it takes more than 3 s", evaluable=True)
    model, notes, _, limits = checked(verdict, monkeypatch, seconds=20.0)
    assert model.right is None and model.evaluate is None and limits == [3.0]
    assert notes == ["the imported graph is not checked before tuning: " + verdict.reason]


def test_what_the_evaluator_does_not_run_is_evaluated_in_float64(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    verdict = Unjudged(reason="no such operator", evaluable=False)
    model, notes, _, _ = checked(verdict, monkeypatch)
    assert "no such operator; --inputs" in notes[0] and model.evaluate is not None
    (y,) = model.evaluate([np.ones((2, 4), np.float32)])
    np.testing.assert_allclose(y.sum(axis=1), np.ones(2), rtol=1e-5)


def test_tuning_leaves_time_for_the_export() -> None:
    clock, model = Clock(), small()
    command = CommandTime(seconds=100.0, clock=clock)
    clock.now_s += 30.0
    before = command.tuning_s([model])
    assert before is not None and 50 < before < 65
    command.evaluation_s = 5.0
    assert command.tuning_s([model]) == pytest.approx(before - 5.0)
    assert command.tuning_s([]) == pytest.approx(70.0)
    two = command.tuning_s([model, model])
    assert two is not None and two < before - 10.0
    clock.now_s += 500.0
    assert command.tuning_s([model]) == pytest.approx(0.1)  # the defaults, then
    assert command.spare_s([model], 0.1) < -400.0  # the export is as late already
    assert CommandTime(seconds=None, clock=clock).tuning_s([model]) is None


def test_tuning_leaves_the_time_that_an_export_of_410_mb_took() -> None:
    """38 s of one processor, evaluations aside."""
    model = small()
    weights = np.broadcast_to(np.float32(1.0), (10, 3200, 3200))
    large = replace(model, graph=replace(model.graph, constants={"w": weights}))
    tuning_s = CommandTime(seconds=120.0, clock=Clock()).tuning_s([large])
    assert tuning_s is not None and 70.0 < tuning_s <= 120.0 - 38.0


def test_what_is_kept_for_races_makes_a_late_tuning_less_late() -> None:
    clock, model = Clock(), small()
    command = CommandTime(seconds=270.0, clock=clock)
    tuning_s = command.tuning_s([model])
    assert tuning_s is not None
    spare_s = command.spare_s([model], tuning_s)
    assert spare_s == pytest.approx(race_s(model.graph))
    clock.now_s += tuning_s + spare_s / 2
    assert not command.can_race([model])
