"""The contract of an architecture, kept by every row of the table."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm.target import codegen

from tuner.cost_model.features import ESTIMATE, featurizer
from tuner.lowering.compiler import compile_program
from tuner.spaces.by_target import cpu_space
from tuner.target import architectures
from tuner.target.architectures.architecture import Architecture
from tuner.target.architectures.generic import archspec_name
from tuner.target.architectures.table import ARCHITECTURES, isa_of
from tuner.target.processor import Processor
from tuner.target.target import Target
from tuner.workload.spec import parse_spec

FOLDER = Path(architectures.__file__).parent
# The first name of each; others are the same object.
NAMES = tuple({id(of): name for name, of in reversed(tuple(ARCHITECTURES.items()))}.values())
OWN_NAMES = tuple(n for n in NAMES if ARCHITECTURES[n].llvm_cpu is not archspec_name)
CONFIGS = 8
every_architecture = pytest.mark.parametrize("name", NAMES)


def triple(name: str) -> str:
    return ARCHITECTURES[name].triple or f"{name}-linux-gnu"


def richest(name: str) -> tuple[str, ...]:
    """All features of an architecture, in LLVM's spelling."""
    return tuple(sorted(ARCHITECTURES[name].features.values()))


def target_of(name: str, features: tuple[str, ...]) -> Target:
    """A core with these features. LLVM compiles for the least that the architecture has."""
    described = ARCHITECTURES[name].describe(features, "")
    return Target(
        key=name,
        kind="cpu",
        name=name,
        tvm={"kind": "llvm", "mtriple": triple(name)},
        isa=features,
        vector_bytes=described.vector_bytes,
        vector_registers=described.vector_registers,
        cores=4,
        l1d_bytes=32 << 10,
        l2_bytes=512 << 10,
        l3_bytes=4 << 20,
        fingerprint={"architecture": name},
    )


def test_every_folder_has_a_row() -> None:
    folders = {path.parent.name for path in FOLDER.glob("*/architecture.py")}
    assert folders
    for folder in folders:
        module = import_module(f"{architectures.__name__}.{folder}.architecture")
        declared = [value for value in vars(module).values() if isinstance(value, Architecture)]
        assert declared and all(value in ARCHITECTURES.values() for value in declared), (
            f"{folder} has no row in tuner/target/architectures/table.py"
        )


@every_architecture
def test_llvm_knows_its_features(name: str) -> None:
    options = {"kind": "llvm", "mtriple": triple(name)}
    attributes = [f"+{feature}" for feature in richest(name)]
    features = codegen.llvm_get_cpu_features(tvm.target.Target({**options, "mattr": attributes}))
    assert set(richest(name)) <= set(map(str, features))


@pytest.mark.parametrize("name", OWN_NAMES)
@pytest.mark.parametrize("flags", ["none", "all"])
def test_llvm_knows_the_processors_that_it_names(name: str, flags: str) -> None:
    architecture = ARCHITECTURES[name]
    processor = Processor(
        architecture=name,
        vendor="",
        family=0,
        model=0,
        stepping=0,
        model_name="",
        flags=frozenset(architecture.features if flags == "all" else ()),
    )
    known_to_llvm = codegen.llvm_get_cpu_archlist(
        tvm.target.Target({"kind": "llvm", "mtriple": triple(name)})
    )
    assert architecture.llvm_cpu(processor) in set(map(str, known_to_llvm))


@every_architecture
def test_more_features_describe_no_less(name: str) -> None:
    architecture = ARCHITECTURES[name]
    least, most = architecture.describe((), ""), architecture.describe(richest(name), "")
    assert most.features == richest(name) and not least.features
    assert 1 <= least.vector_bytes <= most.vector_bytes
    assert 1 <= least.vector_registers <= most.vector_registers
    assert set(least.dot_products) <= set(most.dot_products)
    assert set(least.matrix_units) <= set(most.matrix_units)


@every_architecture
def test_its_instructions_come_with_its_features_and_fit_its_vectors(name: str) -> None:
    described = ARCHITECTURES[name].describe(richest(name), "")
    for dot in described.dot_products:
        assert dot.features and dot.features <= set(richest(name)), dot.name
        assert dot.lanes * np.dtype(dot.accumulator).itemsize <= described.vector_bytes, dot.name
    for unit in described.matrix_units:
        assert unit.feature in richest(name)


@every_architecture
@pytest.mark.parametrize("features", ["least", "richest"])
def test_its_targets_have_a_space_an_estimate_and_object_code(name: str, features: str) -> None:
    target = target_of(name, richest(name) if features == "richest" else ())
    assert isa_of(target).features == target.isa
    space = cpu_space(parse_spec("matmul:M=24,N=40,K=32"), target, 2)
    points = space.space.sample(np.random.default_rng(1), CONFIGS)
    described = featurizer(space)(points)
    assert np.isfinite(described).all()
    assert len(np.unique(described[:, ESTIMATE])) > 1
    code = compile_program(space.program(space.space.config(points[0])), target, "kernel")
    assert code.object_code.startswith((b"\x7fELF", b"\0asm"))
