"""manifest.json of an exported library: its contents, its reader, and the check of files.

A manifest that is read may come from anybody, so everything in it is checked.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from io import BufferedReader
from math import prod
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

from tuner.export.errors import ManifestError
from tuner.export.kernel import ExportKernel
from tuner.export.naming import NAME, SYMBOL
from tuner.export.signature import PUBLIC, SIGNATURE_BYTES, is_signed
from tuner.runtime.link import MAX_THREADS
from tuner.runtime.portfolio import Portfolio
from tuner.runtime.prepack import pack_symbol
from tuner.runtime.wrapper import C_TYPES
from tuner.workload.bounded import bounded_from
from tuner.workload.tree import expression_document, fact_document
from tuner.workload.workload import Workload

SCHEMA = 1
FILE = "manifest.json"
SIGNATURE_FILE = "manifest.sig"  # 64 bytes, of an export that is signed
LARGEST_BYTES = 64 << 20  # of a manifest
# Of all files together: hashing more takes too long, and a kernel has some kilobytes.
LARGEST_EXPORT_BYTES = 4 << 30
MOST_FUNCTIONS = 10_000
MOST_VARIANTS = 16  # of a function
FEATURE = re.compile(r"[a-z0-9][a-z0-9.-]{0,40}\Z")
# Of times and errors. The comparison also refuses NaN, infinity, and integers too large
# for a float.
LARGEST_NUMBER = 1e300
DIGEST = re.compile(r"[0-9a-f]{64}\Z")
FUNCTION_FIELDS: Mapping[str, type | tuple[type, ...]] = {
    "symbol": str, "workload": dict, "arguments": list, "target": dict, "isa": list, "threads": int,
    "median_s": (int, float), "ci95_s": list, "verified": bool, "max_rel_error": (int, float),
    "provenance": dict,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What manifest.json says."""

    name: str
    library: str  # its path within the directory, one of `library_paths`
    files: Mapping[str, str]  # path -> SHA-256, all files but the manifest
    functions: tuple[Mapping[str, Any], ...]  # as the contract's manifest.json has them
    public_key: str | None = None  # `ed25519:` and hex, of whoever signed it; None: not signed

    def document(self) -> dict[str, Any]:
        """The manifest as JSON values."""
        return {
            "schema": SCHEMA,
            "name": self.name,
            "library": self.library,
            **({} if self.public_key is None else {"public_key": self.public_key}),
            "files": dict(sorted(self.files.items())),
            "functions": [dict(function) for function in self.functions],
        }


def library_paths(name: str) -> tuple[str, str]:
    """Where an export's library may be: a shared one, or a module of WebAssembly."""
    return f"lib/lib{name}.so", f"{name}.wasm"


def workload_entry(key: str, source: ExportKernel | Workload) -> dict[str, Any]:
    """What a function computes: an operator, a text in the notation, or a whole tree."""
    entry: dict[str, Any] = {"key": key, "op": source.op}
    if source.op is not None:
        entry["params"] = dict(source.params)
    elif source.notation is not None:
        entry |= {"notation": source.notation, "shapes": dict(source.shapes)}
    elif source.expression is not None:
        entry["expression"] = expression_document(source.expression)
    return entry | {"constants": list(source.constants), "numerics": source.numerics}


def function_entry(kernel: ExportKernel) -> dict[str, Any]:
    """A kernel's entry under `functions`."""
    ranged = {} if kernel.portfolio is None else _portfolio_entry(kernel.portfolio, kernel)
    packing = {} if kernel.prepack is None else {"prepack": _prepack_entry(kernel)}
    return {
        "symbol": kernel.symbol,
        "workload": workload_entry(kernel.workload_key, kernel),
        "arguments": [
            {
                "name": argument.name,
                "dtype": argument.dtype,
                "shape": list(argument.shape),
                "role": argument.role,
                **({} if argument.fixed is None else {"fixed": list(argument.fixed)}),
                **({} if argument.example is None else {"example": list(argument.example)}),
                **({"format": argument.format} if argument.format else {}),
                **({} if argument.fact is None else {"fact": fact_document(argument.fact)}),
                **({} if argument.bounded is None else {"bounded": argument.bounded.document}),
            }
            for argument in kernel.arguments
        ],
        "target": {
            "key": kernel.target.key,
            "kind": kernel.target.kind,
            "name": kernel.target.name,
        },
        **packing,
        **ranged,
        **_variants_entry(kernel),
        "isa": list(kernel.needed),
        "threads": kernel.threads,
        **({} if kernel.measured else {"measured": False}),
        "median_s": kernel.median_s,
        "ci95_s": list(kernel.ci95_s),
        "verified": kernel.verified,
        "max_rel_error": kernel.max_rel_error,
        "provenance": {
            name: kernel.provenance.get(name) for name in ("job", "trial", "trace", "versions")
        }
        | dict(kernel.provenance),
    }


