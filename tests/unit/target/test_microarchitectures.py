"""Declared CPUs: the table is consistent, LLVM has its cores, and users can add to it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm.target import codegen

from tests.support.targets import ZEN5, host_target
from tuner.cost_model.features import ESTIMATE, featurizer
from tuner.errors import UsageError
from tuner.lowering.compiler import LISTS, BuildError, compile_program
from tuner.spaces.by_target import cpu_space
from tuner.target.architectures.aarch64.architecture import SVE
from tuner.target.architectures.table import ARCHITECTURES, isa_of
from tuner.target.capability import called, is_declared, refuse_unmeasured, serves
from tuner.target.detect import declared_targets, parse_target
from tuner.target.document import target_from_document, target_to_document
from tuner.target.microarchitectures import declared_cpus, shipped
from tuner.target.target import Target
from tuner.workload.spec import parse_spec

NAMES = tuple(shipped())
every_name = pytest.mark.parametrize("name", NAMES)
MACHINE = {"x86_64": 62, "aarch64": 183, "riscv64": 243}  # e_machine of ELF objects
FULL = """
[board]
describes = "a board"
architecture = "aarch64"
mcpu = "cortex-a76"
features = ["neon", "dotprod"]
vector_bytes = 16
vector_registers = 32
cores = 4
l1d_bytes = 65536
l2_bytes = 262144
l3_bytes = 0
line_bytes = 128
page_bytes = 16384
load_ports = 3
line_fill_buffers = 7
fma_units = 4
wide_fma_units = 4
non_temporal_stores = false
prefetch = false
"""


def file_of(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "boards.toml"
    path.write_text(text)
    return path


@every_name
def test_llvm_has_the_core_and_the_features(name: str) -> None:
    target = parse_target(f"cpu:{name}")
    options: dict[str, Any] = dict(target.tvm)
    for option in LISTS:
        if option in options:
            options[option] = str(options[option]).split(",")
    of_llvm = tvm.target.Target(options)
    assert target.tvm["mcpu"] in set(map(str, codegen.llvm_get_cpu_archlist(of_llvm)))
    features = set(map(str, codegen.llvm_get_cpu_features(of_llvm)))
    assert set(target.isa) <= features | {"sse", "sse2", *SVE.lengths.values()}


@every_name
def test_it_agrees_with_what_its_features_give(name: str) -> None:
    cpu, target = shipped()[name], parse_target(f"cpu:{name}")
    described = ARCHITECTURES[cpu.architecture].describe(target.isa, cpu.mcpu)
    assert (cpu.vector_bytes, cpu.vector_registers) == (
        described.vector_bytes,
        described.vector_registers,
    )
    stated = isa_of(target)
    assert stated.dot_products == described.dot_products
    assert stated.matrix_units == described.matrix_units
    for field in ("load_ports", "fma_units", "wide_fma_units", "line_fill_buffers", "page_bytes"):
        assert getattr(stated, field) == getattr(cpu, field), field
    assert (stated.prefetch, stated.non_temporal_stores) == (cpu.prefetch, cpu.non_temporal_stores)


@pytest.mark.parametrize(
    "name", ["cortex-a53", "neoverse-v2", "a64fx", "apple-m1", "rv64gcv", "x86-64-v3"]
)
def test_its_kernels_are_objects_of_its_architecture(name: str) -> None:
    target = parse_target(f"cpu:{name}")
    space = cpu_space(parse_spec("matmul:M=24,N=40,K=32"), target, 2)
    points = space.space.sample(np.random.default_rng(1), 4)
    estimate = featurizer(space)(points)[:, ESTIMATE]
    assert np.isfinite(estimate).all() and len(np.unique(estimate)) > 1
    program = space.program(space.space.config(points[0]))
    code = compile_program(program, target, "kernel").object_code
    assert int.from_bytes(code[18:20], "little") == MACHINE[shipped()[name].architecture]


def test_the_estimate_follows_the_table_alone() -> None:
    spec = parse_spec("matmul:M=64,N=64,K=64")
    target = parse_target("cpu:neoverse-n1")
    points = cpu_space(spec, target, 1).space.sample(np.random.default_rng(1), 8)

    def estimate(of: Target) -> np.ndarray:
        return np.asarray(featurizer(cpu_space(spec, of, 1))(points)[:, ESTIMATE])

    doubled = replace(target, fingerprint={**target.fingerprint, "fma_units": 4, "load_ports": 4})
    assert (estimate(doubled) != estimate(target)).any()
    assert (estimate(target) == estimate(target_from_document(target_to_document(target)))).all()


def test_keys_are_stable_and_apart() -> None:
    targets = declared_targets()
    assert len({target.key for target in targets}) == len(targets)
    assert parse_target("cpu:neoverse-n1").key == parse_target("CPU:neoverse-n1 ").key


def machine_of(name: str, **changes: str | int) -> Target:
    """A machine with that core, as detection describes it."""
    cpu = parse_target(f"cpu:{name}")
    fingerprint = {"architecture": cpu.fingerprint["architecture"], "mcpu": cpu.tvm["mcpu"]}
    return replace(cpu, key="seen", name="seen", fingerprint={**fingerprint, **changes})


@pytest.mark.parametrize(
    ("machine", "target", "served"),
    [
        ("neoverse-n1", "neoverse-n1", True),
        ("neoverse-v2", "neoverse-n1", False),
        ("znver4", "x86-64-v3", True),
        ("znver3", "x86-64-v4", False),
        ("znver4", "znver5", False),
        ("neoverse-n1", "x86-64-v2", False),
    ],
)
def test_a_machine_serves_its_core_and_the_classes_it_belongs_to(
    machine: str, target: str, served: bool
) -> None:
    assert serves(machine_of(machine), parse_target(f"cpu:{target}")) is served


def test_a_class_serves_nobody_and_is_called_as_the_command_takes_it() -> None:
    target = parse_target("cpu:x86-64-v3")
    assert not serves(target, parse_target("cpu:x86-64-v2"))
    assert is_declared(target) and not is_declared(ZEN5) and not is_declared(host_target())
    assert called(target) == "cpu:x86-64-v3"


def test_modules_are_not_measured_and_the_way_out_is_named() -> None:
    for name in NAMES:
        if name != "wasm32":
            refuse_unmeasured(parse_target(f"cpu:{name}"))
    with pytest.raises(UsageError, match=r"tuner export SPEC --target cpu:wasm32 -o DIR"):
        refuse_unmeasured(parse_target("cpu:wasm32"))


def test_a_file_of_further_cpus(tmp_path: Path) -> None:
    text = FULL + '[half]\nbased_on = "board"\nl2_bytes = 131072\n[n1]\nbased_on = "neoverse-n1"\n'
    path = file_of(tmp_path, text)
    board = isa_of(parse_target("cpu:board", path))
    assert (board.line_bytes, board.page_bytes, board.fma_units) == (128, 16384, 4)
    assert not board.prefetch and [dot.name for dot in board.dot_products] == ["sdot", "udot"]
    assert parse_target("cpu:half", path).l2_bytes == 131072
    assert parse_target("cpu:n1", path).key != parse_target("cpu:neoverse-n1").key
    assert set(declared_cpus(path)) == {*shipped(), "board", "half", "n1"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[board", "is no TOML"),
        ("board = 1", "'board' is no entry"),
        ("[neoverse-n1]", "a name of tuner's own"),
        ('[a]\nbased_on = "b"', "names 'b'"),
        ("[a]\ncores = 4", "describes is missing"),
        (FULL + "colour = 1", "'colour' is no field"),
        (FULL.replace("cores = 4", "cores = 0"), "cores is 0"),
        (FULL.replace("cores = 4", "cores = true"), "cores is True"),
        (FULL.replace("cores = 4", f"cores = {1 << 41}"), f"from 1 to {1 << 40}"),
        (FULL.replace("vector_bytes = 16", "vector_bytes = 24"), "power of two"),
        (FULL.replace("vector_bytes = 16", "vector_bytes = 128"), "16, 32 or 64"),
        (FULL.replace("vector_bytes = 16", "vector_bytes = 32"), "32 bytes need sve among"),
        (FULL.replace('"aarch64"', '"mips"'), "architecture 'mips' is unknown"),
        (FULL.replace('["neon", "dotprod"]', '"neon"'), "features must be a list"),
        (FULL.replace("prefetch = false", "prefetch = 0"), "prefetch must be true or false"),
        (FULL.replace('"a board"', '""'), "describes must be a text"),
        ("a = " + "[" * 100_000, "is no TOML"),
    ],
)
def test_a_wrong_file_is_refused_with_the_entry_and_the_field(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(UsageError) as raised:
        parse_target("cpu:board", file_of(tmp_path, text))
    assert said in str(raised.value) and "boards.toml" in str(raised.value)


def compiled(spec: str, target: Target, sketch: str = "") -> str:
    """The assembly of a point of the sketch."""
    space = cpu_space(parse_spec(spec), target, 1)
    configs = map(space.space.config, space.space.sample(np.random.default_rng(1), 200))
    config = next(config for config in configs if sketch in str(config["sketch"]))
    return compile_program(space.program(config), target, "kernel").sources["asm"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (FULL.replace("cortex-a76", "cortex-a99"), "no core 'cortex-a99' of aarch64-linux-gnu"),
        (FULL.replace('"dotprod"', '"dotproducts"'), "no feature 'dotproducts' of aarch64-linux"),
    ],
)
def test_what_llvm_does_not_know_is_refused(tmp_path: Path, text: str, said: str) -> None:
    """Else it would compile for a core of its own choice."""
    target = parse_target("cpu:board", file_of(tmp_path, text))
    with pytest.raises(BuildError, match=f"{said}.*; correct .* of cpu:board"):
        compiled("matmul:M=8,N=8,K=8", target)


def test_an_entry_may_have_what_its_core_lacks(tmp_path: Path) -> None:
    """As a class of Arm cores has."""
    text = FULL.replace("cortex-a76", "generic")
    target = parse_target("cpu:board", file_of(tmp_path, text))
    assert re.search(r"\ssdot\s", compiled("matmul:M=8,N=16,K=16,dtype=int8", target, ":fours_"))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the microarchitectures"):
        declared_cpus(tmp_path / "none.toml")


def test_an_unknown_name_is_refused_with_all_there_are() -> None:
    with pytest.raises(UsageError) as raised:
        parse_target("cpu:neoverse")
    assert all(f"cpu:{name}" in str(raised.value) for name in NAMES)
