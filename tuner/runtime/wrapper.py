"""The generated C of a library.

One checked entry for each kernel, the `<name>_*` helpers, and a description of itself
as JSON. It depends on names, signatures, features and threads, never on object code. So
all candidates of a workload share it compiled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tuner.runtime.interfaces import Interface
from tuner.runtime.portfolio import Portfolio
from tuner.runtime.prepack import Prepack, pack_symbol
from tuner.runtime.toolchain import LinkError
from tuner.target.architectures.table import architecture_named
from tuner.workload.bounded import BoundedExtents
from tuner.workload.expression import Fact, Splits, Tensor, Within
from tuner.workload.rows import Rows

MAX_ARGUMENTS = 512  # TUNER_MAX_ARGUMENTS
VECTOR_BYTES: Mapping[str, int] = {"avx512f": 64, "avx2": 32}  # that features stand for

C_TYPES: Mapping[str, str] = {
    "float64": "double", "float32": "float", "float16": "uint16_t", "bfloat16": "uint16_t",
    "int64": "int64_t", "int32": "int32_t", "int16": "int16_t", "int8": "int8_t",
    "uint64": "uint64_t", "uint32": "uint32_t", "uint16": "uint16_t", "uint8": "uint8_t",
    "bool": "uint8_t",
}  # fmt: skip

# DLPack's (code, bits).
DLPACK: Mapping[str, tuple[int, int]] = {
    "float64": (2, 64), "float32": (2, 32), "float16": (2, 16), "bfloat16": (4, 16),
    "int64": (0, 64), "int32": (0, 32), "int16": (0, 16), "int8": (0, 8),
    "uint64": (1, 64), "uint32": (1, 32), "uint16": (1, 16), "uint8": (1, 8), "bool": (6, 8),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What the wrapper of a kernel needs: all of a Function but its code."""

    symbol: str  # the C function's name
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    isa: tuple[str, ...]  # features in LLVM's spelling
    threads: int  # the kernel was tuned for
    tvm_symbol: str  # the entry in the object code
    prepack: Prepack | None = None  # the function that packs its constants
    bounded: tuple[tuple[str, BoundedExtents], ...] = ()  # outputs with computed extents
    portfolio: Portfolio[Entry] | None = None  # kernels for fixed numbers of rows
    variants: tuple[Entry, ...] = ()  # the same compiled for other CPUs
    # Inputs whose memory an output may have. Of functions that only code of ours calls.
    overwritable: tuple[int, ...] = ()

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (*self.inputs, *self.outputs)

    @property
    def needed(self) -> tuple[str, ...]:
        """Features without which no kernel of it can be called.

        Of a portfolio, those that its description gives.
        """
        return self.variants[-1].isa if self.variants else self.isa

    @property
    def plain(self) -> tuple[Entry, ...]:
        """The C functions that it consists of.

        Itself, or the kernel on packed buffers and its pack function.
        """
        prepack = self.prepack
        if prepack is None:
            return (self,)
        return (
            replace(
                self,
                inputs=prepack.kernel_inputs(self.inputs, prepack.packed),
                prepack=None,
                variants=tuple(variant.plain[0] for variant in self.variants),
            ),
            replace(
                self,
                symbol=pack_symbol(self.symbol),
                inputs=tuple(self.inputs[place] for place in prepack.constants),
                outputs=prepack.packed,
                tvm_symbol=prepack.tvm_symbol,
                prepack=None,
                variants=tuple(variant.plain[1] for variant in self.variants),
            ),
        )


# What every library has besides its functions, as `<library>_<helper>`.
HELPERS = ("alloc", "free", "last_error", "set_num_threads", "time", "workspace_bytes")


def exported_symbols(
    name: str, entries: Sequence[Entry], interfaces: Sequence[Interface] = ()
) -> tuple[str, ...]:
    """What users link against, and what frameworks look up.

    The shared library shows `tuner_library_json` besides.
    """
    helpers = tuple(f"{name}_{helper}" for helper in HELPERS)
    plain = [entry.symbol for entry in _plain(entries)]
    looked_up = (symbol for interface in interfaces for symbol in interface.symbols(plain))
    return (*helpers, *plain, *looked_up)


def _plain(entries: Sequence[Entry]) -> list[Entry]:
    return [function for entry in entries for function in entry.plain]


