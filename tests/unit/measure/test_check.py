"""The check by itself: errors relative to magnitude, the last word of the workload,
canaries and inputs watched."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests.support.hostile_kernels import addition
from tuner.measure.buffers import GuardedBuffer, guarded, guarded_copy
from tuner.measure.check import Array, Case, WrongAnswer, check_case, check_output, errors
from tuner.measure.problem import PROMOTION_CASES, SCREENING_CASES, Problem
from tuner.workload.dtypes import DType
from tuner.workload.spec import parse_spec


def case_of(spec: str, name: str = "normal") -> Case:
    return Problem(parse_spec(spec), 0).cases((name,))[0]


def outputs_of(case: Case) -> list[GuardedBuffer]:
    return [guarded(expected.reference.shape, expected.dtype) for expected in case.expected]


def right(case: Case) -> Sequence[Array]:
    return [expected.reference.astype(expected.dtype) for expected in case.expected]


def test_the_rounded_reference_passes_for_all_dtypes() -> None:
    dtypes: tuple[DType, ...] = ("float32", "float64", "float16", "bfloat16", "int8")
    for dtype in dtypes:
        case = case_of(f"matmul:M=7,N=9,K=33,dtype={dtype}")
        answer = right(case)

        def invoke(given: Sequence[Array], answer: Sequence[Array] = answer) -> None:
            given[-1][...] = answer[0]

        assert check_case(case, outputs_of(case), invoke) <= case.expected[0].bound


@pytest.mark.parametrize("name", PROMOTION_CASES)
def test_numpy_passes_all_promotion_cases(name: str) -> None:
    case = case_of("matmul:M=16,N=31,K=64", name)

    def invoke(given: Sequence[Array]) -> None:
        with np.errstate(invalid="ignore"):
            np.matmul(given[0], given[1], out=given[2])

    check_case(case, outputs_of(case), invoke)


@pytest.mark.parametrize(
    ("wrong", "right_too"), [(np.nan_to_num, False), (lambda y: np.where(y == 1, np.nan, y), True)]
)
def test_lost_and_invented_nans_are_seen(wrong: Callable[[Array], Array], right_too: bool) -> None:
    """Of the greatest of each row; the first kernel has none of them, the other one more."""
    case = case_of("reduce_max:M=64,N=40", "special")

    def invoke(given: Sequence[Array]) -> None:
        given[1][...] = given[0].max(axis=1)

    check_case(case, outputs_of(case), invoke)
    (want,) = right(case)
    assert np.isnan(want).any() and np.isinf(want).any()
    got = wrong(np.where(want == want[~np.isnan(want)][0], 1, want) if right_too else want)
    with pytest.raises(WrongAnswer, match="special inputs"):
        check_output(got, case.expected[0], "special")


def test_what_padding_leaves_out_may_be_anything() -> None:
    case = case_of("conv2d:N=1,H=6,W=6,CI=4,CO=40,KH=3,KW=3,pad=1", "special")
    (want,) = right(case)
    lost = np.isnan(want)
    assert lost.any() and not lost.all()
    check_output(np.where(lost, np.float32(1), want), case.expected[0], "special")
    with pytest.raises(WrongAnswer, match="special inputs"):
        check_output(np.full_like(want, np.nan), case.expected[0], "special")


def test_special_values_are_part_of_strict_promotions_of_floats() -> None:
    cases = {
        spec: Problem(parse_spec(spec), 0).promotion_cases
        for spec in ("matmul:M=4,N=4,K=4", "matmul:M=4,N=4,K=4,dtype=int8")
    }
    assert list(cases.values()) == [PROMOTION_CASES, PROMOTION_CASES[:-1]]
    assert (
        "special" not in Problem(parse_spec("matmul:M=4,N=4,K=4,numerics=fast"), 0).promotion_cases
    )


def test_one_missing_step_of_a_reduction_is_seen() -> None:
    case = case_of("matmul:M=16,N=16,K=512")

    def invoke(given: Sequence[Array]) -> None:
        np.matmul(given[0][:, :-1], given[1][:-1], out=given[2])

    with pytest.raises(WrongAnswer, match=r"output .* is wrong"):
        check_case(case, outputs_of(case), invoke)


def test_a_kernel_right_on_one_poison_only_is_wrong() -> None:
    case = case_of("matmul:M=4,N=4,K=4")
    calls = []

    def invoke(given: Sequence[Array]) -> None:
        calls.append(1)
        if len(calls) == 1:
            given[-1][...] = right(case)[0]

    with pytest.raises(WrongAnswer):
        check_case(case, outputs_of(case), invoke)
    assert len(calls) == 2


def test_normalised_by_magnitude_not_by_value() -> None:
    """1e8 - 1e8 + 1 in float32 is 0: an error of the size of the terms' rounding, not
    of the result."""
    case = case_of("matmul:M=1,N=1,K=3")
    expected = case.expected[0]
    assert expected.magnitude.item() >= abs(expected.reference.item())
    got = expected.reference.astype(np.float32) + np.float32(1e-8 * expected.magnitude.item())
    assert check_output(got, expected, "normal") <= expected.bound


def test_zero_stays_exact_and_nan_never_passes() -> None:
    case = case_of("matmul:M=3,N=3,K=3", "zeros")
    expected = case.expected[0]
    assert check_output(np.zeros((3, 3), np.float32), expected, "zeros") == 0.0
    for bad in (np.nan, np.inf, 1e-3):
        with pytest.raises(WrongAnswer, match="zeros inputs"):
            check_output(np.full((3, 3), bad, np.float32), expected, "zeros")


@given(
    arrays.arrays(
        np.float32, (3, 3), elements=st.floats(width=32, allow_nan=True, allow_infinity=True)
    )
)
def test_errors_never_hold_nan(got: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> None:
    assert not np.isnan(errors(got, EXPECTED)).any()


EXPECTED = case_of("matmul:M=3,N=3,K=3").expected[0]


@pytest.mark.parametrize("count", [1, 15, 16, 17, 1003, 1024, 4096, 5000])
def test_guarded_buffers_are_aligned_and_notice(count: int) -> None:
    buffer = guarded_copy(np.arange(count, dtype=np.float32))
    assert buffer.array.ctypes.data % 64 == 0 and buffer.damaged() is None
    (_, front), (rear, _) = buffer.guards
    data = buffer.array.ctypes.data
    assert front <= data and 0 <= rear - (data + buffer.array.nbytes) < 64
    if buffer.rear.size:
        buffer.rear[0] ^= 1
        assert buffer.damaged() == "behind its end"
    if buffer.front.size:
        buffer.front[-1] ^= 1
        assert buffer.damaged() == "before its beginning"
    buffer.release()


def test_problem_makes_cases_once_and_fresh_ones_differ() -> None:
    problem = Problem(addition(), 3)
    assert problem.cases(SCREENING_CASES)[0] is problem.cases(SCREENING_CASES)[0]
    normal, fresh = problem.cases(("normal", "fresh"))
    assert not np.array_equal(normal.pristine[0], fresh.pristine[0])
    problem.close()
