"""Sums whose terms count only where an index divides evenly are done without the
others, and come to the same."""

from __future__ import annotations

import re

import pytest

from tests.support.programs import NARROW, check
from tuner.spaces.by_target import space_of
from tuner.spaces.rewrite import polyphase
from tuner.spaces.rewrite.algorithm import fewest_flops
from tuner.spaces.rewrite.liveness import live_flops
from tuner.spaces.rewrite.stages import inlined
from tuner.workload.expression import Binary, Expression, Select, walk
from tuner.workload.spec import parse_spec, workload_from_notation
from tuner.workload.workload import Workload

WHOLE = [  # each window a multiple of the stride, each output too
    "conv2d_transpose:N=1,H=5,W=4,CI=3,CO=8,KH=4,KW=4,stride=2,pad=1",
    "conv2d_transpose:N=1,H=4,W=5,CI=3,CO=8,KH=4,KW=4,stride=2,pad=1,bias=true,layout=NCHW",
    "conv2d_transpose:N=2,H=3,W=3,CI=4,CO=8,KH=2,KW=2,stride=2,act=gelu",
    "conv2d_transpose:N=1,H=3,W=2,CI=4,CO=8,KH=6,KW=3,stride=3,bias=true,act=relu",
]
RAGGED = [
    "conv2d_transpose:N=2,H=4,W=5,CI=3,CO=8,KH=3,KW=3,stride=2,pad=1,bias=true,act=relu",
    "conv2d_transpose:N=1,H=3,W=3,CI=3,CO=8,KH=8,KW=8,stride=4,pad=2,dtype=bfloat16",
    "conv2d_transpose:N=1,H=3,W=3,CI=4,CO=8,KH=5,KW=4,stride=3,pad=2,dtype=int8",
    "conv2d_transpose:N=1,H=3,W=3,CI=4,CO=8,KH=2,KW=3,stride=3,layout=NCHW",
]
# What users write themselves, and extents of the symbols.
WRITTEN = [
    "kernel up(X: f32[A], W: f32[B]) -> (Y: f32[C]) { Y[h] += where((h + r) % 2 == 0, (X[(h + "
    "r) // 2] else 0), 0) * W[r] }",
    "kernel dn(X: f32[A], W: f32[B]) -> (Y: f32[C]) { Y[h] += where((h - r) % 3 == 1, (X[(h - "
    "r) // 3] else 0), 0) * W[r] }",
    # Dilated, the condition on the product, and a function that is not zero where its argument is.
    "kernel w(X: f32[A], W: f32[B]) -> (Y: f32[C]) { Y[h] += where((h + 3*r) % 2 == 1, exp(X[(h "
    "+ 3*r)//2] else 0) * W[r], 0) }",
    # Nothing but the condition says where the window ends.
    "kernel lone(X: f32[A]) -> (Y: f32[C]) { Y[h] += where((h + r) % 2 == 0, exp(X[(h + r) // "
    "2] else 0), 0) for r in 0:5 }",
    # Conditions that read, at outputs and weights beyond the last of a phase too.
    "kernel rd(W: f32[B], M: f32[C]) -> (Y: f32[C]) { Y[h] += where((h + r) % 3 == 0 and M[h] > "
    "0, exp(W[r]), 0) }",
    "kernel r(X: f32[A], W: f32[B]) -> (Y: f32[C]) { Y[h] += where((h + r) % 3 == 0 and W[r] > "
    "0, exp(X[(h+r)//3] else 0), 0) }",
    # Two readers, one of which reads beyond the end.
    """kernel read(X: f32[A], W: f32[B]) -> (Y: f32[C], Z: f32[C]) {
      T[h] += where((h + r) % 2 == 0, (X[(h + r) // 2] else 0), 0) * W[r] for h in 0:C
      Y[h] = T[h] * 2
      Z[h] = max(T[h], (T[h + 1] else 0)) for h in 0:C
    }""",
    # An output that is read again.
    """kernel both(X: f32[A], W: f32[B]) -> (Y: f32[C], Z: f32[C]) {
      Y[h] += where((h + r) % 2 == 0, (X[(h + r) // 2] else 0), 0) * W[r] for h in 0:C
      Z[h] = exp(Y[h])
    }""",
]
KEPT = [
    "kernel product(X: f32[A], W: f32[B]) -> (Y: f32[C]) { Y[h] += (X[h + r] else 0) * W[r] for "
    "h in 0:C }",
    "kernel most(X: f32[A], W: f32[B]) -> (Y: f32[C]) { Y[h] max= where((h + r) % 2 == 0, (X[(h "
    "+ r) // 2] else 0), 0) * W[r] }",
    # An even step meets one phase of two alone, and a rule of one axis no window.
    "kernel even(X: f32[A], W: f32[B]) -> (Y: f32[C]) { Y[h] += where((h + 2*r) % 2 == 0, (X[h "
    "+ r] else 0), 0) * W[r] }",
    "kernel two(X: f32[A], W: f32[B]) -> (Y: f32[A, C]) { Y[h, y] += where((h + y + r) % 2 == "
    "0, (X[h + r] else 0), 0) * W[r] }",
    "kernel one(X: f32[A], W: f32[B]) -> (Y: f32[C]) { Y[h] += where((h + r) % 2 == 0, (X[(h + "
    "r) // 2] else 0), 1) * W[r] }",
    # No remainder is two, nor less than none.
    "kernel none(X: f32[A], W: f32[B]) -> (Y: f32[C]) { Y[h] += where((h + r) % 2 == 2, (X[(h + "
    "r) // 2] else 0), 0) * W[r] }",
    "kernel less(X: f32[A], W: f32[B]) -> (Y: f32[C]) { Y[h] += where((h + r) % 2 == 0 - 1, "
    "(X[(h + r)//2] else 0), 0) * W[r] }",
    # Where the window is as short as one weight nothing is saved.
    "kernel short(X: f32[A]) -> (Y: f32[C]) { Y[h] += where((h + r) % 2 == 0, (X[(h + r) // 2] "
    "else 0), 0) for r in 0:1 }",
]
EXTENTS = {"A": 5, "B": 4, "C": 9}


