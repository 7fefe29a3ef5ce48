"""The instructions that sketches are for stand in the innermost loops of other CPUs' code."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest

from tests.support.assembly import innermost_loops, most_in_a_loop
from tuner.cost_model.features import ESTIMATE, featurizer
from tuner.lowering.compiler import compile_program
from tuner.spaces.by_target import cpu_space
from tuner.target.detect import parse_target
from tuner.workload.spec import parse_spec, workload_from_notation
from tuner.workload.workload import Workload

UNSIGNED = (
    "kernel k(A: u8[M, K], B: {}[K, N]) -> (C: i32[M, N]) "
    "{{ C[i, j] += i32(A[i, k]) * i32(B[k, j]) }}"
)
SHAPES = {"M": 48, "N": 64, "K": 64}


def workload(what: str) -> Workload:
    if what in ("u8", "i8"):
        return workload_from_notation(UNSIGNED.format(what), SHAPES)
    return parse_spec(f"matmul:M=48,N=64,K=64,dtype={what}")


@cache
def assembly(name: str, what: str, sketch: str = "") -> str:
    """Of the point that the estimate ranks first of some, all or those of a sketch."""
    target = parse_target(f"cpu:{name}")
    space = cpu_space(workload(what), target, 1)
    points = np.stack(
        [
            point
            for point in space.space.sample(np.random.default_rng(2), 300)
            if sketch in str(space.space.config(point)["sketch"])
        ]
    )
    first = points[int(np.argmin(featurizer(space)(points)[:, ESTIMATE]))]
    program = space.program(space.space.config(first))
    return compile_program(program, target, "kernel").sources["asm"]


@pytest.mark.parametrize(
    ("name", "what", "instruction"),
    [
        ("cortex-a53", "float32", "fmla"),
        ("neoverse-n1", "float32", "fmla"),
        ("neoverse-v2", "float32", "fmla"),
        ("apple-m1", "float64", "fmla"),
        ("neoverse-n1", "int8", "sdot"),
        ("neoverse-n1", "u8", "udot"),
        ("neoverse-v1-sve", "float64", "fmla"),
        ("neoverse-v1-sve", "u8", "udot"),
        ("neoverse-v1-sve", "i8", "usdot"),
        ("neoverse-v1-sve", "bfloat16", "bfdot"),
        ("a64fx", "int8", "sdot"),
        ("neoverse-n2", "int8", "smmla"),
        ("neoverse-v1", "u8", "ummla"),
        ("neoverse-v2", "i8", "usmmla"),
        ("neoverse-v2", "bfloat16", "bfmmla"),
        ("neoverse-v2", "float16", "fmlal"),
        ("apple-m1", "float16", "fmlal"),
        ("rv64gcv", "float32", "vfmacc.vf"),
        ("x86-64-v3", "float32", "vfmadd231ps"),
        ("wasm32", "float32", "f32x4.mul"),
        ("wasm32", "float64", "f64x2.mul"),
    ],
)
def test_the_innermost_loop_is_made_of_the_instruction(
    name: str, what: str, instruction: str
) -> None:
    # At least as many as hide the latency of one: eight accumulators.
    assert most_in_a_loop(assembly(name, what), instruction) >= 8


@pytest.mark.parametrize(
    ("name", "what"), [("neoverse-v1-sve", "int8"), ("a64fx", "bfloat16"), ("a64fx", "float32")]
)
def test_vectors_of_one_length_are_whole_registers(name: str, what: str) -> None:
    """Of SVE, in the innermost loop: none is cut into NEON's."""
    text = assembly(name, what)
    loop = max(innermost_loops(text), key=lambda lines: sum("\tz" in line for line in lines))
    assert sum(bool(re.match(r"(fmla|sdot)\tz\d+\.s", line)) for line in loop) >= 8
    assert not any(re.search(r"\b[vq]\d+\b", line) for line in loop)


@pytest.mark.parametrize(
    ("what", "sketch", "instruction"),
    [("i8", "fours_j", "usdot"), ("bfloat16", "pairs_j", "bfdot")],
)
def test_sums_without_rows_have_the_instruction_of_one_row(
    what: str, sketch: str, instruction: str
) -> None:
    assert most_in_a_loop(assembly("neoverse-v2", what, sketch), instruction) >= 8


