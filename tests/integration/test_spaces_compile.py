"""Every operator's space, sampled: each config schedules, compiles and computes what
the float64 reference computes."""

from __future__ import annotations

import zlib
from collections import Counter
from typing import Any

import numpy as np
import pytest
import tvm
from numpy.typing import NDArray

from tests.support.spaces import drawn_once
from tests.support.targets import host_target
from tuner.errors import IllegalSchedule
from tuner.lowering.compiler import build
from tuner.lowering.schedule import schedule
from tuner.spaces.by_target import space_of
from tuner.spaces.default_schedule import default_program
from tuner.spaces.program.program import Program
from tuner.workload.arrays import numpy_dtype
from tuner.workload.catalogue import OPERATORS
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import error_bound, evaluate, magnitude, max_rel_error
from tuner.workload.spec import parse_spec
from tuner.workload.workload import Workload

# Odd, prime, tiny and skewed extents on purpose: nothing divides anything.
SPECS = (
    "matmul:M=61,N=67,K=71", "matmul:M=1,N=509,K=64", "matmul:M=3,N=5,K=2",
    "matmul:M=33,N=47,K=96,transpose_a=true",
    "matmul:M=31,N=37,K=41,transpose_b=true", "matmul:M=1,N=61,K=128,transpose_b=true",
    "matmul:M=17,N=40,K=23,dtype=float64",
    "matmul:M=17,N=40,K=23,dtype=float16", "matmul:M=17,N=40,K=64,dtype=bfloat16",
    "matmul:M=17,N=40,K=64,dtype=int8",
    "qdense:M=3,N=45,K=101,bias=true", "qdense:M=1,N=37,K=96,group=16,weight=uint4,act=relu",
    "qdense:M=3,N=37,K=70,group=16,weight=uint4,activations=int8",
    "qdense:M=3,N=37,K=70,group=0,weight=int8,activations=int8",
    "qmatmul:M=17,N=40,K=61,bias=true,y_zero=3",
    "qmatmul:M=5,N=33,K=64,dtype=int8,result=int8,y_zero=-7,relu=true",
    "qconv2d:N=1,H=7,W=9,CI=6,CO=21,KH=3,KW=3,pad=1,x_zero=9,bias=true,relu=true",
    "qconv2d:N=1,H=7,W=9,CI=18,CO=18,KH=3,KW=3,pad=1,groups=18,dtype=int8,x_zero=-9,result=int8",
    "depthwise_conv2d:N=1,H=9,W=11,C=21,KH=3,KW=3,stride=2,pad=1,dtype=int8",
    "qdense:M=2,N=37,K=70,group=0,weight=int8", "qdense:M=2,N=37,K=70,group=16,weight=int8",
    "dense:M=13,N=37,K=70,dtype=int8,bias=true,act=relu",
    "conv2d:N=1,H=7,W=9,CI=6,CO=21,KH=3,KW=3,pad=1,dtype=int8",
    "batch_matmul:B=3,M=13,N=19,K=29", "batch_matmul:B=2,M=7,N=33,K=32,transpose_b=true",
    "dense:M=11,N=45,K=51,bias=true,act=gelu", "dense:M=1,N=61,K=67,bias=true,act=relu",
    "conv1d:N=2,W=29,CI=5,CO=19,KW=3,stride=2,pad=1",
    "conv2d:N=1,H=9,W=11,CI=5,CO=19,KH=3,KW=3,stride=1,pad=1,act=relu",
    "conv2d:N=2,H=9,W=7,CI=4,CO=18,KH=3,KW=3,stride=2,pad=1,layout=NCHW,bias=true",
    "conv2d:N=1,H=11,W=13,CI=6,CO=12,KH=3,KW=3,dilation=2,groups=2,pad=2",
    "conv2d:N=1,H=7,W=7,CI=16,CO=33,KH=1,KW=1",
    "conv3d:N=1,D=4,H=5,W=6,CI=3,CO=17,KD=3,KH=3,KW=3,pad=1",
    "conv2d_transpose:N=1,H=5,W=6,CI=3,CO=17,KH=3,KW=3,stride=2,pad=1",
    "depthwise_conv2d:N=1,H=13,W=11,C=19,KH=3,KW=3,stride=1,pad=1",
    "conv2d:N=1,H=9,W=10,CI=5,CO=19,KH=3,KW=3,pad=1,act=relu,numerics=fast",
    "depthwise_conv2d:N=1,H=13,W=21,C=5,KH=3,KW=3,stride=1,pad=1,layout=NCHW",
    "depthwise_conv2d:N=2,H=15,W=43,C=5,KH=5,KW=5,stride=2,pad=2,layout=NCHW",
    "conv2d:N=1,H=5,W=6,CI=4,CO=37,KH=3,KW=3,layout=NCHW",
    "max_pool2d:N=1,H=19,W=59,C=5,KH=3,KW=3,stride=3,pad=1,layout=NCHW",
    "avg_pool2d:N=1,H=9,W=71,C=3,KH=4,KW=4,stride=4,layout=NCHW",
    "max_pool2d:N=1,H=13,W=11,C=19,KH=3,KW=3,stride=2,pad=1",
    "avg_pool2d:N=1,H=13,W=11,C=19,KH=2,KW=2,stride=2,layout=NCHW",
    "global_avg_pool2d:N=2,H=7,W=7,C=19", "global_avg_pool2d:N=2,H=7,W=7,C=19,layout=NCHW",
    "softmax:M=9,N=53", "softmax:M=5,N=3", "log_softmax:M=7,N=64", "layer_norm:M=9,N=53",
    "rms_norm:M=9,N=128",
    "batch_norm:N=2,H=5,W=7,C=19",
    "reduce_sum:M=37,N=61,axis=1", "reduce_sum:M=37,N=61,axis=0", "reduce_max:M=37,N=61,axis=1",
    "reduce_mean:M=37,N=61,axis=0",
    "transpose:M=61,N=67", "elementwise:M=13,N=61,act=gelu", "elementwise:M=13,N=61,act=tanh",
    "bias_act:M=13,N=61,act=relu",
    "attention:B=1,H=2,S=19,D=16,causal=true", "embedding:N=7,V=31,D=19",
    "embedding_bag:V=31,D=19,B=9,L=3,mode=mean,dtype=bfloat16,index=int64",
    "embedding_bag:V=31,D=37,B=9,L=5,mode=weighted,lengths=power_law",
    "segment_reduce:M=9,N=43,D=19", "segment_reduce:M=9,N=43,D=19,mode=max,lengths=equal",
    "spmv:M=41,N=37,density=0.2,lengths=power_law", "spmm:M=13,N=11,K=53,density=0.3",
    "spmm:M=13,N=11,K=5,density=0.3,dtype=float64,spread=runs",
    "sddmm:M=13,N=11,K=37,density=0.3",
    "scatter_add:M=13,N=61,D=37",
    "scatter_add:M=16,N=61,D=5,mode=max,index=int64,spread=sorted",
    "scatter_add:M=13,N=61,D=19,dtype=bfloat16",
    "gather_matmul:V=31,M=13,N=37,K=11", "slide_layer:B=5,D=37,C=31,L=7,softmax=true,offset=true",
    "slide_layer:B=5,D=37,C=31,L=7,dtype=bfloat16",
    "slide_layer_gradient:B=5,D=37,C=31,L=7,dtype=bfloat16",
    "slide_layer_gradient:B=5,D=37,C=31,L=7,A=23,of=weights",
    "simhash:B=7,D=19,T=3,K=5", "dwta_hash:B=7,D=19,T=3,K=2",
    "mlp:M=5,K=11,J=19,N=7,gate=true,bias=true,act=relu",
)  # fmt: skip
LEGALITY_SAMPLES = 1000
CONFIGS = {1: 6, 2: 2}  # sampled for each number of threads


