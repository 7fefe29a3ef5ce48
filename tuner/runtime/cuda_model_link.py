"""A CUDA model linked into a shared library with a plain C ABI.

It has the function of the model on device addresses and a stream, `SYMBOL_host` on arrays
of the host, and `SYMBOL_times`, which does the steps one after another and gives the
seconds of each.
"""

from __future__ import annotations

import json

from tuner.runtime.cuda_link import (
    HEADERS,
    MAX_BUFFERS,
    SOURCE,
    Cubins,
    addresses,
    argument_documents,
    check_linkable,
    cuda_signature,
    kernel_tables,
    library_functions,
    parameters,
    signature_table,
    sources,
)
from tuner.runtime.cuda_model import CudaModel, DevicePlace, ModelCopy, ModelStep
from tuner.runtime.cuda_module import nbytes
from tuner.runtime.link import IDENTIFIER, system_toolchain
from tuner.runtime.toolchain import LinkError, Toolchain, run
from tuner.scratch import temporary_folder

MODEL_SOURCE = "tuner_cuda_model.c"
MODEL_HEADERS = (*HEADERS, "tuner_cuda_model.h", "tuner_cuda_graph_driver.h")
_CONSTANTS = (
    '  .section .rodata.constants,"a"\n  .globl tuner_cuda_constants\n  .hidden '
    "tuner_cuda_constants\n  .balign 256\ntuner_cuda_constants:\n"
    '  .incbin "constants.bin"\n  .byte 0\n  .section .note.GNU-stack,"",@progbits\n'
)


def link_cuda_model(name: str, model: CudaModel, *, toolchain: Toolchain | None = None) -> bytes:
    """A shared library, soname lib<name>.so, with the functions of a model.

    The same inputs and compiler give the same bytes. Raises LinkError for names that are
    no C identifiers, for a model with too many arguments or a kernel that is too large,
    and for a compiler's refusal; CudaModuleError for a model that contradicts itself.
    """
    tools = toolchain if toolchain is not None else system_toolchain()
    wrong = [symbol for symbol in (name, model.symbol) if not IDENTIFIER.match(symbol)]
    if wrong:
        raise LinkError(f"a library needs names that are C identifiers, got {', '.join(wrong)}")
    count = len(model.inputs) + len(model.outputs)
    if count > MAX_BUFFERS:
        raise LinkError(f"{model.symbol} has {count} inputs and outputs, too many")
    model.check()
    for kernel in model.kernels:
        check_linkable(kernel)
    headers = sources(MODEL_HEADERS)
    objects = [
        tools.compile(source, text, headers)
        for source, text in sources([SOURCE, MODEL_SOURCE]).items()
    ]
    objects.append(tools.compile(f"{name}_model.c", model_wrapper(name, model), headers))
    exported = (
        *model_symbols(model),
        f"{name}_last_error",
        "tuner_library_json",
    )
    with temporary_folder("tuner-scratch-model-") as folder:
        (folder / "constants.bin").write_bytes(model.constants)
        (folder / "constants.S").write_text(_CONSTANTS)
        run([*tools.command, "-c", "constants.S", "-o", "constants.o"], cwd=folder)
        objects.append(folder / "constants.o")
        return tools.shared(objects, soname=f"lib{name}.so", exported=exported)


def model_symbols(model: CudaModel) -> tuple[str, str, str]:
    """The functions of a model: on device addresses, on arrays of the host, the times."""
    return model.symbol, f"{model.symbol}_host", f"{model.symbol}_times"


def model_signatures(model: CudaModel) -> tuple[str, str, str]:
    """The functions' C declarations, in the order of `model_symbols`."""
    arguments = ", ".join(parameters(model))
    return (
        cuda_signature(model),
        f"int {model.symbol}_host({arguments})",
        f"int {model.symbol}_times({arguments}, void *stream, double *seconds)",
    )


def model_description(name: str, model: CudaModel) -> str:
    """What `tuner_library_json()` returns: canonical JSON that loaders check arrays against."""
    function = {
        "symbol": model.symbol,
        "arguments": argument_documents(model),
        "architectures": list(model.architectures),
        "steps": [_kernel_of(step) for step in model.steps],
    }
    return json.dumps(
        {"schema": 1, "kind": "cuda", "name": name, "functions": [function]},
        sort_keys=True,
        separators=(",", ":"),
    )


def _kernel_of(step: ModelStep) -> int | None:
    """The number of the kernel that a step launches; None of a copy."""
    return None if isinstance(step, ModelCopy) else step.kernel


def model_wrapper(name: str, model: CudaModel) -> str:
    """C text: the kernels as tables, the steps as tables, the functions."""
    parts = ['#include "tuner_cuda_model.h"\n']
    cubins: Cubins = {}
    parts += [kernel_tables(number, kernel, cubins) for number, kernel in enumerate(model.kernels)]
    parts += [_step_tables(number, step, model) for number, step in enumerate(model.steps)]
    sizes = ", ".join(str(nbytes(tensor)) for tensor in (*model.inputs, *model.outputs))
    steps = ",\n  ".join(_step(number, step) for number, step in enumerate(model.steps))
    fields = {
        "signature": signature_table(model, "model_bytes"),
        "constants": "tuner_cuda_constants",
        "constant_bytes": len(model.constants),
        "memory_bytes": max(model.memory_bytes, 1),
        "steps": len(model.steps),
        "step": "model_steps",
    }
    table = ", ".join(f".{field} = {value}" for field, value in fields.items())
    on_device, on_host, times = model_signatures(model)
    names = [f"in{i}" for i in range(len(model.inputs))]
    names += [f"out{i}" for i in range(len(model.outputs))]
    arrays = ", ".join(f"(void *){name}" for name in names)
    parts += [
        "extern const unsigned char tuner_cuda_constants[] TUNER_CUDA_HIDDEN;",
        f"static const size_t model_bytes[] = {{{sizes}}};",
        f"static const struct tuner_cuda_step model_steps[] = {{\n  {steps or '{0}'}}};",
        f"static struct tuner_cuda_model model = {{{table}}};",
        f"TUNER_CUDA_EXPORT {on_device} {{",
        addresses(model),
        "  return tuner_cuda_model_call(&model, buffers, stream);",
        "}",
        f"TUNER_CUDA_EXPORT {on_host} {{",
        f"  void *const arrays[{len(names)}] = {{{arrays}}};",
        "  return tuner_cuda_model_call_host(&model, arrays);",
        "}",
        f"TUNER_CUDA_EXPORT {times} {{",
        addresses(model),
        "  return tuner_cuda_model_times(&model, buffers, stream, seconds);",
        "}",
        *library_functions(name, model_description(name, model)),
    ]
    return "\n".join(parts) + "\n"


def _step_tables(number: int, step: ModelStep, model: CudaModel) -> str:
    places = ", ".join(_place(place, model) for place in step.places)
    waits = ", ".join(map(str, step.after)) or "0"
    return (
        f"static const struct tuner_cuda_place places_{number}[] = {{{places}}};\n"
        f"static const int after_{number}[] = {{{waits}}};"
    )


def _place(place: DevicePlace, model: CudaModel) -> str:
    own = len(model.inputs) + len(model.outputs)
    buffer = own if place.kind == "memory" else place.position
    return f"{{{buffer}, {place.offset}}}"


def _step(number: int, step: ModelStep) -> str:
    what = (
        f"NULL, 0, places_{number}, {step.nbytes}"
        if isinstance(step, ModelCopy)
        else f"&function_{step.kernel}, {step.launch}, places_{number}, 0"
    )
    return f"{{{what}, {len(step.after)}, after_{number}}}"
