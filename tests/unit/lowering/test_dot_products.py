"""Sums of products of small numbers: offered where the instruction is there, taken by
it; of integers right to the last bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tvm.runtime import tensor

from tests.support.checked_kernels import output_of
from tests.support.depth import thinned
from tests.support.program_interpreter import run
from tests.support.targets import host_target
from tuner.cost_model.features import featurizer
from tuner.lowering.compiler import compile_kernel
from tuner.spaces.by_target import space_of
from tuner.spaces.core.space import Config
from tuner.spaces.core.target_space import TargetSpace
from tuner.target.target import Target
from tuner.workload.arrays import numpy_dtype
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import evaluate
from tuner.workload.spec import parse_spec, workload_from_notation
from tuner.workload.workload import Workload

WIDE = replace(
    host_target(),
    tvm={"kind": "llvm", "mcpu": "znver4"},
    isa=("avx2", "avx512bf16", "avx512bw", "avx512vnni"),
    vector_bytes=64,
    vector_registers=32,
)
NARROW = replace(
    WIDE,
    tvm={"kind": "llvm", "mcpu": "haswell"},
    isa=("avx2",),
    vector_bytes=32,
    vector_registers=16,
)
NARROW_FOURS = replace(NARROW, tvm={"kind": "llvm", "mcpu": "alderlake"}, isa=("avx2", "avxvnni"))
WIDE_PAIRS = replace(WIDE, tvm={"kind": "llvm", "mcpu": "skylake-avx512"}, isa=("avx2", "avx512bw"))
BFLOAT16 = (
    "matmul:M=7,N=21,K=9,dtype=bfloat16",
    "matmul:M=7,N=16,K=10,transpose_a=true,transpose_b=true,dtype=bfloat16",
    "dense:M=2,N=19,K=6,bias=true,act=relu,dtype=bfloat16",
    "conv2d:N=1,H=3,W=2,CI=2,CO=19,KH=2,KW=2,pad=1,dtype=bfloat16",
)
SPECS = (
    "matmul:M=3,N=11,K=7,dtype=int8",
    "matmul:M=3,N=11,K=6,dtype=int8",
    "dense:M=2,N=9,K=6,dtype=int8,bias=true,act=relu",
    "conv2d:N=1,H=3,W=2,CI=2,CO=9,KH=2,KW=2,pad=1,dtype=int8",
)
WIDER = (
    "matmul:M=7,N=37,K=131,dtype=int8",
    "matmul:M=9,N=37,K=128,transpose_b=true,dtype=int8",
    "dense:M=5,N=41,K=72,dtype=int8,bias=true,act=relu",
    "batch_matmul:B=2,M=5,N=33,K=36,transpose_b=true,dtype=int8",
    "conv2d:N=1,H=5,W=6,CI=8,CO=24,KH=3,KW=3,pad=1,dtype=int8",
)
APART = (
    "kernel a(A: i8[5, 24, 6], B: i8[24, 40]) -> (C: i32[5, 40]) { C[i, j] += i32(A[i, k, "
    "l]) * i32(B[k, j]) }"
)
# Around the image is the zero point, and three channels are taken as four.
BORDERED = (
    "kernel c(X: u8[6, 7, 3], F: i8[3, 3, 3, 20]) -> (Y: i32[6, 7, 20]) { Y[h, w, k] += "
    "i32(X[h + r - 1, w + s - 1, c] else 77) * i32(F[r, s, c, k]) }"
)
# Of three channels in front of the image, the window's columns are taken as eight.
STEM = (
    "kernel s(X: u8[3, 9, 11], F: i8[7, 7, 3, 20]) -> (Y: i32[5, 6, 20]) { Y[h, w, k] += "
    "i32(X[c, 2*h + r - 3, 2*w + s - 3] else 77) * i32(F[r, s, c, k]) }"
)
# Lanes are channels, each with a window of its own.
WINDOWS = ("3, 1, 1", "3, 2, 1", "5, 1, 2", "3, 1, 0", "4, 1, 0", "2, 2, 0")  # taps, stride, pad
ONE_ROW = "kernel v(X: u8[37], W: i8[37, 33]) -> (Y: i32[33]) { Y[j] += i32(X[k]) * i32(W[k, j]) }"
SIGNS = [("u8", "i8"), ("i8", "i8"), ("i8", "u8"), ("u8", "u8")]


def product(left: str, right: str) -> str:
    return (
        f"kernel p(A: {left}[6, 72], B: {right}[72, 40]) -> (C: i32[6, 40]) {{ C[i, j] += "
        f"i32(A[i, k]) * i32(B[k, j]) }}"
    )


def depthwise(window: str, image: str = "u8", weights: str = "i8") -> str:
    taps, stride, pad = map(int, window.split(","))
    rows, columns = ((extent + 2 * pad - taps) // stride + 1 for extent in (9, 12))
    place = f"{stride} * h + r - {pad}, {stride} * w + s - {pad}, c"
    return (
        f"kernel d(X: {image}[9, 12, 20], F: {weights}[{taps}, {taps}, 20]) -> "
        f"(Y: i32[{rows}, {columns}, 20]) {{ Y[h, w, c] += "
        f"i32(X[{place}]{' else 77' if pad else ''}) * i32(F[r, s, c]) }}"
    )


def made(given: str) -> Workload:
    return workload_from_notation(given, {}) if given.startswith("kernel") else parse_spec(given)


def sampled(
    given: str, target: Target, count: int, threads: int = 1
) -> tuple[TargetSpace[Any], list[Config]]:
    """Configs of sketches of one of the instructions."""
    space = space_of(made(given), target, threads)
    points = space.space.sample(np.random.default_rng(2), 60)
    configs: list[Config] = [space.space.config(point) for point in points]
    chosen = [
        config
        for config in configs
        if ":pairs_" in str(config["sketch"]) or ":fours_" in str(config["sketch"])
    ]
    return space, chosen[:count]


def extremes(workload: Workload) -> dict[str, NDArray[Any]]:
    """Inputs whose numbers fill the range of their dtypes, so that a sign taken for
    another shows."""
    drawn = make_inputs(workload.expression, seed=5, kind="normal")
    rng = np.random.default_rng(6)
    narrow = {name for name, array in drawn.items() if array.dtype in (np.int8, np.uint8)}
    return {
        name: rng.integers(np.iinfo(array.dtype).min, np.iinfo(array.dtype).max, array.shape,
        array.dtype, endpoint=True)
        if name in narrow
        else array
        for name, array in drawn.items()
    }  # fmt: skip


@pytest.mark.parametrize("target", [NARROW, NARROW_FOURS], ids=["pairs", "fours"])
@pytest.mark.parametrize(
    "given",
    thinned([*SPECS, *(product(*signs) for signs in SIGNS), BORDERED], 5, pytest.mark.slow),
)
def test_programs_compute_what_the_reference_computes(given: str, target: Target) -> None:
    workload = made(given)
    inputs = extremes(workload)
    want = evaluate(workload.expression, inputs)
    space, configs = sampled(given, target, 2)
    assert configs
    for config in configs:
        for name, got in zip(
            workload.expression.outputs, run(space.program(config), dict(inputs)), strict=True
        ):
            np.testing.assert_array_equal(got, want[name], err_msg=str(config))


@pytest.mark.slow  # most of a minute in all
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "given", [*WIDER, APART, BORDERED, STEM, ONE_ROW, *(product(*signs) for signs in SIGNS)]
)
@pytest.mark.parametrize("pairs", [False, True], ids=["most", "pairs"])
def test_kernels_of_integers_are_right_to_the_last_bit(
    given: str, pairs: bool, threads: int
) -> None:
    own = host_target()
    if pairs:
        own = replace(own, isa=tuple(sorted(set(own.isa) - {"avx512vnni", "avxvnni"})))
    check_exact(given, *sampled(given, own, 4, threads))


def check_exact(given: str, space: TargetSpace[Any], configs: Sequence[Config]) -> None:
    """Kernels of this machine against the reference, with numbers of the whole range."""
    workload = made(given)
    inputs = extremes(workload)
    want = evaluate(workload.expression, inputs)
    if not configs:
        pytest.skip("this CPU has no such instruction")
    for config in configs:
        got = output_of(space.program(config), workload.expression, inputs)
        np.testing.assert_array_equal(
            got, want[workload.expression.outputs[0]], err_msg=str(config)
        )


def test_the_window_of_a_stem_is_read_where_it_lies() -> None:
    """Of seven columns in eight, not of three channels in four; and no copy for each tap."""
    space = space_of(made(STEM), WIDE, 1)
    (name,) = [name for name in map(str, space.space.knobs[0].values) if ":fours_k" in name]
    program = space.program({"sketch": name, "Y.fours_k.copy0_X": "pad"})
    sizes = {buffer.name: int(np.prod(buffer.shape)) for buffer in program.buffers}
    (image,) = [size for name, size in sizes.items() if "_pad" in name]
    assert image == 3 * 15 * 18
    check_exact(STEM, space, [{"sketch": name, "Y.fours_k.copy0_X": "pad"}])


@pytest.mark.parametrize("signs", thinned(SIGNS, 1, pytest.mark.slow))
@pytest.mark.parametrize("window", [WINDOWS[0], WINDOWS[3]])
def test_programs_of_lanes_with_windows_of_their_own(window: str, signs: tuple[str, str]) -> None:
    given = depthwise(window, *signs)
    workload = made(given)
    inputs = extremes(workload)
    (want,) = evaluate(workload.expression, inputs).values()
    space, configs = sampled(given, NARROW_FOURS, 1)
    assert configs
    for config in configs:
        np.testing.assert_array_equal(run(space.program(config), dict(inputs))[0], want)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("signs", thinned(SIGNS, 1, pytest.mark.slow))
def test_kernels_of_lanes_with_windows_of_their_own(window: str, signs: tuple[str, str]) -> None:
    given = depthwise(window, *signs)
    check_exact(given, *sampled(given, host_target(), 2))


@pytest.mark.parametrize("window", WINDOWS[:4])
def test_few_products_are_summed_in_float32_to_the_last_bit(window: str) -> None:
    space = space_of(made(depthwise(window)), host_target(), 1)
    points = space.space.sample(np.random.default_rng(2), 60)
    configs = [config for config in map(space.space.config, points) if is_of(config, "floats")]
    check_exact(depthwise(window), space, configs[:2])


def is_of(config: Config, sketch: str) -> bool:
    return f":{sketch}_" in str(config["sketch"])


def test_bytes_come_together_in_registers() -> None:
    given = depthwise(WINDOWS[0])
    for config in sampled(given, WIDE, 2)[1]:
        compiled = compile_kernel(
            workload=made(given), target=WIDE, threads=1, config=config, symbol="kernel"
        )
        assembly = compiled.sources["asm"]
        assert "vpdpbusd" in assembly and "vpmulld" not in assembly


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (depthwise(WINDOWS[0]), "no products in fours"),
        (
            "kernel e(X: u8[9, 40], F: i8[9, 40]) -> (Y: i32[40]) { Y[c] += i32(X[r, c]) * "
            "i32(F[r, c]) }",
            "no factor is used again",
        ),
    ],
)
def test_lanes_of_their_own_are_left_to_plain_vectors(given: str, why: str) -> None:
    target = NARROW if "fours" in why else NARROW_FOURS
    names = [sketch.name for sketch in space_of(made(given), target, 1).space.combinations]
    assert not any(":pairs_" in name or ":fours_" in name for name in names), why
    assert any(":floats_" in name for name in names)


@pytest.mark.parametrize(("taps", "is_exact"), [(258, True), (259, False)])
def test_sums_are_in_float32_only_where_it_holds_them(taps: int, is_exact: bool) -> None:
    given = (
        f"kernel l(X: u8[{taps + 3}, 16], F: u8[{taps}, 16]) -> (Y: i32[4, 16]) "
        "{ Y[w, c] += i32(X[w + s, c]) * i32(F[s, c]) }"
    )
    names = [sketch.name for sketch in space_of(made(given), NARROW, 1).space.combinations]
    assert any(":floats_" in name for name in names) == is_exact


@pytest.mark.parametrize("spec", BFLOAT16)
def test_kernels_of_bfloat16_compute_what_the_reference_computes(spec: str) -> None:
    workload = parse_spec(spec)
    inputs = make_inputs(workload.expression, seed=5, kind="normal")
    (name,) = workload.expression.outputs
    want = evaluate(workload.expression, inputs)[name]
    space, configs = sampled(spec, WIDE, 4)
    assert configs
    for config in configs:
        np.testing.assert_allclose(
            run(space.program(config), dict(inputs))[0],
            want,
            rtol=2**-7,
            atol=2**-7,
            err_msg=str(config),
        )
    if "avx512bf16" not in host_target().isa:
        pytest.skip("programs agree; kernels of them need a CPU with products of bfloat16")
    for config in configs:
        got = tensor(np.zeros(want.shape, numpy_dtype(workload.expression.tensor(name).dtype)))
        compiled = compile_kernel(
            workload=workload, target=WIDE, threads=1, config=config, symbol="kernel"
        )
        compiled.generated["kernel"](*(tensor(array) for array in inputs.values()), got)
        actual = got.numpy().astype(np.float64)
        np.testing.assert_allclose(
            actual, want.astype(np.float64), rtol=2**-7, atol=2**-7, err_msg=str(config)
        )


@pytest.mark.parametrize(
    ("dtype", "target", "instruction"),
    [
        ("int8", WIDE, "vpdpbusd"),
        ("int8", WIDE_PAIRS, "vpmaddwd"),
        ("int8", NARROW, "vpmaddwd"),
        ("int8", NARROW_FOURS, "vpdpbusd"),
        ("bfloat16", WIDE, "vdpbf16ps"),
    ],
)
@pytest.mark.parametrize("configs", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_the_sum_is_taken_by_one_instruction(
    dtype: str, target: Target, instruction: str, configs: int
) -> None:
    for shape in ("M=9,N=37,K=12", "M=9,N=37,K=13", "M=9,N=37,K=64,transpose_b=true"):
        workload = parse_spec(f"matmul:{shape},dtype={dtype}")
        for config in sampled(workload.spec, target, configs)[1]:
            compiled = compile_kernel(
                workload=workload, target=target, threads=1, config=config, symbol="kernel"
            )
            assembly = compiled.sources["asm"]
            assert instruction in assembly and "vpmulld" not in assembly


@pytest.mark.parametrize(
    ("spec", "target"),
    [
        ("matmul:M=9,N=37,K=12", WIDE),  # not integers
        ("matmul:M=9,N=37,K=12,dtype=int32", WIDE),  # not small ones
        ("matmul:M=9,N=37,K=1,dtype=int8", WIDE),  # no pairs
        ("matmul:M=9,N=37,K=12,dtype=float16", WIDE),
        ("matmul:M=9,N=37,K=12,dtype=bfloat16", NARROW),
        ("matmul:M=9,N=9,K=12,dtype=bfloat16", WIDE),  # eight lanes, where there are sixteen
        (
            "matmul:M=9,N=37,K=12,dtype=int8",
            replace(WIDE, isa=("avx2",)),
        ),  # no such instruction for 16 lanes
        ("matmul:M=9,N=3,K=12,dtype=int8", WIDE),  # fewer lanes than any has
    ],
)
def test_where_it_does_not_apply_there_is_no_such_sketch(spec: str, target: Target) -> None:
    assert not any(
        "pairs" in sketch.name or "fours" in sketch.name
        for sketch in space_of(parse_spec(spec), target, 1).space.combinations
    )


@pytest.mark.parametrize(("length", "name"), [(65_793, "fours"), (65_794, "pairs")])
def test_sums_that_might_not_fit_once_moved_are_left_to_pairs(length: int, name: str) -> None:
    names = [
        sketch.name
        for sketch in space_of(
            parse_spec(f"matmul:M=2,N=16,K={length},dtype=int8"), WIDE, 1
        ).space.combinations
    ]
    assert any(f":{name}_" in sketch for sketch in names)
    long = (
        "kernel p(A: u8[2, 70000], B: i8[70000, 16]) -> (C: i32[2, 16]) { C[i, j] += "
        "i32(A[i, k]) * i32(B[k, j]) }"
    )
    mixed = space_of(made(long), WIDE, 1)
    assert any(":fours_" in sketch.name for sketch in mixed.space.combinations), "nothing is moved"


def test_the_cost_model_has_features_of_it() -> None:
    space, _ = sampled(SPECS[2], NARROW, 1)
    points = space.space.sample(np.random.default_rng(0), 50)
    assert np.isfinite(featurizer(space)(points)).all()
