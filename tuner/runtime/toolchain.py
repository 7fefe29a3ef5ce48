"""The system's C compiler and binutils, or a cross compiler with its own.

They compile a C text, link a shared library, and link objects into an archive. Objects
are cached by the content of everything they come from, so that linking a candidate runs
one process, the linker. The same inputs give the same bytes: no paths, no times, build
ids from content.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tuner.errors import TunerError
from tuner.scratch import temporary_folder

COMPILE_FLAGS = (
    "-std=gnu11",
    "-O2",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-math-errno",
    "-ffunction-sections",
    "-Wall",
)
# `nodelete`: worker threads run the library's code, so it stays mapped until the process ends.
LINK_FLAGS = (
    "-shared", "-Wl,--build-id=sha1", "-Wl,-z,defs", "-Wl,-z,nodelete", "-Wl,-z,now",
    "-Wl,-z,relro", "-Wl,-z,noexecstack", "-Wl,-Bsymbolic", "-Wl,--hash-style=gnu",
    "-Wl,--gc-sections", "-Wl,--as-needed",
)  # fmt: skip
PROGRAM_FLAGS = (
    "-s", "-Wl,--build-id=sha1", "-Wl,-z,now", "-Wl,-z,relro", "-Wl,-z,noexecstack",
    "-Wl,--gc-sections", "-Wl,--no-as-needed",
)  # fmt: skip
LIBRARIES = ("-lm", "-lpthread", "-ldl")  # part of libc since glibc 2.34, all but the first
# Of modules of WebAssembly: their C runtime has no C library, and a stack that runs over traps.
FREESTANDING_FLAGS = ("-ffreestanding", "-fno-pic", "-mbulk-memory", "-msimd128", "-I.")
MODULE_FLAGS = (
    "-nostdlib", "-Wl,--no-entry", "-Wl,--strip-all", "-Wl,--stack-first",
    "-Wl,-z,stack-size=1048576",
)  # fmt: skip
TIMEOUT_S = 120.0


class LinkError(TunerError):
    """The system's compiler or linker is missing or refused. The text is its own."""

    code = "build_error"


