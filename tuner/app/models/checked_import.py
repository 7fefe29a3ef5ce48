"""A model that is read and held against ONNX's evaluator, before any budget is spent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tuner.app.models.command_time import CommandTime
from tuner.models.importer import judged
from tuner.models.reference.check_inputs import check_inputs
from tuner.models.reference.verdict import Right, Unjudged, Wrong
from tuner.workers.jobs.model_library import Model, ModelWrong, evaluated

CHECK_S = 60.0  # the check's time at most
SHARE = 0.15  # of the command's time that the check may take


def checked_import(model: Model, command: CommandTime, note: Callable[[str], object]) -> Model:
    """The model, with the right outputs that the check has computed.

    The command learns how long an evaluation takes. `note` is called with what the check
    has shown. Raises ModelWrong, with the operator at fault.
    """
    limit_s = CHECK_S if command.seconds is None else min(CHECK_S, SHARE * command.seconds)
    begun_s = command.clock()
    inputs = check_inputs(model.graph, model.values)
    verdict = judged(model.content, model.graph, inputs, model.shapes, model.values, limit_s)
    # It holds two evaluations, of which the export repeats one.
    command.evaluation_s = command.clock() - begun_s
    match verdict:
        case Wrong(message=message):
            raise ModelWrong(
                f"{message}; nothing was tuned. This is a fault of the import: please report it"
            )
        case Right(error=error, outputs=outputs):
            note(f"the imported graph is right, error {error:.1e}")
            return replace(model, right=outputs)
        case Unjudged(reason=reason, evaluable=True):
            note(f"the imported graph is not checked before tuning: {reason}")
            return model
        case Unjudged(reason=reason):
            note(
                f"{reason}; --inputs gives it other inputs. Without them the library will be "
                f"held against a float64 evaluation of the imported graph alone"
            )
            return replace(model, evaluate=partial(evaluated, model.graph))
