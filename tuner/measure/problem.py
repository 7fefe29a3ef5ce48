"""What a candidate must compute: inputs and reference outputs of a workload.

They are made once in the runner's parent, before it forks. So a child pays neither for
making nor for copying them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tuner.measure.buffers import guarded_copy
from tuner.measure.check import SMALLEST, Array, Case, Expected
from tuner.workload.arrays import numpy_dtype
from tuner.workload.inputs import Kind, make_inputs
from tuner.workload.reference import error_bound, evaluate_with_magnitude, max_rel_error
from tuner.workload.special_values import are_defined, undecided
from tuner.workload.workload import Workload

SCREENING_CASES = ("normal",)
# "fresh" are normal values of a seed that no trial has seen.
PROMOTION_CASES = ("normal", "large", "zeros", "fresh", "special")
KINDS: dict[str, Kind] = {
    "normal": "normal",
    "large": "large",
    "zeros": "zeros",
    "fresh": "normal",
    "special": "special",
    "positive": "positive",
}
# Of kernels whose authors may look for what no check sees: where signs cancel, a long sum of
# low precision is within its bound without most of its terms.
FOREIGN_CASES = ("positive",)
FRESH_SEED_OFFSET = 0x5EED


class Problem:
    """Cases of one workload, each made when it is first needed.

    Not thread-safe. `close` gives the memory back.
    """

    def __init__(self, workload: Workload, seed: int) -> None:
        self.workload = workload
        self.seed = seed
        self._cases: dict[str, Case] = {}

    @property
    def promotion_cases(self) -> tuple[str, ...]:
        """The cases of a promotion: with special values where they are defined, under
        strict numerics."""
        special = self.workload.numerics == "strict" and are_defined(self.workload.expression)
        return tuple(name for name in PROMOTION_CASES if special or name != "special")

    def cases(self, names: Sequence[str]) -> tuple[Case, ...]:
        """The cases of these names.

        Raises MemoryError when inputs and reference do not fit, KeyError for an unknown
        name.
        """
        for name in names:
            if name not in self._cases:
                self._cases[name] = self._make(name)
        return tuple(self._cases[name] for name in names)

    def close(self) -> None:
        cases, self._cases = self._cases, {}
        for case in cases.values():
            for buffer in case.inputs:
                buffer.release()

    def _make(self, name: str) -> Case:
        expression = self.workload.expression
        seed = self.seed + (FRESH_SEED_OFFSET if name == "fresh" else 0)
        inputs = make_inputs(expression, seed, KINDS[name])
        reference, magnitude = evaluate_with_magnitude(expression, inputs)
        return Case(
            name=name,
            inputs=tuple(guarded_copy(array) for array in inputs.values()),
            pristine=tuple(inputs.values()),
            input_names=tuple(inputs),
            expected=tuple(
                self._expected(
                    output,
                    reference[output],
                    magnitude[output],
                    undecided(expression, reference[output]) if name == "special" else None,
                )
                for output in expression.outputs
            ),
        )

    def _expected(
        self,
        output: str,
        reference: NDArray[np.generic],
        magnitude: NDArray[np.float64],
        free: NDArray[np.bool_] | None,
    ) -> Expected:
        expression = replace(self.workload.expression, outputs=(output,))

        def confirm(got: Array) -> float:
            return max_rel_error(
                expression, {output: got}, {output: reference}, {output: magnitude}
            )

        return Expected(
            name=output,
            dtype=numpy_dtype(expression.tensor(output).dtype),
            reference=reference.astype(np.float64, copy=False),
            magnitude=np.where(magnitude > 0, magnitude, SMALLEST),
            bound=error_bound(self.workload.expression, self.workload.numerics),
            confirm=confirm,
            free=free,
        )