@pytest.mark.parametrize(
    ("dtype", "instruction", "copy", "loads"),
    [
        ("int8", "smmla", "pack", 0),
        ("int8", "smmla", "none", 8),  # halves of the rows that are read in place
        ("bfloat16", "bfmmla", "pack", 0),
    ],
)
def test_a_loop_of_matrix_products_is_sixteen_of_them_and_their_loads(
    dtype: str, instruction: str, copy: str, loads: int
) -> None:
    target = parse_target("cpu:neoverse-v2")
    space = cpu_space(parse_spec(f"matmul:M=16,N=16,K=512,dtype={dtype}"), target, 1)
    knobs = {"register": (8, 8), "depth": 64 if dtype == "int8" else 128, "copy0_A": copy}
    config = {f"C.mmla_j.{name}": value for name, value in knobs.items()}
    program = space.program({"sketch": "C:mmla_j", **config})
    text = compile_program(program, target, "kernel").sources["asm"]
    (loop,) = [each for each in innermost_loops(text) if any(instruction in line for line in each)]
    mnemonics = [line.split()[0] for line in loop]
    assert mnemonics.count(instruction) == 16
    assert len([line for line in loop if line.split()[1:2] and line.split()[1][0] == "d"]) == loads
    assert not {"str", "stp", "st1", "zip1", "zip2"} & set(mnemonics)


@pytest.mark.parametrize("name", ["cortex-a55", "neoverse-n1", "neoverse-v2"])
def test_parts_of_sums_in_float16_have_eight_lanes(name: str) -> None:
    text = assembly(name, "float16,numerics=tensor", "float16_")
    loop = max(innermost_loops(text), key=lambda lines: sum("fmla" in line for line in lines))
    sums = [line for line in loop if line.startswith("fmla\t")]
    assert len(sums) >= 8
    assert all(re.match(r"fmla\tv\d+\.8h,", line) for line in sums)
    assert not {"fcvtl", "fcvtl2", "fcvtn", "fadd"} & {line.split()[0] for line in loop}


@pytest.mark.parametrize(
    ("name", "what", "instruction"),
    [
        ("cortex-a53", "int8", "sdot"),
        ("neoverse-n1", "bfloat16", "bfdot"),
        ("neoverse-n1", "i8", "usdot"),
        ("neoverse-n1", "int8", "smmla"),
        ("neoverse-n1", "float16", "fmlal"),
    ],
)
def test_a_core_without_the_instruction_does_without(
    name: str, what: str, instruction: str
) -> None:
    assert instruction not in assembly(name, what)


@pytest.mark.parametrize(
    ("name", "instruction"),
    [("neoverse-n1", "fmla"), ("rv64gcv", "vfmadd.vv"), ("wasm32", "f32x4.mul")],
)
@pytest.mark.parametrize("act", ["tanh", "gelu", "exp"])
def test_polynomials_are_computed_in_vectors(name: str, instruction: str, act: str) -> None:
    """tanh, erf and exp in all lanes of a vector, without a call."""
    spec = "softmax:M=32,N=256" if act == "exp" else f"elementwise:M=32,N=256,act={act}"
    target = parse_target(f"cpu:{name}")
    space = cpu_space(parse_spec(spec), target, 1)
    configs = map(space.space.config, space.space.sample(np.random.default_rng(2), 64))
    programs = (space.program(config) for config in configs if "polynomial" in config.values())
    text = compile_program(next(programs), target, "kernel").sources["asm"]
    assert most_in_a_loop(text, instruction) >= 4
    assert not re.search(r"\b(expf|tanhf|erff)\b", text)


def test_one_operation_of_float16_is_done_in_float16() -> None:
    """It is rounded once either way; of several, only the last one is rounded."""
    target = parse_target("cpu:neoverse-n1")
    text = "kernel a(A: f16[256], B: f16[256]) -> (C: f16[256]) {{ C[i] = {} }}"
    for body, in_halves in (("A[i] + B[i]", True), ("A[i] * B[i] + A[i]", False)):
        space = cpu_space(workload_from_notation(text.format(body), {}), target, 1)
        point = space.space.sample(np.random.default_rng(0), 1)[0]
        program = space.program(space.space.config(point))
        assembly_of = compile_program(program, target, "kernel").sources["asm"]
        assert bool(re.search(r"\sfadd\s.*\.8h", assembly_of)) is in_halves


def test_loops_are_seen() -> None:
    text = ".LBB0_1:\n\tmov\n.LBB0_2:\n\tfmla\n\tb.ne .LBB0_2\n\tadd\n\tcbnz x0, .LBB0_1\n"
    assert innermost_loops(text) == [["fmla", "b.ne .LBB0_2"]]
    assert (most_in_a_loop(text, "fmla"), most_in_a_loop(text, "mov")) == (1, 0)
