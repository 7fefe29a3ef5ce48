"""Terms that name their rows: what the notation takes and refuses, and what they mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.errors import WorkloadError
from tuner.workload.expression import scattering
from tuner.workload.inputs import make_inputs
from tuner.workload.keys import workload_key
from tuner.workload.notation import parse
from tuner.workload.printing import notation_text
from tuner.workload.reference import evaluate, evaluate_with_magnitude
from tuner.workload.spec import (
    from_document,
    parse_spec,
    to_document,
    workload_from_notation,
)

SCATTER = """
kernel scatter(J: i32[E] in 0:M, X: f32[E, D]) -> (Y: f32[M, D]) {
  Y[J[e], d] += X[e, d]
}"""
SHAPES = {"M": 6, "D": 3, "E": 9}


def test_an_index_on_the_left_is_a_condition_on_the_terms() -> None:
    expression = parse(SCATTER, SHAPES)
    (stage,) = expression.stages
    scattered = scattering(stage)
    assert scattered is not None
    assert scattered.row == "J_row"
    assert scattered.along == {"e"}
    assert stage.extents == {"J_row": 6, "d": 3, "e": 9}
    assert expression.flops == 9 * 3


def test_the_condition_may_be_written() -> None:
    written = SCATTER.replace(
        "Y[J[e], d] += X[e, d]", "Y[i, d] += where(J[e] == i, X[e, d], 0) for i in 0:M"
    )
    assert workload_key(parse(written, SHAPES)) == workload_key(parse(SCATTER, SHAPES))


def test_a_condition_whose_other_terms_count_is_another() -> None:
    """Of which a row that no term names is not what the reduction starts from."""
    sums = SCATTER.replace("Y[J[e], d] +=", "Y[i, d] +=").replace(
        "X[e, d]\n", "where(J[e] == i, X[e, d], 1) for i in 0:M\n"
    )
    for text, empty in ((sums, 9.0), (sums.replace("+=", "max="), 1.0)):
        expression = parse(text, SHAPES)
        assert scattering(expression.stages[0]) is None
        arrays: dict[str, Any] = {"J": np.zeros(9, np.int32), "X": np.ones((9, 3))}
        assert (evaluate(expression, arrays)["Y"][1:] == empty).all()


def test_documents_and_texts_keep_it() -> None:
    workload = workload_from_notation(SCATTER, SHAPES)
    assert from_document(to_document(workload)) == workload
    assert parse(notation_text(workload.expression), {}) == workload.expression


def test_iterators_of_the_text_keep_their_names() -> None:
    clash = SCATTER.replace("X[e, d]", "X[e, J_row]").replace("Y[J[e], d]", "Y[J[e]]")
    clash = clash.replace("Y: f32[M, D]", "Y: f32[M]")
    (stage,) = parse(clash, SHAPES).stages
    assert [axis.name for axis in (*stage.axes, *stage.reduce_axes)] == ["J_row_", "e", "J_row"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("in 0:M", "", "or an element of an input declared to lie in the dimension"),
        ("Y[J[e], d]", "Y[J[e] + 1, d]", r"unexpected '\+'"),
        ("in 0:M", "in 0:M + 1", "runs from 0 to 6, the extent of its dimension is 6"),
        ("in 0:M", "in -1:M", "runs from -1 to 5"),
        ("+=", "=", "may be named several times or never; reduce with"),
        ("Y[J[e], d]", "Y[J[e], J[d]]", "a stage has one index on the left"),
        ("J: i32[E]", "J: f32[E]", "facts are stated of int32 and int64"),
    ],
)
def test_what_is_no_scattering_is_refused(old: str, new: str, message: str) -> None:
    assert old in SCATTER
    with pytest.raises(WorkloadError, match=message) as caught:
        parse(SCATTER.replace(old, new), SHAPES)
    assert caught.value.line


REDUCTIONS: dict[str, tuple[Any, float]] = {
    "+=": (np.add, 0.0),
    "max=": (np.maximum, -np.inf),
    "min=": (np.minimum, np.inf),
    "*=": (np.multiply, 1.0),
}


@settings(deadline=None)
@given(st.data())
def test_the_reference_reduces_into_the_rows_that_terms_name(data: st.DataObject) -> None:
    reducer = data.draw(st.sampled_from(sorted(REDUCTIONS)))
    rows, terms = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 20))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    expression = parse(SCATTER.replace("+=", reducer), {"M": rows, "D": 3, "E": terms})
    arrays = {"J": rng.integers(0, rows, terms), "X": rng.standard_normal((terms, 3))}
    combine, empty = REDUCTIONS[reducer]
    want = np.full((rows, 3), empty)
    for row, term in zip(arrays["J"], arrays["X"], strict=True):
        want[row] = combine(want[row], term)
    value, size = evaluate_with_magnitude(expression, arrays)
    np.testing.assert_allclose(value["Y"], want, rtol=1e-12)
    np.testing.assert_allclose(evaluate(expression, arrays)["Y"], want, rtol=1e-12)
    assert (size["Y"] >= np.where(np.isfinite(want), np.abs(want), 0) * (1 - 1e-12)).all()


def test_the_index_may_move_along_other_dimensions() -> None:
    """As ONNX's ScatterElements does."""
    text = SCATTER.replace("J: i32[E]", "J: i32[E, D]").replace("J[e]", "J[e, d]")
    expression = parse(text, SHAPES)
    arrays = make_inputs(expression, 2)
    want = np.zeros((6, 3))
    np.add.at(want, (arrays["J"], np.arange(3)[None]), arrays["X"])
    np.testing.assert_allclose(evaluate(expression, arrays)["Y"], want, rtol=1e-12)


def test_many_terms_are_evaluated_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    expression = parse(SCATTER, {"M": 7, "D": 3, "E": 900})
    arrays = make_inputs(expression, 1)
    whole = evaluate(expression, arrays)["Y"]
    monkeypatch.setattr("tuner.workload.evaluator.BLOCK", 256)
    np.testing.assert_allclose(evaluate(expression, arrays)["Y"], whole, rtol=1e-12)


def test_a_matrix_without_places_is_refused() -> None:
    with pytest.raises(WorkloadError, match="density=0 leaves the matrix without places"):
        parse_spec("spmm:M=9,N=9,K=4,density=0")
    assert parse_spec("spmv:M=2,N=2,density=0.01").expression.tensor("A").shape == (1,)
