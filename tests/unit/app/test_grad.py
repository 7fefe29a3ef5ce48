"""`tuner.grad`: of every form of a workload, as a workload and on the command line."""

from __future__ import annotations

import json
from typing import Any

import pytest

import tuner
from tuner.cli import main
from tuner.errors import UsageError, WorkloadError
from tuner.workload.spec import parse_spec, workload_from_notation

TEXT = "kernel k(A: f32[N], B: f32[N]) -> (Y: f32[N]) { Y[i] = A[i] * B[i] }"


def test_each_form_of_a_workload_is_differentiated() -> None:
    spec = "matmul:M=3,N=4,K=5"
    assert tuner.grad(spec).key == tuner.grad(parse_spec(spec)).key
    derivative = tuner.grad(TEXT, "B", shapes={"N": 4}, numerics="fast")
    assert derivative.expression.outputs == ("dB",) and derivative.numerics == "fast"
    assert tuner.grad(derivative, ["A", "dY"]).expression.outputs == ("dA", "ddY")


@pytest.mark.parametrize(
    ("source", "wrt", "says"),
    [
        ("matmul:M=3,N=4,K=5", ["C"], "no input 'C'"),
        ("matmul:M=3,N=4", None, "needs K"),
        (3, None, "not a int"),
    ],
)
def test_refusals(source: Any, wrt: list[str] | None, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        tuner.grad(source, wrt)


def test_the_command_prints_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["grad", "softmax:M=3,N=4"])
    printed = capsys.readouterr().out
    assert not ended.value.code
    assert workload_from_notation(printed, {}).key == tuner.grad("softmax:M=3,N=4").key
    with pytest.raises(SystemExit):
        main(["grad", "matmul:M=3,N=4,K=5", "--wrt", "B, A", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert "(dB: f32[5, 4], dA: f32[3, 5])" in document["workload"]["notation"]


def test_errors_are_of_workloads() -> None:
    with pytest.raises(WorkloadError):
        tuner.grad(TEXT, shapes={"N": 0})
