"""The C header and the C++ convenience header of an exported library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tuner.export.kernel import Argument, ExportKernel, arguments_of
from tuner.export.naming import symbol_of
from tuner.export.template import fill
from tuner.runtime.prepack import pack_symbol
from tuner.runtime.wrapper import C_TYPES
from tuner.workload.expression import Splits, Within
from tuner.workload.rows import Rows
from tuner.workload.workload import Workload

SHOWN = 16  # elements of a fixed input
# Of CUDA C++, which has no <stdint.h> where no C++ compiler is installed.
CUDA_TYPES: Mapping[str, str] = {
    "float64": "double", "float32": "float", "float16": "__half", "bfloat16": "__nv_bfloat16",
    "int64": "long long", "int32": "int", "int16": "short", "int8": "signed char",
    "uint64": "unsigned long long", "uint32": "unsigned", "uint16": "unsigned short",
    "uint8": "unsigned char", "bool": "bool",
}  # fmt: skip
CUDA_HEADERS: Mapping[str, str] = {"float16": "cuda_fp16.h", "bfloat16": "cuda_bf16.h"}
NOTES = {"float16": " (IEEE binary16 bits)", "bfloat16": " (bfloat16 bits)", "bool": " (0 or 1)"}


def c_header(name: str, kernels: Sequence[ExportKernel]) -> str:
    """The text of include/<name>.h: error codes, helpers, and documented functions."""
    declarations = "\n".join(_declaration(kernel) for kernel in kernels)
    return fill("library.h.in", name=name, upper=name.upper(), declarations=declarations)


def cpp_header(name: str, kernels: Sequence[ExportKernel]) -> str:
    """The text of include/<name>.hpp: shape-checked calls, exceptions, an aligned buffer."""
    functions = "\n".join(_cpp_functions(kernel) for kernel in kernels)
    return fill("library.hpp.in", name=name, upper=name.upper(), functions=functions)


def c_signature(symbol: str, what: str, arguments: Sequence[Argument]) -> str:
    """The declaration of one function as a text of its own; `what` it computes.

    A source that begins with it needs no header.
    """
    return _signature(["stdint.h"], "int", C_TYPES, symbol, what, arguments)


def signature_of(workload: Workload) -> str:
    """The C declaration of the function of a workload's kernel, with what it takes."""
    return c_signature(symbol_of(workload), workload.spec, arguments_of(workload.expression))


def cuda_signature_of(workload: Workload) -> str:
    """The declaration in CUDA C++ of a workload's kernel, with what it takes."""
    arguments = arguments_of(workload.expression)
    dtypes = dict.fromkeys(argument.dtype for argument in arguments)
    headers = [CUDA_HEADERS[dtype] for dtype in dtypes if dtype in CUDA_HEADERS]
    return _signature(
        headers,
        'extern "C" __global__ void',
        CUDA_TYPES,
        symbol_of(workload),
        workload.spec,
        arguments,
    )


def _signature(
    headers: Sequence[str],
    returns: str,
    types: Mapping[str, str],
    symbol: str,
    what: str,
    arguments: Sequence[Argument],
) -> str:
    described, parameters = _parameters(arguments, types=types)
    lines = "\n".join([f" * {comment_safe(what)}", " *", *described])
    head = "".join(f"#include <{name}>\n" for name in headers)
    head += "\n" if headers else ""
    return f"{head}/*\n{lines}\n */\n{returns} {symbol}({', '.join(parameters)});\n"


def title(kernel: ExportKernel) -> str:
    """What the kernel computes, on one line that is safe inside a C comment."""
    if kernel.op is not None:
        text = kernel.op + ":" + ",".join(f"{key}={value}" for key, value in kernel.params.items())
    else:
        shapes = ", ".join(f"{key}={value}" for key, value in kernel.shapes.items())
        text = " ".join((kernel.notation or "a lifted program").split()) + (
            f" with {shapes}" if shapes else ""
        )
    return comment_safe(text)


def comment_safe(text: str) -> str:
    """The text made unable to end a C comment, start one, or continue a line."""
    return (
        text.replace("*/", "* /")
        .replace("/*", "/ *")
        .replace("\\", "/")
        .replace("??", "? ?")
        .replace("\n", " ")
    )


