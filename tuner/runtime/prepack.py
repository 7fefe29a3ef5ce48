"""A kernel's second function, `<symbol>_pack`, which lays constants out once.

It lays them out as the kernel reads them. Plain data, and its form in JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tuner.workload.expression import Tensor

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Prepack:
    """What `<symbol>_pack(const T *constant…, T *packed…)` takes and gives.

    It fills the buffers that the kernel takes in the place of its constants. Positions
    are those of the function's inputs, followed by the packed tensors.
    """

    constants: tuple[int, ...]  # inputs that are packed, in the pack function's order
    packed: tuple[Tensor, ...]  # what it writes, in order
    passed: tuple[int, ...]  # what the kernel takes as inputs, by position
    tvm_symbol: str  # the pack function's entry, in the object code of the kernel

    def kernel_inputs(self, inputs: Sequence[T], packed: Sequence[T]) -> tuple[T, ...]:
        """What the kernel takes, in its order.

        `inputs` and `packed` stand for the function's inputs and the packed tensors.
        """
        everything = (*inputs, *packed)
        return tuple(everything[position] for position in self.passed)

    def document(self) -> dict[str, Any]:
        return {
            "constants": list(self.constants),
            "packed": [
                {"name": tensor.name, "dtype": tensor.dtype, "shape": list(tensor.shape)}
                for tensor in self.packed
            ],
            "passed": list(self.passed),
            "tvm_symbol": self.tvm_symbol,
        }


def pack_symbol(symbol: str) -> str:
    return f"{symbol}_pack"


def prepack_from(document: Mapping[str, Any]) -> Prepack:
    """The inverse of `Prepack.document`."""
    return Prepack(
        constants=tuple(document["constants"]),
        packed=tuple(
            Tensor(name=tensor["name"], dtype=tensor["dtype"], shape=tuple(tensor["shape"]))
            for tensor in document["packed"]
        ),
        passed=tuple(document["passed"]),
        tvm_symbol=document["tvm_symbol"],
    )