def describe(name: str, entries: Sequence[Entry]) -> str:
    """The library's description, canonical JSON, as `tuner_library_json()` returns it.

    A function's arguments are those before packing; `prepack` says which constants are
    packed, by `<symbol>_pack`, into what.
    """
    functions = [
        {
            "symbol": entry.symbol,
            "arguments": [
                {
                    "name": tensor.name,
                    "dtype": tensor.dtype,
                    "shape": list(tensor.shape),
                    "role": role,
                    **_bounded(entry, tensor),
                }
                for role, tensors in (("in", entry.inputs), ("out", entry.outputs))
                for tensor in tensors
            ],
            "isa": list(entry.needed),
            "threads": entry.threads,
        }
        | (
            {}
            if not entry.variants
            else {"variants": [{"isa": list(variant.isa)} for variant in (entry, *entry.variants)]}
        )
        | ({} if entry.portfolio is None else {"rows": _rows(entry.portfolio.rows)})
        | (
            {}
            if entry.prepack is None
            else {"prepack": {"symbol": pack_symbol(entry.symbol), **_described(entry.prepack)}}
        )
        for entry in entries
    ]
    return json.dumps(
        {"schema": 1, "name": name, "functions": functions}, sort_keys=True, separators=(",", ":")
    )


def _bounded(entry: Entry, tensor: Tensor) -> dict[str, Any]:
    """The extents of an output that are computed."""
    bounded = dict(entry.bounded).get(tensor.name)
    return {} if bounded is None else {"bounded": bounded.document}


def _rows(rows: Rows) -> dict[str, Any]:
    """What a loader needs of a range; of listed extents also their shapes."""
    document = asdict(rows)
    if not rows.listed:
        del document["listed"], document["shown"]
    return document


def _described(prepack: Prepack) -> dict[str, Any]:
    """What a loader needs of a prepack: all but the name in the object code."""
    return {name: value for name, value in prepack.document().items() if name != "tvm_symbol"}


def signature(entry: Entry) -> str:
    """`int symbol(const float *in0, float *out0)`.

    Names of arguments cannot meet a C keyword.
    """
    inputs = [
        f"const {C_TYPES[tensor.dtype]} *in{index}" for index, tensor in enumerate(entry.inputs)
    ]
    outputs = [f"{C_TYPES[tensor.dtype]} *out{index}" for index, tensor in enumerate(entry.outputs)]
    rows = [] if entry.portfolio is None else ["int64_t rows"]
    return f"int {entry.symbol}({', '.join(inputs + outputs + rows)})"


def wrapper(
    name: str, entries: Sequence[Entry], *, machine: str, interfaces: Sequence[Interface] = ()
) -> str:
    """The C text of a library.

    `machine` is the architecture that it is compiled for, as the operating system names
    it.
    """
    headers = "".join(f'#include "{interface.header}"\n' for interface in interfaces)
    plain = _plain(entries)
    parts = [f'#include "tuner_runtime.h"\n{headers}\n#include <string.h>\n']
    parts += [_function(str(index), entry, machine) for index, entry in enumerate(plain)]
    parts.append(_helpers(name, entries))
    symbols = [entry.symbol for entry in plain]
    parts += [interface.text(name, symbols) for interface in interfaces]
    return "\n".join(parts)


def _function(index: str, entry: Entry, machine: str) -> str:
    """The tables of one C function, and the function itself.

    `index` tells its tables from those of others.
    """
    if entry.portfolio is None:
        return _compiled(index, entry, machine) + _exported(index, entry)
    portfolio = entry.portfolio
    kernels = "".join(
        _compiled(f"{index}_{number}", kernel, machine)
        for number, kernel in enumerate(portfolio.kernels)
    )
    named = ", ".join(f"&function_{index}_{number}" for number in range(len(portfolio.kernels)))
    names = portfolio.rows.names
    listed = f"  .listed = {_quoted(names)},\n" if names else ""
    tables = (
        f"static const struct tuner_function *const kernels_{index}[] = {{{named}}};\n"
        f"static const int64_t rows_{index}[] = {{{', '.join(map(str, portfolio.extents))}}};\n"
        f"static const uint8_t plan_{index}[] = {{{', '.join(map(str, portfolio.plan)) or '0'}}};\n"
        f"static const struct tuner_portfolio portfolio_{index} = {{\n"
        f"  .extent = {_quoted(portfolio.rows.name)}, .low = {portfolio.rows.low}, .high = "
        f"{portfolio.rows.high},\n"
        f"  .kernels = kernels_{index}, .rows = rows_{index}, .plan = plan_{index},\n"
        f"{listed}  .num_kernels = {len(portfolio.kernels)},\n}};\n"
        f"{_arguments(index, entry)}"
        f"static const struct tuner_function function_{index} = {{\n"
        f"  .symbol = {_quoted(entry.symbol)}, .arguments = arguments_{index}, .num_arguments = "
        f"{len(entry.tensors)},\n"
        f"  .threads = {entry.threads}, .portfolio = &portfolio_{index},\n}};\n"
    )
    return kernels + tables + _exported(index, entry)


