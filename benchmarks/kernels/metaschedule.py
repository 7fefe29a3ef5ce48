"""Tune one workload with TVM's MetaSchedule, as a user of TVM would.

    python -m benchmarks.kernels.metaschedule SPEC --trials 64 --threads 1 -o FOLDER
    python -m benchmarks.kernels.metaschedule --notation FILE --trials 64 -o FOLDER

Runs in a process of its own. Operators of TVM's operator library are taken from there,
with padding as a stage of its own, because MetaSchedule's rules are made for them. Others
are handed over as the plain program.

Leaves `kernel.o`, the object code of the best schedule with the entry
`__tvm_ffi_metaschedule`, and `report.json`. The object is linked by the same linker as
our kernels and raced like them.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm import te, topi
from tvm.s_tir import meta_schedule

from tuner.lowering.module import module
from tuner.spaces.default_schedule import default_program
from tuner.target.detect import detect_cpu
from tuner.workload.spec import parse_spec, workload_from_notation
from tuner.workload.workload import Workload

SYMBOL = "metaschedule"
PER_ROUND = 32  # candidates measured between two rounds of its search, as in TVM's tutorials
Tensors = list[Any]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("spec", nargs="?", default="")
    parser.add_argument(
        "--notation",
        type=Path,
        help="a file in the tensor notation, without symbols, in the place of a spec",
    )
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args(arguments)
    os.environ["TVM_NUM_THREADS"] = str(given.threads)
    logging.disable(logging.INFO)
    workload = (
        workload_from_notation(given.notation.read_text(), {})
        if given.notation
        else parse_spec(given.spec)
    )
    # The machine's own instruction set, as this product's target has it; its search
    # reads the number of cores from the target.
    target = tvm.target.Target({**detect_cpu().tvm, "num-cores": given.threads})
    source, cores = plain(workload), len(os.sched_getaffinity(0))
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="metaschedule-") as folder:
        database = meta_schedule.tune_tir(
            source,
            target,
            work_dir=folder,
            max_trials_global=given.trials,
            num_trials_per_iter=min(PER_ROUND, given.trials),
            num_tuning_cores=cores,
            builder=meta_schedule.builder.LocalBuilder(max_workers=cores, initializer=_load),
        )
        elapsed_s = time.monotonic() - started
        schedule = meta_schedule.tir_integration.compile_tir(database, source, target)
    report = {
        "elapsed_s": elapsed_s,
        "trials": given.trials,
        "threads": given.threads,
        "found": schedule is not None,
    }
    given.output.mkdir(parents=True, exist_ok=True)
    if schedule is not None:
        best = schedule.mod["main"].with_attr("global_symbol", SYMBOL)
        tvm.tirx.build(tvm.IRModule({SYMBOL: best}), target=target).write_to_file(
            str(given.output / "kernel.o")
        )
    (given.output / "report.json").write_text(json.dumps(report))


def _load() -> None:
    """Load what a build needs, in each new builder process.

    A build needs this package, whose loading parses hundreds of small programs and
    takes 6 to 30 s. Within the first build, it could take that build past its 30 s. The
    process would then be ended, and no candidate ever built. The time counts as tuning
    either way.
    """
    importlib.import_module("tvm.s_tir.tensor_intrin")


def plain(workload: Workload) -> Any:
    """The module to be tuned, its function `main` on inputs and outputs in the workload's order."""
    build = OPERATORS.get(workload.op or "")
    params = workload.params
    plainly = params.get("layout", "NHWC") == "NHWC" and params.get("groups", 1) == 1
    if build is None or not plainly or workload.expression.inputs[0].dtype != "float32":
        return module(default_program(workload), "main")
    tensors = build(
        params,
        [te.placeholder(tensor.shape, name=tensor.name) for tensor in workload.expression.inputs],
    )
    return tvm.IRModule({"main": te.create_prim_func(tensors)})


def _finished(params: Mapping[str, Any], inputs: Tensors, out: Any, bias: bool = False) -> Tensors:
    """Bias and activation applied to an operator's result."""
    if bias:
        out = topi.add(out, inputs[-1])
    match params.get("act") or "none":
        case "relu":
            out = topi.nn.relu(out)
        case "gelu":
            half = tvm.tirx.const(0.5, "float32")
            source = out
            out = te.compute(
                source.shape,
                lambda *indices: (
                    half
                    * source(*indices)
                    * (1.0 + tvm.tirx.erf(source(*indices) * tvm.tirx.const(0.5**0.5, "float32")))
                ),
                name="gelu",
            )
    return [*inputs, out]


def _product(params: Mapping[str, Any], inputs: Tensors) -> Tensors:
    out = topi.matmul(
        inputs[0], inputs[1], bool(params.get("transpose_a")), bool(params.get("transpose_b"))
    )
    return _finished(params, inputs, out)


def _dense(params: Mapping[str, Any], inputs: Tensors) -> Tensors:
    return _finished(
        params,
        inputs,
        topi.matmul(inputs[0], inputs[1], False, True),
        bias=bool(params.get("bias")),
    )


def _batch_product(params: Mapping[str, Any], inputs: Tensors) -> Tensors:
    a, b = bool(params.get("transpose_a")), bool(params.get("transpose_b"))
    return [*inputs, topi.nn.batch_matmul(inputs[0], inputs[1], transpose_a=a, transpose_b=b)]


def _conv2d(params: Mapping[str, Any], inputs: Tensors) -> Tensors:
    out = topi.nn.conv2d_nhwc(
        inputs[0], inputs[1], params["stride"], params["pad"], params["dilation"]
    )
    return _finished(params, inputs, out, bias=bool(params.get("bias")))


def _depthwise(params: Mapping[str, Any], inputs: Tensors) -> Tensors:
    out = topi.nn.depthwise_conv2d_nhwc(
        inputs[0], inputs[1], params["stride"], params["pad"], params["dilation"]
    )
    return _finished(params, inputs, out, bias=bool(params.get("bias")))


def _max_pool2d(params: Mapping[str, Any], inputs: Tensors) -> Tensors:
    window, stride, pad = [params["KH"], params["KW"]], [params["stride"]] * 2, [params["pad"]] * 4
    return [*inputs, topi.nn.pool2d(inputs[0], window, stride, [1, 1], pad, "max", layout="NHWC")]


# Where the operator library's weights lie as the catalogue's do; what is not here is
# handed over as the plain program.
OPERATORS: Mapping[str, Callable[[Mapping[str, Any], Tensors], Tensors]] = {
    "matmul": _product,
    "dense": _dense,
    "batch_matmul": _batch_product,
    "conv2d": _conv2d,
    "depthwise_conv2d": _depthwise,
    "max_pool2d": _max_pool2d,
    "softmax": lambda params, inputs: [*inputs, topi.nn.softmax(inputs[0])],
    "layer_norm": lambda params, inputs: [*inputs, topi.nn.layer_norm(*inputs, [1], params["eps"])],
    "reduce_sum": lambda params, inputs: [*inputs, topi.sum(inputs[0], axis=params["axis"])],
    "transpose": lambda params, inputs: [*inputs, topi.transpose(inputs[0])],
}


if __name__ == "__main__":
    main()
