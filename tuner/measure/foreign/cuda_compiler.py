"""Compiles a stranger's CUDA C++ by NVRTC, with the product's options, behind a fence.

NVRTC starts no program. Its libraries are loaded before it is fenced in; then it reads the
toolkit's headers alone, and writes to one folder.
"""

from __future__ import annotations

from tuner.errors import UsageError
from tuner.measure.foreign import fenced_nvrtc
from tuner.measure.foreign.compiler import check_size, content, run_bounded, scratch
from tuner.measure.foreign.verdict import Guilty, VerdictName
from tuner.runtime.nvrtc import compile_options, find_nvrtc, header_folders
from tuner.target.target import Target

_UNOPENED = "open source file"  # of what NVRTC says where a header is out of reach
_ABSENT = ": No such file or directory"  # of what it adds where there is none


def compile_cuda(source: str, target: Target) -> bytes:
    """The cubin of a source for the target's architecture.

    Raises Guilty where it does not compile, UsageError without NVRTC, FenceMissing where it
    cannot be fenced in, NoRoom where the disk is full.
    """
    check_size(source)
    library, headers = find_nvrtc(), header_folders()
    if library is None:
        raise UsageError(
            "no NVRTC to compile a foreign kernel: install nvidia-cuda-nvrtc, or set CUDA_HOME "
            "to a CUDA toolkit"
        )
    with scratch() as folder:
        (folder / fenced_nvrtc.SOURCE).write_text(source, "utf-8", errors="replace")
        refusal = run_bounded(
            folder,
            ((str(library), *compile_options(str(target.tvm["arch"]), headers)),),
            readable=tuple(map(str, headers)),
            program=fenced_nvrtc.__name__,
        )
        if refusal is None:
            return content(folder / fenced_nvrtc.CUBIN)
        if _UNOPENED in str(refusal):
            raise Guilty(
                VerdictName.HEADER_REFUSED,
                f"a source may include headers of the CUDA toolkit, such as cuda_fp16.h and "
                f"mma.h, where that is installed; {str(refusal).replace(_ABSENT, '')}",
            )
        raise refusal