def _arguments(index: str, entry: Entry) -> str:
    """The table of a function's arguments, with their shapes."""
    if len(entry.tensors) > MAX_ARGUMENTS:
        raise LinkError(
            f"{entry.symbol} has {len(entry.tensors)} arguments; the runtime takes at most "
            f"{MAX_ARGUMENTS}"
        )
    shapes = "".join(
        f"static const int64_t shape_{index}_{place}[] = "
        f"{{{', '.join(map(str, tensor.shape)) or '0'}}};\n"
        for place, tensor in enumerate(entry.tensors)
    )
    rows = "".join(_argument(index, entry, place) for place in range(len(entry.tensors)))
    return f"{shapes}static const struct tuner_argument arguments_{index}[] = {{\n{rows}}};\n"


def _argument(index: str, entry: Entry, place: int) -> str:
    """One argument as a `struct tuner_argument`."""
    tensor = entry.tensors[place]
    code, bits = DLPACK[tensor.dtype]
    is_output = int(place >= len(entry.inputs))
    rows = None if entry.portfolio is None else entry.portfolio.rows
    ranged = rows is not None and not rows.listed and place in rows.ranged
    row_bytes = tensor.nbytes // tensor.shape[0] if ranged else 0
    overwritable = ", 1" if place in entry.overwritable else ""
    if tensor.fact is not None:
        overwritable = f", {int(place in entry.overwritable)}, {_fact(tensor.fact)}"
    return (
        f"  {{{_quoted(tensor.name)}, shape_{index}_{place}, {tensor.nbytes}u, "
        f"{len(tensor.shape)}, {code}, {bits}, {is_output}, {row_bytes}u{overwritable}}},\n"
    )


def _fact(fact: Fact) -> str:
    """The kind of a fact, and the range of elements, as `struct tuner_argument` has them."""
    match fact:
        case Within(start=start, stop=stop):
            return f"TUNER_WITHIN, {start}, {stop}"
        case Splits(stop=stop):
            return f"TUNER_SPLITS, 0, {stop + 1}"


def kernel_tables(index: str, entry: Entry, machine: str) -> str:
    """C text of `function_<index>`, which `tuner_call` takes.

    For C of ours that calls kernels itself.
    """
    return _compiled(index, entry, machine)


def _compiled(index: str, entry: Entry, machine: str) -> str:
    """The tables of a kernel.

    Of one compiled for several CPUs, those of each, and a function that chooses.
    """
    if not entry.variants:
        return _kernel(index, entry, machine)
    if architecture_named(machine).cpuid is None:
        raise LinkError(
            f"{entry.symbol}: a library with kernels for several CPUs must look up their "
            f"features, which it cannot on {machine}; x86-64 can"
        )
    every = (entry, *entry.variants)
    named = ", ".join(f"&function_{index}_v{number}" for number in range(len(every)))
    kernels = "".join(
        _kernel(f"{index}_v{number}", variant, machine) for number, variant in enumerate(every)
    )
    return (
        f"{kernels}"
        f"static const struct tuner_function *const variants_{index}[] = {{{named}}};\n"
        f"static atomic_int isa_state_{index};\n"
        f"static const struct tuner_function function_{index} = {{\n"
        f"  .symbol = {_quoted(entry.symbol)}, .arguments = arguments_{index}_v0, "
        f".num_arguments = {len(entry.tensors)},\n"
        f"  .isa_state = &isa_state_{index}, .threads = {entry.threads},\n"
        f"  .variants = variants_{index}, .num_variants = {len(every)},\n}};\n"
    )


