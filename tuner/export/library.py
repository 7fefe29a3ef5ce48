"""Exports kernels as a library that does not need tuner: code, headers, package, manifest."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

from tuner.export.derivatives import product_of
from tuner.export.directory import check_replaceable, place
from tuner.export.errors import ExportRefused
from tuner.export.examples import example_files
from tuner.export.frameworks import LOADER, Library, files_of, interfaces_of
from tuner.export.header import c_header, cpp_header, title
from tuner.export.kernel import ExportKernel, Variant
from tuner.export.manifest import (
    FILE,
    SIGNATURE_FILE,
    Manifest,
    function_entry,
    library_paths,
)
from tuner.export.module import module_files
from tuner.export.naming import check_library_name, named
from tuner.export.signature import Signer
from tuner.export.template import fill
from tuner.runtime.link import Function, link, link_static, system_toolchain
from tuner.runtime.portfolio import replace_kernels
from tuner.runtime.toolchain import Toolchain


def export_library(
    kernels: Sequence[ExportKernel],
    directory: Path,
    name: str,
    *,
    toolchain: Toolchain | None = None,
    signer: Signer | None = None,
    frameworks: Sequence[str] = (),
) -> Manifest:
    """Writes the library `name` with one function for each kernel into `directory`.

    It has what `tuner.export.frameworks` says of the named frameworks besides.
    An earlier export there is replaced. The same kernels, compiler and key give the same
    bytes. Raises ExportRefused (names, no kernels, a directory that is no export),
    LinkError (compiler) and ExportError (disk). In each case the directory is as it was.
    """
    check_library_name(name)
    if not kernels:
        raise ExportRefused("no kernels to export; tune one first")
    check_replaceable(directory)
    complete = named(kernels, name)
    contents = build_files(complete, name, toolchain=toolchain, frameworks=frameworks)
    functions = tuple(function_entry(kernel) for kernel in complete)
    return write_library(contents, functions, directory, name, signer)


def write_library(
    contents: Mapping[str, bytes],
    functions: Sequence[Mapping[str, Any]],
    directory: Path,
    name: str,
    signer: Signer | None,
) -> Manifest:
    """Writes the files of the library `name` with their manifest, whole or not at all.

    `functions` are their entries in it. Raises ExportRefused for entries that are no JSON,
    and ExportError.
    """
    manifest = Manifest(
        name=name,
        library=next(path for path in library_paths(name) if path in contents),
        files={path: sha256(content).hexdigest() for path, content in sorted(contents.items())},
        functions=tuple(functions),
        public_key=None if signer is None else signer.public_key,
    )
    try:
        document = (
            json.dumps(manifest.document(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        ).encode()
    except (TypeError, ValueError) as error:
        raise ExportRefused(
            f"a kernel's numbers or provenance cannot be written as JSON: {error}"
        ) from error
    signed = {} if signer is None else {SIGNATURE_FILE: signer.sign(document)}
    place(directory, {**contents, FILE: document, **signed})
    return manifest


def build_files(
    kernels: Sequence[ExportKernel],
    name: str,
    *,
    toolchain: Toolchain | None = None,
    frameworks: Sequence[str] = (),
) -> dict[str, bytes]:
    """All files of the export by path, except the manifest. The kernels must have symbols."""
    functions = [function_of(kernel) for kernel in kernels]
    tools = system_toolchain() if toolchain is None else toolchain
    if tools.freestanding:
        return module_files(name, kernels, functions, _described(kernels), tools)
    interfaces = interfaces_of(frameworks)
    texts = {
        f"include/{name}.h": c_header(name, kernels),
        f"include/{name}.hpp": cpp_header(name, kernels),
        f"cmake/{name}-config.cmake": fill("config.cmake.in", name=name),
        f"lib/pkgconfig/{name}.pc": fill("library.pc.in", name=name),
        f"{name}/__init__.py": _package(name, kernels),
        f"{name}/operators.py": fill("operators.py.in", name=name, einsums=_einsums(kernels)),
        **{f"{name}/{file}": (files("tuner.runtime") / file).read_text() for file in LOADER},
        "pyproject.toml": fill("pyproject.toml.in", name=name),
        "setup.py": fill("setup.py.in", name=name),
        **example_files(name, kernels),
    }
    if tools.prefix:
        triple = tools.prefix.removesuffix("-")
        texts["cmake/toolchain.cmake"] = fill(
            "toolchain.cmake.in", name=name, triple=triple, machine=tools.machine
        )
    contents = {
        f"lib/lib{name}.so": link(name, functions, toolchain=tools, interfaces=interfaces),
        f"lib/lib{name}.a": link_static(name, functions, toolchain=tools, interfaces=interfaces),
        **{path: text.encode() for path, text in texts.items()},
    }
    library = Library(
        name=name,
        kernels=kernels,
        files=contents,
        machine=tools.machine,
        described=_described(kernels),
    )
    return contents | files_of(frameworks, library)


def function_of(kernel: ExportKernel) -> Function:
    """The kernel as the linker takes it. Raises ExportRefused for one without a symbol."""
    if kernel.symbol is None:
        raise ExportRefused(f"the kernel of workload {kernel.workload_key} has no function name")
    portfolio = kernel.portfolio
    kernels = (
        [] if portfolio is None else list(zip(portfolio.kernels, portfolio.extents, strict=True))
    )
    members = tuple(
        function_of(replace(member, symbol=f"{kernel.symbol}_{extent}"))
        for member, extent in kernels
    )
    function = Function(
        symbol=kernel.symbol,
        inputs=tuple(argument.tensor for argument in kernel.inputs),
        outputs=tuple(argument.tensor for argument in kernel.outputs),
        object_code=kernel.object_code,
        isa=kernel.isa if portfolio is None else kernel.needed,
        threads=kernel.threads,
        tvm_symbol=kernel.tvm_symbol,
        prepack=kernel.prepack,
        bounded=tuple((a.name, a.bounded) for a in kernel.outputs if a.bounded is not None),
        portfolio=None if portfolio is None else replace_kernels(portfolio, members),
    )
    return replace(
        function, variants=tuple(_variant_of(function, variant) for variant in kernel.variants)
    )


def _variant_of(function: Function, variant: Variant) -> Function:
    """The function with the variant's code."""
    return replace(
        function,
        isa=variant.isa,
        object_code=variant.object_code,
        tvm_symbol=variant.tvm_symbol,
        prepack=variant.prepack,
    )


