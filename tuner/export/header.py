"""The C header and the C++ convenience header of an exported library."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.export.kernel import Argument, ExportKernel
from tuner.export.template import fill
from tuner.runtime.wrapper import C_TYPES

NOTES = {"float16": " (IEEE binary16 bits)", "bfloat16": " (bfloat16 bits)", "bool": " (0 or 1)"}


def c_header(name: str, kernels: Sequence[ExportKernel]) -> str:
    """include/<name>.h: error codes, helpers, and each function with what it computes, shapes, dtypes, sizes and conditions."""
    declarations = "\n".join(_declaration(kernel) for kernel in kernels)
    return fill("library.h.in", name=name, upper=name.upper(), declarations=declarations)


def cpp_header(name: str, kernels: Sequence[ExportKernel]) -> str:
    """include/<name>.hpp: shape-checked views over the same functions, errors as exceptions, an owning aligned buffer."""
    functions = "\n".join(_cpp_function(name, kernel) for kernel in kernels)
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


def c_names(kernel: ExportKernel) -> list[str]:
    """Parameter names: the arguments', made C identifiers that are distinct and meet no keyword or macro."""
    names: list[str] = []
    for argument in kernel.arguments:
        plain = "".join(char if char.isascii() and char.isalnum() else "_" for char in argument.name)
        name = f"{argument.role}_{plain}"
        names.append(name if name not in names else f"{name}_{len(names)}")
    return names


def _declaration(kernel: ExportKernel) -> str:
    lines = [f" * {title(kernel)}", " *"]
    parameters = []
    for argument, name in zip(kernel.arguments, c_names(kernel), strict=True):
        shape = " x ".join(map(str, argument.shape)) or "scalar"
        size = f"{argument.tensor.nbytes} bytes"
        lines.append(f" * {name}: {argument.dtype}{NOTES.get(argument.dtype, '')}, {shape}, {size}")
        parameters.append(f"{'const ' if argument.role == 'in' else ''}{C_TYPES[argument.dtype]} *{name}")
    isa = ", ".join(kernel.isa) or "none beyond the architecture's"
    lines.append(f" * Tuned for {comment_safe(kernel.target.name)}, {kernel.threads} thread{'s' * (kernel.threads > 1)}.")
    lines.append(f" * Needs CPU features: {comment_safe(isa)}.")
    return "/*\n" + "\n".join(lines) + "\n */\n" + f"int {kernel.symbol}({', '.join(parameters)});\n"


def _cpp_function(name: str, kernel: ExportKernel) -> str:
    names = c_names(kernel)
    parameters = ", ".join(
        f"tensor<{'const ' if argument.role == 'in' else ''}{C_TYPES[argument.dtype]}> {given}"
        for argument, given in zip(kernel.arguments, names, strict=True)
    )
    checks = "".join(_cpp_check(kernel, argument, given) for argument, given in zip(kernel.arguments, names, strict=True))
    values = ", ".join(f"{given}.data()" for given in names)
    body = f"{checks}  detail::check(::{kernel.symbol}({values}));\n"
    return f"/* {title(kernel)} */\ninline void {kernel.symbol}({parameters}) {{\n{body}}}\n"


def _cpp_check(kernel: ExportKernel, argument: Argument, given: str) -> str:
    return f'  detail::check_shape("{kernel.symbol}", "{given}", {given}.shape(), {{{", ".join(map(str, argument.shape))}}});\n'
