"""Exports a model for a GPU: its library with kernels and weights, a header, a package."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from tuner.export.directory import check_replaceable
from tuner.export.examples import EXPECTED, expected_text
from tuner.export.kernel import ExportKernel
from tuner.export.library import write_library
from tuner.export.manifest import Manifest, function_entry
from tuner.export.naming import check_library_name
from tuner.export.signature import Signer
from tuner.runtime.cuda_model import CudaModel, unpacked_model
from tuner.runtime.cuda_model_link import link_cuda_model, model_signatures


def export_cuda_model(
    kernel: ExportKernel,
    directory: Path,
    name: str,
    *,
    signer: Signer | None = None,
) -> Manifest:
    """Writes the library `name` of a model, whose code is a packed `CudaModel`.

    An earlier export there is replaced. The same model, compiler and key give the same
    bytes. Raises ExportRefused (names, a directory that is no export), LinkError
    (compiler) and ExportError (disk). In each case the directory is as it was.
    """
    check_library_name(name)
    check_replaceable(directory)
    model = unpacked_model(kernel.object_code)
    texts = {
        f"include/{name}.h": _header(name, model),
        f"{name}/__init__.py": _package(name, model),
        f"{name}/loader.py": (files("tuner.runtime") / "cuda_loader.py").read_text(),
        EXPECTED: expected_text([kernel]),
    }
    contents = {
        f"lib/lib{name}.so": link_cuda_model(name, model),
        **{path: text.encode() for path, text in texts.items()},
    }
    entry: dict[str, Any] = {
        **function_entry(kernel),
        "architectures": list(model.architectures),
        "device_bytes": model.memory_bytes,
    }
    return write_library(contents, [entry], directory, name, signer)


_HEADER = """/* {name}: a model for NVIDIA GPUs. All of a call are launches of one CUDA graph; the weights and all
 * intermediate tensors, {memory_bytes} bytes, stay in the GPU's memory from the first call in a context on.
 *
 * {symbol}: every pointer is a device address, dense and row-major, aligned to 16 bytes; outputs overlap nothing.
 * `stream` is a CUstream or cudaStream_t, NULL for the default one. It returns once its work is on the stream. Calls
 * run one after another, whatever their streams.
 * {symbol}_host: arrays of the host. It returns once the outputs are there.
 * {symbol}_times: does the {steps} steps of a call one after another and writes the seconds of each.
 *
 * All return 0, or an error number whose words {name}_last_error has, in the same thread. 1 null, 2 alignment,
 * 3 overlap, 5 no code for this device, 6 memory, 8 driver. The current context is used, or the first device's
 * primary one where there is none. */
#ifndef {guard}
#define {guard}

#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

{arguments}
{functions}

const char *{name}_last_error(void);

#ifdef __cplusplus
}}
#endif

#endif
"""  # noqa: E501


def _header(name: str, model: CudaModel) -> str:
    tensors = [(f"in{i}", tensor) for i, tensor in enumerate(model.inputs)]
    tensors += [(f"out{i}", tensor) for i, tensor in enumerate(model.outputs)]
    described = ", ".join(
        f"{place}: {tensor.name} {tensor.dtype} {list(tensor.shape)}" for place, tensor in tensors
    )
    return _HEADER.format(
        name=name,
        symbol=model.symbol,
        guard=f"{name.upper()}_H",
        memory_bytes=model.memory_bytes,
        steps=len(model.steps),
        arguments=f"/* {described.replace('*/', '')} */",
        functions="\n".join(f"{signature};" for signature in model_signatures(model)),
    )


_PACKAGE = '''"""{name}: a model for NVIDIA GPUs.

`{symbol}(*inputs)` takes arrays of NumPy and gives new ones. `{symbol}(*inputs, *outputs,
stream=None)` takes arrays of PyTorch, CuPy or JAX in the GPU's memory, by DLPack.
"""

from pathlib import Path

from .loader import ArrayError, CudaLibrary, CudaLibraryError

library = CudaLibrary(Path(__file__).parent.parent / "lib" / "lib{name}.so")
{symbol} = library.model("{symbol}")

__all__ = ["ArrayError", "CudaLibraryError", "library", "{symbol}"]
'''


def _package(name: str, model: CudaModel) -> str:
    return _PACKAGE.format(name=name, symbol=model.symbol)