def _package(name: str, kernels: Sequence[ExportKernel]) -> str:
    """`__init__.py` of the Python package."""
    symbols = [str(kernel.symbol) for kernel in kernels]
    return fill(
        "package.py.in",
        name=name,
        functions=_described(kernels),
        assignments="".join(f'{symbol} = library.function("{symbol}")\n' for symbol in symbols),
        names="".join(f'    "{symbol}",\n' for symbol in symbols),
    )


def _einsums(kernels: Sequence[ExportKernel]) -> str:
    """The functions whose derivatives are einsums, as the entries of a Python dictionary."""
    products = ((kernel.symbol, product_of(kernel.expression)) for kernel in kernels)
    text = "".join(
        f'    "{symbol}": ({list(map(list, product.inputs))}, {list(product.output)}),\n'
        for symbol, product in products
        if product is not None
    )
    return f"\n{text}" if text else ""


def _described(kernels: Sequence[ExportKernel]) -> str:
    """What the functions compute, for the docstring of a package."""
    lines = "\n".join(
        f"    {kernel.symbol}: {_docstring_safe(title(kernel))}" for kernel in kernels
    )
    return f"Functions:\n{lines}"


def _docstring_safe(text: str) -> str:
    """The text as it may stand in a Python docstring."""
    return text.replace('"""', "'''").replace("\\", "/").rstrip('"')
