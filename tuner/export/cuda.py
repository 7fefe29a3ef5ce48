"""Exports CUDA kernels: a library with cubins, its header, a Python package, a manifest.

Functions take device pointers and a stream; the package takes arrays by DLPack. Nothing
of NVIDIA's is needed to build the library. Calling it needs the driver.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

from tuner.export.archive import packed
from tuner.export.directory import check_replaceable, place
from tuner.export.errors import ExportError, ExportRefused
from tuner.export.manifest import FILE, workload_entry
from tuner.export.naming import check_library_name
from tuner.runtime.cuda_link import argument_documents, cuda_signature, link_cuda
from tuner.runtime.cuda_module import CudaModule
from tuner.runtime.toolchain import Toolchain
from tuner.scratch import temporary_folder
from tuner.workload.workload import Workload


@dataclass(frozen=True, kw_only=True)
class ExportCudaKernel:
    """A compiled kernel with what it computes."""

    module: CudaModule
    workload: Workload
    # target, median_s, ci95_s, verified, max_rel_error; empty for one that was never timed
    measured: Mapping[str, Any] = field(default_factory=dict)


def export_cuda_library(
    kernels: Sequence[ExportCudaKernel],
    directory: Path,
    name: str,
    *,
    toolchain: Toolchain | None = None,
) -> Mapping[str, Any]:
    """Writes the library `name` into `directory` and returns the manifest's document.

    An earlier export there is replaced. Raises ExportRefused (names, no kernels, a
    directory that is no export), LinkError, ExportError.
    """
    check_library_name(name)
    if not kernels:
        raise ExportRefused("no kernels to export")
    check_replaceable(directory)
    modules = [kernel.module for kernel in kernels]
    contents = {
        f"lib/lib{name}.so": link_cuda(name, modules, toolchain=toolchain),
        f"include/{name}.h": _header(name, kernels).encode(),
        f"{name}/__init__.py": _package(name, kernels).encode(),
        f"{name}/loader.py": (files("tuner.runtime") / "cuda_loader.py").read_text().encode(),
    }
    document = {
        "schema": 1,
        "name": name,
        "library": f"lib/lib{name}.so",
        "files": {path: sha256(content).hexdigest() for path, content in sorted(contents.items())},
        "functions": [_entry(kernel) for kernel in kernels],
    }
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    place(directory, {**contents, FILE: text.encode()})
    return document


def cuda_archive(kernels: Sequence[ExportCudaKernel], name: str) -> bytes:
    """The library `name` as `export_cuda_library` writes it, in one `.tar.gz`.

    The same kernels and compiler give the same bytes. Raises as `export_cuda_library`.
    """
    try:
        with temporary_folder("tuner-scratch-export-") as scratch:
            directory = scratch / name
            export_cuda_library(kernels, directory, name)
            return packed(directory, name)
    except OSError as error:
        raise ExportError(f"cannot pack the export {name}: {error}") from error


def _entry(kernel: ExportCudaKernel) -> dict[str, Any]:
    """The kernel's entry under `functions` of the manifest."""
    module, workload = kernel.module, kernel.workload
    return {
        "symbol": module.symbol,
        "workload": workload_entry(workload.key, workload),
        "arguments": argument_documents(module),
        "architectures": [arch for arch, _ in module.cubins],
        "verified": False,
        **kernel.measured,
    }


_HEADER = """/* {name}: CUDA kernels. Every pointer is a device address, dense and row-major, aligned to 16 bytes; outputs overlap
 * nothing. `stream` is a CUstream or cudaStream_t, NULL for the default one. Functions return once their work is on the stream:
 * 0, or an error number whose words {name}_last_error has, in the same thread. 1 null, 2 alignment, 3 overlap, 5 no code for this
 * device, 6 memory, 8 driver. The current context is used, or the first device's primary one where there is none. */
#ifndef {guard}
#define {guard}

#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

{functions}
const char *{name}_last_error(void);

#ifdef __cplusplus
}}
#endif

#endif
"""  # noqa: E501


def _header(name: str, kernels: Sequence[ExportCudaKernel]) -> str:
    functions = "".join(
        f"/* {_title(kernel)} */\n{cuda_signature(kernel.module)};\n\n" for kernel in kernels
    )
    return _HEADER.format(name=name, guard=f"{name.upper()}_H", functions=functions)


def _title(kernel: ExportCudaKernel) -> str:
    """What the kernel computes, on one line that is safe inside a C comment."""
    shapes = [
        f"{tensor.name} {list(tensor.shape)}"
        for tensor in (*kernel.module.inputs, *kernel.module.outputs)
    ]
    return f"{kernel.workload.spec}: {', '.join(shapes)}".replace("*/", "").replace("\n", " ")


_PACKAGE = '''"""{name}: CUDA kernels on arrays of PyTorch, CuPy or JAX, by DLPack: `f(*inputs, *outputs, stream=None)`."""

from pathlib import Path

from .loader import ArrayError, CudaLibrary, CudaLibraryError

library = CudaLibrary(Path(__file__).parent.parent / "lib" / "lib{name}.so")
{functions}
__all__ = [{names}]
'''  # noqa: E501


def _package(name: str, kernels: Sequence[ExportCudaKernel]) -> str:
    symbols = [kernel.module.symbol for kernel in kernels]
    functions = "".join(f'{symbol} = library.function("{symbol}")\n' for symbol in symbols)
    names = ("ArrayError", "CudaLibraryError", "library", *symbols)
    listed = ", ".join(f'"{public}"' for public in names)
    return _PACKAGE.format(name=name, functions=functions, names=listed)
