"""From CUDA source to a cubin with what ptxas says of it: NVIDIA's nvcc, of the system
or of the `cuda` extra. No GPU is needed.

Cubins are kept by the hash of everything they depend on; so are refusals, with the compiler's text.
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
from tuner.target.target import Target

# What is compiled for: with the instructions that only this architecture has. A cubin
# serves no other one anyway.
ARCHITECTURES: Mapping[str, str] = {"sm_90": "sm_90a"}
COMPILE_TIMEOUT_S = 120.0  # nvcc takes seconds for a large unrolled kernel; beyond this it is stuck
_SCHEMA = 1  # of the cache's keys and files
_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelResources:
    """What ptxas gave one kernel."""

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
    """Machine code of one architecture; `kernels` in the order of the source, one a
    group of the program."""

    code: bytes  # ELF
    kernels: tuple[KernelResources, ...]


def find_nvcc(environment: Mapping[str, str] | None = None) -> Path | None:
    """nvcc of CUDA_HOME, of the path, or of the installed `cuda` extra; None where
    there is none."""
    known = os.environ if environment is None else environment
    home = known.get("CUDA_HOME")
    if home and (Path(home) / "bin" / "nvcc").is_file():
        return Path(home) / "bin" / "nvcc"
    found = shutil.which("nvcc", path=known.get("PATH", ""))
    if found is not None:
        return Path(found)
    package = importlib.util.find_spec("nvidia")
    for folder in package.submodule_search_locations or () if package is not None else ():
        for candidate in sorted(Path(folder).glob("*/bin/nvcc"), reverse=True):
            return candidate
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaCompiler:
    """nvcc with a cache of what it made and of what it refused."""

    nvcc: Path
    version: str  # the compiler's own words; part of every key
    folder: Path  # of the cache

    def compile(self, source: str, target: Target) -> Cubin:
        """The cubin of a source for the target's architecture. Raises BuildError with
        nvcc's text, also from the cache."""
        arch = str(target.tvm["arch"])
        document = {
            "schema": _SCHEMA,
            "source": source,
            "arch": ARCHITECTURES.get(arch, arch),
            "compiler": self.version,
        }
        key = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
        kept = self.folder / key[:2] / key
        if not (kept / "report.json").is_file():
            code, said = self._run(source, arch)
            if code is None and "No such file or directory" in said:
                # Of the installation, not of the source: not kept, so that installing
                # what is missing is enough.
                raise BuildError(
                    f"nvcc misses a file; install the `cuda` extra or a whole CUDA toolkit: "
                    f"{said.strip()}"
                )
            self._keep(kept, code, said)
        report = json.loads((kept / "report.json").read_text())
        if report["error"] is not None:
            raise BuildError(report["error"])
        kernels = tuple(KernelResources(**one) for one in report["kernels"])
        return Cubin(code=(kept / "kernel.cubin").read_bytes(), kernels=kernels)

    def _run(self, source: str, arch: str) -> tuple[bytes | None, str]:
        """The cubin, None where it was refused, and what the compiler said."""
        with tempfile.TemporaryDirectory(prefix="tuner-nvcc-") as scratch:
            given, made = Path(scratch) / "kernel.cu", Path(scratch) / "kernel.cubin"
            given.write_text(source)
            command = [
                str(self.nvcc),
                "-cubin",
                f"-arch={ARCHITECTURES.get(arch, arch)}",
                "-O3",
                "-Xptxas=-v",
                "-o",
                str(made),
                str(given),
            ]
            try:
                done = subprocess.run(
                    command,
                    capture_output=True,
                    text=True,
                    timeout=COMPILE_TIMEOUT_S,
                    cwd=scratch,
                    check=False,
                )
            except subprocess.TimeoutExpired as error:
                # Not kept: another day the machine may be less busy.
                message = (
                    f"nvcc took more than {COMPILE_TIMEOUT_S:.0f} s; a smaller tile or "
                    f"less unrolling fits"
                )
                raise BuildError(message) from error
            said = (done.stdout + done.stderr).replace(scratch + "/", "")
            return (made.read_bytes() if done.returncode == 0 else None), said

    def _keep(self, kept: Path, code: bytes | None, said: str) -> None:
        """Writes an entry whole: a folder made aside and moved to its place; the first
        of two writers wins."""
        kept.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix="new-", dir=kept.parent))
        kernels = [asdict(one) for one in resources(said)]
        error = None if code is not None else f"nvcc refused the source: {said.strip()}"
        try:
            if code is not None:
                (aside / "kernel.cubin").write_bytes(code)
            (aside / "report.json").write_text(json.dumps({"error": error, "kernels": kernels}))
            aside.rename(kept)
        except OSError:
            shutil.rmtree(aside)
            if not (kept / "report.json").is_file():
                raise


def cuda_compiler(folder: Path) -> CudaCompiler:
    """The compiler that is installed, its cache in `folder`. Raises UsageError where
    there is none."""
    nvcc = find_nvcc()
    if nvcc is None:
        raise UsageError(
            "no nvcc: install the `cuda` extra (pip install 'tuner[cuda]'), or set CUDA_HOME to "
            "a CUDA toolkit"
        )
    asked = subprocess.run(
        [str(nvcc), "--version"],
        capture_output=True,
        text=True,
        timeout=COMPILE_TIMEOUT_S,
        check=False,
    )
    if asked.returncode != 0:
        raise UsageError(
            f"{nvcc} --version failed: {asked.stderr.strip()}; set CUDA_HOME to a working "
            f"CUDA toolkit"
        )
    return CudaCompiler(nvcc=nvcc, version=asked.stdout.strip(), folder=folder)


def resources(said: str) -> tuple[KernelResources, ...]:
    """What `ptxas -v` says of each kernel, in its order."""
    found = []
    parts = _ENTRY.split(said)[1:]
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        stack, stores, loads = (int(number) for number in _groups(_SPILLS, text, 3))
        (registers,), (shared,) = _groups(_USED, text, 1), _groups(_SHARED, text, 1)
        found.append(
            KernelResources(
                name=name,
                registers=int(registers),
                stack_bytes=stack,
                spill_store_bytes=stores,
                spill_load_bytes=loads,
                shared_bytes=int(shared),
            )
        )
    return tuple(found)


def _groups(pattern: re.Pattern[str], text: str, count: int) -> tuple[str, ...]:
    """The pattern's groups; zeros where ptxas says nothing, as it does of shared memory
    that is not used."""
    match = pattern.search(text)
    return match.groups() if match is not None else ("0",) * count
