"""The process that reads a model: `python -m tuner.models.reading`, the file on standard input, the packed graph on the output.

The file is hostile: what parses it has bounds of memory and time, may write no file, and reads none but programs. What it says
is checked once more by whoever asked. A refusal is one JSON object on standard output after the word `refused`. With inputs
behind the file, an archive of arrays, the answer is what ONNX's reference evaluator makes of them.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tuner.errors import TunerError
from tuner.measure import landlock
from tuner.measure.confinement import readable_for_libraries

if TYPE_CHECKING:
    from tuner.models.graph import Graph

MEMORY_BYTES = 24 << 30  # of address space; TVM maps some gigabytes before it begins
CPU_S = 600
REFUSED = b"refused"
_PR_SET_NO_NEW_PRIVS = 38


def main() -> None:
    """The first argument is JSON: `shapes` of named extents, and how many `bytes` of the standard input are the model."""
    asked = json.loads(sys.argv[1])
    shapes = {str(name): int(extent) for name, extent in asked["shapes"].items()}
    given = sys.stdin.buffer.read()
    content, inputs = given[: asked["bytes"]], given[asked["bytes"] :]
    answer = os.dup(1)
    os.dup2(2, 1)  # libraries may print
    _confine()
    try:
        found = _evaluated(content, shapes, inputs) if inputs else _packed(content, shapes)
    except TunerError as error:
        found = REFUSED + json.dumps({"code": error.code, "message": str(error)}).encode()
    except MemoryError:
        message = "the model needs more memory than its reader may take"
        found = REFUSED + json.dumps({"code": "invalid_model", "message": message}).encode()
    with os.fdopen(answer, "wb") as stream:
        stream.write(found)


def _confine() -> None:
    """Gives up what a reader does not need; where the kernel has no Landlock, files may be read but still not written."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    try:
        landlock.restrict(landlock.abi(), readable=readable_for_libraries(os.environ), writable=())
    except OSError:
        return


def _packed(content: bytes, shapes: Mapping[str, int]) -> bytes:
    from tuner.models.graph import packed  # noqa: PLC0415  # nothing large is loaded before the process is confined

    return packed(read_graph(content, shapes))


def _evaluated(content: bytes, shapes: Mapping[str, int], inputs: bytes) -> bytes:
    from tuner.models.arrays import arrays_from, arrays_to  # noqa: PLC0415
    from tuner.models.onnx_file import evaluate, read_model  # noqa: PLC0415  # loads onnx

    return arrays_to(evaluate(read_model(content, shapes), arrays_from(inputs)))


def read_graph(content: bytes, shapes: Mapping[str, int]) -> Graph:
    """The fused graph of an ONNX file, read in this process. Raises ModelRefused and WorkloadError."""
    from tuner.lowering.relax import import_onnx  # noqa: PLC0415  # loads TVM
    from tuner.models.assembly import assemble  # noqa: PLC0415
    from tuner.models.fusion import fuse  # noqa: PLC0415
    from tuner.models.normal_form import fold_batch_norms  # noqa: PLC0415  # loads onnx
    from tuner.models.onnx_file import argument_names, read_model  # noqa: PLC0415

    model = read_model(content, shapes)
    fold_batch_norms(model)
    found = import_onnx(model)
    return fuse(
        assemble(
            inputs=found.inputs,
            constants=found.constants,
            calls=found.calls,
            outputs=found.outputs,
            labels=argument_names(model),
        )
    )


if __name__ == "__main__":
    main()