def c_names(arguments: Sequence[Argument]) -> list[str]:
    """Parameter names: the arguments' names as distinct C identifiers.

    The role as prefix keeps them apart from keywords and macros.
    """
    names: list[str] = []
    for argument in arguments:
        plain = "".join(
            char if char.isascii() and char.isalnum() else "_" for char in argument.name
        )
        name = f"{argument.role}_{plain}"
        names.append(name if name not in names else f"{name}_{len(names)}")
    return names


def written(argument: Argument) -> Argument:
    """A packed buffer as the pack function sees it."""
    return replace(argument, role="out")


def _extent(rows: Rows) -> str:
    """The name of the parameter that gives the number of rows."""
    return f"extent_{rows.name}"


def _dimensions(argument: Argument, place: int, rows: Rows | None) -> list[str]:
    """The extents of argument number `place` as C text, with the parameter for a range."""
    shape = [str(extent) for extent in argument.shape]
    if rows is None or place not in rows.ranged:
        return shape
    if not rows.listed:
        return [_extent(rows), *shape[1:]]
    return [
        _of_extent(rows, [listed.shapes[place][dimension] for listed in rows.listed])
        for dimension in range(len(shape))
    ]


def _of_extent(rows: Rows, values: Sequence[int]) -> str:
    """A C expression for a number that goes with each listed extent."""
    extents = [listed.extent for listed in rows.listed]
    if values == extents:
        return _extent(rows)
    *others, last = values
    if all(value == last for value in others):
        return str(last)
    choices = "".join(
        f"{_extent(rows)} == {extent} ? {value} : "
        for extent, value in zip(extents, others, strict=False)
    )
    return f"({choices}{last})"


def _parameters(
    arguments: Sequence[Argument],
    rows: Rows | None = None,
    types: Mapping[str, str] = C_TYPES,
) -> tuple[list[str], list[str]]:
    """Lines of a comment that documents the parameters, and the parameters themselves."""
    lines, parameters = [], []
    for place, (argument, name) in enumerate(zip(arguments, c_names(arguments), strict=True)):
        shape = " x ".join(_dimensions(argument, place, rows)) or "scalar"
        size = f"{argument.tensor.nbytes} bytes"
        if rows is not None and place in rows.ranged:
            size = (
                f"{argument.tensor.nbytes} bytes at most"
                if rows.listed
                else f"{argument.tensor.nbytes // argument.shape[0]} bytes for each of "
                f"{_extent(rows)}"
            )
        only = "" if argument.fixed is None else f", must be {_value(argument.fixed)}"
        lines.append(f" * {name}: {_dtype_note(argument)}, {shape}, {size}{only}")
        lines += _fact_lines(argument) + _bounded_lines(argument)
        parameters.append(
            f"{'const ' if argument.role == 'in' else ''}{types[argument.dtype]} *{name}"
        )
    if rows is not None:
        extents = f"one of {rows.names}" if rows.listed else f"{rows.low} to {rows.high}"
        lines.append(f" * {_extent(rows)}: {extents}")
        parameters.append(f"int64_t {_extent(rows)}")
    return lines, parameters


def _fact_lines(argument: Argument) -> list[str]:
    """What the comment says of the elements that a call checks."""
    match argument.fact:
        case Within(start=start, stop=stop):
            return [f" *   each from {start} to {stop - 1}, which a call checks"]
        case Splits(stop=stop):
            return [
                f" *   begins with 0, never decreases and ends at {stop} at most, which a call "
                "checks"
            ]
    return []


def _bounded_lines(argument: Argument) -> list[str]:
    """What the comment says of extents that are computed."""
    if argument.bounded is None:
        return []
    axes = ", ".join(map(str, argument.bounded.axes))
    return [
        f" *   of dimension {axes} only as many elements as out_{argument.bounded.extents} says, "
        f"then zeros"
    ]


def _dtype_note(argument: Argument) -> str:
    """The dtype of an argument, and what it holds."""
    held = f" (each the byte of a {argument.format})" if argument.format else ""
    return f"{argument.dtype}{NOTES.get(argument.dtype, '')}{held}"


