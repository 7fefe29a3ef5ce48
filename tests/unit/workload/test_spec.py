"""Specs, portfolios, parameters and documents: what is accepted, what is refused and at
which parameter."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tuner.errors import WorkloadError
from tuner.workload.expression import Axis, Cast, Const, Expression, Read, Stage, Tensor, Var
from tuner.workload.spec import (
    from_document,
    parse_portfolio,
    parse_spec,
    to_document,
    workload_from_expression,
    workload_from_notation,
    workload_from_params,
)

MATMUL = "matmul:M=8,N=6,K=5"


def test_spec_fills_defaults_in_and_reads_back() -> None:
    workload = parse_spec(" matmul: M=8 , N=6,K=5 ")
    assert workload.params == {
        "M": 8,
        "N": 6,
        "K": 5,
        "transpose_a": False,
        "transpose_b": False,
        "dtype": "float32",
    }
    assert (
        workload
        == parse_spec(workload.spec)
        == workload_from_params("matmul", {"M": 8, "N": 6, "K": "5"})
    )
    assert len(workload.key) == 64


def test_constants_and_numerics_are_part_of_the_key() -> None:
    dense = "dense:M=4,N=3,K=5,bias=true,act=gelu"
    workloads = [
        parse_spec(dense + tail)
        for tail in ("", ",const=W", ",const=bias+W", ",numerics=fast", ",const=W,numerics=fast")
    ]
    assert len({workload.key for workload in workloads}) == 5
    assert workloads[2].constants == ("W", "bias") == parse_spec(dense + ",const=W+bias").constants
    assert workloads[3].numerics == "fast"
    assert [parse_spec(workload.spec) for workload in workloads] == workloads


@pytest.mark.parametrize(
    ("spec", "parameter", "message"),
    [
        ("matmull:M=8", "op", "unknown operator 'matmull'; did you mean 'matmul'?"),
        ("", "op", "unknown operator ''"),
        ("nets/net.onnx", "op", "a model's file; only `tuner tune`"),
        ("matmul:M=8,N=6", "K", r"matmul needs K \(length of the sums\)"),
        (
            MATMUL + ",transpose=true",
            "transpose",
            "no parameter 'transpose'; did you mean 'transpose_",
        ),
        (MATMUL + ",M=9", "M", "given twice"),
        (MATMUL + ",dtype=float33", "dtype", "did you mean 'float32'"),
        (MATMUL + ",transpose_a=maybe", "transpose_a", "not true or false"),
        (MATMUL + ",numerics=loose", "numerics", "not strict, fast or tensor"),
        (MATMUL + ",const=W", "const", "not an input; the inputs are A, B"),
        (MATMUL + ",const=A+B", "const", "at least one must vary"),
        (MATMUL + ",x", "x", "is not NAME=VALUE"),
        ("matmul:M=0,N=6,K=5", "M", "M=0 is outside 1 to"),
        ("matmul:M=-8,N=6,K=5", "M", "M=-8 is outside 1 to"),
        ("matmul:M=8.5,N=6,K=5", "M", "not an integer"),
        ("matmul:M=1e3,N=6,K=5", "M", "not an integer"),
        ("matmul:M=1..512,N=6,K=5", "M", "take ranges"),
        ("matmul:M=100000,N=100000,K=8", "M", "GiB, the limit is 8 GiB"),
        ("matmul:M=8,N=8,K=99999999999999999999", "K", "not an integer from 1"),
        ("reduce_sum:M=4,N=4,axis=2", "axis", "axis=2 is not one of 1, 0"),
        (
            "conv2d:N=1,H=4,W=4,CI=2,CO=2,KH=7,KW=3",
            "KH",
            "KH=7 reaches over 7, H=4 with pad=0 has only 4",
        ),
        ("conv2d:N=1,H=4,W=4,CI=3,CO=2,KH=1,KW=1,groups=2", "groups", "groups=2 must divide CI=3"),
        (
            "conv2d:N=1,H=4,W=4,CI=2,CO=2,KH=1,KW=1,stride=0",
            "stride",
            "stride=0 is outside 1 to 4096",
        ),
        (
            "max_pool2d:N=1,H=4,W=4,C=2,KH=2,KW=2,pad=2",
            "pad",
            "pad=2 must be smaller than the window",
        ),
        (
            "dense:M=4,N=4,K=4,act=gelu,dtype=int8",
            "act",
            "no integer form; integers take none, relu, relu6",
        ),
        ("softmax:M=4,N=4,dtype=int32", "dtype", "dtype=int32 is not one of float32"),
        ("layer_norm:M=4,N=4,eps=-1", "eps", "not a number from 0 to 1"),
        ("layer_norm:M=4,N=4,eps=nan", "eps", "not a number from 0 to 1"),
        ("matmul:" + "M=8," * 2000, "op", "the limit is 4096"),
    ],
)
def test_refused(spec: str, parameter: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message) as caught:
        parse_spec(spec)
    assert caught.value.parameter == parameter


@pytest.mark.parametrize(
    "params", [{"M": True, "N": 1, "K": 1}, {"M": [1], "N": 1, "K": 1}, {"M": None, "N": 1, "K": 1}]
)
def test_params_of_wrong_type(params: dict[str, object]) -> None:
    with pytest.raises(WorkloadError) as caught:
        workload_from_params("matmul", params)
    assert caught.value.parameter == "M"


def test_portfolio() -> None:
    portfolio = parse_portfolio("matmul:M=1..512,N=64,K=64,const=B")
    assert portfolio.ranges == {"M": (1, 512)}
    assert portfolio.workload({"M": 37}) == parse_spec("matmul:M=37,N=64,K=64,const=B")
    with pytest.raises(WorkloadError, match=r"M=600 is outside 1\.\.512"):
        portfolio.workload({"M": 600})


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (MATMUL, "has no range"),
        ("matmul:M=9..3,N=6,K=5", "is empty"),
        ("matmul:M=1..x,N=6,K=5", "not a range of an extent"),
        ("reduce_sum:M=4,N=4,axis=0..1", "not a range of an extent"),
        ("matmul:M=1..9000000000,N=6,K=5", "outside 1 to"),
        ("matmul:M=0..9,N=6,K=5", "outside 1 to"),
        ("matmul:M=1..2000000000,N=600,K=500", "GiB"),
    ],
)
def test_portfolio_refused(spec: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        parse_portfolio(spec)


def test_notation_and_operator_of_the_same_program_share_their_key() -> None:
    text = (
        "kernel mine(L: f32[P, Q], R: f32[Q, S]) -> (Out: f32[P, S]) { Out[x, y] += L[x, z] "
        "* R[z, y] }"
    )
    workload = workload_from_notation(text, {"P": 8, "Q": 5, "S": 6})
    assert workload.key == parse_spec(MATMUL).key
    assert workload.notation == text and workload.shapes == {"P": 8, "Q": 5, "S": 6}
    assert from_document(json.loads(json.dumps(to_document(workload)))) == workload


def _copy(index: int, extent: int = 4) -> Expression:
    body = Read("X", (Const(index, "int64"),))
    stage = Stage(name="Y", axes=(Axis(name="i", extent=extent),), body=body, dtype="float32")
    return Expression(
        name="copy",
        inputs=(Tensor(name="X", shape=(4,), dtype="float32"),),
        stages=(stage,),
        outputs=("Y",),
    )


def test_expressions_from_elsewhere_are_held_to_the_same_rules() -> None:
    assert workload_from_expression(_copy(3)).op is None
    for wrong, message in [
        (_copy(4), "runs from 4 to 4"),
        (_copy(0, 2**34), "iterator i of Y has extent"),
        (_copy(0, 0), "extents of at least 1"),
    ]:
        with pytest.raises(WorkloadError, match=message):
            workload_from_expression(wrong)
    padded = Read("X", (Const(4, "int64"),), Const(-1, "uint8"))
    bytes_of = replace(
        _copy(0),
        inputs=(Tensor(name="X", shape=(4,), dtype="uint8"),),
        stages=(replace(_copy(0).stages[0], body=Cast("float32", Cast("int32", padded))),),
    )
    with pytest.raises(WorkloadError, match="outside of X lies -1, which uint8 cannot hold"):
        workload_from_expression(bytes_of)
    stage = Stage(
        name="Y", axes=(Axis(name="i", extent=4),), body=Read("X", (Var("q"),)), dtype="float32"
    )
    with pytest.raises(WorkloadError, match="uses 'q', which is not an iterator"):
        workload_from_expression(
            Expression(name="x", inputs=_copy(0).inputs, stages=(stage,), outputs=("Y",))
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, "document of schema 2"),
        ({"key": "0" * 64}, "is not that of its expression"),
        ({"expression": None}, "not an expression document"),
        (
            {"expression": {"name": "x", "inputs": [], "stages": [], "outputs": []}},
            "at least one input",
        ),
        ({"numerics": "loose"}, "not strict, fast or tensor"),
    ],
)
def test_documents_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        from_document({**to_document(parse_spec(MATMUL)), **change})


def test_hostile_document_tree_is_refused() -> None:
    body: object = ["var", "i"]
    for _ in range(5000):
        body = ["unary", "neg", body]
    document = to_document(parse_spec(MATMUL))
    expression = dict(document["expression"])  # type: ignore[arg-type]  # an object of the document
    expression["stages"] = [{**expression["stages"][0], "body": body}]  # type: ignore[index, dict-item]  # as above
    with pytest.raises(WorkloadError, match="not an expression document"):
        from_document({**document, "expression": expression})
