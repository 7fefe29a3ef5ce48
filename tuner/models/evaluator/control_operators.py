"""`Loop` and `Scan` for ONNX's reference evaluator, whose own take other axes, directions
and conditions than the standard's for errors, or for what they are not."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

Array = np.ndarray[Any, np.dtype[Any]]


def control_operators(opset: int) -> list[type[OpRun]]:
    """What the evaluator is given for a model of this opset."""
    return [Loop, Opset8.Scan if opset < 9 else Scan]


class _Control(OpRun):  # type: ignore[misc]  # onnx has no types here
    """An operator with a body, which sees what is outside (`context`)."""

    op_domain = ""

    def need_context(self) -> bool:
        return True

    def body_results(self, context: Any, values: list[Any], **given: Any) -> list[Any]:
        """Arrays, and lists of them for sequences."""
        names = self.body.input_names
        inputs = {**(context or {}), **dict(zip(names, values, strict=True))}
        results = self._run_body(inputs, **given)
        return [r if isinstance(r, list) else np.asarray(r) for r in results]


class Loop(_Control):
    """Results of all iterations are stacked; without a condition it is true."""

    def _run(
        self,
        trips: Array | None = None,
        condition: Array | None = None,
        *initial: Array | list[Array],
        context: Any = None,
        bindings: Any = None,
        attributes: Any = None,
        **_: Any,
    ) -> tuple[Array | list[Array], ...]:
        limit = None if trips is None else int(np.ravel(trips)[0])
        going = condition is None or bool(np.ravel(condition)[0])
        states, parts = list[Any](initial), list[list[Array]]()
        while going and (limit is None or len(parts) < limit):
            values = [np.array(len(parts)), np.array(True), *states]
            first, *results = self.body_results(
                context, values, bindings=bindings, attributes=attributes
            )
            going = bool(np.ravel(first)[0])
            states = results[: len(states)]
            parts.append(results[len(states) :])
        if not parts and len(self.body.output_names) > 1 + len(states):
            raise RuntimeError("a Loop without iterations stacks results of unknown shape")
        return (*states, *(np.stack(each) for each in zip(*parts, strict=True)))


class _Walk(_Control):
    """Walks inputs along their axes; `given` are the attributes of a Scan."""

    def walked(
        self, *values: Array, num_scan_inputs: int, context: Any = None, bindings: Any = None,
        attributes: Any = None, **given: Any,
    ) -> tuple[Array, ...]:  # fmt: skip
        held = len(values) - num_scan_inputs
        inputs = _slices(
            values[held:], given.get("scan_input_axes"), given.get("scan_input_directions")
        )
        states, parts = list(values[:held]), list[list[Array]]()
        for slices in zip(*inputs, strict=True):
            results = self.body_results(
                context, [*states, *slices], bindings=bindings, attributes=attributes
            )
            states = results[:held]
            parts.append(results[held:])
        if not parts:
            raise RuntimeError("a Scan of no steps stacks results of unknown shape")
        axes, directions = given.get("scan_output_axes"), given.get("scan_output_directions")
        stacked = []
        for number, each in enumerate(zip(*parts, strict=True)):
            ordered = each[::-1] if _entry(directions, number) else each
            stacked.append(np.stack(ordered, axis=_entry(axes, number)))
        return (*states, *stacked)


class Scan(_Walk):
    """Since opset 9: each input and output has an axis and a direction."""

    def _run(self, *values: Array, **given: Any) -> tuple[Array, ...]:
        return self.walked(*values, **given)


class Opset8:
    """Holds an operator under its own name, by which the evaluator knows it."""

    class Scan(_Walk):
        """Everything has a batch in front, whose entries are walked apart."""

        def _run(
            self, lengths: Array | None, *values: Array, directions: Any = None, **given: Any
        ) -> tuple[Array, ...]:
            given["scan_input_directions"] = directions
            entries = [self.walked(*entry, **given) for entry in zip(*values, strict=True)]
            return tuple(np.stack(each) for each in zip(*entries, strict=True))


def _entry(numbers: Any, place: int) -> int:
    return int(numbers[place]) if numbers is not None and place < len(numbers) else 0


def _slices(values: tuple[Array, ...], axes: Any, directions: Any) -> list[Array]:
    """Each input with the axis that is walked in front, in the order it is walked."""
    walked = [np.moveaxis(value, _entry(axes, n), 0) for n, value in enumerate(values)]
    return [value[::-1] if _entry(directions, n) else value for n, value in enumerate(walked)]
