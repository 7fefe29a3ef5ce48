"""What an export has besides for a framework: an interface of its library, and files.

Nothing of a framework is needed to export for it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from tuner.export.errors import ExportRefused
from tuner.export.kernel import ExportKernel
from tuner.export.template import fill
from tuner.runtime.interfaces import ONNX_RUNTIME, TVM_FFI, XLA_FFI, Interface

HUB = "huggingface"  # the folder of an export that is a repository of Hugging Face's `kernels`
_TORCH = "24"  # the operators need PyTorch 2.4
LOADER = ("loader.py", "signature.py")  # of tuner.runtime, which the Python package carries
_LOADED = (*LOADER, "operators.py")  # of the Python package, which the hub's carries too


@dataclass(frozen=True, kw_only=True)
class Library:
    """An export as a framework's files are made of it."""

    name: str
    kernels: Sequence[ExportKernel]  # with symbols
    files: Mapping[str, bytes]  # those that each export has, by path
    machine: str  # the architecture, as the operating system names it
    described: str  # of the functions, a line for each


@dataclass(frozen=True, kw_only=True)
class Framework:
    """A framework that an export can be for."""

    interfaces: tuple[Interface, ...] = ()
    files: Callable[[Library], Mapping[str, bytes]] = lambda library: {}


def checked_frameworks(text: str, name: str) -> tuple[str, ...]:
    """The frameworks that a text with commas names, for a library of that name.

    Raises ExportRefused.
    """
    chosen = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    unknown = [framework for framework in chosen if framework not in FRAMEWORKS]
    if unknown or not chosen:
        raise ExportRefused(
            f"--for {text!r}: give one or more of {', '.join(FRAMEWORKS)}, with commas"
        )
    if name in chosen and name != "c":
        raise ExportRefused(f"a library for {name} cannot have its name; choose another by --name")
    return chosen


def interfaces_of(frameworks: Sequence[str]) -> tuple[Interface, ...]:
    """The interfaces of a library for these frameworks; each library has tvm-ffi's."""
    more = (interface for name in frameworks for interface in FRAMEWORKS[name].interfaces)
    return tuple(dict.fromkeys((TVM_FFI, *more)))


def files_of(frameworks: Sequence[str], library: Library) -> dict[str, bytes]:
    """The files that an export has for these frameworks, by path."""
    files: dict[str, bytes] = {}
    for name in frameworks:
        files |= FRAMEWORKS[name].files(library)
    return files


def _jax_files(library: Library) -> Mapping[str, bytes]:
    return {f"{library.name}/jax.py": fill("jax.py.in", name=library.name).encode()}


def _hub_files(library: Library) -> Mapping[str, bytes]:
    """A repository as `kernels.get_local_kernel` reads it, with one variant.

    The layout is that of `kernels` 0.17: a variant for PyTorch's stable ABI is taken from
    a version of PyTorch on, and one that links nothing of it goes with each.
    """
    name, symbols = library.name, [str(kernel.symbol) for kernel in library.kernels]
    top = fill(
        "kernels.py.in",
        name=name,
        functions=library.described,
        assignments="".join(f'{symbol} = operators["{symbol}"]\n' for symbol in symbols),
        names="".join(f'    "{symbol}",\n' for symbol in symbols),
    )
    inner = f"_{name}"
    contents = {
        "__init__.py": top.encode(),
        f"{inner}/__init__.py": library.files[f"{name}/__init__.py"],
        **{f"{inner}/{file}": library.files[f"{name}/{file}"] for file in _LOADED},
        f"{inner}/lib{name}.so": library.files[f"lib/lib{name}.so"],
    }
    metadata = {
        "name": name.replace("_", "-"),
        "id": name,
        "version": 1,
        "license": "other",
        "python-depends": [],
        "backend": {"type": "cpu"},
        "digest": {
            "algorithm": "sha256",
            "files": {
                path: base64.b64encode(sha256(content).digest()).decode()
                for path, content in sorted(contents.items())
            },
        },
    }
    contents["metadata.json"] = (json.dumps(metadata, indent=2) + "\n").encode()
    folder = f"{HUB}/build/torch-stable-abi{_TORCH}-cpu-{library.machine}-linux"
    return {f"{folder}/{path}": content for path, content in contents.items()}


FRAMEWORKS: Mapping[str, Framework] = {
    "c": Framework(),
    "torch": Framework(files=_hub_files),
    "jax": Framework(interfaces=(XLA_FFI,), files=_jax_files),
    "onnxruntime": Framework(interfaces=(ONNX_RUNTIME,)),
}
