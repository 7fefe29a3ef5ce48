"""Calls of a foreign kernel in the process that owns the device, and what they showed.

Foreign are kernels in CUDA C++ that others wrote. A library of ours is timed in the same
way beside them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from tuner.measure.check import POISONS, Case
from tuner.measure.foreign.answers import check_buffers, check_outputs, may_be_reread, reread
from tuner.measure.foreign.examination import Contestant
from tuner.measure.foreign.verdict import Guilty, VerdictName
from tuner.measure.gpu.buffers import DeviceCase
from tuner.runtime.cuda_driver import CudaError, Device
from tuner.runtime.cuda_kernel import NOT_FOUND, DeviceKernel
from tuner.runtime.cuda_loader import CudaLibrary

POINTER_BYTES = 8
WARM_S = 0.02  # of work before each timed round, so that the clocks are up
WARM_BYTES = 1 << 20  # that this work overwrites: less than any second-level cache

Stage = Callable[[str], None]


class Launched(Protocol):
    """What puts one call on a stream."""

    def launch(self, addresses: Sequence[int], stream: int = 0) -> None: ...


class Guest:
    """One contestant on a device, in a process of its own."""

    def __init__(self, device: Device, contestant: Contestant, buffers: int) -> None:
        """`buffers`: inputs and outputs together. Raises Guilty, CudaError and NoDriver."""
        self._device, self._foreign = device, contestant.foreign
        self._slots: list[DeviceCase] = []  # until the process ends
        self._kernel: Launched
        if contestant.launch is None:
            self._kernel = CudaLibrary(contestant.library).function(contestant.symbol)
        else:
            _silence()
            self._kernel = _foreign_kernel(contestant, buffers)

    def verify(self, cases: Sequence[Case], stage: Stage) -> float:
        """The largest error over all cases, each on two poisons. Raises Guilty."""
        worst, earlier = 0.0, list[Case]()
        for case in cases:
            stage(f"checking {case.name} inputs")
            (on_device,) = self._placed([case])
            for poison in POISONS:
                try:
                    worst = max(worst, self._ask(on_device, poison, earlier))
                except Guilty as guilty:
                    raise self._reread(on_device, poison, guilty) from None
            earlier.append(case)
        return worst

    def time(self, rounds: Sequence[Sequence[Case]], stage: Stage) -> tuple[float, ...]:
        """Seconds of one call, a sample for each round but the first. Raises Guilty.

        The outputs of each call are checked where the kernel is a stranger's.
        """
        samples, earlier = [], list[Case]()
        scratch = self._device.allocate(WARM_BYTES)
        for number, cases in enumerate(rounds):
            poison = POISONS[number % len(POISONS)]
            placed = self._placed(cases)
            for on_device in placed:
                on_device.poison(poison)
            stage("timing")
            if number == 0:  # which loads what the first call loads
                self._launch(placed)
                self._device.wait()
            else:
                samples.append(self._seconds(placed, scratch) / len(placed))
            if self._foreign:
                stage("checking the timed calls' outputs")
                for on_device in placed:
                    self._check(on_device, poison, earlier)
            earlier += cases
        return tuple(samples)

    def _seconds(self, placed: Sequence[DeviceCase], scratch: int) -> float:
        """Of one call of each case, in one graph, on a device that was busy before."""
        graph = self._device.captured(lambda: self._launch(placed), 1)
        try:
            graph.upload()
            end_s = time.monotonic() + WARM_S
            while time.monotonic() < end_s:
                self._device.fill(scratch, 0, WARM_BYTES)
                self._device.wait()
            return self._device.seconds(graph.launch)
        finally:
            graph.close()

    def _launch(self, placed: Sequence[DeviceCase]) -> None:
        for on_device in placed:
            self._kernel.launch(on_device.addresses, self._device.stream)

    def _ask(self, on_device: DeviceCase, poison: int, earlier: Sequence[Case]) -> float:
        on_device.poison(poison)
        self._launch([on_device])
        return self._check(on_device, poison, earlier)

    def _check(self, on_device: DeviceCase, poison: int, earlier: Sequence[Case]) -> float:
        results = on_device.results()
        check_buffers(on_device.damaged(), on_device.changed())
        return check_outputs(results, on_device.case, poison, earlier)

    def _reread(self, on_device: DeviceCase, poison: int, guilty: Guilty) -> Guilty:
        if not may_be_reread(guilty):
            return guilty
        return reread(
            guilty,
            poison,
            ask=lambda other: self._ask(on_device, other, ()),
            outputs=lambda: [array.tobytes() for array in on_device.results()],
        )

    def _placed(self, cases: Sequence[Case]) -> list[DeviceCase]:
        """The cases on the device, each where the case before it in its place was.

        A kernel that keeps its outputs by address is wrong at the second case then. Were each
        case allocated anew, the allocator would decide.
        """
        for place, case in enumerate(cases):
            if place == len(self._slots):
                self._slots.append(DeviceCase(self._device, case))
            else:
                self._slots[place].reload(case)
        return self._slots[: len(cases)]


def _foreign_kernel(contestant: Contestant, buffers: int) -> DeviceKernel:
    """The kernel of a cubin. Raises Guilty unless it takes so many addresses and no more.

    Parameters beyond these would be read from whatever lies in this process's memory.
    """
    symbol, launch = contestant.symbol, contestant.launch
    assert launch is not None, "a cubin comes with the dimensions of its launch"
    code = Path(contestant.library).read_bytes()
    try:
        kernel = DeviceKernel(
            code, symbol, grid=launch.grid, block=launch.block, shared_bytes=launch.shared_bytes
        )
    except CudaError as error:
        if error.number != NOT_FOUND:
            raise
        raise Guilty(
            VerdictName.BUILD_ERROR,
            f'the source defines no function {symbol} that is extern "C" and __global__; see the '
            f"signature that it must have",
        ) from error
    sizes = kernel.parameter_bytes
    if sizes != (POINTER_BYTES,) * buffers:
        raise Guilty(
            VerdictName.BUILD_ERROR,
            f"{symbol} has parameters of {list(sizes)} bytes; it takes {buffers} pointers, as its "
            f"signature says",
        )
    return kernel


def _silence() -> None:
    """What the kernel prints goes nowhere: this process's own log is not a stranger's."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