def run(
    workload: Workload, program: Program, arrays: dict[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    expression = workload.expression
    library = build(schedule(program, "kernel").mod, host_target())
    outputs = {}
    for name in expression.outputs:
        tensor = expression.tensor(name)
        outputs[name] = tvm.runtime.tensor(np.full(tensor.shape, 77, numpy_dtype(tensor.dtype)))
    library["kernel"](
        *(tvm.runtime.tensor(arrays[tensor.name]) for tensor in expression.inputs),
        *outputs.values(),
    )
    return {name: held.numpy() for name, held in outputs.items()}


def test_every_operator_has_a_workload() -> None:
    assert {spec.partition(":")[0] for spec in SPECS} == set(OPERATORS)


@pytest.mark.slow  # more than a minute in all
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("threads", [1, 2])
def test_sampled_configs_are_right(spec: str, threads: int) -> None:
    workload = parse_spec(spec)
    expression = workload.expression
    arrays = make_inputs(expression, seed=3, kind="normal")
    want, scale = evaluate(expression, arrays), magnitude(expression, arrays)
    space = space_of(workload, host_target(), threads)
    rng = np.random.default_rng(zlib.crc32(spec.encode()))
    programs: list[tuple[object, Program]] = (
        [("default", default_program(workload))] if threads == 1 else []
    )
    for point in drawn_once(space.space, rng, CONFIGS[threads]):
        config = space.space.config(point)
        programs.append((config, space.program(config)))
    for chosen, program in programs:
        off = max_rel_error(expression, run(workload, program, arrays), want, scale)
        bound = error_bound(expression, workload.numerics)
        assert off <= bound, f"{chosen} is {off:.3g} off, more than {bound:.3g}"


@pytest.mark.long
@pytest.mark.parametrize("spec", {spec.partition(":")[0]: spec for spec in SPECS}.values())
def test_at_most_two_in_a_hundred_configs_are_illegal(spec: str) -> None:
    space = space_of(parse_spec(spec), host_target(), 1)
    illegal: Counter[str] = Counter()
    for point in space.space.sample(np.random.default_rng(1), LEGALITY_SAMPLES):
        try:
            schedule(space.program(space.space.config(point)), "kernel")
        except IllegalSchedule as error:
            illegal[str(error)[:200]] += 1
    assert illegal.total() <= LEGALITY_SAMPLES // 50, illegal
