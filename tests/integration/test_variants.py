"""Kernels compiled for lesser CPUs beside this machine's own: each is right under its
features, in one library."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.targets import host_target
from tuner.app.export.variants import VariantMaker, checked_levels
from tuner.app.races.race import PLAN
from tuner.errors import UsageError
from tuner.export.examples import expected_outputs
from tuner.export.kernel import ExportKernel, TargetName, arguments_of
from tuner.export.library import export_library
from tuner.lowering.compiler import compile_kernel
from tuner.settings import Settings
from tuner.spaces.by_target import space_of
from tuner.target.architectures.x86_64.cpuid import LEVELS
from tuner.workload.spec import parse_spec

MACHINE = host_target()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        platform.machine() != "x86_64" or "avx2" not in MACHINE.isa,
        reason="the levels tried here need an x86-64 with AVX2",
    ),
]
SPECS = [
    "matmul:M=24,N=40,K=36",
    "dense:M=5,N=24,K=33,bias=true,act=gelu,dtype=float16",
    "conv2d:N=1,H=9,W=9,CI=8,CO=16,KH=3,KW=3,pad=1,const=W",
    "softmax:M=7,N=33,dtype=bfloat16",
]


def widened(spec: str, levels: VariantMaker) -> ExportKernel:
    workload = parse_spec(spec)
    space = space_of(workload, MACHINE, 1).space
    configs = (space.config(space.sample(np.random.default_rng(seed), 1)[0]) for seed in range(20))
    made = (
        compile_kernel(
            workload=workload, target=MACHINE, threads=1, config=config, symbol="tuned_kernel"
        )
        for config in configs
    )
    compiled = next(
        compiled_kernel
        for compiled_kernel in made
        if compiled_kernel.prepack is not None or "const" not in spec
    )
    expression = workload.expression
    kernel = ExportKernel(
        workload_key=workload.key, op=workload.op, params=workload.params,
        constants=workload.constants,
        arguments=arguments_of(expression),
        target=TargetName(key=MACHINE.key, kind="cpu", name=MACHINE.name), isa=MACHINE.isa,
        threads=1,
        object_code=compiled.object_code, tvm_symbol="__tvm_ffi_tuned_kernel",
        prepack=compiled.prepack,
        median_s=1e-6, ci95_s=(1e-6, 1e-6), verified=True, max_rel_error=0.0,
    )  # fmt: skip
    done = levels(kernel, workload, {**asdict(compiled.schedule), "symbol": "tuned_kernel"})
    return replace(done, expected=expected_outputs(expression, done))


@pytest.fixture(scope="module")
def kernels() -> list[ExportKernel]:
    names = checked_levels("x86-64,x86-64-v3", MACHINE)
    with VariantMaker(
        names, MACHINE, Settings(run_timeout_s=30.0), replace(PLAN, budget_s=0.01)
    ) as levels:
        return [widened(spec, levels) for spec in SPECS]


@pytest.fixture(scope="module")
def exported(kernels: list[ExportKernel], tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("variants") / "kit"
    export_library(kernels, directory, "kit")
    return directory


@pytest.mark.parametrize("level", ["this machine", "x86-64-v3", "x86-64-v2", "x86-64", "none"])
def test_every_cpu_gets_right_answers_or_is_refused(exported: Path, level: str) -> None:
    has = {"this machine": set(MACHINE.isa), "none": set[str]()}.get(level) or set(
        LEVELS.get(level, ())
    )
    every = {feature for features in (MACHINE.isa, *LEVELS.values()) for feature in features}
    environment = {
        **os.environ,
        "TUNED_CPU_WITHOUT": ",".join(sorted(every - has)) if level != "this machine" else "",
    }
    command = [sys.executable, str(exported / "examples" / "example.py")]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    if level == "none":
        assert (
            done.returncode == 1
            and "LibraryError" in done.stderr
            and "this CPU lacks sse" in done.stderr
        )
    else:
        assert done.returncode == 0, done.stderr + done.stdout
        assert done.stdout.count("largest error") == len(SPECS)


def test_the_code_of_a_level_has_none_of_the_registers_beyond_it(
    kernels: list[ExportKernel], tmp_path: Path
) -> None:
    beyond = {
        "x86-64-v3": re.compile(r"%zmm|%k[1-7]\b|%[xy]mm(1[6-9]|2\d|3[01])"),
        "x86-64": re.compile(r"%[yz]mm|%k[1-7]\b|\tv"),
    }
    for kernel in kernels:
        for variant in kernel.variants:
            (tmp_path / "code.o").write_bytes(variant.object_code)
            command = ["objdump", "-d", "--no-show-raw-insn", "code.o"]
            code = subprocess.run(
                command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
            ).stdout
            assert len(code.splitlines()) > 50 and beyond[variant.name].search(code) is None


def test_the_manifest_says_what_is_called_where(exported: Path) -> None:
    for function in json.loads((exported / "manifest.json").read_text())["functions"]:
        assert function["isa"] == list(LEVELS["x86-64"])
        assert [variant["name"] for variant in function["variants"]][1:] == ["x86-64-v3", "x86-64"]
        assert all(variant["median_s"] > 0 for variant in function["variants"])
    header = (exported / "include" / "kit.h").read_text()
    assert header.count("Compiled for CPUs of level x86-64-v3 and x86-64 besides") == len(SPECS)
    assert header.count("Needs CPU features: sse, sse2.") == len(SPECS)


def test_levels_that_cannot_be_are_refused() -> None:
    with pytest.raises(UsageError, match=r"unknown level 'avx2'; give one or more of x86-64-v4"):
        checked_levels("x86-64,avx2", MACHINE)
    with pytest.raises(UsageError, match="unknown level"):
        checked_levels(",", MACHINE)
    poorer = replace(
        MACHINE, isa=tuple(feature for feature in MACHINE.isa if not feature.startswith("avx512"))
    )
    with pytest.raises(UsageError, match="x86-64-v4 needs avx512bw"):
        checked_levels("x86-64-v4", poorer)
    assert checked_levels("x86-64, X86-64-v3", MACHINE) == ("x86-64-v3", "x86-64")
