"""One function compiled for several CPUs: the best that this CPU has all features for
is called, a baseline always answers."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tuner.runtime.link import Function, link, link_static, runtime_sources
from tuner.runtime.loader import Library
from tuner.runtime.portfolio import Portfolio
from tuner.runtime.toolchain import Toolchain
from tuner.target.architectures.x86_64.cpuid import CPUID, LEVELS
from tuner.workload.expression import Tensor
from tuner.workload.rows import Rows

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="features are checked on x86-64 alone"
)

FIRST, SECOND, LAST = (
    ("sse2", "ssse3", "sse4.2"),
    ("sse2", "ssse3"),
    ("sse2",),
)  # every CPU of this century has them
Multiply = Callable[..., Function]


@pytest.fixture
def multiply(function: Callable[..., Function], toolchain: Toolchain) -> Multiply:
    """`multiply(3, isa)` multiplies by 3, so that the answer tells which kernel was called."""

    def make(
        factor: int, isa: tuple[str, ...], variants: tuple[Function, ...] = (), count: int = 1024
    ) -> Function:
        text = f"""#include "tvm_abi.h"
        __attribute__((visibility("default"))) int main_entry(void *s, const TunerAny *a, int32_t n, TunerAny *r) {{
          const float *in = ((TunerDLTensor *)a[0].value.v_ptr)->data;
          float *out = ((TunerDLTensor *)a[1].value.v_ptr)->data;
          for (int i = 0; i < {count}; ++i) out[i] = {factor} * in[i];
          (void)s, (void)n, (void)r;
          return 0;
        }}"""  # noqa: E501
        code = toolchain.compile(
            "factor.c", text, {"tvm_abi.h": runtime_sources()["tvm_abi.h"]}
        ).read_bytes()
        shape = {"shape": (count // 16, 16), "dtype": "float32"}
        return replace(
            function("double", isa=isa),
            inputs=(Tensor(name="X", **shape),),  # type: ignore[arg-type]  # the shape's and dtype's types, told apart by name
            outputs=(Tensor(name="Y", **shape),),  # type: ignore[arg-type]  # as above
            object_code=code,
            tvm_symbol="main_entry",
            variants=variants,
            symbol="times",
        )

    return make


CALLER = """
import sys
import numpy as np
from tuner.runtime.loader import Library, LibraryError
library = Library(sys.argv[1])
function = library.function("times")
for _ in range(2):
    try:
        print(function(np.ones(tuple(int(extent) for extent in sys.argv[2:]), np.float32)).reshape(-1)[0])
    except LibraryError as error:
        print(error.kind, error)
"""  # noqa: E501


def answers(path: Path, shape: tuple[int, ...], without: str) -> list[str]:
    """What two calls give in a process whose CPU is made to lack features."""
    environment: Mapping[str, str] = {**os.environ, "TUNED_CPU_WITHOUT": without}
    command = [sys.executable, "-c", CALLER, str(path), *map(str, shape)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.splitlines()


CASES = {"": "3.0", "sse4.2": "5.0", "avx512f,ssse3": "7.0", "sse4.2,ssse3,": "7.0", "sse4": "3.0"}


@pytest.mark.parametrize("without", CASES)
def test_the_best_kernel_that_the_cpu_can_run_answers(
    multiply: Multiply, toolchain: Toolchain, tmp_path: Path, without: str
) -> None:
    function = multiply(3, FIRST, (multiply(5, SECOND), multiply(7, LAST)))
    path = tmp_path / "libkit.so"
    path.write_bytes(link("kit", [function], toolchain=toolchain))
    assert answers(path, (64, 16), without) == [CASES[without]] * 2
    assert Library(path).signatures["times"].isa == LAST


def test_without_a_baseline_the_missing_feature_is_named(
    multiply: Multiply, toolchain: Toolchain, tmp_path: Path
) -> None:
    path = tmp_path / "libkit.so"
    path.write_bytes(link("kit", [multiply(3, FIRST, (multiply(5, SECOND),))], toolchain=toolchain))
    for line in answers(path, (64, 16), "ssse3"):
        assert line.startswith("isa times: this CPU lacks ssse3")


def test_members_of_a_portfolio_have_variants_too(
    multiply: Multiply, toolchain: Toolchain, tmp_path: Path
) -> None:
    few = multiply(3, FIRST, (multiply(7, LAST, count=32),), count=32)
    many = multiply(3, FIRST, (multiply(7, LAST, count=128),), count=128)
    rows = Rows(name="M", low=1, high=16, ranged=(0, 1))
    plan = tuple(0 if left < 8 else 1 for left in range(17))
    whole = replace(
        many,
        inputs=(Tensor(name="X", shape=(16, 16), dtype="float32"),),
        outputs=(Tensor(name="Y", shape=(16, 16), dtype="float32"),),
        variants=(),
        portfolio=Portfolio(rows=rows, extents=(2, 8), kernels=(few, many), plan=plan),
    )
    path = tmp_path / "libkit.so"
    path.write_bytes(link("kit", [whole], toolchain=toolchain))
    for without, answer in (("", "3.0"), ("sse4.2", "7.0")):
        assert answers(path, (11, 16), without) == [answer] * 2
    assert answers(path, (11, 16), "sse2")[0].startswith("isa ")
    assert link_static("kit", [whole], toolchain=toolchain)


def test_levels_are_features_that_can_be_looked_up() -> None:
    names = list(LEVELS)
    for richer, poorer in pairwise(names):
        assert set(LEVELS[poorer]) < set(LEVELS[richer])
    assert set(LEVELS[names[0]]) <= set(CPUID)
