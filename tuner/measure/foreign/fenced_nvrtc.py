"""Compiles a stranger's CUDA C++ by NVRTC within this process, which fences itself off first.

Run as `python -m tuner.measure.foreign.fenced_nvrtc`, with a job as JSON on standard input
(`tuner.measure.sandbox.compiler_fence`). Its one command is the library and its options.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

from tuner.measure.sandbox.compiler_fence import NO_FENCE, OUTPUT, fence_off
from tuner.runtime.nvrtc import Nvrtc

SOURCE, CUBIN = "kernel.cu", "kernel.cubin"  # files in the job's folder


def main() -> int:
    document = json.loads(sys.stdin.read())
    ((library, *options),) = document["commands"]
    compiler = Nvrtc(Path(library))
    # NVRTC opens this one once it compiles, when it would be out of reach.
    for part in Path(library).resolve().parent.glob("libnvrtc-builtins.so.*"):
        ctypes.CDLL(str(part))
    if not fence_off(document):
        return NO_FENCE
    try:
        code, said = compiler.compile(Path(SOURCE).read_text("utf-8"), options)
    except MemoryError:
        code, said = None, "out of memory"
    Path(OUTPUT).write_text(said, "utf-8")
    if code is None:
        return 1
    Path(CUBIN).write_bytes(code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
