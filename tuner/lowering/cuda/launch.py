"""Launches of the kernels of a module, read from TVM's own host code.

TVM splits a scheduled module into host and device functions. The calls of kernels in
the host's function hold names, arguments and launch parameters.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm_ffi import structural_walk

from tuner.lowering.compiler import BuildError
from tuner.runtime.cuda_module import Launch

_SPLIT = "SplitHostDevice"
# The tag under which TVM passes the bytes of dynamic shared memory.
_SHARED = "tirx.use_dyn_shared_memory"


@tvm.instrument.pass_instrument
class LaunchWatch:
    """Instrument that records the launches of one function while a module is built.

    Add it to the pass context. Afterwards `launches` holds those of function `symbol`,
    in order.
    """

    def __init__(self, symbol: str) -> None:
        self.symbol = symbol
        self.launches: tuple[Launch, ...] = ()

    def run_after_pass(self, module: tvm.IRModule, info: Any) -> None:
        if str(info.name).endswith(_SPLIT):
            host = next(
                function
                for name, function in module.functions.items()
                if name.name_hint == self.symbol
            )
            self.launches = _launches(host)


def _launches(host: Any) -> tuple[Launch, ...]:
    launches: list[Launch] = []

    def visit(call: Any) -> None:
        if getattr(call.op, "name", "") == "tirx.call_ffi_kernel":
            launches.append(_launch(call))

    structural_walk(host, (tvm.ir.Call, visit))
    return tuple(launches)


def _launch(call: Any) -> Launch:
    """One launch of a call of `tirx.call_ffi_kernel`.

    The arguments are the kernel's name, its buffers, then a value for each launch
    parameter. Raises BuildError for a value that is no constant.
    """
    name, *rest = call.args
    tags = [str(tag) for tag in call.attrs.launch_params]
    buffers, numbers = rest[: len(rest) - len(tags)], rest[len(rest) - len(tags) :]
    values: dict[str, int] = {}
    for tag, number in zip(tags, numbers, strict=True):
        if not hasattr(number, "value"):
            raise BuildError(
                f"kernel {name.value} is launched with {tag} = {number}, which is no constant"
            )
        values[tag] = int(number.value)

    def dimensions(tag: str) -> tuple[int, int, int]:
        return values.get(f"{tag}.x", 1), values.get(f"{tag}.y", 1), values.get(f"{tag}.z", 1)

    return Launch(
        kernel=str(name.value),
        arguments=tuple(str(buffer.args[0].name) for buffer in buffers),
        grid=dimensions("blockIdx"),
        block=dimensions("threadIdx"),
        shared_bytes=values.get(_SHARED, 0),
    )
