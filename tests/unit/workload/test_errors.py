"""What the notation says about wrong texts: message, line and column of each kind of mistake."""

from __future__ import annotations

import re

import pytest

from tuner.errors import WorkloadError
from tuner.workload.notation import parse
from tuner.workload.spec import workload_from_notation

HEAD = "kernel k(A: f32[M, K], B: f32[K, N]) -> (C: f32[M, N]) {\n"
SHAPES = {"M": 4, "K": 5, "N": 6}
PRODUCT = "  C[i, j] += A[i, k] * B[k, j]\n"

# body of the kernel, line, column, part of the message
BODIES = [
    (
        "  C[i, j] += A[i, k] * B[j, k]\n",
        2,
        24,
        "iterator 'j' runs to 6 as declared for C but B has extent 5 there",
    ),
    (
        "  C[i, j] += A[i, k] * B[k + 1, j]\n",
        2,
        24,
        "index 0 of B runs from 1 to 5, its extent is 5; state a smaller range with 'for'",
    ),
    ("  C[i, j] += A[i, k - 1] * B[k, j]\n", 2, 14, "index 1 of A runs from -1 to 3"),
    (
        "  C[i, j] = A[i, k] * B[k, j]\n",
        2,
        18,
        "iterator 'k' is not on the left; reduce over it with +=",
    ),
    ("  C[i, j] += A[i, 0] * B[0, j]\n", 2, 11, "'+=' reduces over nothing; write '='"),
    (PRODUCT + PRODUCT, 3, 3, "'C' is defined twice"),
    ("  C[i, j] += D[i, k] * B[k, j]\n", 2, 14, "unknown tensor 'D'"),
    ("  C[i, j] += C[i, k] * B[k, j]\n", 2, 14, "'C' is read before it is defined"),
    (
        "  C[i, j] = T[i, j]\n  T[i, j] += A[i, k] * B[k, j]\n",
        2,
        13,
        "'T' is read before it is defined",
    ),
    ("  T[i, j] += A[i, k] * B[k, j]\n" + PRODUCT, 2, 3, "stage 'T' is never used"),
    ("  C[i, j] = A[i, 0] for j in 0:6\n", 1, 24, "input 'B' is never used"),
    ("  T[i, j] += A[i, k] * B[k, j]\n", 1, 42, "output 'C' is never defined"),
    ("  A[i, j] = B[i, j]\n" + PRODUCT, 2, 3, "'A' is an input and cannot be written"),
    ("  C[i, i] += A[i, k] * B[k, i]\n", 2, 8, "iterator 'i' stands twice on the left"),
    ("  C[i] += A[i, k] * B[k, i]\n", 2, 3, "C is declared with 2 dimensions and written with 1"),
    ("  C[i, j] += A[i] * B[k, j]\n", 2, 14, "A has 2 dimensions, not 1"),
    ("  C[i, j] += A[i, k] * exq(B[k, j])\n", 2, 24, "unknown function 'exq'; did you mean 'exp'?"),
    ("  C[i, j] += A[i, k] * B\n", 2, 24, "'B' is a tensor; index it"),
    (
        "  C[i, j] += A[i, k] * B[k, j] for q in 0:3\n",
        2,
        36,
        "'q' is not an iterator of this stage",
    ),
    ("  C[i, j] += A[i, k] * B[k, j] for k in 3:3\n", 2, 36, "the range 3:3 of 'k' is empty"),
    ("  C[i, j] += A[i, k] * B[k, j] for i in 1:4\n", 2, 36, "its range starts at 0, not 1"),
    (
        "  C[i, j] += A[i, k] * B[k, j] for i in 0:3\n",
        2,
        5,
        "'i' runs to 3 but C has extent 4 there",
    ),
    (
        "  C[i, j] += A[i, k] * B[k, j] * f32(q)\n",
        2,
        38,
        "the range of iterator 'q' is not known; state it",
    ),
    ("  C[i, j] += A[i, k] * B[k * k, j]\n", 2, 26, "an index multiplies only by constants"),
    ("  C[i, j] += A[i, k] * B[A[i, k], j]\n", 2, 26, "an index is an integer, this is a float32"),
    (
        "  C[i, j] += A[i, k] % B[k, j]\n",
        2,
        24,
        "'%' needs a positive constant integer on its right",
    ),
    ("  C[i, j] += A[i, k] * B[k // 0, j]\n", 2, 31, "'//' needs a positive constant integer"),
    ("  C[i, j] += A[i, k] * (B[k, j] > 0)\n", 2, 25, "float32 and bool do not mix"),
    (
        "  C[i, j] += A[i, k] * k * B[k, j]\n",
        2,
        24,
        "float32 and int64 do not mix; convert one of them",
    ),
    (
        "  C[i, j] += A[i, k] and B[k, j] > 0\n",
        2,
        14,
        "a condition is needed, this is a float32; compare it",
    ),
    ("  C[i, j] += A[i, k] * B[k, j] * log(-1)\n", 2, 34, "log(-1) is not a number"),
    ("  C[i, j] += A[i, k] * B[k, j] / (1/0)\n", 2, 37, "division by zero"),
    (
        "  C[i, j] += i32(A[i, k] * B[k, j])\n",
        2,
        14,
        "a value of type int32 is assigned to C of float32; convert it, e.g. float32(…)",
    ),
    ("  C[i, j] += A[i, k] * * B[k, j]\n", 2, 24, "unexpected '*'"),
    ("  C[i, j] += A[i, k] * B[k, j\n", 3, 1, "unexpected '}'"),
    ("  C[i, j] += A[i, k] $ B[k, j]\n", 2, 22, "cannot read '$ B[k, j]' here"),
    (
        "  C[i, j] += A[i, k] * B[k, j] for M in 0:4\n",
        2,
        36,
        "'M' is not an iterator of this stage",
    ),
    ("  C[M, j] += A[i, k] * B[k, j]\n", 2, 5, "'M' is a shape symbol, not an iterator"),
    (
        "  C[i, j] += A[i, k] * B[k, j] for k in 0:9\n",
        2,
        14,
        "index 1 of A runs from 0 to 8, its extent is 5",
    ),
    ("  C[i, j] += max(A[i, k]) * B[k, j]\n", 2, 14, "max takes 2 to 8 arguments, not 1"),
]