def _prepack_entry(kernel: ExportKernel) -> dict[str, Any]:
    """The pack function: its symbol, inputs and outputs, and what the kernel then takes."""
    return {
        "symbol": pack_symbol(str(kernel.symbol)),
        "constants": [argument.name for argument in kernel.constants_packed],
        "packed": [
            {"name": argument.name, "dtype": argument.dtype, "shape": list(argument.shape)}
            for argument in kernel.packed
        ],
        "called_with": [argument.name for argument in kernel.called_with],
    }


def _variants_entry(kernel: ExportKernel) -> dict[str, Any]:
    """The variants, the richest CPU first; nothing for a kernel compiled only once."""
    if kernel.portfolio is not None:
        # All members have the same variants; their times stand with the members.
        variants = _variants_entry(kernel.portfolio.kernels[0]).get("variants", [])
        shared = [{"name": variant["name"], "isa": variant["isa"]} for variant in variants]
        return {"variants": shared} if shared else {}
    if not kernel.variants:
        return {}
    own = {
        "name": kernel.target.name,
        "isa": list(kernel.isa),
        "schedule": "tuned",
        "median_s": kernel.median_s,
    }
    lesser = [
        {
            "name": variant.name,
            "isa": list(variant.isa),
            "schedule": variant.schedule,
            "median_s": variant.median_s,
        }
        for variant in kernel.variants
    ]
    errors = [kernel.max_rel_error, *(variant.max_rel_error for variant in kernel.variants)]
    return {
        "variants": [
            variant | {"max_rel_error": error}
            for variant, error in zip([own, *lesser], errors, strict=True)
        ]
    }


def _portfolio_entry(portfolio: Portfolio[ExportKernel], kernel: ExportKernel) -> dict[str, Any]:
    """The range, the arguments that have it as their first dimension, and the kernels."""
    rows = portfolio.rows
    kernels = [
        {
            "extent": extent,
            "workload": member.workload_key,
            "median_s": member.median_s,
            "provenance": dict(member.provenance),
        }
        | _variants_entry(member)
        for extent, member in zip(portfolio.extents, portfolio.kernels, strict=True)
    ]
    names = [kernel.arguments[place].name for place in rows.ranged]
    ends: dict[str, Any] = {"least": rows.low, "greatest": rows.high, "arguments": names}
    if rows.listed:
        ends["listed"] = [
            {"extent": listed.extent, "shapes": [list(shape) for shape in listed.shapes]}
            for listed in rows.listed
        ]
    return {
        "ranges": {rows.name: ends},
        "kernels": kernels,
    }


def read_manifest(directory: Path) -> Manifest:
    """The manifest of an exported directory. Raises ManifestError for any other directory.

    Neither hashes nor the signature are checked; `verify_hashes` does that.
    """
    return _checked(*_parsed(directory)[1:])


def _parsed(directory: Path) -> tuple[bytes, object, Path]:
    """The manifest's bytes, their JSON value, and its path."""
    path = directory / FILE
    try:
        with open_regular(path) as file:
            content = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise ManifestError(
            f"{directory} is no exported library: {FILE}: {error.strerror}"
        ) from error
    if len(content) > LARGEST_BYTES:
        raise ManifestError(f"{path} is larger than {LARGEST_BYTES >> 20} MiB")
    try:
        document = json.loads(content, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"{path} is not valid JSON: {error}") from error
    return content, document, path


