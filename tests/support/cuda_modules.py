"""Cubins of a module, and machines without a driver."""

from __future__ import annotations

import ctypes
import ctypes.util
from pathlib import Path

import pytest

from tuner.lowering.cuda.nvcc import find_nvcc
from tuner.runtime.cuda_module import CudaModule, Launch
from tuner.workload.expression import Tensor

X = Tensor(name="X", shape=(8, 4), dtype="float32")


T = Tensor(name="T", shape=(8,), dtype="float32")


Y = Tensor(name="Y", shape=(8, 4), dtype="float16")


MODULE = CudaModule(
    symbol="rows",
    inputs=(X,),
    outputs=(Y,),
    workspace=(T,),
    launches=(
        Launch(
            kernel="rows_kernel",
            arguments=("T", "X"),
            grid=(8, 1, 1),
            block=(32, 1, 1),
            shared_bytes=0,
        ),
        Launch(
            kernel="rows_kernel_1",
            arguments=("Y", "T"),
            grid=(2, 1, 1),
            block=(32, 4, 1),
            shared_bytes=65536,
        ),
    ),
    cubins=(("sm_80", b"\x7fELF eighty"), ("sm_90", b"\x7fELF ninety")),
)


no_driver = pytest.mark.skipif(
    ctypes.util.find_library("cuda") is not None, reason="NVIDIA's driver is here"
)


def cuda_headers() -> Path | None:
    """The folder of the toolkit's cuda.h."""
    nvcc = find_nvcc()
    candidates = (
        []
        if nvcc is None
        else [nvcc.resolve().parent.parent / "include", *Path("/usr/local").glob("cuda*/include")]
    )
    return next((folder for folder in candidates if (folder / "cuda.h").is_file()), None)
