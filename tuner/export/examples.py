"""The examples of an export: programs in C, C++ and Python that call and check it.

The three languages share one formula for inputs. Right outputs are computed at the
export and stored as a sample of elements. A kernel exported without them is checked to
run, to write all outputs, and to leave its inputs unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isfinite, prod
from typing import Any

import numpy as np

from tuner.export.header import c_names, title
from tuner.export.kernel import Argument, ExportKernel
from tuner.export.template import fill
from tuner.runtime.prepack import pack_symbol
from tuner.runtime.wrapper import C_TYPES, DLPACK
from tuner.workload.expression import Expression, Fact, Splits, Within
from tuner.workload.reference import evaluate

# An example detects a broken installation; it does not judge a kernel. Four roundings of
# the narrow dtypes, and room for long sums in the wide ones. Integers are exact.
TOLERANCES: Mapping[str, float] = {
    "float64": 1e-6,
    "float32": 1e-3,
    "float16": 2.0**-9,
    "bfloat16": 2.0**-6,
}
# The most work of a workload whose right outputs are computed: some seconds of the
# float64 reference, and the memory of all its tensors. What only moves or compares numbers
# has few operations, or none.
EXPECTED_FLOPS = 2e10
EXPECTED_BYTES = 1 << 31
EXPECTED = "examples/expected.json"  # right outputs for the inputs of the examples
BLOCK = 1 << 16  # elements filled at a time, so that they stay in a cache
SAMPLES = 32  # elements of each output that an example checks
Array = np.ndarray[Any, np.dtype[Any]]


def example_inputs(kernel: ExportKernel) -> tuple[Array, ...]:
    """The inputs of the examples, one array for each input argument.

    bfloat16 comes as float32 values that are exact in bfloat16. Element i of input
    number s is made of h(i, s) = (2654435761 i + 40503 s + 12345) mod 2^32 (Knuth's
    multiplicative hashing). Floats take its top 8 bits as k / 128 in [-1, 1), exact in
    every float dtype; int8 takes the top 3 bits minus 4, uint8 the top 3 bits. Wider
    integers and bool, which may be indices or conditions, take the top bit. Of an input
    with a fact, pointers make rows of equal lengths, and other integers are the hash
    modulo their range. An input with a stated value has that.
    """
    return tuple(_filled(argument, number) for number, argument in enumerate(kernel.inputs))


def expected_outputs(
    expression: Expression, kernel: ExportKernel, most_flops: float = EXPECTED_FLOPS
) -> tuple[Array, ...] | None:
    """Right outputs for `example_inputs(kernel)` in float64.

    None above `most_flops` or `EXPECTED_BYTES`.
    """
    nbytes = sum(8 * prod(tensor.shape) for tensor in expression.tensors.values())
    if expression.flops > most_flops or nbytes > EXPECTED_BYTES:
        return None
    named = {
        tensor.name: array
        for tensor, array in zip(expression.inputs, example_inputs(kernel), strict=True)
    }
    outputs = evaluate(expression, named)
    return tuple(outputs[name].astype("float64") for name in expression.outputs)


def example_files(name: str, kernels: Sequence[ExportKernel]) -> dict[str, str]:
    """The texts of all example files, by path below the export's directory."""
    return {
        "examples/check.h": fill("check.h.in", name=name, upper=name.upper()),
        "examples/example.c": fill(
            "example.c.in", name=name, functions=_tables(kernels), calls=_calls(kernels)
        ),
        "examples/example.cpp": fill(
            "example.cpp.in", name=name, functions=_tables(kernels), calls=_cpp_calls(name, kernels)
        ),
        "examples/example.py": fill("example.py.in", name=name),
        EXPECTED: expected_text(kernels),
        "examples/CMakeLists.txt": fill("examples.cmake.in", name=name),
    }


def expected_text(kernels: Sequence[ExportKernel]) -> str:
    """The text of the file `EXPECTED`."""
    documents = {kernel.symbol: _expected_document(kernel) for kernel in kernels}
    return json.dumps(documents, indent=1) + "\n"


def _filled(argument: Argument, number: int) -> Array:
    """The example's array for input `number`."""
    if argument.stated is not None:
        return argument.stated
    if argument.fact is not None:
        return _declared(argument, argument.fact, number)
    kind = "float32" if argument.dtype == "bfloat16" else argument.dtype
    values: Array = np.empty(prod(argument.shape), kind)
    for first in range(0, values.size, BLOCK):
        part = values[first : first + BLOCK]
        # uint32, whose products wrap at 2^32 as the hash needs.
        hashed = np.arange(first, first + part.size, dtype=np.uint32)
        hashed *= np.uint32(2654435761)
        hashed += np.uint32((40503 * number + 12345) & 0xFFFFFFFF)
        if kind.startswith("float"):
            part[...] = ((hashed >> 24).astype(np.float32) - 128) / 128
        elif kind in ("int8", "int16"):
            part[...] = (hashed >> 29).astype(kind) - 4
        else:
            part[...] = hashed >> (31 if kind in ("int32", "int64", "bool") else 29)
    return values.reshape(argument.shape)