def _kernel(index: str, entry: Entry, machine: str) -> str:
    features = _features(entry, machine)
    vector_bytes = max((VECTOR_BYTES.get(name, 0) for name in entry.isa), default=0)
    return (
        f"extern int {entry.tvm_symbol}(void *, const TunerAny *, int32_t, TunerAny *);\n"
        f"{_arguments(index, entry)}"
        f"static const struct tuner_feature features_{index}[] = {{\n{''.join(features)}  "
        f"{{0}},\n}};\n"
        f"static atomic_int isa_state_{index};\n"
        f"static const struct tuner_function function_{index} = {{\n"
        f"  .symbol = {_quoted(entry.symbol)}, .entry = {entry.tvm_symbol}, .arguments = "
        f"arguments_{index},\n"
        f"  .features = features_{index}, .isa_state = &isa_state_{index}, .num_arguments = "
        f"{len(entry.tensors)},\n"
        f"  .num_features = {len(features)}, .threads = {entry.threads}, .vector_bytes = "
        f"{vector_bytes},\n}};\n"
    )


def _exported(index: str, entry: Entry) -> str:
    buffers = [f"(void *)in{place}" for place in range(len(entry.inputs))] + [
        f"out{place}" for place in range(len(entry.outputs))
    ]
    buffers += [] if entry.portfolio is None else ["(void *)(intptr_t)rows"]
    return (
        f"TUNER_EXPORT {signature(entry)} {{\n"
        f"  void *const buffers[] = {{{', '.join(buffers)}}};\n"
        f"  return tuner_call(&function_{index}, buffers);\n}}\n"
    )


def _features(entry: Entry, machine: str) -> list[str]:
    cpuid = architecture_named(machine).cpuid
    if cpuid is None:
        return []
    unknown = sorted(set(entry.isa) - set(cpuid))
    if unknown:
        raise LinkError(
            f"{entry.symbol}: unknown instruction-set features {', '.join(unknown)}; known are "
            f"{', '.join(sorted(cpuid))}"
        )
    rows = ((name, cpuid[name]) for name in sorted(set(entry.isa)))
    return [
        f"  {{{_quoted(name)}, {of.leaf}u, {of.subleaf}u, {of.reg}u, {of.bit}u, {of.xcr0}u}},\n"
        for name, of in rows
    ]


def _helpers(name: str, entries: Sequence[Entry]) -> str:
    table = "".join(f"  &function_{index},\n" for index in range(len(_plain(entries))))
    return (
        f"TUNER_EXPORT void *{name}_alloc(size_t nbytes) {{ return tuner_alloc(nbytes); }}\n"
        f"TUNER_EXPORT void {name}_free(void *memory) {{ tuner_free(memory); }}\n"
        f"TUNER_EXPORT const char *{name}_last_error(void) {{ return tuner_last_error(); }}\n"
        f"TUNER_EXPORT int {name}_set_num_threads(int count) {{ return "
        f"tuner_set_num_threads(count); }}\n"
        f"TUNER_EXPORT size_t {name}_workspace_bytes(void) {{ return "
        f"(size_t)tuner_workspace_bytes(); }}\n"
        f"TUNER_EXPORT const char *tuner_library_json(void) {{ return "
        f"{_quoted(describe(name, entries))}; }}\n"
        f"static const struct tuner_function *const functions[] = {{\n{table}}};\n"
        f"TUNER_EXPORT int {name}_time(const char *symbol, void *const *buffers, int64_t "
        f"number, int64_t repeat,\n"
        f"                             double *samples_s) {{\n"
        f"  if (symbol == NULL || buffers == NULL) return tuner_fail(TUNER_ERROR_NULL, "
        f'"{name}_time: null symbol or buffers");\n'
        f"  for (size_t i = 0; i < sizeof functions / sizeof functions[0]; ++i) {{\n"
        f"    if (strcmp(functions[i]->symbol, symbol) == 0)\n"
        f"      return tuner_time(functions[i], buffers, number, repeat, samples_s);\n"
        f"  }}\n"
        f'  return tuner_fail(TUNER_ERROR_EXTENT, "{name}_time: no function named %s", '
        f"symbol);\n}}\n"
    )


def _quoted(text: str) -> str:
    """A C string literal of the text's UTF-8.

    All but letters, digits and common signs are three octal digits.
    """
    plain = frozenset(
        b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _-.,:;{}[]()<>=+*/"
    )
    return (
        '"'
        + "".join(chr(byte) if byte in plain else f"\\{byte:03o}" for byte in text.encode())
        + '"'
    )
