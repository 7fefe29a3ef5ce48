"""Whether a kernel is right: its error, its buffers, its inputs.

Every element must be within the bound, twice, on outputs filled with different poisons.
Nothing outside of the buffers may change, nor any input. The error of an element is its
distance to the float64 reference, divided by the same expression on absolute values. So
cancellation is not mistaken for a mistake, and large neighbours do not hide one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.measure.buffers import GuardedBuffer

Array = NDArray[np.generic]
Invoke = Callable[[Sequence[Array]], None]
"""Runs the kernel once on inputs, then outputs; raises LibraryError when it reports an error."""

# Bytes that outputs are filled with: NaN in all floating dtypes, then a negative number that
# no sum hides.
POISONS: tuple[int, ...] = (0xFF, 0xAA)
SMALLEST = 1e-300  # in the place of a magnitude of 0, where only the exact value is right


class WrongAnswer(Exception):
    """The kernel computed something else, or touched what it must not. The text says what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What one output must be."""

    name: str
    dtype: np.dtype[np.generic]
    reference: NDArray[np.float64]  # in the output's shape
    # Of the same expression on absolute values, nowhere 0 (SMALLEST instead).
    magnitude: NDArray[np.float64]
    bound: float  # largest error accepted, 0 for integers
    # The workload's own error of an output, with all its allowances; decides a rejection.
    confirm: Callable[[Array], float]
    free: NDArray[np.bool_] | None = None  # elements that may be anything


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One set of inputs, with what must come out."""

    name: str  # "normal", "large", "zeros", "fresh", "special", "positive"
    inputs: tuple[GuardedBuffer, ...]
    pristine: tuple[Array, ...]  # the same values, out of the kernel's reach
    input_names: tuple[str, ...]
    expected: tuple[Expected, ...]


def check_case(
    case: Case,
    outputs: Sequence[GuardedBuffer],
    invoke: Invoke,
    *,
    poisons: Sequence[int] = POISONS,
    bound_factor: float = 1.0,
) -> float:
    """The largest error of the kernel over all poisons. Raises WrongAnswer."""
    arguments = [buffer.array for buffer in (*case.inputs, *outputs)]
    worst, before = 0.0, [np.empty(0, np.uint8) for _ in outputs]
    for round_number, byte in enumerate(poisons):
        poison(outputs, byte)
        invoke(arguments)
        check_surroundings(case, outputs)
        for position, (output, expected) in enumerate(zip(outputs, case.expected, strict=True)):
            if round_number and np.array_equal(raw(output.array), before[position]):
                continue  # the same bytes as in the round before, which were right
            worst = max(
                worst, check_output(output.array, expected, case.name, bound_factor=bound_factor)
            )
            before[position] = raw(output.array).copy()
    return worst


def poison(outputs: Sequence[GuardedBuffer], byte: int) -> None:
    """Fill the outputs with a byte."""
    for output in outputs:
        raw(output.array)[...] = byte


def check_after_timing(
    case: Case, outputs: Sequence[GuardedBuffer], *, bound_factor: float = 1.0
) -> float:
    """The largest error of the last timed call's outputs. Raises WrongAnswer.

    A kernel that is right only the first time is wrong.
    """
    check_surroundings(case, outputs)
    pairs, name = zip(outputs, case.expected, strict=True), f"{case.name} (timed)"
    return max(
        check_output(output.array, expected, name, bound_factor=bound_factor)
        for output, expected in pairs
    )


def check_surroundings(case: Case, outputs: Sequence[GuardedBuffer]) -> None:
    """Raises WrongAnswer when an input or a canary changed."""
    for name, buffer, pristine in zip(case.input_names, case.inputs, case.pristine, strict=True):
        if not np.array_equal(raw(buffer.array), raw(pristine)):
            changed = np.flatnonzero(raw(buffer.array) != raw(pristine)) // buffer.array.itemsize
            raise WrongAnswer(
                f"the kernel changed its input {name} at element "
                f"{_index(int(changed[0]), buffer.array.shape)}"
            )
    names = (*case.input_names, *(expected.name for expected in case.expected))
    for name, buffer in zip(names, (*case.inputs, *outputs), strict=True):
        where = buffer.damaged()
        if where is not None:
            raise WrongAnswer(f"the kernel wrote out of bounds of {name}, {where}")


def check_output(
    got: Array, expected: Expected, case_name: str, *, bound_factor: float = 1.0
) -> float:
    """The largest error of one output.

    Raises WrongAnswer with the worst element when it exceeds the bound. The quick
    comparison is stricter than the workload's own (subnormals, overflow, rounding to
    integers), which decides.
    """
    if expected.free is not None:
        with np.errstate(all="ignore"):
            got = np.where(expected.free, expected.reference.astype(got.dtype), got)
    error = errors(got, expected)
    place = int(error.argmax())
    worst, bound = float(error.flat[place]), expected.bound * bound_factor
    if worst > bound:
        allowed = expected.confirm(got)
        worst = allowed if allowed <= bound else worst
    if worst <= bound:
        return worst
    wrong = int((error > bound).sum())
    index = _index(place, got.shape)
    raise WrongAnswer(
        f"output {expected.name} is wrong in {wrong} of {got.size} elements on {case_name} "
        f"inputs; worst at {index}: "
        f"got {float(got.flat[place]):.9g}, want {float(expected.reference.flat[place]):.9g}, "
        f"error {worst:.3g} where {bound:.3g} is allowed"
    )


def errors(got: Array, expected: Expected) -> NDArray[np.float64]:
    """The normalised error of each element, float64 in the output's shape.

    Never NaN: what cannot be compared is infinite.
    """
    with np.errstate(all="ignore"):
        error: NDArray[np.float64] = got.astype(np.float64)
        error -= expected.reference
        np.abs(error, out=error)
        error /= expected.magnitude
        error[np.isnan(error)] = np.inf
        error[_same_beyond_numbers(got, expected.reference)] = 0
    return error


def _same_beyond_numbers(got: Array, reference: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Where both are NaN, or the same infinity."""
    outside = ~np.isfinite(reference)
    if outside.any():
        values = got[outside].astype(np.float64)
        want = reference[outside]
        outside[outside] = (values == want) | (np.isnan(values) & np.isnan(want))
    return outside


def raw(array: Array) -> NDArray[np.uint8]:
    """The bytes of a row-major array, flat."""
    return array.reshape(-1).view(np.uint8)


def _index(flat: int, shape: tuple[int, ...]) -> list[int]:
    return [int(part) for part in np.unravel_index(flat, shape)]
