"""Sums of products with weights of few bits: what is recognised, and that kernels which
unpack in registers are right whatever divides what."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.avx2 import AVX2, runs_avx2
from tests.support.checked_kernels import check_programs, output_of
from tests.support.depth import thinned
from tests.support.targets import GOLDEN_COVE, host_target
from tuner.lowering.compiler import compile_kernel, compile_program
from tuner.spaces.by_target import space_of
from tuner.spaces.core.space import Config
from tuner.spaces.rewrite.quantized_products import quantized_product
from tuner.target.architectures.table import isa_of
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import error_bound, evaluate_with_magnitude, max_rel_error
from tuner.workload.spec import parse_spec, workload_from_notation
from tuner.workload.special_values import are_defined, undecided
from tuner.workload.workload import Workload

CODEBOOK = "where(q < 3, q * q, 0.5 - q)"


def product_of(text: str) -> object:
    expression = workload_from_notation(text, {}).expression
    dtypes = {tensor.name: tensor.dtype for tensor in expression.inputs}
    return quantized_product(expression.stages[0], expression.shapes, dtypes)


def kernel(weight: str, scale: str = "", body: str = "X[i, k] * ") -> str:
    scales = ", S: f32[40, 64]" if scale else ""
    return (
        f"kernel q(X: f32[3, 64], W: u8[40, 64]{scales}) -> (Y: f32[3, 40]) "
        f"{{ Y[i, j] += {body}{weight}{scale} }}"
    )


LOW_FIRST = "f32(bitand(shr(W[j, k//2], i32(4 * (k % 2))), 15))"


@pytest.mark.parametrize(
    ("weight", "table"),
    [
        (LOW_FIRST, range(16)),
        (f"({LOW_FIRST} - 8)", range(-8, 8)),
        ("f32(where(k % 2 == 0, W[j, k//2] % 16, W[j, k//2] // 16))", range(16)),
        (CODEBOOK.replace("q", LOW_FIRST), [0, 1, 4, *(0.5 - q for q in range(3, 16))]),
    ],
)
def test_four_bits_are_a_table(weight: str, table: list[float]) -> None:
    product = product_of(kernel(weight))
    assert product is not None and list(product.table) == list(map(float, table))  # type: ignore[attr-defined]


def test_a_group_is_what_the_scale_moves_with() -> None:
    product = product_of(kernel(LOW_FIRST, " * S[j, k//16]"))
    assert [axis.extent for axis in product.stage.reduce_axes] == [4, 2, 4, 2]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (kernel("f32(W[j, k//2])"), "every weight twice"),
        (kernel("f32(where(k % 2 == 0, W[j, k//2] // 16, W[j, k//2] % 16))"), "high half first"),
        (kernel("f32(W[j, k//2] % 32 + k % 2)"), "more than four bits"),
        (kernel(LOW_FIRST, " * S[j, k//4]"), "groups of half a word"),
        (kernel(LOW_FIRST, " * S[j, k]"), "a scale for each weight"),
        (kernel("f32(W[j, k])"), "nothing that a plain product lacks"),
        (kernel(LOW_FIRST, body="X[i, k] * X[i, k] * "), "a product of three"),
    ],
)
def test_other_sums_are_left_alone(text: str, why: str) -> None:
    assert product_of(text) is None, why


def test_wholes_of_other_tensors_are_not_read_beyond_the_reduction() -> None:
    """Beyond the end of the last group x must be zero, which the next columns are not."""
    text = (
        "kernel q(X: f32[3, 80], W: u8[40, 35], S: f32[40, 3]) -> (Y: f32[3, 40]) "
        f"{{ Y[i, j] += X[i, k] * {LOW_FIRST} * S[j, k//32] for k in 0:70 }}"
    )
    assert product_of(text) is None


def sketched(workload: Workload, word: str, count: int, seed: int) -> None:
    """Checks programs of a sketch at random configs."""
    space = space_of(workload, host_target(), threads=1)
    rng = np.random.default_rng(seed)
    configs = [space.space.config(point) for point in space.space.sample(rng, 400)]
    chosen = [config for config in configs if f":{word}_" in str(config.get("sketch", ""))]
    assert chosen
    check_programs(workload, [space.program(config) for config in chosen[:count]])


@pytest.mark.skipif(host_target().vector_bytes != 64, reason="no table of sixteen in a register")
@settings(max_examples=8, deadline=None)
@given(
    rows=st.integers(1, 16),
    units=st.integers(16, 70),
    features=st.integers(2, 200),
    group=st.sampled_from((0, 8, 16, 32, 128)),
    weight=st.sampled_from(("int4", "uint4", "uint4,zeros=float32")),
    seed=st.integers(0, 99),
)
@pytest.mark.slow
def test_looked_up_weights(
    rows: int, units: int, features: int, group: int, weight: str, seed: int
) -> None:
    spec = f"qdense:M={rows},N={units},K={features},group={group},weight={weight}"
    sketched(parse_spec(spec), "lookup", 1, seed)


@runs_avx2
@pytest.mark.parametrize("features", thinned([61, 72, 64], 1, pytest.mark.slow))
@pytest.mark.parametrize("weight", [LOW_FIRST, CODEBOOK.replace("q", LOW_FIRST)])
def test_sixteen_numbers_in_two_registers(weight: str, features: int) -> None:
    text = (
        f"kernel t(X: f32[3, {features}], W: u8[21, {(features + 1) // 2}]) -> (Y: f32[3, 21]) "
        f"{{ Y[i, j] += X[i, k] * {weight} }}"
    )
    workload = workload_from_notation(text, {})
    inputs = make_inputs(workload.expression, seed=4)
    inputs["W"] = np.random.default_rng(5).integers(0, 256, inputs["W"].shape).astype(np.uint8)
    want, magnitude = evaluate_with_magnitude(workload.expression, inputs)
    space = space_of(workload, AVX2, threads=1)
    names = [name for name in map(str, space.space.knobs[0].values) if ":lookup_" in name]
    assert names
    program = space.program({"sketch": names[0]})
    got = {"Y": output_of(program, workload.expression, inputs, AVX2)}
    error = max_rel_error(workload.expression, got, want, magnitude)
    assert error <= error_bound(workload.expression)
    assembly = compile_program(program, AVX2, "kernel").sources["asm"]
    assert ("vpermps" in assembly or "vpermd" in assembly) and "vblendvps" in assembly


FOURS = any(dot.group == 4 for dot in isa_of(host_target()).dot_products)


@pytest.mark.skipif(not FOURS, reason="no products in fours")
@settings(max_examples=8, deadline=None)
@given(
    rows=st.integers(1, 16),
    units=st.integers(16, 70),
    features=st.integers(2, 200),
    group=st.sampled_from((0, 8, 16, 32, 128)),
    weight=st.sampled_from(("int4", "uint4", "uint4,zeros=float32")),
    seed=st.integers(0, 99),
)
@pytest.mark.slow
def test_activations_of_8_bits(
    rows: int, units: int, features: int, group: int, weight: str, seed: int
) -> None:
    spec = f"qdense:M={rows},N={units},K={features},group={group},weight={weight},activations=int8"
    sketched(parse_spec(spec), "halves", 1, seed)


@pytest.mark.skipif(not FOURS, reason="no products in fours")
@pytest.mark.parametrize(
    "signs",
    thinned([("u8", "i8"), ("i8", "u8"), ("i8", "i8"), ("u8", "u8")], 2, pytest.mark.slow),
)
@pytest.mark.parametrize("zero", ["", " - 128", " - Z[j]"])
def test_sums_of_bytes_with_a_scale_are_exact(signs: tuple[str, str], zero: str) -> None:
    sign, stored = signs
    zeros = ", Z: f32[33]" if "Z" in zero else ""
    weight = f"(f32(W[j, k]){zero})" if zero else "f32(W[j, k])"
    text = (
        f"kernel b(Q: {sign}[5, 70], W: {stored}[33, 70], S: f32[33, 5]{zeros}) -> (Y: f32[5, 33]) "
        f"{{ Y[i, j] += f32(Q[i, k]) * {weight} * S[j, k//16] }}"
    )
    workload, rng = workload_from_notation(text, {}), np.random.default_rng(3)

    def ends(name: str, shape: tuple[int, int]) -> np.ndarray[tuple[int, int], np.dtype[Any]]:
        limits = np.iinfo("int8" if name == "i8" else "uint8")
        return rng.choice([limits.min, limits.max, 1], shape).astype(limits.dtype)

    inputs: dict[str, Any] = {"Q": ends(sign, (5, 70)), "W": ends(stored, (33, 70))}
    inputs["S"] = np.exp2(rng.integers(-2, 2, (33, 5))).astype(np.float32)
    numbers = inputs["W"].astype(int)
    if zeros:
        inputs["Z"] = rng.integers(0, 256, 33).astype(np.float32)
        numbers = numbers - inputs["Z"].astype(int)[:, None]
    elif zero:
        numbers = numbers - 128
    space = space_of(workload, host_target(), threads=1)
    names = [name for name in map(str, space.space.knobs[0].values) if ":fours_" in name]
    assert names
    got = output_of(space.program({"sketch": names[0]}), workload.expression, inputs)
    scaled = numbers * np.repeat(inputs["S"], 16, 1)[:, :70]
    np.testing.assert_array_equal(got, inputs["Q"].astype(int) @ scaled.T)


@pytest.mark.skipif(not FOURS, reason="no products in fours")
@pytest.mark.parametrize("sign", ["i8", "u8"])
@pytest.mark.parametrize("weight", [LOW_FIRST, f"({LOW_FIRST} - 8)", f"({LOW_FIRST} - Z[j])"])
@pytest.mark.parametrize("features", thinned([61, 8, 200], 1, pytest.mark.slow))
def test_sums_of_integers_are_exact(sign: str, weight: str, features: int) -> None:
    zeros = ", Z: f32[33]" if "Z" in weight else ""
    text = (
        f"kernel h(Q: {sign}[5, {features}], W: u8[33, {(features + 1) // 2}]{zeros}) -> "
        f"(Y: f32[5, 33]) {{ Y[i, j] += f32(Q[i, k]) * {weight} }}"
    )
    workload = workload_from_notation(text, {})
    rng, limits = np.random.default_rng(3), np.iinfo("int8" if sign == "i8" else "uint8")
    integers = rng.choice([limits.min, limits.max, 1], (5, features)).astype(limits.dtype)
    packed = rng.integers(0, 256, (33, (features + 1) // 2)).astype(np.uint8)
    numbers = np.stack([packed & 15, packed >> 4], -1).reshape(33, -1)[:, :features].astype(int)
    inputs = {"Q": integers, "W": packed}
    if zeros:
        inputs["Z"] = rng.integers(0, 16, 33).astype(np.float32)
        numbers = numbers - inputs["Z"].astype(int)[:, None]
    elif "8" in weight.removeprefix(LOW_FIRST):
        numbers = numbers - 8
    space = space_of(workload, host_target(), threads=1)
    names = [name for name in map(str, space.space.knobs[0].values) if ":halves_" in name]
    assert names
    got = output_of(space.program({"sketch": names[0]}), workload.expression, inputs)
    np.testing.assert_array_equal(got, integers.astype(int) @ numbers.T)


def test_integers_meet_only_sixteen_in_a_row() -> None:
    """Of a codebook four bits are no factor, so floats are looked up."""
    for weight, word in (
        (CODEBOOK.replace("q", LOW_FIRST), "lookup"),
        (f"({LOW_FIRST} - 3)", "halves"),
    ):
        text = kernel(weight).replace("X: f32", "Q: i8").replace("X[i, k]", "f32(Q[i, k])")
        space = space_of(workload_from_notation(text, {}), GOLDEN_COVE, 1)
        names = [str(name) for name in space.space.knobs[0].values]
        assert any(f":{word}_" in name for name in names)
        assert any(":halves_" in name for name in names) == (word == "halves")


def test_halves_of_bytes_are_summed_in_fours() -> None:
    workload = parse_spec("qdense:M=4,N=64,K=256,activations=int8,const=W+S")
    space = space_of(workload, GOLDEN_COVE, 1)
    names = [name for name in map(str, space.space.knobs[0].values) if ":halves_" in name]
    compiled = compile_kernel(
        workload=workload,
        target=GOLDEN_COVE,
        threads=1,
        config={"sketch": names[0]},
        symbol="kernel",
    )
    assembly = compiled.sources["asm"]
    assert "vpdpbusd" in assembly and "vpermps" not in assembly and "vpmulld" not in assembly


@pytest.mark.parametrize(
    ("parameters", "word"),
    [("", "lookup"), (",activations=int8", "halves"), (",weight=int8", "grouped")],
)
def test_packed_weights_are_fetched_ahead(parameters: str, word: str) -> None:
    """Beyond the second cache: a core that unpacks looks no page ahead by itself."""
    workload = parse_spec(f"qdense:M=1,N=128,K=256{parameters},const=W+S")
    target = replace(GOLDEN_COVE, l2_bytes=1024)
    space = space_of(workload, target, 1)
    (name,) = (name for name in map(str, space.space.knobs[0].values) if f":{word}_" in name)
    config: Config = {
        "sketch": name,
        f"Y.{word}_j.copy1_W": "pack_root",
        f"Y.{word}_j.ahead": 1,
    }
    assembly = compile_program(space.program(config), target, "kernel").sources
    assert "prefetcht0" in assembly["asm"]


@settings(max_examples=5, deadline=None)
@given(
    rows=st.integers(1, 16),
    units=st.integers(2, 70),
    features=st.integers(5, 200),
    group=st.sampled_from((4, 16, 128)),
    seed=st.integers(0, 99),
)
def test_weights_of_a_byte_in_groups(
    rows: int, units: int, features: int, group: int, seed: int
) -> None:
    spec = f"qdense:M={rows},N={units},K={features},group={group},weight=int8"
    sketched(parse_spec(spec), "grouped", 1, seed)
    whole_fours = min(group, features) % 4 == 0
    if FOURS and units >= 16 and whole_fours:  # as many units as an instruction has lanes
        sketched(parse_spec(f"{spec},activations=int8"), "fours", 1, seed)


@pytest.mark.parametrize("weight", ["int4", "uint4", "uint4,zeros=float32", "int8"])
def test_what_special_values_leave_finite_is_right(weight: str) -> None:
    """A scale of infinity makes one of a group's sum that its terms would not have made."""
    workload = parse_spec(f"qdense:M=4,N=40,K=70,group=16,weight={weight}")
    expression = workload.expression
    assert are_defined(expression)
    inputs = make_inputs(expression, seed=3, kind="special")
    space = space_of(workload, host_target(), threads=1)
    (sketch,) = {
        name
        for name in map(str, space.space.knobs[0].values)
        if ":lookup_" in name or ":grouped_" in name
    }
    got = output_of(space.program({"sketch": sketch}), expression, inputs)
    with np.errstate(all="ignore"):
        want, _ = evaluate_with_magnitude(expression, inputs)
    finite = np.isfinite(want["Y"])
    assert 0 < finite.sum() < finite.size
    assert not undecided(expression, want["Y"])[finite].any()
    np.testing.assert_array_equal(np.isfinite(got), finite)
    np.testing.assert_allclose(got[finite], want["Y"][finite], rtol=1e-4, atol=1e-4)


def test_constant_weights_stay_packed() -> None:
    """Four bits a weight are what a call reads: unpacked ones would be eight times as many."""
    space = space_of(parse_spec("qdense:M=1,N=64,K=256,const=W+S"), GOLDEN_COVE, 1)
    config = {"sketch": "Y:lookup_j", "Y.lookup_j.copy1_W": "pack_root"}
    program = space.program(config)
    sizes = {buffer.name: np.prod(buffer.shape) for buffer in program.buffers}
    (packed,) = [name for name in sizes if "pack" in name and sizes[name] >= 64 * 128]
    assert sizes[packed] == 64 * 256 // 2
