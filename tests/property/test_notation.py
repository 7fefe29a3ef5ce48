"""Properties of the notation: no read it accepts leaves its tensor, affine reads it
refuses do, no text makes it crash."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.property.interpreter import OutOfBounds, interpret
from tests.support.random_expressions import EXTENTS, indices, programs
from tuner.errors import WorkloadError
from tuner.workload.inputs import make_inputs
from tuner.workload.keys import workload_key
from tuner.workload.notation import parse

COMMON = settings(
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
WORDS = [
    "kernel", "k", "(", "A", ":", "f32", "[", "M", "]", ")", "->", "C", "{", "}", "=", "+=",
    "max=", "A[i]", "C[i]", "i", "+",
    "-", "*", "/", "//", "%", "?", ":", "else", "0", "1.5", "inf", "for", "in", "0:3", "where(",
    "min(", "exp(", "f32(", "and",
    "or", "not", "<", "==", ",", ";", "#\n", "true", "M", "é", "\0", "1e999",
    "99999999999999999999", "_", "''",
]  # fmt: skip


@st.composite
def unpadded(draw: st.DrawFn) -> tuple[str, bool, bool]:
    """A kernel of one unpadded read; whether it leaves its tensor; whether its indices
    are affine."""
    shape = draw(st.lists(st.sampled_from(EXTENTS), min_size=1, max_size=2))
    ranges = {"i": draw(st.sampled_from(EXTENTS)), "r": draw(st.sampled_from(EXTENTS))}
    chosen = [draw(indices(ranges)) for _ in shape]
    leaves = any(
        not 0 <= value < extent
        for index, extent in zip(chosen, shape, strict=True)
        for value in index.values
    )
    read = f"X[{', '.join(index.text for index in chosen)}]"
    stated = ", ".join(f"{name} in 0:{extent}" for name, extent in ranges.items())
    text = (
        f"kernel k(X: f32[{', '.join(map(str, shape))}]) -> (Y: f32[{ranges['i']}]) {{ Y[i] "
        f"+= {read} * f32(r) for {stated} }}"
    )
    return text, leaves, not re.search("//|%", read)


@COMMON
@given(unpadded())
def test_reads_are_accepted_exactly_when_they_stay_inside(case: tuple[str, bool, bool]) -> None:
    text, leaves, affine = case
    try:
        expression = parse(text, {})
    except WorkloadError as error:
        assert error.line == 1 and "its extent is" in str(error)
        assert leaves or not affine
    else:
        assert not leaves
        interpret(expression, make_inputs(expression, 0))


@COMMON
@given(programs())
def test_generated_programs_are_accepted_and_stay_inside(text: str) -> None:
    expression = parse(text, {})
    try:
        interpret(expression, make_inputs(expression, 0))
    except OutOfBounds as error:
        raise AssertionError(f"{error} in {text}") from error


@COMMON
@given(programs())
def test_spacing_comments_and_names_do_not_matter(text: str) -> None:
    spaced = (
        re.sub(r"([\[\]\(\),*+])", r" \1 ", text.replace("+=", "PLUS"))
        .replace("PLUS", "+=")
        .replace("\n", " # noted\n\n")
    )
    renamed = re.sub(r"\b([irTXY])(\d*)\b", r"\1_\2_new", text)
    plain = parse(text, {})
    assert parse(spaced, {}) == plain
    assert workload_key(parse(renamed, {})) == workload_key(plain)


@settings(deadline=None, max_examples=300)
@given(st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join) | st.text(max_size=200))
@example("kernel k(A: f32[M]) -> (C: f32[M]) { C[i] = " + "-" * 4000)
@example("")
def test_any_text_is_refused_with_a_position(text: str) -> None:
    for candidate in (text, "kernel k(A: f32[M]) -> (C: f32[M]) { C[i] = " + text + " }"):
        try:
            parse(candidate, {"M": 4})
        except WorkloadError as error:
            assert error.line is not None or error.parameter is not None


HOSTILE = {
    "long indices": "A[" + "+".join([f"({'+'.join(['i'] * 100)})"] * 9) + "]",
    "extremes": "A[min(" + ",".join([f"min({','.join([f'max(i,{chr(43).join(chr(105) * 12)})'] * 8)})"] * 7) + ")]",  # noqa: E501
    "ranges to find": "+".join(f"({'+'.join(f'A[r{b % 7}+r{(b + 1) % 7}+1]' for b in range(60))})" for _ in range(3)),  # noqa: E501
    "conditional reads": "+".join(f"where(i >= {k}, A[i - {k}], 0)" for k in range(1, 41)) + "+A[i + 9]",  # noqa: E501
    "choices in an index": "A[" + "where(i > 1 and i < 3, " * 12 + "+".join(["where(i > 0, i, 1)"] * 60) + ", i)" * 12 + "]",  # noqa: E501
    "spine": "A[" + "(" * 15 + "i" + ("+" + "+".join("i" * 40) + ")") * 15 + "]",
    "brackets": "(" * 8000, "signs": "-" * 16000 + "A[i]", "negations": "not " * 4000 + "true",
    "sum": "+".join(["A[i]"] * 3200),
    "conditionals": "A[i]>0?" * 1500 + "1" + ":0" * 1500, "digits": "9" * 16000,
    "indices": f"A[{','.join('i' * 7900)}]",
    "arguments": "min(" + ",".join("i" * 7900) + ")",
    "iterators": "+".join(f"i{k}" for k in range(2300)),
    "newlines": "\n" * 16000,
    "products": "*".join(["(A[i]+A[i]*A[i])"] * 900), "long": "A[i]+" * 4000, "name": "a" * 16000,
    "comment": "#" * 16000,
    "chains in chains": "(" * 30 + "+".join(["A[i]"] * 100) + ("+" + "+".join(["A[i]"] * 20) + ")") * 30,  # noqa: E501
}  # fmt: skip


@pytest.mark.serial
def test_hostile_texts_are_refused_at_once() -> None:
    # Measured in what an accepted text of nearly as many words as are allowed takes, so that
    # the limit is the same on a slow machine.
    plain = "+".join(["(" + "+".join(["A[i]"] * 60) + ")"] * 6)
    limit = 3 * min(_cpu_s(plain) for _ in range(3))
    for name, body in HOSTILE.items():
        best = min(_refusal_s(body) for _ in range(3))
        assert best <= limit, f"{name}: {best * 1e3:.0f} ms of {limit * 1e3:.0f}"


def _refusal_s(body: str) -> float:
    start = time.process_time()
    try:
        _read(body)
    except WorkloadError:
        return time.process_time() - start
    raise AssertionError(f"accepted: {body[:60]}")


def _cpu_s(body: str) -> float:
    start = time.process_time()
    _read(body)
    return time.process_time() - start


def _read(body: str) -> None:
    parse("kernel k(A: f32[M]) -> (C: f32[M]) {\n C[i] = " + body + "\n}", {"M": 4})
