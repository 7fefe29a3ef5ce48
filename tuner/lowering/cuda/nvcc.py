"""CUDA source to a cubin by NVIDIA's nvcc, with what ptxas reports of each kernel.

nvcc is that of the system or of the `cuda` extra; no GPU is needed. Cubins are cached
by the hash of everything they depend on. So are refusals, with the compiler's text.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tuner.errors import UsageError
from tuner.lowering.compiler import BuildError
from tuner.runtime.nvrtc import ARCHITECTURES
from tuner.scratch import temporary_folder
from tuner.target.target import Target

COMPILE_TIMEOUT_S = 120.0  # nvcc takes seconds for a large unrolled kernel; beyond this it is stuck
_SCHEMA = 1  # of the cache's keys and files
_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelResources:
    """What ptxas assigned to one kernel."""

    name: str
    registers: int  # 32-bit, of one thread
    stack_bytes: int  # of one thread
    spill_store_bytes: int  # of one thread, static count
    spill_load_bytes: int  # of one thread, static count
    shared_bytes: int  # static, of one block

    @property
    def spills(self) -> bool:
        return self.spill_store_bytes + self.spill_load_bytes > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cubin:
    """Machine code of one architecture. `kernels` are in the order of the source."""

    code: bytes  # ELF
    kernels: tuple[KernelResources, ...]


def find_nvcc(environment: Mapping[str, str] | None = None) -> Path | None:
    """Find nvcc in CUDA_HOME, on the path, or in the installed `cuda` extra.

    `environment` defaults to that of the process. None where there is no nvcc.
    """
    variables = os.environ if environment is None else environment
    home = variables.get("CUDA_HOME")
    if home and (Path(home) / "bin" / "nvcc").is_file():
        return Path(home) / "bin" / "nvcc"
    on_path = shutil.which("nvcc", path=variables.get("PATH", ""))
    if on_path is not None:
        return Path(on_path)
    package = importlib.util.find_spec("nvidia")
    for folder in package.submodule_search_locations or () if package is not None else ():
        for candidate in sorted(Path(folder).glob("*/bin/nvcc"), reverse=True):
            return candidate
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaCompiler:
    """nvcc with a cache of its cubins and of its refusals."""

    nvcc: Path
    version: str  # as the compiler prints it; part of every key
    folder: Path  # of the cache

    def compile(self, source: str, target: Target) -> Cubin:
        """The cubin of a source for the target's architecture.

        Raises BuildError with nvcc's text, also where the cache holds the refusal.
        """
        arch = str(target.tvm["arch"])
        document = {
            "schema": _SCHEMA,
            "source": source,
            "arch": ARCHITECTURES.get(arch, arch),
            "compiler": self.version,
        }
        key = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
        entry = self.folder / key[:2] / key
        if not (entry / "report.json").is_file():
            code, log = self._run(source, arch)
            if code is None and "No such file or directory" in log:
                # The installation's fault, not the source's. It is not cached, so that
                # installing what is missing is enough.
                raise BuildError(
                    f"nvcc misses a file; install the `cuda` extra or a whole CUDA toolkit: "
                    f"{log.strip()}"
                )
            self._store(entry, code, log)
        report = json.loads((entry / "report.json").read_text())
        if report["error"] is not None:
            raise BuildError(report["error"])
        kernels = tuple(KernelResources(**fields) for fields in report["kernels"])
        return Cubin(code=(entry / "kernel.cubin").read_bytes(), kernels=kernels)

    def _run(self, source: str, arch: str) -> tuple[bytes | None, str]:
        """The cubin and what the compiler printed. The cubin is None where it refused."""
        with temporary_folder("tuner-scratch-nvcc-") as scratch:
            source_path, cubin_path = scratch / "kernel.cu", scratch / "kernel.cubin"
            source_path.write_text(source)
            command = [
                str(self.nvcc),
                "-cubin",
                f"-arch={ARCHITECTURES.get(arch, arch)}",
                "-O3",
                "-Xptxas=-v",
                "-o",
                str(cubin_path),
                str(source_path),
            ]
            try:
                process = subprocess.run(
                    command,
                    capture_output=True,
                    text=True,
                    timeout=COMPILE_TIMEOUT_S,
                    cwd=scratch,
                    check=False,
                )
            except subprocess.TimeoutExpired as error:
                # Not cached: the machine may be less busy another time.
                message = (
                    f"nvcc took more than {COMPILE_TIMEOUT_S:.0f} s; a smaller tile or "
                    f"less unrolling fits"
                )
                raise BuildError(message) from error
            log = (process.stdout + process.stderr).replace(f"{scratch}/", "")
            return (cubin_path.read_bytes() if process.returncode == 0 else None), log

    def _store(self, entry: Path, code: bytes | None, log: str) -> None:
        """Write a cache entry as a whole.

        The entry is made in a folder of its own, which is then renamed. The first of
        two writers wins.
        """
        entry.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix="new-", dir=entry.parent))
        kernels = [asdict(kernel) for kernel in resources(log)]
        error = None if code is not None else f"nvcc refused the source: {log.strip()}"
        try:
            if code is not None:
                (staging / "kernel.cubin").write_bytes(code)
            (staging / "report.json").write_text(json.dumps({"error": error, "kernels": kernels}))
            staging.rename(entry)
        except OSError:
            shutil.rmtree(staging)
            if not (entry / "report.json").is_file():
                raise


def cuda_compiler(folder: Path) -> CudaCompiler:
    """The installed nvcc with its cache in `folder`.

    Raises UsageError where there is none, or where it does not run.
    """
    nvcc = find_nvcc()
    if nvcc is None:
        raise UsageError(
            "no nvcc: install the `cuda` extra (pip install 'tuner[cuda]'), or set CUDA_HOME to "
            "a CUDA toolkit"
        )
    process = subprocess.run(
        [str(nvcc), "--version"],
        capture_output=True,
        text=True,
        timeout=COMPILE_TIMEOUT_S,
        check=False,
    )
    if process.returncode != 0:
        raise UsageError(
            f"{nvcc} --version failed: {process.stderr.strip()}; set CUDA_HOME to a working "
            f"CUDA toolkit"
        )
    return CudaCompiler(nvcc=nvcc, version=process.stdout.strip(), folder=folder)


def resources(log: str) -> tuple[KernelResources, ...]:
    """What `ptxas -v` reports of each kernel, in its order. `log` is its output."""
    kernels = []
    parts = _ENTRY.split(log)[1:]
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        stack, stores, loads = (int(number) for number in _groups(_SPILLS, text, 3))
        (registers,), (shared,) = _groups(_USED, text, 1), _groups(_SHARED, text, 1)
        kernels.append(
            KernelResources(
                name=name,
                registers=int(registers),
                stack_bytes=stack,
                spill_store_bytes=stores,
                spill_load_bytes=loads,
                shared_bytes=int(shared),
            )
        )
    return tuple(kernels)


def _groups(pattern: re.Pattern[str], text: str, count: int) -> tuple[str, ...]:
    """The pattern's groups. Zeros where it does not match.

    ptxas does not report what is not used, for example shared memory.
    """
    match = pattern.search(text)
    return match.groups() if match is not None else ("0",) * count