def _declared(argument: Argument, fact: Fact, number: int) -> Array:
    places = np.arange(prod(argument.shape), dtype=np.int64)
    match fact:
        case Splits(stop=stop):
            values = places * stop // (places.size - 1)
        case Within(start=start, stop=stop):
            hashed = places * 2654435761 + (40503 * number + 12345)
            values = start + (hashed & 0xFFFFFFFF) % (stop - start)
    return values.astype(argument.dtype).reshape(argument.shape)


def _fact_arguments(fact: Fact) -> list[int]:
    """Whether it is one of pointers, and the range, as the examples' functions take them."""
    match fact:
        case Splits(stop=stop):
            return [1, 0, stop]
        case Within(start=start, stop=stop):
            return [0, start, stop]


def sampled(kernel: ExportKernel) -> list[list[tuple[int, float]]]:
    """For each output up to SAMPLES pairs of flat index and right value.

    They are spread over the output, its first and last element among them. Elements that
    are not finite are left out.
    """
    if kernel.expected is None:
        return [[] for _ in kernel.outputs]
    result = []
    for argument, array in zip(kernel.outputs, kernel.expected, strict=True):
        if array.shape != argument.shape:
            raise ValueError(
                f"{kernel.symbol}: expected {argument.name} has shape {array.shape}, not "
                f"{argument.shape}"
            )
        flat = array.reshape(-1)
        places = np.unique(np.linspace(0, flat.size - 1, min(SAMPLES, flat.size)).astype(np.int64))
        pairs = ((int(place), float(flat[place])) for place in places)
        result.append([(place, value) for place, value in pairs if isfinite(value)])
    return result


def tolerance_of(kernel: ExportKernel, output: Argument) -> float:
    """Largest |got - expected| / max(1, |expected|) that the examples accept."""
    return kernel.tolerance if kernel.tolerance is not None else TOLERANCES.get(output.dtype, 0.0)


def _expected_document(kernel: ExportKernel) -> dict[str, Any]:
    samples = [[[place, value] for place, value in output] for output in sampled(kernel)]
    stated = {
        str(number): argument.stated.reshape(-1).tolist()
        for number, argument in enumerate(kernel.inputs)
        if argument.stated is not None
    }
    declared = {
        str(number): _fact_arguments(argument.fact)
        for number, argument in enumerate(kernel.inputs)
        if argument.fact is not None and argument.stated is None
    }
    return {
        "tolerances": [tolerance_of(kernel, output) for output in kernel.outputs],
        "samples": samples,
        **({"stated": stated} if stated else {}),
        **({"declared": declared} if declared else {}),
    }


def _tables(kernels: Sequence[ExportKernel]) -> str:
    """C tables of the right values of all kernels, and of inputs with a stated one."""
    parts = []
    for kernel in kernels:
        parts.append(f"/* {title(kernel)} */")
        for number, argument in enumerate(kernel.inputs):
            if argument.stated is not None:
                content = ", ".join(map(str, argument.stated.tobytes()))
                parts.append(
                    f"static const unsigned char {_stated(kernel, number)}[] = {{{content}}};"
                )
        for number, samples in enumerate(sampled(kernel)):
            rows = ", ".join(f"{{{place}, {value!r}}}" for place, value in samples) or "{0, 0}"
            parts.append(
                f"static const struct sample {kernel.symbol}_expected_{number}[] = {{{rows}}};"
            )
    return "\n".join(parts)


def _checks(kernel: ExportKernel, pointers: Sequence[str], pad: str) -> str:
    """C statements that check inputs and outputs; `pointers` are those of `kernel.held`."""
    inputs, outputs = kernel.inputs, kernel.outputs
    lines = []
    for number, (argument, pointer) in enumerate(zip(inputs, pointers[: len(inputs)], strict=True)):
        count = prod(argument.shape)
        if argument.stated is not None:
            lines.append(
                f"{pad}failures += memcmp({pointer}, {_stated(kernel, number)}, "
                f"{argument.tensor.nbytes}) != 0;"
            )
            continue
        if argument.fact is not None:
            lines.append(
                f'{pad}failures += check_declared("{kernel.symbol}", {pointer}, '
                f"{_declaration(argument, argument.fact, number)});"
            )
            continue
        lines.append(
            f'{pad}failures += check_unchanged("{kernel.symbol}", {pointer}, {_kind(argument)}, '
            f"{count}, {number});"
        )
    for number, (argument, samples) in enumerate(zip(outputs, sampled(kernel), strict=True)):
        lines.append(
            f'{pad}failures += check_output("{kernel.symbol}", '
            f"{pointers[len(inputs) + number]}, {_kind(argument)}, "
            f"{prod(argument.shape)}, {kernel.symbol}_expected_{number}, {len(samples)}, "
            f"{tolerance_of(kernel, argument)!r});"
        )
    return "\n".join(lines)


