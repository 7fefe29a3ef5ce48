"""CUDA source to a cubin by NVRTC, NVIDIA's compiler as a library.

It serves machines without nvcc or a C++ compiler. Its cache has the same form as
nvcc's. The compiler's version is part of each key, so neither answers for the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tuner.errors import UsageError
from tuner.lowering.cuda.nvcc import CudaCompiler, cuda_compiler, find_nvcc
from tuner.runtime.nvrtc import Nvrtc, compile_options, find_nvrtc, header_folders


@dataclass(frozen=True, slots=True, kw_only=True)
class NvrtcCompiler(CudaCompiler):
    """NVRTC as a compiler. `nvcc` is the path of its library here.

    `headers` are folders of the toolkit's headers, which sources include for half
    precision.
    """

    headers: tuple[Path, ...]

    def _run(self, source: str, arch: str) -> tuple[bytes | None, str]:
        options = (*compile_options(arch, self.headers), "--ptxas-options=-v")
        return Nvrtc(self.nvcc).compile(source, options)


def nvrtc_compiler(folder: Path) -> NvrtcCompiler:
    """The installed NVRTC with its cache in `folder`.

    Raises UsageError where it or the toolkit's headers are missing.
    """
    library_path = find_nvrtc()
    if library_path is None:
        raise UsageError("no NVRTC: install nvidia-cuda-nvrtc, or set CUDA_HOME to a CUDA toolkit")
    headers = header_folders()
    if not headers:
        raise UsageError(
            "no headers of the CUDA toolkit: install the `cuda` extra (pip install "
            "'tuner[cuda]'), or set CUDA_HOME"
        )
    return NvrtcCompiler(
        nvcc=library_path,
        version=f"NVRTC {Nvrtc(library_path).version}",
        folder=folder,
        headers=headers,
    )


def any_compiler(folder: Path) -> CudaCompiler:
    """nvcc where there is one, else NVRTC. Raises UsageError where there is neither."""
    if find_nvcc() is not None or find_nvrtc() is None:
        return cuda_compiler(folder)
    return nvrtc_compiler(folder)
