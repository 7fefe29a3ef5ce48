"""Which calls have kernels, as `tuner run` wrote it, and how many of them were answered.

`plan.json` has a list of calls: `library`, `operator` and `arguments` as in a record, the
`symbol` of the function in `kernels.so`, the numbers of the arguments that are its `inputs`
with their `dtypes`, the `result` with `shape`, `strides` and `dtype`, the `overload` of
PyTorch's operators, and whether the kernel is `long`. A slot of the output counts the calls
that the kernel answered and those that were left to the library.
"""

from __future__ import annotations

import ctypes
import json
import os
import threading
from typing import Any

from ..recorder.output import SLOT_BYTES, Output

PLAN, LIBRARY = "plan.json", "kernels.so"
SMALL = 8  # greatest integers that distinguish calls, as in vectorcall.h
TOLERANCE = 1e-4  # of a kernel's result, relative to the greatest value
WRONG = "its kernel computed something else"


class Plan:
    """The calls of a program that have kernels. Thread-safe."""

    def __init__(self, folder: str) -> None:
        with open(os.path.join(folder, PLAN), encoding="utf-8") as file:
            self.calls: list[dict[str, Any]] = json.load(file)
        self.folder = folder
        self.output = Output(folder)
        self.kept: Any = None  # what must live as long as the process
        self._numbers = {
            kind(call["library"], call["operator"], call["arguments"]): number
            for number, call in enumerate(self.calls)
        }
        self._lock = threading.Lock()
        self._library: ctypes.CDLL | None = None
        self._describe()

    def _describe(self) -> None:
        self.slots = [self.output.describe({"call": n}) for n in range(len(self.calls))]

    def reopen(self) -> None:
        """After a fork: the child counts by itself."""
        self.output.reopen()
        self._lock = threading.Lock()
        self._describe()

    def of_library(self, name: str) -> list[int]:
        """The numbers of a library's calls."""
        return [number for number, call in enumerate(self.calls) if call["library"] == name]

    def number(self, library: str, operator: str, arguments: list[dict[str, Any]]) -> int | None:
        """The number of the planned call that has exactly these arguments."""
        return self._numbers.get(kind(library, operator, arguments))

    def function(self, number: int) -> Any:
        """The function of a call's kernel."""
        with self._lock:
            if self._library is None:
                self._library = ctypes.CDLL(os.path.join(self.folder, LIBRARY))
        return self._library[self.calls[number]["symbol"]]

    def counts_address(self) -> int:
        """Where the slot of the first call begins; those of the others follow."""
        return self.output.address() + (self.slots[0] if self.slots else 0) * SLOT_BYTES

    def answered(self, number: int) -> None:
        self.output.add(self.slots[number], 1, 0)

    def left(self, number: int) -> None:
        self.output.add(self.slots[number], 0, 1)


def kind(library: str, operator: str, arguments: list[dict[str, Any]]) -> str:
    """What calls have in common that one kernel answers."""
    if library == "numpy":
        arguments = [_without_number(argument) for argument in arguments]
    return json.dumps([library, operator, arguments], sort_keys=True)


def _without_number(argument: dict[str, Any]) -> dict[str, Any]:
    """Numbers that a kernel has as inputs are of any value."""
    value = argument.get("value")
    if type(value) is float or (type(value) is int and abs(value) > SMALL):
        return {**argument, "value": type(value).__name__ + " of any value"}
    return argument
