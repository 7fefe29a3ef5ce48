"""A foreign record replayed and compiled, in a process of its own.

Run as `python -m tuner.lowering.importers.import_server`, with one request on standard
input and one answer on standard output.

TVM builds objects from a stranger's text here and may crash on it. So the process is
bounded in memory and time, and fenced off from files, network and other processes. Its
answer is verified like any candidate, and never trusted.
"""

from __future__ import annotations

import base64
import json
import os
import resource
import signal
import sys
import tempfile
from dataclasses import asdict
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import Trace

from tuner.errors import TunerError
from tuner.lowering.compiler import compile_module
from tuner.lowering.importers.lift import lift
from tuner.lowering.schedule import StoredSchedule
from tuner.measure.sandbox.reading_fence import fence
from tuner.target.document import target_from_document
from tuner.workload.tree import expression_document

SYMBOL = "imported"
MEMORY_BYTES = 4 << 30  # of address space beyond what TVM itself maps
TIME_S = 60


def replayed(request: dict[str, Any]) -> dict[str, Any]:
    """The program as an expression, its object code, and the stored schedule."""
    mod = tvm.ir.load_json(request["workload"])
    functions = [
        (name, function)
        for name, function in mod.functions.items()
        if isinstance(function, tirx.PrimFunc)
    ]
    if len(functions) != 1 or len(mod.functions) != 1:
        raise TunerError("the workload is not a module of one function")
    (variable, function), *_ = functions
    expression = lift(function, variable.name_hint)
    _check_order(function, [tensor.name for tensor in expression.inputs], len(expression.outputs))
    plain = tvm.IRModule(
        {variable.name_hint: function.with_attr({"global_symbol": SYMBOL, "tirx.noalias": True})}
    )
    start = tvm.ir.save_json(plain)
    scheduled = Schedule(plain)
    Trace.apply_json_to_schedule(json.loads(request["trace"]), scheduled)
    stored = StoredSchedule(
        module=start,
        trace=request["trace"],
        text=str(scheduled.trace),
        versions={"apache-tvm": tvm.__version__, "apache-tvm-ffi": tvm_ffi.__version__},
    )
    code = compile_module(scheduled.mod, target_from_document(request["target"]))
    return {
        "expression": expression_document(expression),
        "object": base64.b64encode(code).decode(),
        "schedule": {
            **asdict(stored),
            "sources": {"tvmscript": str(scheduled.mod.script())[:200_000]},
        },
    }


def _check_order(function: tirx.PrimFunc, inputs: list[str], outputs: int) -> None:
    """Refuse a function that is not called with its inputs, then its outputs."""
    names = [parameter.name for parameter in function.params]
    if (
        len(names) != len(inputs) + outputs
        or [name.removesuffix("_handle") for name in names[: len(inputs)]] != inputs
    ):
        raise TunerError(
            f"its parameters {', '.join(names)} are not its inputs followed by its outputs"
        )


def main() -> None:
    """Answer one request."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what libraries print goes to standard error
    with open("/proc/self/statm", encoding="ascii") as file:
        mapped = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY_BYTES, mapped + MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (TIME_S, TIME_S))
    signal.alarm(2 * TIME_S)
    tempfile.tempdir = os.getcwd()  # the only folder that this process may write to
    fence(writable=[tempfile.tempdir])
    try:
        answer = replayed(json.load(sys.stdin))
    except (
        TunerError,
        RuntimeError,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        MemoryError,
    ) as error:
        answer = {"refused": f"{type(error).__name__}: {error}"[:4000]}
    with os.fdopen(answers, "w") as file:
        json.dump(answer, file)


if __name__ == "__main__":
    main()
