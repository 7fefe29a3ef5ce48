"""Ragged ranges and facts about inputs: what the notation takes and refuses, keys,
documents, drawn arrays, and the reference on patterns of every kind."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.errors import WorkloadError
from tuner.workload.expression import Splits, Within, ragged_range
from tuner.workload.inputs import make_inputs
from tuner.workload.keys import workload_key
from tuner.workload.notation import parse
from tuner.workload.reference import evaluate, evaluate_with_magnitude
from tuner.workload.spec import (
    from_document,
    parse_spec,
    to_document,
    workload_from_expression,
    workload_from_notation,
)

SPMM = """
kernel spmm(P: i32[M + 1] splits E, J: i32[E] in 0:N, A: f32[E], X: f32[N, K]) -> (Y: f32[M, K]) {
  Y[i, k] += A[e] * X[J[e], k] for e in P[i]:P[i + 1]
}"""
SHAPES = {"M": 6, "N": 5, "K": 3, "E": 9}


def test_a_ragged_range_is_a_condition_on_the_terms() -> None:
    expression = parse(SPMM, SHAPES)
    (stage,) = expression.stages
    ragged = ragged_range(stage)
    assert ragged is not None
    assert (ragged.axis, ragged.row, ragged.splits) == ("e", "i", "P")
    assert stage.extents == {"i": 6, "k": 3, "e": 9}
    assert expression.inputs[0].fact == Splits(stop=9)
    assert expression.inputs[1].fact == Within(start=0, stop=5)


def test_rows_share_the_places() -> None:
    assert parse(SPMM, SHAPES).flops == 2 * 9 * 3


def test_facts_are_part_of_the_key() -> None:
    keys = {
        workload_key(parse(text, SHAPES))
        for text in (
            SPMM,
            SPMM.replace("splits E", "splits E power_law"),
            SPMM.replace("0:N", "0:N banded"),
            SPMM.replace("in 0:N", "in 1:N"),
        )
    }
    assert len(keys) == 4


def test_documents_keep_facts() -> None:
    workload = workload_from_notation(SPMM.replace("splits E", "splits E equal"), SHAPES)
    assert from_document(to_document(workload)) == workload
    assert workload_from_expression(workload.expression).key == workload.key


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("splits E", "", r"a ragged range is e in P\[i\]:P\[i \+ 1\], where i stands on the left"),
        ("P[i]:P[i + 1]", "P[i]:P[i]", "a ragged range is e in"),
        ("P[i]:P[i + 1]", "P[i + 1]:P[i]", "a ragged range is e in"),
        ("P[i]:P[i + 1]", "P[i]:E", "a ragged range is e in"),
        ("P[i]:P[i + 1]", "P[k]:P[k + 1]", "runs to 8 but Y has extent 3"),
        ("+=", "=", "iterator 'e' is not on the left; reduce over it"),
        (
            "Y[i, k] += A[e] * X[J[e], k]",
            "Y[e, k] += A[e] * X[c, k]",
            "'e' has a ragged range, so it is reduced over",
        ),
        ("in 0:N", "in 0:N + 1", "index 0 of X runs from 0 to 5, its extent is 5"),
        ("in 0:N", "", r"clamp it, clamp\(…, 0, 4\)"),
        ("in 0:N", "in N:0", "the range 5:0 of J is empty"),
        ("in 0:N", "in 0:N zipf", "unknown distribution 'zipf'; known are uniform, banded"),
        ("splits E", "splits E long", "unknown distribution 'long'; known are uniform, equal"),
        ("splits E", "splits 0", "P splits 0 places; int32 counts 1 to"),
        ("splits E", "splits E + 1", "index 0 of A runs from 0 to 9, its extent is 9"),
        ("P: i32[M + 1]", "P: f32[M + 1]", "P is of float32; facts are stated of int32 and int64"),
        ("P: i32[M + 1]", "P: i16[M + 1]", "P is of int16; facts are stated of int32 and int64"),
        ("Y: f32[M, K]", "Y: f32[M, K] splits K", "Y is an output; facts are stated of inputs"),
        (
            "for e in P[i]:P[i + 1]",
            "for e in P[i]:P[i + 1], f in P[i]:P[i + 1]",
            "a stage has one ragged range",
        ),
    ],
)
def test_what_is_no_ragged_range_is_refused(old: str, new: str, message: str) -> None:
    assert old in SPMM
    shapes = SHAPES if old != "P[i]:P[i + 1]" or "k" not in new else SHAPES | {"M": 8}
    with pytest.raises(WorkloadError, match=message) as caught:
        parse(SPMM.replace(old, new), shapes)
    assert caught.value.line


def test_documents_with_impossible_facts_are_refused() -> None:
    document = to_document(workload_from_notation(SPMM, SHAPES))
    inputs: Any = document["expression"]
    for fact in (["splits", 0, "uniform"], ["within", 3, 3, "uniform"], ["splits", 9, "long"], 7):
        inputs["inputs"][0]["fact"] = fact
        with pytest.raises(WorkloadError):
            from_document(document)


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("lengths", ["uniform", "equal", "power_law"])
@pytest.mark.parametrize("spread", ["uniform", "banded", "power_law", "runs", "sorted"])
def test_drawn_patterns_have_their_facts(index: str, lengths: str, spread: str) -> None:
    spec = f"spmm:M=50,N=41,K=3,density=0.1,lengths={lengths},spread={spread},index={index}"
    expression = parse_spec(spec).expression
    for kind in ("normal", "large", "zeros", "special"):
        for seed in (0, 1):
            arrays = make_inputs(expression, seed, kind)
            pointers, columns = arrays["P"], arrays["J"]
            assert pointers.dtype == columns.dtype == index
            assert pointers[0] == 0
            assert (np.diff(pointers) >= 0).all()
            assert pointers[-1] == (0 if kind == "zeros" else 205)
            assert columns.min() >= 0
            assert columns.max() < 41


def test_distributions_differ() -> None:
    def drawn(**given: str) -> dict[str, Any]:
        spec = "spmv:M=1000,N=1000," + ",".join(f"{name}={value}" for name, value in given.items())
        return make_inputs(parse_spec(spec).expression, 3)

    longest = {
        name: np.diff(drawn(lengths=name)["P"]).max() for name in ("equal", "uniform", "power_law")
    }
    assert longest["equal"] <= 10 < longest["uniform"] < 100 < longest["power_law"]
    columns = {name: drawn(spread=name)["J"] for name in ("uniform", "banded", "power_law", "runs")}
    diagonal = np.arange(10000) / 10
    assert np.abs(columns["banded"] - diagonal).mean() < 30
    assert np.abs(columns["uniform"] - diagonal).mean() > 200
    assert np.bincount(columns["power_law"]).max() > 5 * np.bincount(columns["uniform"]).max()
    assert (np.diff(columns["runs"]) == 1).mean() > 0.9


@settings(deadline=None)
@given(st.data())
def test_the_reference_reduces_row_by_row(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=8))
    places = max(1, sum(lengths))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    reducer = data.draw(st.sampled_from(["+=", "max=", "min=", "*="]))
    expression = parse(
        SPMM.replace("+=", reducer), {"M": len(lengths), "N": 4, "K": 3, "E": places}
    )
    arrays = {
        "P": np.concatenate([[0], np.cumsum(lengths)]),
        "J": rng.integers(0, 4, places),
        "A": rng.standard_normal(places),
        "X": rng.standard_normal((4, 3)),
    }
    terms = arrays["A"][:, None] * arrays["X"][arrays["J"]]
    reductions: dict[str, tuple[Callable[..., Any], float]] = {
        "+=": (np.sum, 0.0),
        "max=": (np.max, -np.inf),
        "min=": (np.min, np.inf),
        "*=": (np.prod, 1.0),
    }
    reduce, empty = reductions[reducer]
    rows = pairwise(arrays["P"])
    want = [reduce(terms[a:b], 0) if b > a else np.full(3, empty) for a, b in rows]
    value, size = evaluate_with_magnitude(expression, arrays)
    np.testing.assert_allclose(value["Y"], want, rtol=1e-12)
    np.testing.assert_allclose(evaluate(expression, arrays)["Y"], want, rtol=1e-12)
    assert (size["Y"] >= np.where(np.isfinite(want), np.abs(want), 0) * (1 - 1e-12)).all()


def test_the_reference_agrees_with_the_condition_it_stands_for() -> None:
    """The same stage with its condition out of reach of the evaluator's shortcut."""
    masked = SPMM.replace("A[e] * X[J[e], k]", "where(P[i] <= e and e < P[i + 1], T, 0)")
    masked = masked.replace("T,", "A[e] * X[clamp(J[e], 0, N - 1), k],")
    masked = masked.replace("for e in P[i]:P[i + 1]", "for e in 0:E, i in 0:M").replace(
        "where(P[i] <= e and", "where(e >= P[i] and"
    )
    plain, ragged = parse(masked, SHAPES), parse(SPMM, SHAPES)
    assert ragged_range(plain.stages[0]) is None
    arrays = make_inputs(ragged, 4)
    np.testing.assert_allclose(evaluate(plain, arrays)["Y"], evaluate(ragged, arrays)["Y"])


def test_a_condition_whose_other_terms_count_is_no_ragged_range() -> None:
    text = SPMM.replace("A[e] * X[J[e], k] for e in P[i]:P[i + 1]", "where(P[i] <= e and T, 1)")
    text = text.replace("T, 1)", "e < P[i + 1], A[e] * X[J[e], k], 1) for i in 0:M")
    expression = parse(text, SHAPES)
    assert ragged_range(expression.stages[0]) is None
    arrays = {"P": np.zeros(7), "J": np.zeros(9), "A": np.ones(9), "X": np.ones((5, 3))}
    arrays |= {name: arrays[name].astype(np.int32) for name in "PJ"}
    assert (evaluate(expression, arrays)["Y"] == 9).all()


def test_long_patterns_are_evaluated_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    expression = parse(SPMM, {"M": 60, "N": 50, "K": 3, "E": 900})
    arrays = make_inputs(expression, 1)
    whole = evaluate(expression, arrays)["Y"]
    monkeypatch.setattr("tuner.workload.evaluator.BLOCK", 256)
    np.testing.assert_allclose(evaluate(expression, arrays)["Y"], whole, rtol=1e-12)
