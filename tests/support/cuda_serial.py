"""CUDA programs run serially on the CPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray

from tests.support.serial_modules import serial, without_instructions
from tuner.lowering.schedule import schedule
from tuner.spaces.program.program import Program
from tuner.workload.arrays import numpy_dtype
from tuner.workload.workload import Workload

# Of each operator odd and prime extents, where nothing divides anything, and round
# ones, where vectors and tensor cores fit.
SPECS = (
    "matmul:M=61,N=67,K=71", "matmul:M=1,N=109,K=64", "matmul:M=33,N=47,K=96,transpose_a=true",
    "matmul:M=64,N=64,K=64,transpose_b=true", "matmul:M=64,N=96,K=32,dtype=float16",
    "matmul:M=17,N=40,K=64,dtype=bfloat16",
    "matmul:M=32,N=40,K=64,dtype=int8", "matmul:M=17,N=40,K=23,dtype=float64",
    "batch_matmul:B=2,M=30,N=40,K=50", "batch_matmul:B=3,M=13,N=19,K=29,transpose_b=true",
    "qdense:M=3,N=50,K=90,bias=true", "qmatmul:M=17,N=40,K=64,bias=true,y_zero=3",
    "qconv2d:N=1,H=7,W=9,CI=4,CO=21,KH=3,KW=3,pad=1,x_zero=9,relu=true",
    "dense:M=20,N=50,K=90,bias=true,act=gelu", "dense:M=1,N=61,K=67,bias=true,act=relu",
    "dense:M=32,N=64,K=32,bias=true",
    "conv1d:N=2,W=29,CI=5,CO=19,KW=3,stride=2,pad=1", "conv1d:N=1,W=32,CI=8,CO=16,KW=3,pad=1",
    "conv2d:N=1,H=15,W=14,CI=6,CO=15,KH=3,KW=3,pad=1,act=relu",
    "conv2d:N=1,H=17,W=16,CI=4,CO=8,KH=3,KW=3,stride=2",
    "conv2d:N=2,H=9,W=7,CI=4,CO=18,KH=3,KW=3,stride=2,pad=1,layout=NCHW,bias=true",
    "conv2d:N=1,H=11,W=13,CI=6,CO=12,KH=3,KW=3,dilation=2,groups=2,pad=2",
    "conv2d:N=1,H=8,W=8,CI=16,CO=32,KH=1,KW=1",
    "conv3d:N=1,D=4,H=5,W=6,CI=3,CO=17,KD=3,KH=3,KW=3,pad=1",
    "conv3d:N=1,D=4,H=4,W=8,CI=4,CO=16,KD=1,KH=3,KW=3,pad=1",
    "conv2d_transpose:N=1,H=5,W=6,CI=3,CO=17,KH=3,KW=3,stride=2,pad=1",
    "conv2d_transpose:N=1,H=8,W=8,CI=4,CO=16,KH=2,KW=2,stride=2",
    "depthwise_conv2d:N=1,H=13,W=11,C=19,KH=3,KW=3,pad=1",
    "depthwise_conv2d:N=1,H=12,W=16,C=8,KH=3,KW=3,pad=1,layout=NCHW",
    "max_pool2d:N=1,H=15,W=15,C=5,KH=3,KW=3,stride=2,pad=1",
    "max_pool2d:N=1,H=16,W=16,C=16,KH=2,KW=2,stride=2",
    "avg_pool2d:N=1,H=13,W=11,C=19,KH=2,KW=2,stride=2,layout=NCHW",
    "avg_pool2d:N=1,H=16,W=16,C=16,KH=2,KW=2,stride=2",
    "global_avg_pool2d:N=2,H=7,W=7,C=19", "global_avg_pool2d:N=2,H=8,W=8,C=32,layout=NCHW",
    "softmax:M=13,N=127", "softmax:M=8,N=512", "log_softmax:M=7,N=64", "log_softmax:M=9,N=131",
    "layer_norm:M=33,N=768", "layer_norm:M=9,N=53", "rms_norm:M=9,N=128", "rms_norm:M=5,N=77",
    "batch_norm:N=2,H=5,W=7,C=19", "batch_norm:N=2,H=8,W=8,C=32",
    "reduce_sum:M=50,N=131,axis=1", "reduce_sum:M=37,N=61,axis=0", "reduce_max:M=50,N=130,axis=0",
    "reduce_max:M=16,N=256,axis=1",
    "reduce_mean:M=37,N=61,axis=0", "reduce_mean:M=32,N=64,axis=1", "transpose:M=45,N=97",
    "transpose:M=64,N=128",
    "elementwise:M=13,N=61,act=gelu", "elementwise:M=32,N=64,act=tanh",
    "bias_act:M=13,N=61,act=relu",
    "bias_act:M=32,N=64,act=gelu,dtype=float16", "attention:B=1,H=2,S=20,D=16",
    "attention:B=1,H=1,S=19,D=16,causal=true",
    "embedding:N=7,V=31,D=19", "embedding:N=16,V=32,D=32",
    "embedding_bag:V=31,D=19,B=5,L=3", "embedding_bag:V=32,D=32,B=4,L=4,mode=mean",
    "segment_reduce:M=5,N=13,D=19", "segment_reduce:M=4,N=16,D=32,mode=max",
    "spmv:M=13,N=11,density=0.2", "spmv:M=16,N=16,density=0.2,lengths=power_law",
    "spmm:M=7,N=11,K=19,density=0.2", "spmm:M=8,N=16,K=32,density=0.2",
    "sddmm:M=7,N=11,K=19,density=0.2", "sddmm:M=8,N=16,K=32,density=0.2",
    "mlp:M=5,K=11,J=19,N=7,gate=true,bias=true,act=relu", "gather_matmul:V=23,M=6,N=9,K=13",
    "scatter_add:M=7,N=19,D=5", "scatter_add:M=5,N=33,D=3,mode=max",
    "slide_layer:B=3,D=7,C=29,L=5,softmax=true", "slide_layer_gradient:B=3,D=7,C=29,L=5",
    "slide_layer_gradient:B=3,D=7,C=29,L=5,of=weights", "simhash:B=3,D=17,T=2,K=5",
    "dwta_hash:B=3,D=17,T=2,K=3",
)  # fmt: skip


def by_operator() -> dict[str, list[str]]:
    by_operator: dict[str, list[str]] = defaultdict(list)
    for spec in SPECS:
        by_operator[spec.partition(":")[0]].append(spec)
    return dict(by_operator)


def run_serially(
    workload: Workload, program: Program, arrays: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """What the program's scheduled module computes on the CPU, by output. Raises
    IllegalSchedule where TVM refuses a step."""
    module = serial(schedule(without_instructions(program), "k").mod)
    library = tvm.tirx.build(module, target=tvm.target.Target({"kind": "llvm", "opt-level": 1}))
    outputs = {
        tensor.name: tvm.runtime.tensor(np.full(tensor.shape, 77, numpy_dtype(tensor.dtype)))
        for tensor in map(workload.expression.tensor, workload.expression.outputs)
    }
    given = [tvm.runtime.tensor(arrays[tensor.name]) for tensor in workload.expression.inputs]
    library["k"](*given, *outputs.values())
    return {name: held.numpy() for name, held in outputs.items()}
