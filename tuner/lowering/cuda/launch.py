"""How the kernels of a scheduled module are launched, read from TVM's own host code
once it is split from the device's."""

from __future__ import annotations

from typing import Any

import tvm
from tvm_ffi import structural_walk

from tuner.lowering.compiler import BuildError
from tuner.runtime.cuda_module import Launch

_SPLIT = "SplitHostDevice"
_SHARED = (
    "tirx.use_dyn_shared_memory"  # the tag under which TVM passes bytes of dynamic shared memory
)


@tvm.instrument.pass_instrument
class LaunchWatch:
    """Instrument of the pass context a module is built in; afterwards `launches` are
    those of its function `symbol`, in order."""

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
    found: list[Launch] = []

    def see(call: Any) -> None:
        if getattr(call.op, "name", "") == "tirx.call_ffi_kernel":
            found.append(_launch(call))

    structural_walk(host, (tvm.ir.Call, see))
    return tuple(found)


def _launch(call: Any) -> Launch:
    """Arguments are the kernel's name, its buffers, then a number for each launch parameter."""
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

    def three(what: str) -> tuple[int, int, int]:
        return values.get(f"{what}.x", 1), values.get(f"{what}.y", 1), values.get(f"{what}.z", 1)

    return Launch(
        kernel=str(name.value),
        arguments=tuple(str(buffer.args[0].name) for buffer in buffers),
        grid=three("blockIdx"),
        block=three("threadIdx"),
        shared_bytes=values.get(_SHARED, 0),
    )
