"""Runs a program whose traced calls are answered by kernels, and counts them."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.scratch import temporary_folder
from tuner.trace.binding import Binding
from tuner.trace.program import HERE, compile_calls, run_program
from tuner.trace.record import TracedCall, documents
from tuner.trace.replacer.numpy_calls import LIBRARY, MOST_INPUTS, MOST_RANK
from tuner.trace.replacer.plan import LIBRARY as KERNELS
from tuner.trace.replacer.plan import PLAN

SOURCE = HERE / "replacer" / "numpy_calls.c"
LONG_S = 20e-6  # a kernel that takes longer lets other threads of Python run


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """A kind of calls, and the function that answers them."""

    call: TracedCall
    binding: Binding
    symbol: str  # of the function, in the library of all
    kernel_s: float  # of a call


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """How often calls of one kind were met."""

    call: TracedCall
    by_kernel: int
    by_library: int  # such as the first in each process, or with a tensor at an odd address


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What became of a program's calls."""

    exit_code: int
    processes: int  # of Python
    calls: tuple[Answered, ...]
    notes: tuple[str, ...]  # what was left to a library as a whole, and why


def refusal(call: TracedCall, binding: Binding | None) -> str | None:
    """Why no kernel stands in for a call; None where it does."""
    if call.library == "onnxruntime":
        return "a session computes its model as a whole"
    if binding is None or binding.result is None:
        return "it gives no single new tensor"
    most = MOST_INPUTS if call.library == "numpy" else 64
    if len(binding.inputs) > most or len(binding.result.shape) > MOST_RANK:
        return f"it has more than {most} tensors or {MOST_RANK} dimensions"
    if any("list" in argument for argument in call.arguments):
        return "it has lists of tensors"
    return None


def run_replaced(
    command: Sequence[str], replacements: Sequence[Replacement], library: bytes
) -> Run:
    """Runs a command to its end, with the functions of a shared library for calls.

    Raises UsageError for a program that cannot be started, LinkError without a C compiler.
    """
    with temporary_folder("tuner-run-") as folder:
        compile_calls(SOURCE, folder / LIBRARY)
        (folder / KERNELS).write_bytes(library)
        (folder / PLAN).write_text(json.dumps([_planned(each) for each in replacements]))
        code = run_program(command, {"TUNER_RUN_FOLDER": str(folder)})
        return _counted(folder, replacements, code)


def _planned(each: Replacement) -> dict[str, Any]:
    """As `tuner.trace.replacer.plan` reads it."""
    result = each.binding.result
    assert result is not None, "a call with a refusal has no kernel"
    tensors = each.binding.graph.inputs
    return {
        "library": each.call.library,
        "operator": each.call.operator,
        "arguments": list(each.call.arguments),
        "symbol": each.symbol,
        "inputs": list(each.binding.inputs),
        "dtypes": [tensor.dtype for tensor in tensors],
        "result": {
            "shape": list(result.shape),
            "strides": list(result.strides),
            "dtype": result.dtype,
        },
        "overload": each.binding.overload,
        "long": each.kernel_s >= LONG_S,
    }


def _counted(folder: Path, replacements: Sequence[Replacement], code: int) -> Run:
    by_kernel, by_library = [0] * len(replacements), [0] * len(replacements)
    notes, processes = dict[str, None](), 0
    for path in sorted(folder.glob("*.lines")):
        numbers = [*struct.iter_unpack("dd", path.with_suffix(".slots").read_bytes())]
        for line in documents(path):
            processes += "process" in line
            if "note" in line:
                notes[line["note"]] = None
            elif "slot" in line:
                answered, left = numbers[line["slot"]]
                by_kernel[line["call"]] += round(answered)
                by_library[line["call"]] += round(left)
    return Run(
        exit_code=code,
        processes=processes,
        calls=tuple(
            Answered(call=each.call, by_kernel=by_kernel[n], by_library=by_library[n])
            for n, each in enumerate(replacements)
        ),
        notes=tuple(notes),
    )
