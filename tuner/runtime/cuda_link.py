"""CUDA modules linked into a shared library with a plain C ABI.

This is what is measured and what is shipped. It needs a C compiler and no toolkit. Each
function takes device addresses and a stream. The library opens NVIDIA's driver at its
first call.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from itertools import accumulate
from operator import mul
from typing import Any, Protocol

from tuner.runtime.cuda_module import (
    CudaModule,
    CudaModuleError,
    Launch,
    TensorMap,
    capability,
    nbytes,
)
from tuner.runtime.link import IDENTIFIER, system_toolchain
from tuner.runtime.toolchain import LinkError, Toolchain
from tuner.runtime.wrapper import C_TYPES
from tuner.workload.dtypes import DTYPE_BYTES
from tuner.workload.expression import Tensor

SOURCE = "tuner_cuda.c"
HEADERS = ("tuner_cuda.h", "tuner_cuda_driver.h", "tuner_cuda_internal.h")
LINE_BYTES = 1024  # of machine code in one line of C
Cubins = dict[bytes, str]
"""Machine code that is written already, with the name of its array."""
MAX_KERNELS, MAX_BUFFERS = 64, 128  # TUNER_CUDA_KERNELS, TUNER_CUDA_BUFFERS
MAX_MAPS = 8  # TUNER_CUDA_MAPS


def link_cuda(
    name: str, modules: Sequence[CudaModule], *, toolchain: Toolchain | None = None
) -> bytes:
    """A shared library, soname lib<name>.so, with a function for each module.

    The same inputs and compiler give the same bytes. Raises LinkError for names that
    are no C identifiers or occur twice, for a function that is too large, and for a
    compiler's refusal; CudaModuleError for a module that contradicts itself.
    """
    tools = toolchain if toolchain is not None else system_toolchain()
    symbols = [module.symbol for module in modules]
    wrong = [symbol for symbol in (name, *symbols) if not IDENTIFIER.match(symbol)]
    if wrong or not modules or len(set(symbols)) != len(symbols):
        raise LinkError(
            f"a library needs functions of different names that are C identifiers, got "
            f"{', '.join(wrong or symbols)}"
        )
    for module in modules:
        check_linkable(module)
    headers = sources(HEADERS)
    objects = [
        tools.compile(SOURCE, sources([SOURCE])[SOURCE], headers),
        tools.compile(f"{name}_functions.c", cuda_wrapper(name, modules), headers),
    ]
    exported = (*symbols, f"{name}_last_error", "tuner_library_json")
    return tools.shared(objects, soname=f"lib{name}.so", exported=exported)


def check_linkable(module: CudaModule) -> None:
    """Check a module. Raises LinkError where it is too large, CudaModuleError."""
    module.check()
    if len(module.launches) > MAX_KERNELS or len(module.buffers) > MAX_BUFFERS:
        raise LinkError(
            f"{module.symbol} has {len(module.launches)} kernels on {len(module.buffers)} "
            f"buffers, too many"
        )
    for launch in module.launches:
        if len(launch.maps) > MAX_MAPS:
            raise LinkError(
                f"{module.symbol}: {launch.kernel} takes {len(launch.maps)} tensor maps; "
                f"{MAX_MAPS} are the most"
            )


def sources(names: Sequence[str]) -> dict[str, str]:
    """Texts of the launcher, by their names."""
    folder = files("tuner.runtime") / "src"
    return {name: (folder / name).read_text() for name in names}


class Signed(Protocol):
    """What has a symbol, inputs and outputs."""

    @property
    def symbol(self) -> str: ...

    @property
    def inputs(self) -> tuple[Tensor, ...]: ...

    @property
    def outputs(self) -> tuple[Tensor, ...]: ...


def cuda_signature(module: Signed) -> str:
    """`int symbol(const float *in0, float *out0, void *stream)`.

    All arguments but the stream are device addresses.
    """
    return f"int {module.symbol}({', '.join([*parameters(module), 'void *stream'])})"


def parameters(module: Signed) -> list[str]:
    """The parameters of the C function for inputs and outputs."""
    inputs = [
        f"const {C_TYPES[tensor.dtype]} *in{index}" for index, tensor in enumerate(module.inputs)
    ]
    outputs = [
        f"{C_TYPES[tensor.dtype]} *out{index}" for index, tensor in enumerate(module.outputs)
    ]
    return [*inputs, *outputs]


def argument_documents(module: Signed) -> list[dict[str, Any]]:
    """Inputs and outputs as a library and its manifest describe them."""
    return [
        {"name": tensor.name, "dtype": tensor.dtype, "shape": list(tensor.shape), "role": role}
        for role, tensors in (("in", module.inputs), ("out", module.outputs))
        for tensor in tensors
    ]


def cuda_description(name: str, modules: Sequence[CudaModule]) -> str:
    """What `tuner_library_json()` returns: canonical JSON that loaders check arrays against."""
    functions = [
        {
            "symbol": module.symbol,
            "arguments": argument_documents(module),
            "architectures": [arch for arch, _ in module.cubins],
        }
        for module in modules
    ]
    return json.dumps(
        {"schema": 1, "kind": "cuda", "name": name, "functions": functions},
        sort_keys=True,
        separators=(",", ":"),
    )


def cuda_wrapper(name: str, modules: Sequence[CudaModule]) -> str:
    """C text: the cubins as bytes, the launches as tables, a function for each module."""
    parts = ['#include "tuner_cuda.h"\n']
    arrays: Cubins = {}
    parts += [_function(number, module, arrays) for number, module in enumerate(modules)]
    parts += library_functions(name, cuda_description(name, modules))
    return "\n".join(parts) + "\n"


def library_functions(name: str, description: str) -> list[str]:
    """The C functions that every library has."""
    return [
        f"TUNER_CUDA_EXPORT const char *{name}_last_error(void) {{ return "
        f"tuner_cuda_last_error(); }}",
        f"TUNER_CUDA_EXPORT const char *tuner_library_json(void) {{ return "
        f"{json.dumps(description)}; }}",
    ]


def _function(number: int, module: CudaModule, arrays: Cubins) -> str:
    """The tables and the C function of one module."""
    return "\n".join(
        [
            kernel_tables(number, module, arrays),
            f"TUNER_CUDA_EXPORT {cuda_signature(module)} {{",
            addresses(module),
            f"  return tuner_cuda_call(&function_{number}, buffers, stream);",
            "}",
        ]
    )


def addresses(module: Signed) -> str:
    """C text that puts the function's parameters into an array."""
    names = [f"in{i}" for i in range(len(module.inputs))]
    names += [f"out{i}" for i in range(len(module.outputs))]
    values = ", ".join(f"(uint64_t)(uintptr_t){name}" for name in names)
    return f"  const uint64_t buffers[{len(names)}] = {{{values}}};"


