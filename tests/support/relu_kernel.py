"""A kernel of a catalogue workload written by hand in C, so that whole exports are
tested without a compiler of tensors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.support.targets import host_target
from tuner.export.examples import example_inputs
from tuner.export.kernel import Argument, ExportKernel, TargetName
from tuner.runtime.link import runtime_sources
from tuner.runtime.toolchain import Toolchain
from tuner.workload.spec import parse_spec

SPEC = "elementwise:M=8,N=128,act=relu"
RELU = "y[i] = x[i] < 0 ? 0 : x[i];"  # keeps NaN


def relu_kernel(body: str = RELU) -> ExportKernel:
    """Y = max(X, 0) on 8×128 float32 for this machine; `body` computes element i of
    1024, on pointers x and y."""
    workload, machine = parse_spec(SPEC), host_target()
    text = (
        '#include "tvm_abi.h"\n'
        '__attribute__((visibility("default")))\n'
        "int __tvm_ffi_main(void *self, const TunerAny *arguments, int32_t count, TunerAny "
        "*result) {\n"
        "  (void)self, (void)count, (void)result;\n"
        "  const float *x = ((TunerDLTensor *)arguments[0].value.v_ptr)->data;\n"
        "  float *y = ((TunerDLTensor *)arguments[1].value.v_ptr)->data;\n"
        f"  for (int i = 0; i < 1024; ++i) {{ {body} }}\n"
        "  return 0;\n}\n"
    )
    headers = {"tvm_abi.h": runtime_sources()["tvm_abi.h"]}
    made = ExportKernel(
        workload_key=workload.key,
        op=workload.op,
        params=workload.params,
        arguments=(
            Argument(name="X", dtype="float32", shape=(8, 128), role="in"),
            Argument(name="Y", dtype="float32", shape=(8, 128), role="out"),
        ),
        target=TargetName.of(machine),
        isa=(),
        threads=1,
        object_code=Toolchain.find().compile("kernel.c", text, headers).read_bytes(),
        tvm_symbol="__tvm_ffi_main",
        median_s=1e-7,
        ci95_s=(0.9e-7, 1.1e-7),
        verified=True,
        max_rel_error=0.0,
        provenance={"job": "j1", "trial": 3, "trace": [], "versions": {"tuner": "0.1"}},
    )
    return replace(made, expected=(np.maximum(example_inputs(made)[0].astype(np.float64), 0),))