@pytest.mark.parametrize(
    ("body", "line", "column", "message"), BODIES, ids=[row[3][:40] for row in BODIES]
)
def test_wrong_stage(body: str, line: int, column: int, message: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        parse(HEAD + body + "}", SHAPES)
    assert (caught.value.line, caught.value.column) == (line, column), str(caught.value)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"line {line}, column {column}: ")


# whole text, shapes, line, column, part of the message
TEXTS = [
    (
        "kernel k(A: f33[4]) -> (C: f32[4]) { C[i] = A[i] }",
        {},
        1,
        13,
        "unknown dtype 'f33'; did you mean",
    ),
    (
        "kernel k(A: f32[M]) -> (C: f32[4]) { C[i] = A[i] }",
        {},
        1,
        17,
        "unknown shape symbol 'M'; give its extent",
    ),
    ("kernel k(A: f32[M]) -> (C: f32[M]) { C[i] = A[i] }", {"M": 0}, 1, 17, "A has an extent of 0"),
    (
        "kernel k(A: f32[M - 5]) -> (C: f32[M]) { C[i] = A[i] }",
        {"M": 4},
        1,
        17,
        "A has an extent of -1",
    ),
    ("kernel k(A: f32[1.5]) -> (C: f32[4]) { C[i] = A[i] }", {}, 1, 17, "an extent is an integer"),
    (
        "kernel k(A: f32[4], A: f32[4]) -> (C: f32[4]) { C[i] = A[i] }",
        {},
        1,
        21,
        "'A' is declared twice",
    ),
    ("kernel k(A: f32[4]) -> (C: i32[4]) { C[i] = 300000000000 }", {}, 1, 45, "does not fit int32"),
    ("kernel k(A: f32[4]) -> (C: f32[4]) { C[i] = A[i]", {}, 1, 49, "the text ends too early"),
    (
        "kernel k(A: f32[4], I: i32[4]) -> (C: f32[4]) { C[i] = A[I[i]] }",
        {},
        1,
        56,
        "clamp it, clamp(…, 0, 3)",
    ),
    (
        "kernel k(A: f32[4]) -> (C: f32[4]) { C[i] = A[i*3000000000] else 0 }",
        {},
        1,
        45,
        "use smaller factors",
    ),
    (
        "kernel k(A: i8[4]) -> (C: f32[4]) { C[i] = A[i] / 2 }",
        {},
        1,
        51,
        "'/' divides floating-point values, not int32",
    ),
    ("kernel k(A: f32[4]) -> (C: f32[4]) { C[i] = A[i] / 0 }", {}, 1, 52, "division by zero"),
    (
        "kernel k(A: f32[4]) -> (C: f32[4]) { C[i] = exp(i) }",
        {},
        1,
        45,
        "exp takes floating-point values, not int64",
    ),
    (
        "kernel k(A: f32[8], B: f32[4]) -> (C: f32[1]) { C[z] += A[i] * B[i] }",
        {},
        1,
        64,
        "'i' runs over A (8) and B (4), which differ",
    ),
    (
        "kernel k(A: f32[4]) -> (C: f32[1]) { C[z] += A[i + 5] }",
        {},
        1,
        48,
        "no value that keeps its indices inside",
    ),
    (
        "kernel k(A: f32[M, M, M]) -> (C: f32[M]) { C[i] += A[i, j, k] }",
        {"M": 2000},
        1,
        1,
        "GiB, the limit is 8 GiB",
    ),
    (
        "kernel k(A: f32[M, M]) -> (C: f32[M, M])\n{ C[i, j] += A[i, k] * A[k, j] * f32(q) for "
        "q in 0:M }",
        {"M": 5000},
        1,
        1,
        "operations, the limit",
    ),
    (
        "kernel k(A: f32[4]) -> (C: f32[4]) {"
        + " ".join(f"T{i}[x] = A[x]" for i in range(16))
        + "}",
        {},
        1,
        1,
        "17 tensors, the limit is 16",
    ),
    (
        "kernel k(A: f32[4]) -> (C: f32[4]) { C[i] = " + "+".join(["A[i]"] * 200) + " }",
        {},
        1,
        45,
        "a chain of more than 128 terms",
    ),
    (
        "kernel k(A: f32[4]) -> (C: f32[4]) { C[i] = " + "(" * 40 + "A[i]" + ")" * 40 + " }",
        {},
        1,
        76,
        "nested deeper than 32 levels",
    ),
    (
        "kernel k(A: f32[4]) -> (C: f32[4]) { C[i] = A[i] } #" + "x" * 17000,
        {},
        1,
        1,
        "the limit is 16384",
    ),
]


