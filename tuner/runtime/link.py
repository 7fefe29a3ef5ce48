"""Kernels' object code linked into a shared or static library with the plain C ABI.

This is what is measured and what is shipped. It links against our runtime only; the
result needs libc, libm and libpthread.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path

from tuner.runtime.interfaces import Interface, headers_of, sources_of
from tuner.runtime.portfolio import Portfolio, replace_kernels
from tuner.runtime.prepack import Prepack, pack_symbol
from tuner.runtime.toolchain import LinkError, Toolchain
from tuner.runtime.wrapper import HELPERS, Entry, exported_symbols, wrapper
from tuner.scratch import temporary_folder
from tuner.target.architectures.table import architecture_of
from tuner.target.target import Target
from tuner.workload.bounded import BoundedExtents
from tuner.workload.expression import Expression, Tensor

SOURCES = (
    "runtime.c", "portfolio.c", "call.c", "facts.c", "cpu_features.c", "threads.c", "workspace.c",
    "error.c",
)  # fmt: skip
HEADERS = (
    "tvm_abi.h", "tuner_runtime.h", "portfolio.h", "call.h", "facts.h", "cpu_features.h",
    "function.h", "thread_pool.h", "workspace.h", "error.h", "scalable_vectors.h",
)  # fmt: skip
# Of modules of WebAssembly, and what <string.h> is there. Other helpers are a system's.
MODULE_SOURCES = ("wasm.c", "call.c", "facts.c")
MODULE_STRING = "wasm_string.h"
MODULE_HELPERS = ("alloc", "free", "last_error")
# Functions of libm that a module may import, and the same of float32.
MATHEMATICS = tuple(
    f"{name}{suffix}"
    for name in ("exp", "exp2", "exp10", "log", "tanh", "erf", "pow", "ldexp")
    for suffix in ("", "f")
)
MAX_THREADS = 256  # TUNER_MAX_THREADS
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,200}\Z")


@dataclass(frozen=True, kw_only=True)
class Function:
    """A function of a library, with its object code."""

    symbol: str  # the C function's name in the library
    inputs: tuple[Tensor, ...]  # in call order
    outputs: tuple[Tensor, ...]  # after the inputs
    object_code: bytes  # relocatable object with TVM's packed entry
    isa: tuple[str, ...]  # features the code may use, LLVM's spelling; checked at the first call
    threads: int  # the kernel was tuned for; what a call uses unless set otherwise
    tvm_symbol: str  # the packed entry in object_code, `__tvm_ffi_<global symbol>`
    # The function `<symbol>_pack` beside it, where constants are packed before its calls.
    prepack: Prepack | None = None
    # Outputs with extents that are computed, by name.
    bounded: tuple[tuple[str, BoundedExtents], ...] = ()
    # Positions of inputs whose memory an output may have, where only code of ours calls.
    overwritable: tuple[int, ...] = ()
    # Kernels that serve any number of rows in a range. Inputs and outputs are those of the
    # greatest. This function then has no code of its own, and takes the number of rows last.
    portfolio: Portfolio[Function] | None = None
    # The same kernel compiled for other CPUs. The first is called whose features the CPU
    # has. Their pack functions give what this one's gives.
    variants: tuple[Function, ...] = ()

    @classmethod
    def of(
        cls,
        expression: Expression,
        symbol: str,
        object_code: bytes,
        *,
        isa: tuple[str, ...],
        threads: int,
        prepack: Prepack | None = None,
    ) -> Function:
        """That of an expression which TVM compiled under the same symbol."""
        return cls(
            symbol=symbol,
            inputs=expression.inputs,
            outputs=tuple(expression.tensor(name) for name in expression.outputs),
            object_code=object_code,
            isa=isa,
            threads=threads,
            tvm_symbol=f"__tvm_ffi_{symbol}",
            prepack=prepack,
        )

    @property
    def kernels(self) -> tuple[Function, ...]:
        """The functions with code that it consists of."""
        if self.portfolio is not None:
            return tuple(
                function for kernel in self.portfolio.kernels for function in kernel.kernels
            )
        return (self, *self.variants)


def link(
    name: str,
    functions: Sequence[Function],
    *,
    toolchain: Toolchain | None = None,
    interfaces: Sequence[Interface] = (),
) -> bytes:
    """A shared library, soname lib<name>.so.

    `interfaces` are those of frameworks that it has besides C's. The same inputs and
    compiler give the same bytes. Raises LinkError for names that are no C identifiers or
    occur twice, and where the compiler is missing or refuses.
    """
    tools = toolchain if toolchain is not None else system_toolchain()
    with ExitStack() as stack:
        objects, exported = _objects(name, functions, tools, stack, interfaces)
        return tools.shared(
            objects, soname=f"lib{name}.so", exported=(*exported, "tuner_library_json")
        )


def link_static(
    name: str,
    functions: Sequence[Function],
    *,
    toolchain: Toolchain | None = None,
    interfaces: Sequence[Interface] = (),
) -> bytes:
    """The same as an archive (lib<name>.a) that shows only the exported symbols."""
    tools = toolchain if toolchain is not None else system_toolchain()
    with ExitStack() as stack:
        objects, exported = _objects(name, functions, tools, stack, interfaces)
        return tools.static(objects, member=f"{name}.o", exported=exported)


def link_module(name: str, functions: Sequence[Function], *, toolchain: Toolchain) -> bytes:
    """The same as a module of WebAssembly that has its own memory.

    It shows the functions, `<name>_alloc`, `_free` and `_last_error`, and
    `tuner_library_json`; what it imports of MATHEMATICS is in the namespace `env`.
    """
    with ExitStack() as stack:
        objects, symbols = _objects(name, functions, toolchain, stack, ())
        lacking = {f"{name}_{helper}" for helper in HELPERS if helper not in MODULE_HELPERS}
        exported = [symbol for symbol in symbols if symbol not in lacking]
        return toolchain.module(
            objects, exported=(*exported, "tuner_library_json"), imported=MATHEMATICS
        )


@cache
def system_toolchain() -> Toolchain:
    """The compiler, found once a process.

    Asking it for its version takes longer than linking.
    """
    return Toolchain.find()


def toolchain_for(target: Target) -> Toolchain:
    """The compiler of a target's libraries: the system's, or a cross compiler.

    Raises LinkError where there is none.
    """
    architecture, system = architecture_of(target), system_toolchain()
    if not architecture.triple or architecture.triple.startswith(f"{system.machine}-"):
        return system
    return _cross(architecture.triple, architecture.freestanding)


@cache
def _cross(triple: str, freestanding: bool) -> Toolchain:
    return Toolchain.cross(triple, freestanding=freestanding)


@cache
def runtime_sources() -> dict[str, str]:
    """The runtime's C files by name, as installed with the package."""
    return {name: _source(name) for name in (*SOURCES, *HEADERS)}