def open_regular(path: Path) -> BufferedReader:
    """The file, opened for reading.

    Raises ManifestError for a link, a folder, a pipe or a device, and OSError.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if path.is_symlink():
            raise ManifestError(f"{path} is a link; an exported library has none") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ManifestError(f"{path} is no plain file; an exported library has nothing else")
    return os.fdopen(descriptor, "rb")


def verify_hashes(directory: Path, *, public_key: str | None = None) -> Manifest:
    """The manifest, after its signature and the hashes of all files it lists were checked.

    With `public_key` (as `ed25519:HEX`) it must be signed by that key. All links are
    refused, and so are paths that leave the directory. Files that the manifest does not
    list are not read. Raises ManifestError.
    """
    content, document, origin = _parsed(directory)
    manifest = _checked(document, origin)
    _check_signature(directory, content, manifest, public_key)
    left = LARGEST_EXPORT_BYTES
    for path, digest in manifest.files.items():
        file_path = directory
        for part in PurePosixPath(path).parts:
            file_path = file_path / part
            if file_path.is_symlink():
                raise ManifestError(f"{file_path} is a link; an exported library has none")
        try:
            with open_regular(file_path) as file:
                left -= os.fstat(file.fileno()).st_size
                if left < 0:
                    raise ManifestError(
                        f"the files of {directory} are larger than {LARGEST_EXPORT_BYTES >> 30} GiB"
                    )
                actual = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise ManifestError(
                f"{file_path}: {error.strerror}; export the library again"
            ) from error
        if actual != digest:
            raise ManifestError(
                f"{file_path} was altered: its SHA-256 is {actual}, the manifest says {digest}"
            )
    return manifest


def _check_signature(
    directory: Path, content: bytes, manifest: Manifest, required: str | None
) -> None:
    """Checks the signature over `content`, the manifest's bytes. Raises ManifestError."""
    path = directory / SIGNATURE_FILE
    if manifest.public_key is None:
        if required is not None:
            raise ManifestError(f"{directory} is not signed; {required} was asked for")
        if path.is_symlink() or path.exists():
            raise ManifestError(f"{path} signs nothing: the manifest names no public key")
        return
    if required not in (None, manifest.public_key):
        raise ManifestError(f"{directory} is signed by {manifest.public_key}, not by {required}")
    try:
        with open_regular(path) as file:
            signature = file.read(SIGNATURE_BYTES + 1)
    except OSError as error:
        raise ManifestError(
            f"{path}: {error.strerror}; the manifest says that it was signed by "
            f"{manifest.public_key}"
        ) from error
    if not is_signed(content, signature, manifest.public_key):
        raise ManifestError(
            f"{path} is not the signature of {FILE} by {manifest.public_key}: one of them "
            f"was altered"
        )


def _no_number(text: str) -> NoReturn:
    """Refuses NaN and Infinity, which Python's parser would accept."""
    raise ValueError(f"{text} is no number of JSON")


def _checked(document: object, path: Path) -> Manifest:
    """The manifest in a JSON value. Raises ManifestError for anything else."""
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ManifestError(
            f"{path} has no schema {SCHEMA}; it was not written by this version's export"
        )
    name, library, files, functions = (
        document.get(field) for field in ("name", "library", "files", "functions")
    )
    public_key = document.get("public_key")
    if public_key is not None and not (isinstance(public_key, str) and PUBLIC.match(public_key)):
        raise ManifestError(f"{path}: public_key must be ed25519: and 64 hex digits")
    if not isinstance(name, str) or not isinstance(library, str):
        raise ManifestError(f"{path}: name and library must be texts")
    if not isinstance(files, dict) or not isinstance(functions, list):
        raise ManifestError(f"{path}: files must be an object and functions a list")
    _check_files(files, library, path)
    if not NAME.match(name) or library not in library_paths(name):
        raise ManifestError(f"{path}: {library!r} is not the library of an export called {name!r}")
    if len(functions) > MOST_FUNCTIONS:
        raise ManifestError(
            f"{path}: {len(functions)} functions are more than the {MOST_FUNCTIONS} a "
            f"library may have"
        )
    for index, function in enumerate(functions):
        _check_function(function, f"{path}: function {index}")
    symbols = [function["symbol"] for function in functions]
    if len(set(symbols)) != len(symbols):
        raise ManifestError(f"{path}: two functions have one symbol")
    return Manifest(
        name=name, library=library, files=files, functions=tuple(functions), public_key=public_key
    )


def _check_files(files: dict[str, object], library: str, path: Path) -> None:
    """Checks that all files lie inside the directory and have hashes, the library too."""
    for listed, digest in files.items():
        if not _inside(listed):
            raise ManifestError(f"{path}: {listed!r} is no path inside the directory")
        if not isinstance(digest, str) or not DIGEST.match(digest):
            raise ManifestError(f"{path}: {listed!r} has no SHA-256")
    if library not in files:
        raise ManifestError(f"{path}: the library {library!r} is not among its files")


def _inside(path: str) -> bool:
    """Whether this is a plain relative POSIX path: no `..`, backslash, drive or control."""
    parts = path.split("/")
    printable = path.isprintable() and "\\" not in path and ":" not in path
    return (
        printable
        and path not in (FILE, SIGNATURE_FILE)
        and all(part not in ("", ".", "..") for part in parts)
    )