@pytest.mark.parametrize(
    ("text", "shapes", "line", "column", "message"), TEXTS, ids=[row[4][:40] for row in TEXTS]
)
def test_wrong_text(
    text: str, shapes: dict[str, int], line: int, column: int, message: str
) -> None:
    with pytest.raises(WorkloadError) as caught:
        parse(text, shapes)
    assert (caught.value.line, caught.value.column) == (line, column), str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({**SHAPES, "Q": 3}, "unknown shape symbol 'Q'; the text uses K, M, N"),
        ({**SHAPES, "M": -1}, "shape M=-1 is outside"),
        ({**SHAPES, "M": 2**40}, "shape M=1099511627776 is outside"),
        ({**SHAPES, "M": True}, "is not an integer"),
    ],
)
def test_wrong_shapes(shapes: dict[str, int], message: str) -> None:
    with pytest.raises(WorkloadError, match=message) as caught:
        parse(HEAD + PRODUCT + "}", shapes)
    assert caught.value.parameter is not None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            "where((i*1000003) % 7 == 0, A[i], 1)",
            "numbers of 2147483648 or more are computed from iterators; use smaller factors",
        ),
        ("A[i] + f32(i*i*i*i)", "numbers of 2147483648 or more"),
        (
            "where(i8(i) < 0, A[i], 1)",
            "int8 holds -128 to 127, but an iterator's value is 0 to 4999; use a wider one",
        ),
    ],
)
def test_arithmetic_on_iterators_that_would_wrap_is_refused(value: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=re.escape(message)):
        workload_from_notation(f"kernel k(A: f32[5000]) -> (C: f32[5000]) {{ C[i] = {value} }}", {})


def test_arithmetic_on_iterators_that_fits_is_taken() -> None:
    for value in (
        "where((i*1003) % 7 == 0, A[i], 1)",
        "A[i] + f32(i) * f32(i*i)",
        "where(i8(i % 100) < 5, A[i], 1)",
    ):
        workload_from_notation(f"kernel k(A: f32[5000]) -> (C: f32[5000]) {{ C[i] = {value} }}", {})
