"""A workload's buffers in a GPU's memory.

Canary bytes stand before and behind each. Outputs are poisoned, inputs must not change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.measure.buffers import CANARY
from tuner.measure.check import Case, WrongAnswer, raw
from tuner.runtime.cuda_driver import Device

# Before and behind: a multiple of every alignment, and wider than a warp's widest store.
GUARD_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceBuffer:
    """A buffer in device memory."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    base: int  # of the allocation
    guard_bytes: int = GUARD_BYTES  # of canaries, before the data and behind it

    @property
    def address(self) -> int:
        return self.base + self.guard_bytes

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


class DeviceCase:
    """One case's inputs and outputs on a device. Close it."""

    def __init__(self, device: Device, case: Case, *, guard_bytes: int = GUARD_BYTES) -> None:
        """`guard_bytes`: canaries before and behind each buffer.

        With 0 each allocation is a buffer's own size, which tools need that know where
        allocations end.
        """
        self._device, self.case, self._guard_bytes = device, case, guard_bytes
        self.inputs: list[DeviceBuffer] = []
        self.outputs: list[DeviceBuffer] = []
        try:
            for name, array in zip(case.input_names, case.pristine, strict=True):
                self.inputs.append(self._made(name, array.shape, array.dtype))
                device.upload(self.inputs[-1].address, array)
            for expected in case.expected:
                self.outputs.append(
                    self._made(expected.name, expected.reference.shape, expected.dtype)
                )
        except BaseException:
            self.close()
            raise

    def reload(self, case: Case) -> None:
        """Takes another case of the same workload, at the same addresses."""
        self.case = case
        for buffer, array in zip(self.inputs, case.pristine, strict=True):
            self._device.upload(buffer.address, array)

    @property
    def addresses(self) -> list[int]:
        return [buffer.address for buffer in (*self.inputs, *self.outputs)]

    def poison(self, byte: int) -> None:
        for buffer in self.outputs:
            self._device.fill(buffer.address, byte, buffer.nbytes)

    def results(self) -> list[NDArray[Any]]:
        """The outputs as they are once the stream is done."""
        return [
            self._device.download(buffer.address, buffer.shape, buffer.dtype)
            for buffer in self.outputs
        ]

    def check_surroundings(self) -> None:
        """Raises WrongAnswer where an input or a canary changed."""
        changed, damaged = self.changed(), self.damaged()
        if changed is not None:
            raise WrongAnswer(f"the kernel changed its input {changed}")
        if damaged is not None:
            raise WrongAnswer(f"the kernel wrote out of bounds of {damaged}")

    def changed(self) -> str | None:
        """The input that is not what was uploaded; None where all are."""
        for buffer, pristine in zip(self.inputs, self.case.pristine, strict=True):
            now = self._device.download(buffer.address, buffer.shape, buffer.dtype)
            if not np.array_equal(raw(now), raw(np.ascontiguousarray(pristine))):
                return buffer.name
        return None

    def damaged(self) -> str | None:
        """The buffer around which canary bytes were overwritten, and where; None where none
        were."""
        for buffer in (*self.inputs, *self.outputs):
            for where, start in (
                ("before its beginning", buffer.base),
                ("behind its end", buffer.address + buffer.nbytes),
            ):
                if not bool(
                    (self._device.download(start, (buffer.guard_bytes,), np.uint8) == CANARY).all()
                ):
                    return f"{buffer.name}, {where}"
        return None

    def close(self) -> None:
        buffers, self.inputs, self.outputs = [*self.inputs, *self.outputs], [], []
        for buffer in buffers:
            self._device.free(buffer.base)

    def _made(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceBuffer:
        buffer = DeviceBuffer(
            name=name, shape=shape, dtype=dtype, base=0, guard_bytes=self._guard_bytes
        )
        nbytes = buffer.nbytes + 2 * self._guard_bytes
        base = self._device.allocate(nbytes)
        if self._guard_bytes:
            self._device.fill(base, CANARY, nbytes)
        return replace(buffer, base=base)
