"""Kernels for CPUs that are not here, run by QEMU's user-mode emulation, and modules by Node.

It shows that code is right, and says nothing of its speed. A driver in C, cross-compiled
as libraries are, loads the library that the product links and calls it on files; one in
JavaScript does so with a module and its loader.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner.export.template import fill
from tuner.lowering.compiler import Compiled, compile_kernel
from tuner.measure.check import check_output
from tuner.measure.problem import Problem
from tuner.runtime.link import Function, link, link_module, toolchain_for
from tuner.runtime.toolchain import LinkError, Toolchain, run
from tuner.spaces.core.space import Config
from tuner.target.architectures.table import architecture_of
from tuner.target.detect import parse_target
from tuner.target.target import Target
from tuner.workload.arrays import numpy_dtype
from tuner.workload.workload import Workload

DRIVER = Path(__file__).with_name("emulated.c")
MODULE_DRIVER = DRIVER.with_name("module_driver.mjs")
TIMEOUT_S = 120.0
# QEMU 7.2 has no Neoverse V2; all that it can do has vectors of 128 bits here, as that core.
EMULATORS: dict[str, tuple[str, ...]] = {
    "neoverse-n1": ("qemu-aarch64", "-cpu", "neoverse-n1"),
    "neoverse-v2": ("qemu-aarch64", "-cpu", "max,sve-default-vector-length=16"),
    "neoverse-v1-sve": ("qemu-aarch64", "-cpu", "max,sve-default-vector-length=32"),
    "a64fx": ("qemu-aarch64", "-cpu", "a64fx"),  # its vectors are 64 bytes, QEMU's default
    "rv64gcv": ("qemu-riscv64", "-cpu", "rv64,v=true,vlen=128,vext_spec=v1.0"),
    "wasm32": ("node",),
}
# What QEMU 7.2 stops with where a conversion towards zero begins a block that it translates:
# it notes the instruction twice (target/riscv/translate.c).
QEMUS_OWN = "decode_save_opc: Assertion"
Array = np.ndarray[Any, np.dtype[Any]]


class NotEmulated(Exception):
    """QEMU itself failed, which says nothing of the kernel."""


def needs(name: str) -> None:
    """Skips the test where the machine has no emulator or no cross compiler."""
    emulator = EMULATORS[name][0]
    if shutil.which(emulator) is None:
        pytest.skip(f"{emulator} is not installed")
    try:
        toolchain_for(parse_target(f"cpu:{name}"))
    except LinkError as error:
        pytest.skip(str(error))


def emulator(target: Target) -> tuple[str, ...]:
    """The command that runs programs of a declared target."""
    architecture = architecture_of(target)
    command = EMULATORS[str(target.fingerprint["declared"])]
    return command if architecture.freestanding else (*command, "-L", f"/usr/{architecture.triple}")


def library_of(compiled: Compiled, workload: Workload, target: Target, threads: int = 1) -> bytes:
    expression, tools = workload.expression, toolchain_for(target)
    make = link_module if tools.freestanding else link
    return make(
        "emulated",
        [
            Function(
                symbol="kernel",
                inputs=expression.inputs,
                outputs=tuple(expression.tensor(name) for name in expression.outputs),
                object_code=compiled.object_code,
                isa=target.isa,
                threads=threads,
                tvm_symbol=f"__tvm_ffi_{compiled.symbol}",
            )
        ],
        toolchain=tools,
    )


def call(
    target: Target, library: bytes, workload: Workload, inputs: Sequence[Array]
) -> list[Array]:
    """The outputs of a library's function `kernel`."""
    expression = workload.expression
    outputs = [expression.tensor(name) for name in expression.outputs]
    with tempfile.TemporaryDirectory(prefix="tuner-emulated-") as folder:
        path = Path(folder, "libemulated.so")
        if toolchain_for(target).freestanding:
            path = Path(folder, "emulated.wasm")
            loader = fill("module.mjs.in", name="emulated", functions="")
            path.with_suffix(".mjs").write_text(loader)
        path.write_bytes(library)
        words = []
        for number, array in enumerate(inputs):
            Path(folder, f"{number}").write_bytes(array.tobytes())
            words.append(f"in:{array.nbytes}:{folder}/{number}")
        words += [f"out:{tensor.nbytes}:{folder}/{tensor.name}" for tensor in outputs]
        done = subprocess.run(
            [*emulator(target), str(_driver(target)), str(path), "kernel", *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
        if QEMUS_OWN in done.stderr:
            raise NotEmulated(done.stderr)
        assert done.returncode == 0, f"status {done.returncode}: {done.stderr}"
        return [
            np.frombuffer(
                Path(folder, tensor.name).read_bytes(), numpy_dtype(tensor.dtype)
            ).reshape(tensor.shape)
            for tensor in outputs
        ]


def check(
    target: Target,
    workload: Workload,
    config: Config | None,
    *,
    threads: int = 1,
    cases: Sequence[str] = ("normal",),
) -> Compiled:
    """Compiles the config and checks each element of its outputs in all cases."""
    compiled = compile_kernel(
        workload=workload, target=target, threads=threads, config=config, symbol="tuned"
    )
    library = library_of(compiled, workload, target, threads)
    problem = Problem(workload, seed=7)
    try:
        for case in problem.cases([name for name in cases if name in problem.promotion_cases]):
            got = call(target, library, workload, case.pristine)
            for array, expected in zip(got, case.expected, strict=True):
                check_output(array, expected, case.name)
    finally:
        problem.close()
    return compiled


def _driver(target: Target) -> Path:
    tools = toolchain_for(target)
    return MODULE_DRIVER if tools.freestanding else _compiled_driver(tools)


@cache
def _compiled_driver(tools: Toolchain) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="tuner-driver-"))
    run([*tools.command, "-O1", "-Wall", str(DRIVER), "-ldl", "-o", str(folder / "driver")])
    return folder / "driver"