def _calls(kernels: Sequence[ExportKernel]) -> str:
    """C functions that call and check each kernel, and `run_all` that calls these."""
    blocks = []
    for kernel in kernels:
        names = c_names(kernel.held)
        lines = [f"static int run_{kernel.symbol}(void) {{", "  int failures = 0;"]
        for argument, given in zip(kernel.held, names, strict=True):
            lines.append(
                f"  {C_TYPES[argument.dtype]} *{given} = allocate({argument.tensor.nbytes});"
            )
        for number, (argument, given) in enumerate(
            zip(kernel.inputs, names[: len(kernel.inputs)], strict=True)
        ):
            lines.append(f"  {_filling(kernel, number, argument, given)}")
        for argument, given in zip(
            kernel.held[len(kernel.inputs) :], names[len(kernel.inputs) :], strict=True
        ):
            lines.append(f"  memset({given}, POISON, {argument.tensor.nbytes});")
        rows = "" if kernel.portfolio is None else f", {kernel.portfolio.rows.high}"
        for symbol, call in _calls_of(kernel, names):
            lines.append(f'  failures += check_status("{symbol}", {symbol}({call}{rows}));')
        lines.append(_checks(kernel, names, "  "))
        lines += [f"  release({given});" for given in names]
        lines += ["  return failures;", "}", ""]
        blocks.append("\n".join(lines))
    table = "".join(f"  failures += run_{kernel.symbol}();\n" for kernel in kernels)
    return (
        "\n".join(blocks)
        + "\nstatic int run_all(void) {\n  int failures = 0;\n"
        + table
        + "  return failures;\n}\n"
    )


def _stated(kernel: ExportKernel, number: int) -> str:
    """The C table with the stated value of input `number`."""
    return f"{kernel.symbol}_stated_{number}"


def _filling(kernel: ExportKernel, number: int, argument: Argument, pointer: str) -> str:
    """The C statement that gives an input its value."""
    if argument.stated is None and argument.fact is not None:
        return f"fill_declared({pointer}, {_declaration(argument, argument.fact, number)});"
    if argument.stated is None:
        return f"fill({pointer}, {_kind(argument)}, {prod(argument.shape)}, {number});"
    return f"memcpy({pointer}, {_stated(kernel, number)}, {argument.tensor.nbytes});"


def _declaration(argument: Argument, fact: Fact, number: int) -> str:
    """Bits, count, number and fact of an input, as the examples' functions take them."""
    _, bits = DLPACK[argument.dtype]
    numbers = (bits, prod(argument.shape), number, *_fact_arguments(fact))
    return ", ".join(map(str, numbers))


def _cpp_calls(name: str, kernels: Sequence[ExportKernel]) -> str:
    """C++ blocks that call and check each kernel."""
    blocks = []
    for kernel in kernels:
        names = c_names(kernel.held)
        lines = ["  {"]
        for argument, given in zip(kernel.held, names, strict=True):
            lines.append(
                f"    {name}::buffer<{C_TYPES[argument.dtype]}> "
                f"{given}({{{', '.join(map(str, argument.shape))}}});"
            )
        for number, (argument, given) in enumerate(
            zip(kernel.inputs, names[: len(kernel.inputs)], strict=True)
        ):
            lines.append(f"    {_filling(kernel, number, argument, f'{given}.data()')}")
        for argument, given in zip(
            kernel.held[len(kernel.inputs) :], names[len(kernel.inputs) :], strict=True
        ):
            lines.append(f"    std::memset({given}.data(), POISON, {argument.tensor.nbytes});")
        lines += [f"    {name}::{symbol}({call});" for symbol, call in _calls_of(kernel, names)]
        lines.append(_checks(kernel, [f"{given}.data()" for given in names], "    "))
        lines.append("  }")
        blocks.append("\n".join(lines))
    return "\n".join(blocks)


def _calls_of(kernel: ExportKernel, names: Sequence[str]) -> list[tuple[str, str]]:
    """The functions to call, in order, each with its arguments as C text.

    `names` are the variables of `kernel.held`.
    """
    symbol, prepack = str(kernel.symbol), kernel.prepack
    inputs, outputs = names[: len(kernel.inputs)], names[len(kernel.inputs) : len(kernel.arguments)]
    if prepack is None:
        return [(symbol, ", ".join((*inputs, *outputs)))]
    packed = names[len(kernel.arguments) :]
    packing = (*(inputs[place] for place in prepack.constants), *packed)
    return [
        (pack_symbol(symbol), ", ".join(packing)),
        (symbol, ", ".join((*prepack.kernel_inputs(inputs, packed), *outputs))),
    ]


def _kind(argument: Argument) -> str:
    """DLPack's type code and bits of the dtype, as C arguments."""
    code, bits = DLPACK[argument.dtype]
    return f"{code}, {bits}"
