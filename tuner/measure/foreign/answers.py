"""What a kernel answered, held against what is right, and the name of what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tuner.measure.check import (
    POISONS,
    Array,
    Case,
    Expected,
    WrongAnswer,
    check_output,
    errors,
    raw,
)
from tuner.measure.foreign.arena import Arena
from tuner.measure.foreign.verdict import Guilty, VerdictName, WrongElement

# The largest error of what was computed in fewer bits: some roundoffs of bfloat16.
LOWERED = 2.0**-5
LOWERED_SHARE = 0.25  # of the elements are wrong then: rounding is everywhere, mistakes are not
REMEMBERED = 64  # earlier calls that an answer is looked for in
# Verdicts that another poison may turn into one on reading the outputs.
_REREAD = (
    VerdictName.WRONG_ELEMENT, VerdictName.PRECISION_LOWERED, VerdictName.OUTPUT_NOT_WRITTEN,
)  # fmt: skip


def check_answer(
    arena: Arena, slot: int, case: Case, poison: int, earlier: Sequence[Case]
) -> float:
    """The largest error of the outputs in a slot, which were filled with `poison` before.

    `earlier`: the cases that the same process answered before. Raises Guilty.
    """
    check_buffers(arena.damaged(slot), arena.changed(slot, case.pristine))
    places = range(len(case.inputs), len(arena.layout.tensors))
    answers = [arena.array(slot, place).copy() for place in places]
    return check_outputs(answers, case, poison, earlier)


def check_buffers(damaged: str | None, changed: str | None) -> None:
    """Raises Guilty where a kernel wrote around a buffer, or changed an input, of this name."""
    if damaged is not None:
        raise Guilty(VerdictName.OUT_OF_BOUNDS, f"the kernel wrote out of bounds of {damaged}")
    if changed is not None:
        raise Guilty(VerdictName.INPUT_CHANGED, f"the kernel changed its input {changed}")


def check_outputs(
    answers: Sequence[Array], case: Case, poison: int, earlier: Sequence[Case]
) -> float:
    """The largest error of a call's outputs, as of `check_answer`. Raises Guilty."""
    return max(
        _check(position, answer, case, poison, earlier) for position, answer in enumerate(answers)
    )


def may_be_reread(guilty: Guilty) -> bool:
    """Whether what the outputs held before may be the reason."""
    return guilty.verdict.name in _REREAD


def reread(
    guilty: Guilty,
    poison: int,
    *,
    ask: Callable[[int], float],
    outputs: Callable[[], Sequence[bytes]],
) -> Guilty:
    """The verdict of a call on `poison`, or that outputs depend on what was in them before.

    `ask(poison)` repeats the call on another one and checks it; `outputs()` are what the last
    call left.
    """
    before = outputs()
    try:
        ask(next(byte for byte in POISONS if byte != poison))
    except Guilty as second:
        if second.verdict.name is not VerdictName.WRONG_ELEMENT or before == outputs():
            return guilty
    return Guilty(
        VerdictName.OUTPUT_READ,
        f"the kernel reads its outputs before it writes them: {guilty}",
        guilty.verdict.element,
    )


def _check(position: int, answer: Array, case: Case, poison: int, earlier: Sequence[Case]) -> float:
    expected = case.expected[position]
    try:
        return check_output(answer, expected, case.name)
    except WrongAnswer as wrong:
        element, name = _first_wrong(answer, expected, case.name), VerdictName.WRONG_ELEMENT
        if _untouched(answer, element.index, poison):
            name = VerdictName.OUTPUT_NOT_WRITTEN
        elif any(_is_right(answer, past.expected[position]) for past in earlier[-REMEMBERED:]):
            name = VerdictName.OUTPUT_CACHED
        elif _is_near(answer, expected):
            name = VerdictName.PRECISION_LOWERED
        raise Guilty(name, str(wrong), element) from None


def _first_wrong(answer: Array, expected: Expected, case_name: str) -> WrongElement:
    error = errors(answer, expected)
    if expected.free is not None:
        error[expected.free] = 0
    index = np.unravel_index(int((error > expected.bound).argmax()), answer.shape)
    return WrongElement(
        output=expected.name,
        index=tuple(int(part) for part in index),
        value=float(answer[index]),
        expected=float(expected.reference[index]),
        inputs=case_name,
    )


def _untouched(answer: Array, index: tuple[int, ...], poison: int) -> bool:
    return bool((raw(np.ascontiguousarray(answer[index])) == poison).all())


def _is_right(answer: Array, expected: Expected) -> bool:
    """Whether these are the outputs of other inputs. A constant output says nothing."""
    worst = float(errors(answer, expected).max(initial=0.0))
    return worst <= expected.bound and bool((answer != answer.flat[0]).any())


def _is_near(answer: Array, expected: Expected) -> bool:
    """Whether floats look computed as they should be, in fewer bits."""
    error = errors(answer, expected)
    many = float((error > expected.bound).mean()) >= LOWERED_SHARE
    return expected.bound > 0 and many and float(error.max(initial=0.0)) <= LOWERED
