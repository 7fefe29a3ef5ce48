"""Kernels for CPUs that are not here, element by element, under QEMU, and modules under Node.

It shows that they are right, and says nothing of their speed.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings

from tests.support.cuda_serial import by_operator
from tests.support.emulated import EMULATORS, NotEmulated, check, needs
from tests.support.random_expressions import expressions
from tuner.errors import IllegalSchedule
from tuner.lowering.compiler import BuildError
from tuner.spaces.by_target import space_of
from tuner.target.detect import parse_target
from tuner.target.target import Target
from tuner.workload.catalogue import CATALOGUE
from tuner.workload.expression import Expression
from tuner.workload.spec import parse_spec, workload_from_expression, workload_from_notation
from tuner.workload.workload import Workload

POINTS = 3  # of each workload
PROGRAMS = 50
ALL_CASES = ("normal", "large", "zeros", "special")
NAMES = ["neoverse-n1", "neoverse-v2", "rv64gcv", "wasm32"]
WITHOUT_FLOAT16 = ("rv64gcv", "wasm32")
every_cpu = pytest.mark.parametrize("name", NAMES)
scalable = pytest.mark.parametrize("name", ["neoverse-v1-sve", "a64fx"])


def check_points(
    workload: Workload, target: Target, count: int, cases: Sequence[str] = ALL_CASES
) -> bool:
    """Whether so many different points ran, or all of a space that has fewer, and were right.

    Points without a schedule are drawn again; so are those that the emulator fails on.
    """
    space = space_of(workload, target, 1).space
    rng = np.random.default_rng(zlib.crc32(workload.spec.encode()))
    drawn = dict.fromkeys(map(tuple, space.sample(rng, 16 * count).tolist()))
    wanted = min(count, space.size)
    for point in drawn:
        if not wanted:
            break
        with suppress(IllegalSchedule, NotEmulated):
            check(target, workload, space.config(np.array(point, np.int32)), cases=cases)
            wanted -= 1
    return not wanted


@every_cpu
@pytest.mark.parametrize(
    "spec", ["matmul:M=33,N=29,K=24", "softmax:M=5,N=53", "dense:M=9,N=24,K=40,dtype=int8"]
)
def test_kernels_are_right(name: str, spec: str) -> None:
    needs(name)
    assert check_points(parse_spec(spec), parse_target(f"cpu:{name}"), 1)


MATRICES = (
    "kernel p(A: {}[{}, 37], B: {}[37, 21]) -> (C: i32[{}, 21]) {{ "
    "C[i, j] += i32(A[i, k]) * i32(B[k, j]) }}"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec",
    [
        "matmul:M=10,N=24,K=128,dtype=int8",
        "matmul:M=5,N=16,K=512,dtype=int8",  # in blocks of the reduction
        "dense:M=9,N=20,K=64,bias=true,act=relu,dtype=int8",
        MATRICES.format("u8", 7, "u8", 7),
        MATRICES.format("u8", 8, "i8", 8),
        "matmul:M=12,N=16,K=30,dtype=bfloat16",
        "conv2d:N=1,H=6,W=5,CI=6,CO=20,KH=3,KW=3,pad=1,dtype=bfloat16",
    ],
)
def test_products_of_small_matrices_are_right(spec: str) -> None:
    needs("neoverse-v2")
    made = workload_from_notation(spec, {}) if spec.startswith("kernel") else parse_spec(spec)
    target = parse_target("cpu:neoverse-v2")
    space = space_of(made, target, 1).space
    configs = (space.config(point) for point in space.sample(np.random.default_rng(4), 400))
    chosen = [config for config in configs if ":mmla_" in str(config["sketch"])][:2]
    if "K=512" in spec:
        chosen = [{**config, "C.mmla_j.depth": 16} for config in chosen]
    for config in chosen:
        compiled = check(target, made, config, cases=("normal", "large"))
        assert "mmla" in compiled.sources["asm"]
    assert chosen


@pytest.mark.slow
def test_widening_products_are_right() -> None:
    needs("neoverse-v2")
    target = parse_target("cpu:neoverse-v2")
    made = parse_spec("matmul:M=9,N=24,K=40,dtype=float16")
    space = space_of(made, target, 1).space
    for point in space.sample(np.random.default_rng(4), 2):
        compiled = check(target, made, space.config(point), cases=ALL_CASES)
        assert "fmlal" in compiled.sources["asm"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec",
    [
        "matmul:M=9,N=40,K=96",
        "matmul:M=9,N=40,K=37",
        "conv2d:N=1,H=8,W=7,CI=32,CO=24,KH=3,KW=3,pad=1",
    ],
)
def test_sums_of_parts_in_float16_are_within_their_numerics(spec: str) -> None:
    needs("neoverse-n1")
    target = parse_target("cpu:neoverse-n1")
    made = parse_spec(f"{spec},dtype=float16,numerics=tensor")
    space = space_of(made, target, 1).space
    configs = (space.config(point) for point in space.sample(np.random.default_rng(4), 100))
    chosen = [config for config in configs if ":float16_" in str(config["sketch"])][:2]
    for config in chosen:
        compiled = check(target, made, config, cases=ALL_CASES)
        assert re.search(r"\sfmla\s.*\.8h", compiled.sources["asm"])
    assert chosen


@every_cpu
def test_several_threads_share_the_work(name: str) -> None:
    needs(name)
    workload, target = parse_spec("matmul:M=64,N=64,K=16"), parse_target(f"cpu:{name}")
    space = space_of(workload, target, 3)
    point = space.space.sample(np.random.default_rng(1), 1)[0]
    check(target, workload, space.space.config(point), threads=3)


def test_a_core_that_lacks_a_feature_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    needs("neoverse-n1")
    monkeypatch.setitem(EMULATORS, "neoverse-n1", ("qemu-aarch64", "-cpu", "cortex-a53"))
    with pytest.raises(AssertionError, match="this CPU lacks dotprod"):
        check(parse_target("cpu:neoverse-n1"), parse_spec("matmul:M=8,N=8,K=8"), None)


@scalable
@pytest.mark.parametrize(
    ("spec", "instruction"),
    [
        ("matmul:M=33,N=29,K=24", r"fmla\tz\d+\.s"),
        ("dense:M=9,N=24,K=40,dtype=int8", r"sdot\tz\d+\.s"),
    ],
)
def test_vectors_of_one_length_are_right(name: str, spec: str, instruction: str) -> None:
    needs(name)
    target, made = parse_target(f"cpu:{name}"), parse_spec(spec)
    space = space_of(made, target, 1).space
    configs = map(space.config, space.sample(np.random.default_rng(2), 60))
    sketch = ":fours_" if "int8" in spec else ":tile_"
    config = next(config for config in configs if sketch in str(config["sketch"]))
    assert re.search(instruction, check(target, made, config).sources["asm"])


@pytest.mark.slow
@scalable
@pytest.mark.parametrize(
    "spec",
    [
        "softmax:M=5,N=53",
        "conv2d:N=1,H=7,W=9,CI=5,CO=20,KH=3,KW=3,pad=1",
        "layer_norm:M=7,N=100",
        "transpose:M=37,N=50",
        "elementwise:M=9,N=77,act=gelu",
        "matmul:M=9,N=40,K=37,dtype=float64",
        "matmul:M=9,N=40,K=37,dtype=float16",
        "matmul:M=9,N=40,K=96,dtype=float16,numerics=tensor",
        "matmul:M=9,N=40,K=37,dtype=bfloat16",
        "depthwise_conv2d:N=1,H=8,W=7,C=32,KH=3,KW=3,pad=1,dtype=int8",
        MATRICES.format("u8", 8, "i8", 8),
    ],
)
def test_kernels_with_vectors_of_one_length_are_right(name: str, spec: str) -> None:
    needs(name)
    made = workload_from_notation(spec, {}) if spec.startswith("kernel") else parse_spec(spec)
    assert check_points(made, parse_target(f"cpu:{name}"), 1, ("normal", "large"))


@pytest.mark.parametrize("length", [16, 64])
def test_vectors_of_another_length_are_refused(
    monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    """Where the instructions are all there, and results would be wrong."""
    needs("neoverse-v1-sve")
    other = ("qemu-aarch64", "-cpu", f"max,sve-default-vector-length={length}")
    monkeypatch.setitem(EMULATORS, "neoverse-v1-sve", other)
    with pytest.raises(AssertionError, match="this CPU lacks sve256"):
        check(parse_target("cpu:neoverse-v1-sve"), parse_spec("matmul:M=8,N=8,K=8"), None)


@pytest.mark.slow
@pytest.mark.parametrize("bits", [256, 1024])
@pytest.mark.parametrize(
    "spec", ["matmul:M=33,N=29,K=24", "softmax:M=5,N=53", "transpose:M=37,N=50,dtype=int8"]
)
def test_longer_vectors_of_risc_v_are_right(
    monkeypatch: pytest.MonkeyPatch, bits: int, spec: str
) -> None:
    """Code is for the least length, and a target stands for cores of any."""
    needs("rv64gcv")
    longer = ("qemu-riscv64", "-cpu", f"rv64,v=true,vlen={bits},vext_spec=v1.0")
    monkeypatch.setitem(EMULATORS, "rv64gcv", longer)
    assert check_points(parse_spec(spec), parse_target("cpu:rv64gcv"), 1)


@pytest.mark.parametrize("name", WITHOUT_FLOAT16)
def test_float16_is_refused_where_nothing_converts_it(name: str) -> None:
    target = parse_target(f"cpu:{name}")
    with pytest.raises(BuildError, match=f"float16 needs instructions that cpu:{name} lacks"):
        check(target, parse_spec("matmul:M=8,N=8,K=8,dtype=float16"), None)


@pytest.mark.slow
@pytest.mark.parametrize("operator", [operator.name for operator in CATALOGUE])
def test_every_operator_is_right_in_a_module(operator: str) -> None:
    needs("wasm32")
    workload = parse_spec(by_operator()[operator][0])
    assert check_points(workload, parse_target("cpu:wasm32"), 1, ("normal",))


@pytest.mark.long
@every_cpu
@pytest.mark.parametrize("operator", [operator.name for operator in CATALOGUE])
def test_every_operator_is_right_in_sampled_points(name: str, operator: str) -> None:
    needs(name)
    target = parse_target(f"cpu:{name}")
    specs = by_operator()[operator]
    for spec in specs:
        workload = parse_spec(spec)
        if name in WITHOUT_FLOAT16 and "float16" in spec.replace("bfloat16", ""):
            continue  # refused, which has a test of its own
        assert check_points(workload, target, POINTS), spec


@pytest.mark.long
@every_cpu
def test_random_programs_are_right(name: str) -> None:
    needs(name)
    target = parse_target(f"cpu:{name}")
    shown = 0

    @seed(20)
    @settings(
        max_examples=PROGRAMS * 5 // 4,  # some have no schedule that can be emulated
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(expressions(dtypes=("f32", "f32", "f64", "bf16")))
    def each(expression: Expression) -> None:
        nonlocal shown
        if shown < PROGRAMS:
            shown += check_points(workload_from_expression(expression), target, 1, ("normal",))

    each()
    assert shown == PROGRAMS