@cache
def _source(name: str) -> str:
    return (files("tuner.runtime") / "src" / name).read_text()


def _objects(
    name: str,
    functions: Sequence[Function],
    tools: Toolchain,
    stack: ExitStack,
    interfaces: Sequence[Interface],
) -> tuple[list[Path], tuple[str, ...]]:
    exported = exported_symbols(name, [_entry(function) for function in functions], interfaces)
    functions = _with_distinct_kernels(functions, tools, exported)
    entries = [_entry(function) for function in functions]
    _check_names(name, exported)
    for function in functions:
        if not 1 <= function.threads <= MAX_THREADS:
            raise LinkError(
                f"{function.symbol}: {function.threads} threads; the runtime takes 1 to "
                f"{MAX_THREADS}"
            )
    headers = {header: _source(header) for header in HEADERS}
    if tools.freestanding:
        headers["string.h"] = _source(MODULE_STRING)
    text = wrapper(name, entries, machine=tools.machine, interfaces=interfaces)
    used = {header: _source(header) for header in headers_of(interfaces)}
    objects = [tools.compile("library.c", text, {**headers, **used})]
    objects += [
        tools.compile(source, _source(source), headers)
        for source in (MODULE_SOURCES if tools.freestanding else SOURCES)
    ]
    objects += [
        tools.compile(source, _source(source), {**headers, **used})
        for source in sources_of(interfaces)
    ]
    scratch = stack.enter_context(temporary_folder("tuner-scratch-link-"))
    for index, code in enumerate(
        dict.fromkeys(kernel.object_code for function in functions for kernel in function.kernels)
    ):
        path = scratch / f"kernel{index}.o"
        path.write_bytes(code)
        objects.append(path)
    return objects, exported