def default_cache() -> Path:
    """`$XDG_CACHE_HOME/tuner/runtime`, by default under ~/.cache."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "tuner" / "runtime"


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """One C compiler.

    Use `Toolchain.find()`, which asks the compiler for its version once, and keep the
    object.
    """

    command: tuple[str, ...]  # e.g. ("cc",)
    identity: str  # version and machine, part of every cache key
    cache: Path = field(default_factory=default_cache)
    prefix: str = ""  # of the names of binutils, e.g. "aarch64-linux-gnu-"
    freestanding: bool = False  # for modules, which have no C library

    @classmethod
    def cross(
        cls, triple: str, cache: Path | None = None, *, freestanding: bool = False
    ) -> Toolchain:
        """The compiler for another system, e.g. "aarch64-linux-gnu".

        It is `$CC_aarch64_linux_gnu` (may have flags, such as clang's --target and
        --sysroot), else GCC under the triple's name, with the triple's binutils; of one
        without an operating system, clang and its linker. Raises LinkError with what to
        install.
        """
        variable = "CC_" + triple.replace("-", "_")
        usual, packages = f"{triple}-gcc", f"gcc-{triple.replace('x86_64', 'x86-64')}"
        if freestanding:
            usual, packages = f"clang --target={triple}", "clang, lld"
        command = tuple(shlex.split(os.environ.get(variable, "").strip() or usual))
        try:
            tools = cls._asked(command, cache, prefix=f"{triple}-")
        except LinkError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            raise LinkError(
                f"{command[0]} is not installed; install a compiler for {triple} (Debian: "
                f"{packages}) or set {variable}"
            ) from error
        return replace(tools, freestanding=freestanding)

    @classmethod
    def find(cls, cache: Path | None = None) -> Toolchain:
        """`$CC` (may have flags), else cc. Raises LinkError when it cannot be run."""
        return cls._asked(tuple(shlex.split(os.environ.get("CC", ""))) or ("cc",), cache)

    @classmethod
    def _asked(cls, command: tuple[str, ...], cache: Path | None, prefix: str = "") -> Toolchain:
        identity = run([*command, "--version"]).splitlines()
        machine = run([*command, "-dumpmachine"]).strip()
        name = identity[0] if identity else command[0]
        return cls(
            command=command,
            identity=f"{name} {machine}",
            cache=cache if cache is not None else default_cache(),
            prefix=prefix,
        )

    @property
    def machine(self) -> str:
        """The architecture code is compiled for, e.g. x86_64."""
        return self.identity.rsplit(" ", 1)[-1].split("-")[0]

    def compile(
        self, source: str, text: str, headers: Mapping[str, str], flags: Sequence[str] = ()
    ) -> Path:
        """The cached object of a C text named `source`.

        `headers` (name to text) lie beside it; `flags` follow the usual ones. Raises
        LinkError.
        """
        own = FREESTANDING_FLAGS if self.freestanding else ()
        flags = (*COMPILE_FLAGS, *own, *flags)
        parts = {
            "cc": self.command,
            "identity": self.identity,
            "flags": flags,
            "source": source,
            "text": text,
            **headers,
        }
        key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        path = self._cache_folder() / f"{Path(source).stem}-{key}.o"
        if sound(path):
            return path
        with temporary_folder("tuner-scratch-cc-") as scratch:
            for name, content in {**headers, source: text}.items():
                (scratch / name).write_text(content)
            run([*self.command, *flags, "-c", source, "-o", "out.o"], cwd=scratch)
            compiled = (scratch / "out.o").read_bytes()
        store(path, compiled)
        store(checksum_of(path), hashlib.sha256(compiled).hexdigest().encode())
        return path

    def shared(self, objects: Sequence[Path], *, soname: str, exported: Sequence[str]) -> bytes:
        """A shared library that shows only the symbols in `exported`."""
        with temporary_folder("tuner-scratch-ld-") as scratch:
            (scratch / "exports.map").write_text(version_script(exported))
            flags = (*LINK_FLAGS, f"-Wl,-soname,{soname}", "-Wl,--version-script=exports.map")
            run(
                [*self.command, *flags, "-o", "out.so", *map(str, objects), *LIBRARIES], cwd=scratch
            )
            return (scratch / "out.so").read_bytes()

    def module(
        self, objects: Sequence[Path], *, exported: Sequence[str], imported: Sequence[str]
    ) -> bytes:
        """A module of WebAssembly that shows its memory and the symbols in `exported`.

        Functions in `imported` that the objects call are the loading program's to give.
        """
        with temporary_folder("tuner-scratch-ld-") as scratch:
            (scratch / "imports").write_text("".join(f"{name}\n" for name in imported))
            flags = (*MODULE_FLAGS, "-Wl,--allow-undefined-file=imports")
            shown = (f"-Wl,--export={name}" for name in exported)
            run([*self.command, *flags, *shown, "-o", "out.wasm", *map(str, objects)], cwd=scratch)
            return (scratch / "out.wasm").read_bytes()

    def program(self, objects: Sequence[Path]) -> bytes:
        """A program that has every library loaded that tuned libraries need."""
        with temporary_folder("tuner-scratch-ld-") as scratch:
            parts = (*PROGRAM_FLAGS, "-o", "out", *map(str, objects), *LIBRARIES)
            run([*self.command, *parts], cwd=scratch)
            return (scratch / "out").read_bytes()

    def static(self, objects: Sequence[Path], *, member: str, exported: Sequence[str]) -> bytes:
        """An archive of one object that shows only the symbols in `exported`.

        All others are local, so that two archives never clash.
        """
        with temporary_folder("tuner-scratch-ar-") as scratch:
            (scratch / "keep").write_text("".join(f"{name}\n" for name in exported))
            run([*self.command, "-nostdlib", "-r", "-o", "all.o", *map(str, objects)], cwd=scratch)
            run(
                [
                    f"{self.prefix}objcopy",
                    "--keep-global-symbols=keep",
                    "--remove-section=.comment",
                    "all.o",
                    member,
                ],
                cwd=scratch,
            )
            run([f"{self.prefix}ar", "rcsD", "out.a", member], cwd=scratch)
            return (scratch / "out.a").read_bytes()

    def renamed(self, object_code: bytes, old: str, new: str) -> bytes:
        """The object with one symbol renamed.

        Kernels that were compiled apart may have the same entry name.
        """
        with temporary_folder("tuner-scratch-objcopy-") as scratch:
            (scratch / "in.o").write_bytes(object_code)
            run(
                [f"{self.prefix}objcopy", f"--redefine-sym={old}={new}", "in.o", "out.o"],
                cwd=scratch,
            )
            return (scratch / "out.o").read_bytes()

    def _cache_folder(self) -> Path:
        try:
            self.cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise LinkError(
                f"cannot make the compiler cache {self.cache}: {error}; set XDG_CACHE_HOME to a "
                f"writable folder"
            ) from error
        return self.cache


def version_script(exported: Sequence[str]) -> str:
    names = "".join(f"    {name};\n" for name in sorted(exported))
    return "{\n  global:\n" + names + "  local: *;\n};\n"


def checksum_of(path: Path) -> Path:
    return path.with_suffix(".sha256")


def sound(path: Path) -> bool:
    """Whether a cached object is whole.

    A linker accepts an emptied one without a warning.
    """
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == checksum_of(path).read_text()
    except (OSError, UnicodeDecodeError):
        return False


def store(path: Path, content: bytes) -> None:
    """Write a file under another name, then rename it.

    So readers see all of it or nothing. Raises LinkError.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.replace(name, path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise LinkError(f"cannot write {path}: {error}") from error


def run(command: Sequence[str], cwd: str | Path | None = None) -> str:
    """Standard output of a tool.

    Raises LinkError with its output when it fails, is missing or takes too long.
    """
    # SOURCE_DATE_EPOCH and a fixed locale keep outputs and messages the same everywhere.
    environment = {**os.environ, "LC_ALL": "C", "SOURCE_DATE_EPOCH": "0"}
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            check=False,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
        )
    except FileNotFoundError as error:
        raise LinkError(
            f"{command[0]} is not installed; install a C compiler with binutils (Debian: gcc, "
            f"libc6-dev) or set CC"
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LinkError(f"{command[0]} could not be run: {error}") from error
    if done.returncode != 0:
        raise LinkError(
            f"{shlex.join(command[:1])} failed with status "
            f"{done.returncode}:\n{done.stderr.strip() or done.stdout.strip()}"
        )
    return done.stdout
