"""The derivative of a workload as a workload, made by parsing the text of its program."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.errors import WorkloadError
from tuner.workload.derivative.program import derivative
from tuner.workload.printing import notation_text
from tuner.workload.spec import workload_from_notation
from tuner.workload.workload import Workload


def derivative_of(workload: Workload, wrt: Sequence[str] | None = None) -> Workload:
    """The vector-Jacobian product of a workload by chosen inputs, `derivative` as a workload.

    Its `notation` is the program, its numerics those of the workload. Raises
    `WorkloadError` (parameter "wrt") for inputs that have no derivative, and for a
    program beyond the limits of the notation.
    """
    program = derivative(workload.expression, wrt)
    text = notation_text(program)
    try:
        return workload_from_notation(text, {}, numerics=workload.numerics)
    except WorkloadError as error:
        raise WorkloadError(
            f"the derivative by {', '.join(program.outputs)} is beyond what one "
            f"program holds ({error}); ask for fewer inputs at a time with wrt",
            parameter="wrt",
        ) from None
