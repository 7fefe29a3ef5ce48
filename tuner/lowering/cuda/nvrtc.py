"""CUDA source to a cubin by NVRTC, NVIDIA's compiler as a library.

It serves machines without nvcc or a C++ compiler. Its cache has the same form as
nvcc's. The compiler's version is part of each key, so neither answers for the other.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Mapping
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import UsageError
from tuner.lowering.cuda.nvcc import ARCHITECTURES, CudaCompiler, cuda_compiler, find_nvcc

_OUT_OF_MEMORY = 1  # NVRTC_ERROR_OUT_OF_MEMORY


@dataclass(frozen=True, slots=True, kw_only=True)
class NvrtcCompiler(CudaCompiler):
    """NVRTC as a compiler. `nvcc` is the path of its library here.

    `headers` are folders of the toolkit's headers, which sources include for half
    precision.
    """

    headers: tuple[Path, ...]

    def _run(self, source: str, arch: str) -> tuple[bytes | None, str]:
        library, program = _opened(self.nvcc), c_void_p()
        architecture = ARCHITECTURES.get(arch, arch)
        options = [
            f"--gpu-architecture={architecture}",
            "--std=c++17",
            "--ptxas-options=-v",
            *(f"-I{folder}" for folder in self.headers),
        ]
        if (
            library.nvrtcCreateProgram(byref(program), source.encode(), b"kernel.cu", 0, None, None)
            != 0
        ):
            raise MemoryError("NVRTC has no memory for a program")
        try:
            arguments = (c_char_p * len(options))(*(option.encode() for option in options))
            status = library.nvrtcCompileProgram(program, len(options), arguments)
            log = _text(library, program, "ProgramLog")
            if status == _OUT_OF_MEMORY:
                raise MemoryError("NVRTC ran out of memory")
            return (_bytes(library, program, "CUBIN") if status == 0 else None), log
        finally:
            library.nvrtcDestroyProgram(byref(program))


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
    major, minor = c_int(), c_int()
    _opened(library_path).nvrtcVersion(byref(major), byref(minor))
    return NvrtcCompiler(
        nvcc=library_path,
        version=f"NVRTC {major.value}.{minor.value}",
        folder=folder,
        headers=headers,
    )


def any_compiler(folder: Path) -> CudaCompiler:
    """nvcc where there is one, else NVRTC. Raises UsageError where there is neither."""
    if find_nvcc() is not None or find_nvrtc() is None:
        return cuda_compiler(folder)
    return nvrtc_compiler(folder)


def find_nvrtc(environment: Mapping[str, str] | None = None) -> Path | None:
    """Find libnvrtc in CUDA_HOME, in an installed package of NVIDIA's, or in /usr/local/cuda.

    None where there is none.
    """
    for root in _roots(environment):
        for pattern in ("lib64/libnvrtc.so.*", "lib/libnvrtc.so.*", "targets/*/lib/libnvrtc.so.*"):
            matches = [path for path in sorted(root.glob(pattern)) if "alt" not in path.name]
            if matches:
                return matches[0]
    return None


def header_folders(environment: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """Folders of the toolkit's headers and of the C++ library that half precision includes.

    Empty where no toolkit has headers.
    """
    for root in _roots(environment):
        include = root / "include"
        if (include / "cuda_fp16.h").is_file():
            return tuple(folder for folder in (include, include / "cccl") if folder.is_dir())
    return ()


def _roots(environment: Mapping[str, str] | None) -> list[Path]:
    """Where a toolkit may be: CUDA_HOME, NVIDIA's packages, the usual folder."""
    variables = os.environ if environment is None else environment
    home = variables.get("CUDA_HOME")
    return [*([Path(home)] if home else []), *_packages(), Path("/usr/local/cuda")]


def _packages() -> list[Path]:
    """Roots of NVIDIA's installed packages, e.g. .../nvidia/cu13."""
    package = importlib.util.find_spec("nvidia")
    folders = (
        []
        if package is None
        else [Path(folder) for folder in package.submodule_search_locations or ()]
    )
    return [
        root
        for folder in folders
        for root in sorted(folder.iterdir(), reverse=True)
        if root.is_dir()
    ]


def _opened(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    library.nvrtcCreateProgram.argtypes = (
        POINTER(c_void_p),
        c_char_p,
        c_char_p,
        c_int,
        c_void_p,
        c_void_p,
    )
    library.nvrtcCompileProgram.argtypes = (c_void_p, c_int, POINTER(c_char_p))
    library.nvrtcDestroyProgram.argtypes = (POINTER(c_void_p),)
    return library


def _bytes(library: ctypes.CDLL, program: c_void_p, kind: str) -> bytes:
    size = c_size_t()
    if getattr(library, f"nvrtcGet{kind}Size")(program, byref(size)) != 0:
        return b""
    buffer = ctypes.create_string_buffer(size.value)
    getattr(library, f"nvrtcGet{kind}")(program, buffer)
    return buffer.raw


def _text(library: ctypes.CDLL, program: c_void_p, kind: str) -> str:
    return _bytes(library, program, kind).rstrip(b"\0").decode(errors="replace")
