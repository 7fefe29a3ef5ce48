"""Which extents may be ranges: those that count independent rows, whatever the operator
is called."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.errors import WorkloadError
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import evaluate
from tuner.workload.rows import member, rows_of
from tuner.workload.spec import parse_portfolio

ROWS = {
    "matmul:M=1..8,N=16,K=16": (0, 2),
    "batch_matmul:B=1..4,M=8,N=8,K=8": (0, 1, 2),
    "dense:M=1..8,N=16,K=16,bias=true,act=relu": (0, 3),
    "conv2d:N=1..3,H=6,W=6,CI=4,CO=8,KH=3,KW=3,pad=1": (0, 2),
    "softmax:M=1..8,N=16": (0, 1),
    "layer_norm:M=1..8,N=16": (0, 3),
    "reduce_mean:M=1..8,N=16": (0, 1),
    "elementwise:M=1..8,N=16,act=gelu": (0, 1),
    "attention:B=1..3,H=2,S=4,D=8": (0, 1, 2, 3),
}
NO_ROWS = {
    "matmul:M=8,N=1..16,K=16": "first dimension",
    "matmul:M=8,N=16,K=1..16": "first dimension",
    "matmul:M=1..8,N=16,K=16,transpose_a=true": "first dimension",
    "transpose:M=1..8,N=16": "first dimension",
    "softmax:M=8,N=1..16": "first dimension",
    "reduce_sum:M=1..8,N=16,axis=0": "computes something else",
    "matmul:M=1..8,N=1..8,K=16": "a portfolio has one",
}


@pytest.mark.parametrize("spec", ROWS)
def test_extents_that_count_rows(spec: str) -> None:
    rows = rows_of(parse_portfolio(spec))
    assert rows.ranged == ROWS[spec] and (rows.name, rows.low) == (
        next(iter(parse_portfolio(spec).ranges)),
        1,
    )


@pytest.mark.parametrize("spec", NO_ROWS)
def test_extents_that_do_not(spec: str) -> None:
    portfolio = parse_portfolio(spec)
    with pytest.raises(WorkloadError, match=NO_ROWS[spec]) as refused:
        rows_of(portfolio)
    assert refused.value.parameter in portfolio.ranges


@pytest.mark.parametrize("spec", ROWS)
def test_rows_of_the_whole_are_rows_of_its_parts(spec: str) -> None:
    """What the claim means: the reference of some rows is those rows of the reference."""
    portfolio = parse_portfolio(spec)
    rows = rows_of(portfolio)
    whole = member(portfolio, rows.high).expression
    inputs = make_inputs(whole, 1, "normal")
    right = evaluate(whole, inputs)
    part = {
        name: array[1:3] if place in rows.ranged else array
        for place, (name, array) in enumerate(inputs.items())
    }
    outputs = evaluate(member(portfolio, 2).expression, part)
    for name in whole.outputs:
        np.testing.assert_allclose(outputs[name], right[name][1:3], rtol=1e-12)
