"""Code snippets that fetch and call a kernel: curl, Python, C and CMake."""

from __future__ import annotations

import io
import json
import re
import tarfile
from dataclasses import dataclass

from tuner.workload.expression import Tensor
from tuner.workload.workload import Workload

C_TYPES = {
    "float32": "float", "float64": "double", "float16": "uint16_t", "bfloat16": "uint16_t",
    "int8": "int8_t", "int16": "int16_t", "int32": "int32_t", "int64": "int64_t",
    "uint8": "uint8_t", "uint16": "uint16_t", "uint32": "uint32_t", "uint64": "uint64_t",
    "bool": "uint8_t",
}  # fmt: skip
MOST_MANIFEST = 1_000_000  # bytes
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A kernel's download: an exported library's archive, or the bare measured library."""

    # name of the archive's folder, Python package and CMake package; None for a bare library
    library: str | None
    symbol: str  # the C function

    @property
    def extension(self) -> str:
        return "so" if self.library is None else "tar.gz"


def delivery(archive: bytes | None, symbol: object) -> Delivery:
    """The names in an archive's manifest; `symbol` is the function of a bare library."""
    bare = symbol if isinstance(symbol, str) and NAME.fullmatch(symbol) else "kernel"
    if archive is None:
        return Delivery(library=None, symbol=bare)
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
            member = next(
                entry
                for entry in tar
                if entry.isfile()
                and entry.name.endswith("/manifest.json")
                and entry.size <= MOST_MANIFEST
            )
            content = tar.extractfile(member)
            manifest = json.loads(content.read()) if content is not None else {}
        library, function = str(manifest["name"]), str(manifest["functions"][0]["symbol"])
    except (tarfile.TarError, OSError, StopIteration, ValueError, LookupError, TypeError):
        return Delivery(library=None, symbol=bare)
    usable = NAME.fullmatch(library) and NAME.fullmatch(function)
    return (
        Delivery(library=library, symbol=function)
        if usable
        else Delivery(library=None, symbol=bare)
    )


def snippets(
    kernel_id: str, delivered: Delivery, workload: Workload | None, base: str
) -> tuple[tuple[str, str], ...]:
    """Title and text of each snippet. `base` is the service's address in the browser."""
    texts = [
        ("curl", curl(kernel_id, delivered, base)),
        ("Python", python(kernel_id, delivered, workload, base)),
    ]
    if workload is not None:
        texts += [("C", c(delivered, workload)), ("CMake", cmake(kernel_id, delivered))]
    return tuple(texts)


def curl(kernel_id: str, delivered: Delivery, base: str) -> str:
    file = f"{kernel_id}.{delivered.extension}"
    lines = [
        f'curl -fsS -H "Authorization: Bearer $TUNER_KEY" -o {file} \\',
        f"  '{base}/v1/kernels/{kernel_id}/artifact'",
    ]
    return "\n".join([*lines, f"tar -xzf {file}"] if delivered.library else lines)


def python(kernel_id: str, delivered: Delivery, workload: Workload | None, base: str) -> str:
    """Calls the package of the archive; for a bare library, runs the kernel on a worker."""
    tensors = () if workload is None else workload.expression.inputs
    arrays = [(tensor.name, _random(tensor)) for tensor in tensors if NAME.fullmatch(tensor.name)]
    if delivered.library is not None:
        return "\n".join(
            [
                f"# PYTHONPATH={delivered.library}",
                "import numpy as np",
                f"import {delivered.library} as tuned",
                "",
                "rng = np.random.default_rng(0)",
                *[f"{name} = {value}" for name, value in arrays],
                f"result = tuned.{delivered.symbol}({', '.join(name for name, _ in arrays)})",
            ]
        )
    return "\n".join(
        [
            "import os",
            "import numpy as np",
            "from tuner.client import Client",
            "",
            "rng = np.random.default_rng(0)",
            f'with Client("{base}", key=os.environ.get("TUNER_KEY")) as client:',
            f'    outputs = client.run("{kernel_id}", {{',
            *[f'        "{name}": {value},' for name, value in arrays],
            "    })",
        ]
    )


def _random(tensor: Tensor) -> str:
    shape = tensor.shape if len(tensor.shape) != 1 else f"({tensor.shape[0]},)"
    if tensor.dtype in ("float32", "float64"):
        return f"rng.standard_normal({shape}, np.{tensor.dtype})"
    return f"np.zeros({shape}, np.{'uint16' if tensor.dtype == 'bfloat16' else tensor.dtype})"


def c(delivered: Delivery, workload: Workload) -> str:
    expression = workload.expression
    outputs = [expression.tensor(name) for name in expression.outputs]
    arguments = [f"const {C_TYPES[tensor.dtype]} *{tensor.name}" for tensor in expression.inputs]
    arguments += [f"{C_TYPES[tensor.dtype]} *{tensor.name}" for tensor in outputs]
    names = ", ".join(tensor.name for tensor in (*expression.inputs, *outputs))
    declared = f"int {delivered.symbol}({', '.join(arguments)});"
    declaration = (
        f"#include <{delivered.library}.h>  // {declared}" if delivered.library else declared
    )
    return "\n".join(
        [
            "#include <stdint.h>",
            "#include <stdlib.h>",
            declaration,
            "",
            "int main(void) {  // dense, row-major, 64-byte aligned buffers; 0 or an error code",
            *[_buffer(tensor) for tensor in (*expression.inputs, *outputs)],
            "  // fill the inputs",
            f"  return {delivered.symbol}({names});",
            "}",
        ]
    )


def _buffer(tensor: Tensor) -> str:
    # aligned_alloc takes multiples of the alignment only
    size = -(-max(1, tensor.nbytes) // 64) * 64
    shape = f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]"
    return f"  {C_TYPES[tensor.dtype]} *{tensor.name} = aligned_alloc(64, {size});  // {shape}"


def cmake(kernel_id: str, delivered: Delivery) -> str:
    if delivered.library is not None:
        place = f'"${{CMAKE_SOURCE_DIR}}/{delivered.library}/cmake"'
        lines = [f"find_package({delivered.library} CONFIG REQUIRED PATHS {place} NO_DEFAULT_PATH)"]
        return "\n".join(
            [*lines, f"target_link_libraries(app PRIVATE {delivered.library}::{delivered.library})"]
        )
    return "\n".join(
        [
            "add_library(tuned SHARED IMPORTED)",
            "set_target_properties(tuned PROPERTIES",
            f"  IMPORTED_LOCATION ${{CMAKE_SOURCE_DIR}}/{kernel_id}.so IMPORTED_NO_SONAME TRUE)",
            "target_link_libraries(app PRIVATE tuned m)",
        ]
    )