def written(text: str) -> Workload:
    return workload_from_notation(
        text, {name: extent for name, extent in EXTENTS.items() if re.search(rf"\b{name}\b", text)}
    )


def rules(expression: Expression) -> int:
    """Selections by a remainder."""
    selections = [
        node for stage in expression.stages for node in walk(stage.body) if isinstance(node, Select)
    ]
    return sum(
        isinstance(node, Binary) and node.op == "floormod"
        for selection in selections
        for node in walk(selection.cond)
    )


@pytest.mark.parametrize("spec", WHOLE)
def test_a_transposed_convolution_multiplies_what_meets_and_writes_its_output_in_place(
    spec: str,
) -> None:
    workload = parse_spec(spec)
    stride = int(spec.split("stride=")[1][0])
    made = polyphase.decompose(inlined(workload.expression))
    products = [stage for stage in made.stages if stage.reducer == "sum"]
    every = [stage for stage in workload.expression.stages if stage.reducer == "sum"]
    assert [stage.points * stride**2 for stage in products] == [stage.points for stage in every]
    assert not rules(made) and polyphase.decompose(made) is made
    assert len(space_of(workload, NARROW, threads=1).algorithm.groups) == 1
    check(workload, configs=3)


@pytest.mark.parametrize("spec", RAGGED)
@pytest.mark.parametrize("configs", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_of_other_extents_what_is_beyond_the_output_is_left_out(spec: str, configs: int) -> None:
    workload = parse_spec(spec)
    inline = inlined(workload.expression)
    made = polyphase.decompose(inline)
    assert rules(inline) and not rules(made)
    assert fewest_flops(workload) == live_flops(made) < workload.expression.flops
    check(workload, configs=configs)


@pytest.mark.parametrize("text", WRITTEN)
def test_it_is_the_rule_that_counts_and_no_operator(text: str) -> None:
    workload = written(text)
    made = polyphase.decompose(inlined(workload.expression))
    assert not rules(made)
    assert made.flops < inlined(workload.expression).flops
    check(workload, configs=3)


@pytest.mark.parametrize("text", KEPT)
def test_other_sums_stay_as_they_are(text: str) -> None:
    expression = inlined(written(text).expression)
    assert polyphase.decompose(expression) is expression


def test_work_that_is_needed_is_counted_as_before() -> None:
    plain = parse_spec("conv2d:N=1,H=6,W=6,CI=4,CO=8,KH=3,KW=3,pad=1")
    assert fewest_flops(plain) == plain.expression.flops
