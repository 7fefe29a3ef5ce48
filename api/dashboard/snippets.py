"""Copy-paste lines that fetch and call a kernel: curl, Python, C, CMake. Text only, from the kernel's own names and shapes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from db.kernels import Kernel
from tuner.workload.expression import Tensor
from tuner.workload.workload import Workload

C_TYPES = {
    "float32": "float", "float64": "double", "float16": "uint16_t", "bfloat16": "uint16_t", "int8": "int8_t", "uint8": "uint8_t",
    "int32": "int32_t", "int64": "int64_t", "bool": "uint8_t",
}  # fmt: skip
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


def snippets(
    kernel: Kernel, kind: str, schedule: Mapping[str, Any], workload: Workload | None, base: str
) -> tuple[tuple[str, str], ...]:
    """Title and text of each. `base` is the service's address as the browser has it."""
    extension = "tar.gz" if kind == "export" else "so"
    found = [("curl", curl(kernel.id, base, extension)), ("Python", python(kernel.id, base, workload))]
    symbol = schedule.get("symbol")
    if workload is not None:
        name = symbol if isinstance(symbol, str) and NAME.fullmatch(symbol) else "kernel"
        found += [("C", c(name, workload)), ("CMake", cmake(kernel.id, extension))]
    return tuple(found)


def curl(kernel_id: str, base: str, extension: str) -> str:
    lines = [
        f'curl -fsS -H "Authorization: Bearer $TUNER_KEY" -o {kernel_id}.{extension} \\',
        f"  '{base}/v1/kernels/{kernel_id}/artifact'",
    ]
    return "\n".join([*lines, f"tar -xzf {kernel_id}.{extension}"] if extension == "tar.gz" else lines)


def python(kernel_id: str, base: str, workload: Workload | None) -> str:
    """Runs the kernel on the service's workers; no library is needed."""
    tensors = () if workload is None else workload.expression.inputs
    arrays = [f'    "{tensor.name}": {_random(tensor)},' for tensor in tensors if NAME.fullmatch(tensor.name)]
    return "\n".join(
        [
            "import os",
            "import numpy as np",
            "from tuner.client import Client",
            "",
            "rng = np.random.default_rng(0)",
            f'with Client("{base}", key=os.environ.get("TUNER_KEY")) as client:',
            f'    library = client.artifact("{kernel_id}")  # its bytes, checked',
            f'    outputs = client.run("{kernel_id}", {{',
            *[f"    {line}" for line in arrays],
            "    })",
        ]
    )


def _random(tensor: Tensor) -> str:
    shape = tensor.shape if len(tensor.shape) != 1 else f"({tensor.shape[0]},)"
    if tensor.dtype in ("float32", "float64"):
        return f"rng.standard_normal({shape}, np.{tensor.dtype})"
    return f"np.zeros({shape}, np.{'uint16' if tensor.dtype == 'bfloat16' else tensor.dtype})"


def c(symbol: str, workload: Workload) -> str:
    expression = workload.expression
    outputs = [expression.tensor(name) for name in expression.outputs]
    arguments = [f"const {C_TYPES[tensor.dtype]} *{tensor.name}" for tensor in expression.inputs]
    arguments += [f"{C_TYPES[tensor.dtype]} *{tensor.name}" for tensor in outputs]
    buffers = [_buffer(tensor) for tensor in (*expression.inputs, *outputs)]
    names = ", ".join(tensor.name for tensor in (*expression.inputs, *outputs))
    return "\n".join(
        [
            "#include <stdint.h>",
            "#include <stdlib.h>",
            "",
            f"int {symbol}({', '.join(arguments)});  /* dense, row-major, 64-byte aligned; 0 or an error code */",
            "",
            "int main(void) {",
            *buffers,
            "  /* fill the inputs */",
            f"  return {symbol}({names});",
            "}",
        ]
    )


def _buffer(tensor: Tensor) -> str:
    size = -(-max(1, tensor.nbytes) // 64) * 64  # aligned_alloc takes multiples of the alignment only
    shape = f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]"
    return f"  {C_TYPES[tensor.dtype]} *{tensor.name} = aligned_alloc(64, {size});  /* {shape} */"


def cmake(kernel_id: str, extension: str) -> str:
    if extension == "tar.gz":
        place = [
            f"file(ARCHIVE_EXTRACT INPUT ${{CMAKE_SOURCE_DIR}}/{kernel_id}.tar.gz DESTINATION ${{CMAKE_BINARY_DIR}}/{kernel_id})",
            f'file(GLOB kernel_library "${{CMAKE_BINARY_DIR}}/{kernel_id}/lib/*.so")',
        ]
    else:
        place = [f"set(kernel_library ${{CMAKE_SOURCE_DIR}}/{kernel_id}.so)"]
    return "\n".join(
        [
            *place,
            "add_library(tuned SHARED IMPORTED)",
            'set_target_properties(tuned PROPERTIES IMPORTED_LOCATION "${kernel_library}" IMPORTED_NO_SONAME TRUE)',
            "target_link_libraries(app PRIVATE tuned m)",
        ]
    )
