"""manifest.json of an exported library: written, read back with suspicion, and held against the files it lists."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from tuner.export.errors import ManifestError
from tuner.export.kernel import ExportKernel

SCHEMA = 1
FILE = "manifest.json"
LARGEST_BYTES = 64 << 20  # of a manifest; traces are long, but not that long
DIGEST = re.compile(r"[0-9a-f]{64}\Z")
FUNCTION_FIELDS: Mapping[str, type | tuple[type, ...]] = {
    "symbol": str, "workload": dict, "arguments": list, "target": dict, "isa": list, "threads": int,
    "median_s": (int, float), "ci95_s": list, "verified": bool, "max_rel_error": (int, float), "provenance": dict,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Manifest:
    name: str
    library: str  # path of the shared library within the directory
    files: Mapping[str, str]  # path -> SHA-256, all files but the manifest
    functions: tuple[Mapping[str, Any], ...]  # as the contract's manifest.json has them

    def document(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "name": self.name,
            "library": self.library,
            "files": dict(sorted(self.files.items())),
            "functions": [dict(function) for function in self.functions],
        }


def function_entry(kernel: ExportKernel) -> dict[str, Any]:
    """A kernel's entry under `functions`."""
    workload: dict[str, Any] = {"key": kernel.workload_key, "op": kernel.op}
    if kernel.op is not None:
        workload["params"] = dict(kernel.params)
    else:
        workload |= {"notation": kernel.notation, "shapes": dict(kernel.shapes)}
    return {
        "symbol": kernel.symbol,
        "workload": workload,
        "arguments": [
            {"name": argument.name, "dtype": argument.dtype, "shape": list(argument.shape), "role": argument.role}
            for argument in kernel.arguments
        ],
        "target": {"key": kernel.target.key, "kind": kernel.target.kind, "name": kernel.target.name},
        "isa": list(kernel.isa),
        "threads": kernel.threads,
        "median_s": kernel.median_s,
        "ci95_s": list(kernel.ci95_s),
        "verified": kernel.verified,
        "max_rel_error": kernel.max_rel_error,
        "provenance": {name: kernel.provenance.get(name) for name in ("job", "trial", "trace", "versions")}
        | dict(kernel.provenance),
    }


def read_manifest(directory: Path) -> Manifest:
    """The manifest of an exported directory. Raises ManifestError for anything that is not one, naming what is wrong."""
    path = directory / FILE
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise ManifestError(f"{path} is larger than {LARGEST_BYTES >> 20} MiB")
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise ManifestError(f"{directory} is no exported library: {FILE}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"{path} is not valid JSON: {error}") from error
    return _checked(document, path)


def verify_hashes(directory: Path) -> Manifest:
    """Reads the manifest and holds every file it lists against its hash. Raises ManifestError at the first that differs.

    Links are refused wherever they point, and so are paths that leave the directory; files the manifest does not list are
    not looked at.
    """
    manifest = read_manifest(directory)
    for path, digest in manifest.files.items():
        found = directory
        for part in PurePosixPath(path).parts:
            found = found / part
            if found.is_symlink():
                raise ManifestError(f"{found} is a link; an exported library has none")
        try:
            actual = sha256_file(found)
        except OSError as error:
            raise ManifestError(f"{found}: {error.strerror}; export the library again") from error
        if actual != digest:
            raise ManifestError(f"{found} was altered: its SHA-256 is {actual}, the manifest says {digest}")
    return manifest


def sha256_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _checked(document: object, path: Path) -> Manifest:
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ManifestError(f"{path} has no schema {SCHEMA}; it was not written by this version's export")
    name, library, files, functions = (document.get(field) for field in ("name", "library", "files", "functions"))
    if not isinstance(name, str) or not isinstance(library, str):
        raise ManifestError(f"{path}: name and library must be texts")
    if not isinstance(files, dict) or not isinstance(functions, list):
        raise ManifestError(f"{path}: files must be an object and functions a list")
    for listed, digest in files.items():
        if not _inside(listed):
            raise ManifestError(f"{path}: {listed!r} is no path inside the directory")
        if not isinstance(digest, str) or not DIGEST.match(digest):
            raise ManifestError(f"{path}: {listed!r} has no SHA-256")
    if library not in files:
        raise ManifestError(f"{path}: the library {library!r} is not among its files")
    for index, function in enumerate(functions):
        _check_function(function, f"{path}: function {index}")
    return Manifest(name=name, library=library, files=files, functions=tuple(functions))


def _inside(path: str) -> bool:
    """A relative POSIX path without `..`, `.`, empty parts, backslashes, control characters or drive letters."""
    parts = path.split("/")
    printable = path.isprintable() and "\\" not in path and ":" not in path
    return printable and path != FILE and all(part not in ("", ".", "..") for part in parts)


def _check_function(function: object, where: str) -> None:
    if not isinstance(function, dict):
        raise ManifestError(f"{where} is not an object")
    for field, kind in FUNCTION_FIELDS.items():
        if not isinstance(function.get(field), kind):
            raise ManifestError(f"{where}: {field} is missing or of the wrong type")
    for argument in function["arguments"]:
        if not isinstance(argument, dict) or {"name", "dtype", "shape", "role"} - argument.keys():
            raise ManifestError(f"{where}: an argument lacks name, dtype, shape or role")
