"""NVRTC, NVIDIA's compiler as a library, by ctypes: CUDA C++ to a cubin.

It needs no GPU, no C++ compiler, and nothing of this package.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Mapping, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p
from pathlib import Path

# The architecture in options of NVIDIA's compilers: "a" allows the instructions that only it
# has. A cubin runs on no other architecture anyway.
ARCHITECTURES: Mapping[str, str] = {"sm_90": "sm_90a"}
_OUT_OF_MEMORY = 1  # NVRTC_ERROR_OUT_OF_MEMORY


class Nvrtc:
    """The library, loaded into this process. Raises OSError where it cannot be."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        self._library.nvrtcCreateProgram.argtypes = (
            POINTER(c_void_p),
            c_char_p,
            c_char_p,
            c_int,
            c_void_p,
            c_void_p,
        )
        self._library.nvrtcCompileProgram.argtypes = (c_void_p, c_int, POINTER(c_char_p))
        self._library.nvrtcDestroyProgram.argtypes = (POINTER(c_void_p),)

    @property
    def version(self) -> str:
        major, minor = c_int(), c_int()
        self._library.nvrtcVersion(byref(major), byref(minor))
        return f"{major.value}.{minor.value}"

    def compile(self, source: str, options: Sequence[str]) -> tuple[bytes | None, str]:
        """The cubin and what the compiler said. The cubin is None where it refused.

        Raises MemoryError.
        """
        library, program = self._library, c_void_p()
        text = source.encode(errors="replace")
        if library.nvrtcCreateProgram(byref(program), text, b"kernel.cu", 0, None, None) != 0:
            raise MemoryError("NVRTC has no memory for a program")
        try:
            arguments = (c_char_p * len(options))(*(option.encode() for option in options))
            status = library.nvrtcCompileProgram(program, len(options), arguments)
            log = self._bytes(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
            if status == _OUT_OF_MEMORY:
                raise MemoryError("NVRTC ran out of memory")
            return (self._bytes(program, "CUBIN") if status == 0 else None), log
        finally:
            library.nvrtcDestroyProgram(byref(program))

    def _bytes(self, program: c_void_p, kind: str) -> bytes:
        size = c_size_t()
        if getattr(self._library, f"nvrtcGet{kind}Size")(program, byref(size)) != 0:
            return b""
        buffer = ctypes.create_string_buffer(size.value)
        getattr(self._library, f"nvrtcGet{kind}")(program, buffer)
        return buffer.raw


def compile_options(arch: str, headers: Sequence[Path]) -> tuple[str, ...]:
    """The options that all CUDA C++ is compiled with. `arch` is written like sm_90."""
    return (
        f"--gpu-architecture={ARCHITECTURES.get(arch, arch)}",
        "--std=c++17",
        *(f"-I{folder}" for folder in headers),
    )


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
