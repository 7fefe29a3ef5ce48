"""docs/how-to/add-an-architecture.md, carried out on a copy of the source."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import how_to

pytestmark = pytest.mark.slow

FOLDER = "tuner/target/architectures"
CPUINFO = """\
system type\t\t: generic-loongson-machine

processor\t\t: 0
CPU Family\t\t: Loongson-64bit
Model Name\t\t: Loongson-3A6000
Features\t\t: cpucfg lam ual fpu lsx lasx crc32 complex crypto lvz lbt_x86
"""
# From /proc/cpuinfo to vector instructions, through detection, space and cost model.
CARRIED = """
import platform, sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from tuner.cost_model.features import ESTIMATE, featurizer
from tuner.lowering.compiler import compile_program
from tuner.spaces.by_target import space_of
from tuner.spaces.core.roles import KnobRole
from tuner.target.architectures.table import isa_of
from tuner.target.detect import detect_cpu
from tuner.target.roofline import relative_rate
from tuner.workload.spec import parse_spec

platform.machine = lambda: "loongarch64"
target = detect_cpu(Path(sys.argv[1]))
assert target.tvm["mcpu"] == "la664" and target.isa == ("lasx", "lsx", "ual")
assert (target.vector_bytes, target.vector_registers) == (32, 32)
assert not isa_of(target).non_temporal_stores
assert relative_rate("float32", target) == 1.0

target = replace(target, tvm={**target.tvm, "mtriple": "loongarch64-linux-gnu"})
large = space_of(parse_spec("elementwise:M=4096,N=4096,act=relu"), target, 1).space
assert KnobRole.PREFETCH in {knob.role for knob in large.knobs}
assert KnobRole.STORE_MODE not in {knob.role for knob in large.knobs}

space = space_of(parse_spec("matmul:M=64,N=64,K=64"), target, 1)
points = space.space.sample(np.random.default_rng(0), 64)
features = featurizer(space)(points)
assert np.isfinite(features).all()
fastest = points[features[:, ESTIMATE].argmin()]
kernel = compile_program(space.program(space.space.config(fastest)), target, "kernel")
assert "xvfmadd.s" in kernel.sources["asm"], kernel.sources["asm"]
print("carried")
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root, edited = how_to.carry_out("add-an-architecture.md", tmp_path_factory.mktemp("page"))
    assert set(edited) == {
        f"{FOLDER}/loongarch64/__init__.py",
        f"{FOLDER}/loongarch64/architecture.py",
        f"{FOLDER}/table.py",
    }
    return root


def test_the_architecture_keeps_the_contract(source: Path) -> None:
    suite = ("-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-k", "loongarch64 or folder")
    assert " passed" in how_to.run(source, *suite, "tests/contracts/test_architecture.py")


def test_a_forgotten_row_is_noticed(source: Path, tmp_path: Path) -> None:
    table = source / FOLDER / "table.py"
    kept = table.read_text()
    rows = (line for line in kept.splitlines(keepends=True) if '"loongarch64"' not in line)
    suite = ("-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-k", "folder")
    try:
        table.write_text("".join(rows))
        with pytest.raises(AssertionError, match="loongarch64 has no row"):
            how_to.run(source, *suite, "tests/contracts/test_architecture.py")
    finally:
        table.write_text(kept)


def test_a_detected_processor_gets_its_vector_instructions(source: Path, tmp_path: Path) -> None:
    cpuinfo = tmp_path / "proc/cpuinfo"
    cpuinfo.parent.mkdir()
    cpuinfo.write_text(CPUINFO)
    assert "carried" in how_to.run(source, "-c", CARRIED, str(tmp_path))