def _entry(function: Function) -> Entry:
    return Entry(
        symbol=function.symbol,
        inputs=function.inputs,
        outputs=function.outputs,
        isa=function.isa,
        threads=function.threads,
        tvm_symbol=function.tvm_symbol,
        prepack=function.prepack,
        bounded=function.bounded,
        overwritable=function.overwritable,
        portfolio=_entries(function.portfolio),
        variants=tuple(_entry(variant) for variant in function.variants),
    )


def _entries(portfolio: Portfolio[Function] | None) -> Portfolio[Entry] | None:
    if portfolio is None:
        return None
    return replace_kernels(portfolio, tuple(_entry(kernel) for kernel in portfolio.kernels))


def _with_distinct_kernels(
    functions: Sequence[Function], tools: Toolchain, exported: Sequence[str]
) -> list[Function]:
    kernels = [kernel for function in functions for kernel in function.kernels]
    distinct = iter(_distinct_entries(kernels, tools, exported))
    return [_with_kernels(function, distinct) for function in functions]


def _with_kernels(function: Function, kernels: Iterator[Function]) -> Function:
    """The function with its code replaced by the next kernels.

    They come in the order of `Function.kernels`.
    """
    portfolio = function.portfolio
    if portfolio is not None:
        members = tuple(_with_kernels(kernel, kernels) for kernel in portfolio.kernels)
        return replace(function, portfolio=replace(portfolio, kernels=members))
    return replace(next(kernels), variants=tuple(next(kernels) for _ in function.variants))


def _distinct_entries(
    functions: Sequence[Function], tools: Toolchain, exported: Sequence[str]
) -> list[Function]:
    """The kernels with entries renamed where kernels compiled apart share a name.

    So are those with the name of an exported function. Functions of one object share its
    entry.
    """
    codes: dict[str, set[bytes]] = {}
    for function in functions:
        codes.setdefault(function.tvm_symbol, set()).add(function.object_code)
    renamed_kernels: dict[tuple[bytes, str], Function] = {}
    result = []
    for function in functions:
        names = {function.tvm_symbol, function.prepack.tvm_symbol if function.prepack else ""}
        if len(codes[function.tvm_symbol]) == 1 and names.isdisjoint(exported):
            result.append(function)
            continue
        key = (function.object_code, function.tvm_symbol)
        if key not in renamed_kernels:
            renamed_kernels[key] = _renamed(function, f"tuner_entry_{len(renamed_kernels)}", tools)
        renamed = renamed_kernels[key]
        result.append(
            replace(
                function,
                object_code=renamed.object_code,
                tvm_symbol=renamed.tvm_symbol,
                prepack=renamed.prepack,
            )
        )
    return result


def _renamed(function: Function, entry: str, tools: Toolchain) -> Function:
    """The function with its entry renamed in the object code.

    Its pack function's entry is named after that.
    """
    code = tools.renamed(function.object_code, function.tvm_symbol, entry)
    prepack = function.prepack
    if prepack is not None:
        code = tools.renamed(code, prepack.tvm_symbol, pack_symbol(entry))
        prepack = replace(prepack, tvm_symbol=pack_symbol(entry))
    return replace(function, object_code=code, tvm_symbol=entry, prepack=prepack)


def _check_names(name: str, exported: Sequence[str]) -> None:
    if not exported[len(HELPERS) :]:
        raise LinkError(f"library {name} has no function")
    for symbol in (name, *exported):
        if not IDENTIFIER.match(symbol):
            raise LinkError(f"{symbol!r} is no C identifier of at most 200 characters")
    twice = sorted({symbol for symbol in exported if exported.count(symbol) > 1})
    if twice:
        raise LinkError(
            f"library {name} would define {', '.join(twice)} twice; name the functions apart"
        )