def kernel_tables(number: int, module: CudaModule, arrays: Cubins) -> str:
    """The tables of one module: `function_NUMBER`.

    Cubins that are in `arrays` already are named there and not written again.
    """
    lines = []
    cubins = []
    for place, (arch, code) in enumerate(module.cubins):
        major, minor = capability(arch)
        if code not in arrays:
            arrays[code] = f"cubin_{number}_{place}"
            lines.append(
                f"static const unsigned char {arrays[code]}[] __attribute__((aligned(64))) =\n"
                f"{_text(code)};"
            )
        cubins.append(f"{{{major}, {minor}, {arrays[code]}}}")
    places = {tensor.name: place for place, tensor in enumerate(module.buffers)}
    launches = []
    for place, launch in enumerate(module.launches):
        arguments = f"arguments_{number}_{place}"
        lines.append(
            f"static const int {arguments}[] = "
            f"{{{', '.join(str(places[name]) for name in launch.arguments) or 0}}};"
        )
        maps = "NULL"
        if launch.maps:
            maps = f"maps_{number}_{place}"
            tables = ", ".join(_map(each, places, module.buffers) for each in launch.maps)
            lines.append(f"static const struct tuner_cuda_map {maps}[] = {{{tables}}};")
        launches.append(_launch(launch, arguments, maps))
    lines += [
        f"static const size_t bytes_{number}[] = "
        f"{{{', '.join(str(nbytes(tensor)) for tensor in module.buffers)}}};",
        f"static const struct tuner_cuda_launch launches_{number}[] = {{{', '.join(launches)}}};",
        f"static const struct tuner_cuda_cubin cubins_{number}[] = {{{', '.join(cubins)}}};",
        f"static struct tuner_cuda_function function_{number} = {{{_table(number, module)}}};",
    ]
    return "\n".join(lines)


def _text(code: bytes) -> str:
    """Bytes as C string literals, which compilers read many times faster than numbers.

    They end with one NUL more.
    """
    parts = (code[start : start + LINE_BYTES] for start in range(0, len(code), LINE_BYTES))
    return "\n".join('"' + "".join(map("\\{:03o}".format, part)) + '"' for part in parts)


def _map(each: TensorMap, places: Mapping[str, int], buffers: Sequence[Tensor]) -> str:
    """A row of the table of tensor maps, dimensions innermost first as the driver has them."""
    place = places[each.buffer]
    tensor = buffers[place]
    shape, steps = each.shape[::-1], each.distances[::-1]
    # The driver counts what lies between the elements too.
    box = [side * step for side, step in zip(each.box[::-1], steps, strict=True)]
    strides = [DTYPE_BYTES[tensor.dtype] * step for step in accumulate(shape[:-1], mul)]
    columns = (shape, strides, box, steps)
    tables = ", ".join(f"{{{', '.join(map(str, numbers))}}}" for numbers in columns)
    return f"{{{place}, {each.type_of(tensor)}, {len(shape)}, {tables}}}"


def _launch(launch: Launch, arguments: str, maps: str) -> str:
    grid, block = (", ".join(map(str, extents)) for extents in (launch.grid, launch.block))
    kernel = json.dumps(launch.kernel)
    return (
        f"{{{kernel}, {{{grid}}}, {{{block}}}, {launch.shared_bytes}, "
        f"{len(launch.arguments)}, {arguments}, {len(launch.maps)}, {maps}}}"
    )


def _table(number: int, module: CudaModule) -> str:
    if not module.cubins or not module.launches:
        raise CudaModuleError(
            f"{module.symbol} has {len(module.cubins)} cubins and {len(module.launches)} launches"
        )
    fields = {
        "signature": signature_table(module, f"bytes_{number}"),
        "workspaces": len(module.workspace),
        "launches": len(module.launches),
        "launch": f"launches_{number}",
        "cubins": len(module.cubins),
        "cubin": f"cubins_{number}",
    }
    return ", ".join(f".{name} = {value}" for name, value in fields.items())


def signature_table(module: Signed, bytes_array: str) -> str:
    """The initialiser of a `struct tuner_cuda_signature`."""
    return (
        f"{{{json.dumps(module.symbol)}, {len(module.inputs)}, {len(module.outputs)}, "
        f"{bytes_array}}}"
    )
