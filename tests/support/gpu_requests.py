"""Requests to measure on a GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.support.targets import SM_90
from tuner.lowering.cuda.nvcc import cuda_compiler
from tuner.measure.assignment import Request
from tuner.runtime.cuda_link import link_cuda
from tuner.runtime.cuda_module import CudaModule, Launch
from tuner.target.detect import detect_gpu
from tuner.target.target import Target
from tuner.workload.spec import parse_spec

KERNEL = (
    'extern "C" __global__ void k(float* Y, float* X) {{ int i = blockIdx.x * 64 + '
    "threadIdx.x; {body} }}"
)


WORKLOAD = "elementwise:M=8,N=64,act=tanh"


def request(folder: Path, body: str, target: Target | None = None) -> Request:
    """A library whose kernel does `body` to element i of X.

    `target`: the GPU; None: this machine's.
    """
    target = target or replace(SM_90, tvm=detect_gpu().tvm)
    expression = parse_spec(WORKLOAD).expression
    outputs = tuple(expression.tensor(name) for name in expression.outputs)
    names = (outputs[0].name, expression.inputs[0].name)
    text = (
        KERNEL.format(body=body)
        .replace("float* Y", f"float* {names[0]}")
        .replace("float* X", f"float* {names[1]}")
    )
    text = text.replace("Y[", f"{names[0]}[").replace("X[", f"{names[1]}[")
    module = CudaModule(
        symbol="k",
        inputs=expression.inputs,
        outputs=outputs,
        workspace=(),
        launches=(
            Launch(kernel="k", arguments=names, grid=(8, 1, 1), block=(64, 1, 1), shared_bytes=0),
        ),
        cubins=(
            (str(target.tvm["arch"]), cuda_compiler(folder / "cubins").compile(text, target).code),
        ),
    )
    path = folder / f"{abs(hash(body))}.so"
    path.write_bytes(link_cuda("lib", [module]))
    return Request(name="k", library=str(path), symbol="k", timeout_s=10.0)
