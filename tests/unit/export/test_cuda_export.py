"""CUDA kernels exported: the header compiles in C and C++, the package imports, refuses
arrays of the host, and hashes agree.

Calling a function on a device is for a machine with a GPU.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.cuda_modules import MODULE, no_driver
from tests.support.gpu_machine import needs_gpu
from tuner.export.cuda import ExportCudaKernel, export_cuda_library
from tuner.export.errors import ExportRefused
from tuner.lowering.cuda.codegen import cuda_built
from tuner.lowering.cuda.nvcc import cuda_compiler
from tuner.runtime.cuda_driver import Device
from tuner.runtime.cuda_loader import CudaLibrary
from tuner.runtime.toolchain import Toolchain
from tuner.spaces.by_target import space_of
from tuner.target.detect import detect_gpu
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import evaluate
from tuner.workload.spec import parse_spec

KERNEL = ExportCudaKernel(module=MODULE, workload=parse_spec("softmax:M=8,N=4"))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    export_cuda_library(
        [KERNEL], folder / "out", "rowwise", toolchain=Toolchain.find(cache=folder / "cache")
    )
    return folder / "out"


def test_the_manifest_names_every_file_by_its_content(exported: Path) -> None:
    manifest = json.loads((exported / "manifest.json").read_text())
    for name, digest in manifest["files"].items():
        assert hashlib.sha256((exported / name).read_bytes()).hexdigest() == digest
    (function,) = manifest["functions"]
    assert function["architectures"] == ["sm_80", "sm_90"] and function["verified"] is False
    assert function["workload"]["op"] == "softmax" and function["symbol"] == "rows"


PROGRAM = """#include <stdio.h>
#include <string.h>
#include "rowwise.h"
int main(void) {
  int status = rows((const float *)(uintptr_t)4096, (uint16_t *)(uintptr_t)8192, NULL);
  printf("%d %s\\n", status, rowwise_last_error());
  return 0;
}
"""


@no_driver
@pytest.mark.parametrize("compiler", ["cc", "c++"])
def test_a_program_calls_it_and_is_told_that_there_is_no_driver(
    exported: Path, tmp_path: Path, compiler: str
) -> None:
    if (
        compiler == "c++" and shutil.which(compiler) is None
    ):  # the product needs a C compiler, a C++ one only its users do
        pytest.skip("no C++ compiler: c++ is not installed")
    source = tmp_path / ("main.c" if compiler == "cc" else "main.cpp")
    source.write_text(PROGRAM)
    flags = [
        "-Wall",
        "-Werror",
        f"-I{exported}/include",
        f"-L{exported}/lib",
        f"-Wl,-rpath,{exported}/lib",
    ]
    subprocess.run(
        [compiler, *flags, "-o", str(tmp_path / "main"), str(source), "-lrowwise"], check=True
    )
    said = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout
    assert said.startswith("8 NVIDIA's driver cannot be opened")


def test_the_package_needs_nothing_of_ours_and_refuses_the_hosts_arrays(exported: Path) -> None:
    code = (
        "import numpy as np, rowwise, sys\n"
        "try:\n    rowwise.rows(np.zeros((8, 4), np.float32), np.zeros((8, 4), np.float16))\n"
        "except rowwise.ArrayError as error:\n    print(error)\n"
        "print(any(name.startswith('tuner') for name in sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=exported, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        "rows: X is not in memory of a GPU (DLPack's device type is 1)",
        "False",
    ]


def test_what_cannot_be_exported_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    none: list[ExportCudaKernel] = []
    cases = [(none, "out", "lib"), ([KERNEL], "out", "no name"), ([KERNEL], "mine", "lib")]
    for kernels, folder, name in cases:
        with pytest.raises(ExportRefused):
            export_cuda_library(kernels, tmp_path / folder, name)
    assert not (tmp_path / "out").exists()


@needs_gpu
def test_an_exported_kernel_computes_on_the_device(tmp_path: Path) -> None:
    target, workload = detect_gpu(), parse_spec("softmax:M=64,N=256")
    space = space_of(workload, target, 1)
    program = space.program(space.space.config(space.space.unrank(0)))
    module = replace(
        cuda_built(program, target, "kernel", cuda_compiler(tmp_path / "cubins")).module,
        symbol="soft",
    )
    export_cuda_library(
        [ExportCudaKernel(module=module, workload=workload)], tmp_path / "out", "soft"
    )
    arrays: dict[str, Any] = make_inputs(workload.expression, seed=1)
    device = Device()
    addresses = []
    for array in arrays.values():
        addresses.append(device.allocate(array.nbytes))
        device.upload(addresses[-1], array)
    out = device.allocate(64 * 256 * 4)
    CudaLibrary(tmp_path / "out" / "lib" / "libsoft.so").function("soft").launch(
        [*addresses, out], device.stream
    )
    got = device.download(out, (64, 256), np.float32)
    np.testing.assert_allclose(
        got,
        evaluate(workload.expression, arrays)[workload.expression.outputs[0]],
        rtol=1e-4,
        atol=1e-6,
    )