def _value(elements: Sequence[int | float | bool]) -> str:
    """The elements of a fixed input, the first few of many."""
    text = " ".join(map(str, elements[:SHOWN]))
    return f"{text} … (manifest.json has all)" if len(elements) > SHOWN else text


def _rows(kernel: ExportKernel) -> Rows | None:
    return None if kernel.portfolio is None else kernel.portfolio.rows


def _members(kernel: ExportKernel) -> tuple[ExportKernel, ...]:
    """The kernels with code of their own."""
    return (kernel,) if kernel.portfolio is None else kernel.portfolio.kernels


def _packing(kernel: ExportKernel) -> tuple[Argument, ...]:
    """The parameters of the pack function: constants, then packed buffers."""
    return (*kernel.constants_packed, *(written(argument) for argument in kernel.packed))


def _pack_declaration(kernel: ExportKernel) -> str:
    lines, parameters = _parameters(_packing(kernel))
    head = (
        f" * Lays constants out as {kernel.symbol} reads them. Call it once; it stays right "
        f"while the constants do."
    )
    symbol = pack_symbol(str(kernel.symbol))
    return (
        "/*\n"
        + "\n".join([head, " *", *lines])
        + "\n */\n"
        + f"int {symbol}({', '.join(parameters)});\n\n"
    )


def _declaration(kernel: ExportKernel) -> str:
    described, parameters = _parameters(kernel.called_with, _rows(kernel))
    lines = [f" * {title(kernel)}", " *", *described]
    if kernel.prepack is not None:
        names = " and ".join(comment_safe(argument.name) for argument in kernel.packed)
        lines.append(f" * {names}: as {pack_symbol(str(kernel.symbol))} wrote.")
    isa = ", ".join(kernel.needed) or "none beyond the architecture's"
    lines.append(
        f" * Tuned for {comment_safe(kernel.target.name)}, {kernel.threads} "
        f"thread{'s' * (kernel.threads > 1)}."
    )
    lines.append(f" * Needs CPU features: {comment_safe(isa)}.")
    levels = {variant.name for member in _members(kernel) for variant in member.variants}
    if levels:
        listed = " and ".join(sorted(levels, reverse=True))
        lines.append(
            f" * Compiled for CPUs of level {listed} besides; the best is chosen when called."
        )
    declaration = (
        "/*\n" + "\n".join(lines) + "\n */\n" + f"int {kernel.symbol}({', '.join(parameters)});\n"
    )
    return declaration if kernel.prepack is None else _pack_declaration(kernel) + declaration


def _cpp_functions(kernel: ExportKernel) -> str:
    packer = ""
    if kernel.prepack is not None:
        symbol = pack_symbol(str(kernel.symbol))
        packer = (
            f"/* Packs the constants of {kernel.symbol}. "
            f"*/\n{_cpp_function(symbol, _packing(kernel))}\n"
        )
    return (
        f"{packer}/* {title(kernel)} "
        f"*/\n{_cpp_function(str(kernel.symbol), kernel.called_with, _rows(kernel))}"
    )


def _cpp_function(symbol: str, arguments: Sequence[Argument], rows: Rows | None = None) -> str:
    names = c_names(arguments)
    parameters = ", ".join(
        f"tensor<{'const ' if argument.role == 'in' else ''}{C_TYPES[argument.dtype]}> {given}"
        for argument, given in zip(arguments, names, strict=True)
    )
    checks, values = "", [f"{given}.data()" for given in names]
    if rows is not None:
        place, dimension = rows.shown if rows.listed else (min(rows.ranged), 0)
        first = names[place]
        absent = (
            f"{first}.shape().size() <= {dimension}" if dimension else f"{first}.shape().empty()"
        )
        checks = (
            f"  const std::int64_t {_extent(rows)} = {absent} ? 0 : {first}.shape()[{dimension}];\n"
        )
        values.append(_extent(rows))
    for place, (argument, given) in enumerate(zip(arguments, names, strict=True)):
        shape = ", ".join(_dimensions(argument, place, rows))
        checks += f'  detail::check_shape("{symbol}", "{given}", {given}.shape(), {{{shape}}});\n'
    return (
        f"inline void {symbol}({parameters}) {{\n{checks}  "
        f"detail::check(::{symbol}({', '.join(values)}));\n}}\n"
    )
