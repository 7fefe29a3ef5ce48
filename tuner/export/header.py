"""The C header and the C++ convenience header of an exported library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tuner.export.kernel import Argument, ExportKernel
from tuner.export.template import fill
from tuner.runtime.prepack import pack_symbol
from tuner.runtime.wrapper import C_TYPES

NOTES = {"float16": " (IEEE binary16 bits)", "bfloat16": " (bfloat16 bits)", "bool": " (0 or 1)"}


def c_header(name: str, kernels: Sequence[ExportKernel]) -> str:
    """include/<name>.h: error codes, helpers, and each function with what it computes, shapes, dtypes, sizes and conditions."""
    declarations = "\n".join(_declaration(kernel) for kernel in kernels)
    return fill("library.h.in", name=name, upper=name.upper(), declarations=declarations)


def cpp_header(name: str, kernels: Sequence[ExportKernel]) -> str:
    """include/<name>.hpp: shape-checked views over the same functions, errors as exceptions, an owning aligned buffer."""
    functions = "\n".join(_cpp_functions(kernel) for kernel in kernels)
    return fill("library.hpp.in", name=name, upper=name.upper(), functions=functions)


def title(kernel: ExportKernel) -> str:
    """What the kernel computes, on one line, safe inside a C comment."""
    if kernel.op is not None:
        text = kernel.op + ":" + ",".join(f"{key}={value}" for key, value in kernel.params.items())
    else:
        shapes = ", ".join(f"{key}={value}" for key, value in kernel.shapes.items())
        text = " ".join((kernel.notation or "a lifted program").split()) + (f" with {shapes}" if shapes else "")
    return comment_safe(text)


def comment_safe(text: str) -> str:
    """Text that can neither end a comment, nor start one, nor continue a line."""
    return text.replace("*/", "* /").replace("/*", "/ *").replace("\\", "/").replace("??", "? ?").replace("\n", " ")


def c_names(arguments: Sequence[Argument]) -> list[str]:
    """Parameter names: the arguments', made C identifiers that are distinct and meet no keyword or macro."""
    names: list[str] = []
    for argument in arguments:
        plain = "".join(char if char.isascii() and char.isalnum() else "_" for char in argument.name)
        name = f"{argument.role}_{plain}"
        names.append(name if name not in names else f"{name}_{len(names)}")
    return names


def written(argument: Argument) -> Argument:
    """A packed buffer as the pack function sees it."""
    return replace(argument, role="out")


def _parameters(arguments: Sequence[Argument]) -> tuple[list[str], list[str]]:
    """The lines that document C parameters, and the parameters."""
    lines, parameters = [], []
    for argument, name in zip(arguments, c_names(arguments), strict=True):
        shape = " x ".join(map(str, argument.shape)) or "scalar"
        size = f"{argument.tensor.nbytes} bytes"
        lines.append(f" * {name}: {argument.dtype}{NOTES.get(argument.dtype, '')}, {shape}, {size}")
        parameters.append(f"{'const ' if argument.role == 'in' else ''}{C_TYPES[argument.dtype]} *{name}")
    return lines, parameters


def _packing(kernel: ExportKernel) -> tuple[Argument, ...]:
    """Parameters of the pack function."""
    return (*kernel.constants_packed, *(written(argument) for argument in kernel.packed))


def _pack_declaration(kernel: ExportKernel) -> str:
    lines, parameters = _parameters(_packing(kernel))
    head = f" * Lays constants out as {kernel.symbol} reads them. Call it once; it stays right while the constants do."
    symbol = pack_symbol(str(kernel.symbol))
    return "/*\n" + "\n".join([head, " *", *lines]) + "\n */\n" + f"int {symbol}({', '.join(parameters)});\n\n"


def _declaration(kernel: ExportKernel) -> str:
    described, parameters = _parameters(kernel.called_with)
    lines = [f" * {title(kernel)}", " *", *described]
    if kernel.prepack is not None:
        names = " and ".join(comment_safe(argument.name) for argument in kernel.packed)
        lines.append(f" * {names}: as {pack_symbol(str(kernel.symbol))} wrote.")
    isa = ", ".join(kernel.isa) or "none beyond the architecture's"
    lines.append(f" * Tuned for {comment_safe(kernel.target.name)}, {kernel.threads} thread{'s' * (kernel.threads > 1)}.")
    lines.append(f" * Needs CPU features: {comment_safe(isa)}.")
    declaration = "/*\n" + "\n".join(lines) + "\n */\n" + f"int {kernel.symbol}({', '.join(parameters)});\n"
    return declaration if kernel.prepack is None else _pack_declaration(kernel) + declaration


def _cpp_functions(kernel: ExportKernel) -> str:
    packer = ""
    if kernel.prepack is not None:
        symbol = pack_symbol(str(kernel.symbol))
        packer = f"/* Packs the constants of {kernel.symbol}. */\n{_cpp_function(symbol, _packing(kernel))}\n"
    return f"{packer}/* {title(kernel)} */\n{_cpp_function(str(kernel.symbol), kernel.called_with)}"


def _cpp_function(symbol: str, arguments: Sequence[Argument]) -> str:
    names = c_names(arguments)
    parameters = ", ".join(
        f"tensor<{'const ' if argument.role == 'in' else ''}{C_TYPES[argument.dtype]}> {given}"
        for argument, given in zip(arguments, names, strict=True)
    )
    checks = "".join(_cpp_check(symbol, argument, given) for argument, given in zip(arguments, names, strict=True))
    values = ", ".join(f"{given}.data()" for given in names)
    return f"inline void {symbol}({parameters}) {{\n{checks}  detail::check(::{symbol}({values}));\n}}\n"


def _cpp_check(symbol: str, argument: Argument, given: str) -> str:
    return f'  detail::check_shape("{symbol}", "{given}", {given}.shape(), {{{", ".join(map(str, argument.shape))}}});\n'