def _check_function(function: object, where: str) -> None:
    """Checks an entry under `functions`; `where` begins the messages of ManifestError."""
    if not isinstance(function, dict):
        raise ManifestError(f"{where} is not an object")
    for field, kind in FUNCTION_FIELDS.items():
        if not isinstance(function.get(field), kind):
            raise ManifestError(f"{where}: {field} is missing or of the wrong type")
    if not SYMBOL.match(function["symbol"]):
        raise ManifestError(
            f"{where}: the symbol {function['symbol'][:80]!r} is no name of a C function"
        )
    interval = function["ci95_s"]
    if len(interval) != 2 or not all(
        _is_number(value) for value in (*interval, function["median_s"], function["max_rel_error"])
    ):
        raise ManifestError(f"{where}: its times and error must be finite numbers of at least 0")
    if isinstance(function["threads"], bool) or not 1 <= function["threads"] <= MAX_THREADS:
        raise ManifestError(f"{where}: threads must be 1 to {MAX_THREADS}")
    if not all(isinstance(feature, str) for feature in function["isa"]):
        raise ManifestError(f"{where}: isa must be a list of texts")
    _check_variants(function.get("variants", []), where)
    for argument in function["arguments"]:
        _check_argument(argument, where)
    _check_bounded(function["arguments"], where)


def _check_argument(argument: object, where: str) -> None:
    """Checks an argument of a function."""
    if not isinstance(argument, dict) or not {"name", "dtype", "shape", "role"} <= argument.keys():
        raise ManifestError(f"{where}: an argument lacks name, dtype, shape or role")
    texts = all(isinstance(argument[field], str) for field in ("name", "dtype", "role"))
    if not texts or argument["dtype"] not in C_TYPES or argument["role"] not in ("in", "out"):
        raise ManifestError(
            f"{where}: an argument has no name, or a dtype or role that does not exist"
        )
    if not _is_shape(argument["shape"]):
        raise ManifestError(f"{where}: an argument's shape is no list of extents")
    if not isinstance(argument.get("format", ""), str):
        raise ManifestError(f"{where}: an argument's format is no text")
    for field in ("fixed", "example"):
        _check_elements(argument.get(field), argument["shape"], where)


def _check_bounded(arguments: list[dict[str, Any]], where: str) -> None:
    """Checks that the extents of bounded outputs are outputs with a number for each."""
    shapes = {a["name"]: a["shape"] for a in arguments if a["role"] == "out"}
    for argument in arguments:
        if "bounded" not in argument:
            continue
        try:
            bounded = bounded_from(argument["bounded"])
        except (KeyError, TypeError, ValueError) as error:
            raise ManifestError(f"{where}: an argument's bounded extents are damaged") from error
        rank = len(argument["shape"])
        if (
            argument["role"] != "out"
            or any(not 0 <= axis < rank for axis in bounded.axes)
            or shapes.get(bounded.extents) != [len(bounded.axes)]
        ):
            raise ManifestError(f"{where}: an argument's bounded extents are no output")


def _check_elements(elements: object, shape: list[int], where: str) -> None:
    """Checks a value of an argument, where it has one: a number for each element."""
    if elements is None:
        return
    if not isinstance(elements, list) or not all(
        isinstance(value, (int, float)) and abs(value) <= LARGEST_NUMBER for value in elements
    ):
        raise ManifestError(f"{where}: a value of an argument is no list of numbers")
    if len(elements) != prod(shape):
        raise ManifestError(
            f"{where}: a value of an argument has {len(elements)} numbers for its shape {shape}"
        )


def _check_variants(variants: object, where: str) -> None:
    """Checks the variants of a function."""
    if not isinstance(variants, list) or len(variants) > MOST_VARIANTS:
        raise ManifestError(f"{where}: variants must be a list of at most {MOST_VARIANTS}")
    for variant in variants:
        isa = variant.get("isa") if isinstance(variant, dict) else None
        if not isinstance(isa, list) or not all(
            isinstance(feature, str) and FEATURE.match(feature) for feature in isa
        ):
            raise ManifestError(f"{where}: a variant has no list of features")
        if not isinstance(variant.get("name"), str):
            raise ManifestError(f"{where}: a variant has no name")


def _is_number(value: object) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and 0 <= value <= LARGEST_NUMBER
    )


def _is_shape(value: object) -> bool:
    return isinstance(value, list) and all(type(extent) is int and extent >= 0 for extent in value)
