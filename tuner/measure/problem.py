"""What a candidate must compute: inputs and truth of a workload, made once in the runner's parent and inherited by each child.

Buffers are made before the fork, so that a child pays neither for making nor for copying them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tuner.measure.buffers import GuardedBuffer, guarded_copy
from tuner.measure.check import Case, expected_output
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import error_bound, evaluate, magnitude
from tuner.workload.workload import Workload

SCREENING_CASES = ("normal",)
PROMOTION_CASES = ("normal", "large", "zeros", "fresh")  # "fresh": normal values of another seed than all trials saw
FRESH_SEED_OFFSET = 0x5EED


class Problem:
    """Cases of one workload, each made when first asked for. Not thread-safe; `close` gives the memory back."""

    def __init__(self, workload: Workload, seed: int) -> None:
        self.workload = workload
        self.seed = seed
        self._cases: dict[str, Case] = {}

    def cases(self, names: Sequence[str]) -> tuple[Case, ...]:
        for name in names:
            if name not in self._cases:
                self._cases[name] = self._make(name)
        return tuple(self._cases[name] for name in names)

    def _make(self, name: str) -> Case:
        expression = self.workload.expression
        fresh = name == "fresh"
        given = make_inputs(expression, self.seed + FRESH_SEED_OFFSET * fresh, "normal" if fresh else name)
        inputs = {tensor.name: np.ascontiguousarray(given[tensor.name]) for tensor in expression.inputs}
        reference, scale = evaluate(expression, inputs), magnitude(expression, inputs)
        bounds = error_bound(expression)
        return Case(
            name=name,
            inputs=tuple(guarded_copy(array) for array in inputs.values()),
            pristine=tuple(inputs.values()),
            input_names=tuple(inputs),
            expected=tuple(
                expected_output(output, expression.tensor(output).dtype, reference[output], scale[output], bounds[output])
                for output in expression.outputs
            ),
        )

    def close(self) -> None:
        released: list[GuardedBuffer] = [buffer for case in self._cases.values() for buffer in case.inputs]
        self._cases.clear()
        for buffer in released:
            buffer.release()
