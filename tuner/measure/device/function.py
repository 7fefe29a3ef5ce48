"""A function of a library on a device, bound to buffers there: calls, times and outputs.

Who measures a candidate looks at more than this (`tuner.measure.device.trial`).
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import prod
from struct import error as StructError
from typing import Any

import numpy as np

from tuner.measure.check import POISONS, raw
from tuner.measure.device.connection import (
    CallFailed,
    CandidateEnded,
    Connection,
    DeviceError,
)
from tuner.measure.device.protocol import KEEP, Binding, BufferChange, End, Ended, FrameError
from tuner.runtime.signature import Argument, ShapeError, Signature, signature_of

Array = np.ndarray[Any, np.dtype[Any]]

SETTLE_US = 1000  # of calls before those that count: the core waited for the request
WORK_S = 600.0  # that the process of a library may work
# What reading a text raises that is no description of a library.
MALFORMED = (
    ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError,
    ShapeError, StructError,
)  # fmt: skip


class Undescribed(Exception):
    """A library that does not describe the function, or not one that a device can run."""


class FunctionFailed(Exception):
    """The call failed, or its process ended."""


def bound(
    description: str,
    symbol: str,
    arrays: Sequence[Array],
    hashes: tuple[tuple[bytes, ...], ...],
    threads: int,
) -> tuple[Binding, Signature]:
    """The function with its buffers, as its library describes itself; constants packed.

    `arrays` are the inputs of one case, `hashes` those of the inputs of all. The text is the
    device's, which may say anything. Raises Undescribed.
    """
    try:
        document = json.loads(description)
        entries = {entry["symbol"]: entry for entry in document["functions"]}
        signature = signature_of(entries[symbol]).of(arrays)
        binding = _binding(str(document["name"]), signature, hashes, threads)
        binding.packed()
    except (FrameError, *MALFORMED) as error:
        raise Undescribed(
            f"the library does not describe a function {symbol!r} that a device can run: {error!r}"
        ) from error
    return binding, signature


def _binding(
    name: str, signature: Signature, hashes: tuple[tuple[bytes, ...], ...], threads: int
) -> Binding:
    prepack = signature.prepack
    packed = prepack.packed if prepack else ()
    return Binding(
        function=signature.symbol,
        timer=f"{name}_time",
        threader=f"{name}_set_num_threads",
        reason=f"{name}_last_error",
        threads=threads,
        inputs=hashes,
        output_bytes=tuple(_nbytes(argument) for argument in signature.outputs),
        rows=signature.count,
        packer=prepack.symbol if prepack else "",
        constants=prepack.constants if prepack else (),
        packed_bytes=tuple(_nbytes(argument) for argument in packed),
        passed=prepack.passed if prepack else tuple(range(len(signature.inputs))),
    )


def _nbytes(argument: Argument) -> int:
    return prod(argument.shape) * argument.numpy_dtype.itemsize


@dataclass(frozen=True, slots=True)
class DeviceFunction:
    """A function that is bound to sets of inputs, and to one set of outputs."""

    connection: Connection
    signature: Signature  # with the extents of its inputs
    cases: int  # sets of inputs

    def call(self, case: int = 0, number: int = 1) -> None:
        """Calls the function on a set of inputs. What it leaves out of its outputs shows."""
        self.connection.run(case, number=number, repeat=1, poison=POISONS[0])

    def seconds(self, number: int, repeat: int, case: int = 0) -> tuple[float, ...]:
        """Seconds of a call: `repeat` samples, each the mean of `number` calls."""
        return self.connection.run(
            case, number=number, repeat=repeat, poison=KEEP, settle_us=SETTLE_US
        )

    def output(self, place: int) -> Array:
        """An output of the last call, as its bits. A negative place counts from the end."""
        outputs = self.signature.outputs
        place %= len(outputs)
        data = self.connection.output(place, _nbytes(outputs[place]))
        return np.frombuffer(data, outputs[place].numpy_dtype).reshape(outputs[place].shape)

    def check_surroundings(self) -> None:
        """Raises FunctionFailed where a call changed an input or wrote out of bounds."""
        around = self.connection.check()
        if around.what is BufferChange.UNCHANGED:
            return
        names = [argument.name for argument in self.signature.arguments]
        name = names[around.tensor] if around.tensor < len(names) else f"tensor {around.tensor}"
        changed = around.what is BufferChange.INPUT
        raise FunctionFailed(
            f"it changed its input {name}" if changed else f"it wrote out of bounds of {name}"
        )


@contextmanager
def function_on(
    connection: Connection,
    library: bytes,
    symbol: str,
    sets: Sequence[Sequence[Array]],
    *,
    threads: int,
    cores: int,
) -> Iterator[DeviceFunction]:
    """A function of a library on a device, bound to sets of inputs, for the block.

    It uses so many `threads`, or those that it was tuned for if that is 0, on `cores` cores
    of its own. Raises FunctionFailed, also where the block's calls fail, and DeviceError.
    """
    try:
        digest = connection.keep(library, library=True)
        hashes = tuple(
            tuple(connection.keep(raw(np.ascontiguousarray(array)).data) for array in arrays)
            for arrays in sets
        )
        description = connection.open(
            digest,
            deadline_s=WORK_S,
            threads=cores,
            memory_bytes=connection.facts.memory_bytes,
        )
        binding, signature = bound(description, symbol, sets[0], hashes, threads)
        _check_inputs(symbol, signature, sets)
        connection.bind(binding)
        yield DeviceFunction(connection, signature, len(sets))
    except (CallFailed, Undescribed) as error:
        raise FunctionFailed(str(error)) from error
    except CandidateEnded as error:
        raise FunctionFailed(_text_of(error.ended)) from error
    finally:
        if connection.is_open:
            with suppress(DeviceError):
                connection.close_candidate()
                connection.forget_tensors()


def _check_inputs(symbol: str, signature: Signature, sets: Sequence[Sequence[Array]]) -> None:
    takes = [(argument.shape, argument.numpy_dtype.itemsize) for argument in signature.inputs]
    if any(takes != [(array.shape, array.itemsize) for array in arrays] for arrays in sets):
        raise FunctionFailed(f"{symbol} takes {takes} (shapes and bytes of an element)")


def _text_of(ended: Ended) -> str:
    """Why the process of a library is gone."""
    match ended.how:
        case End.DEADLINE:
            return f"it was stopped after {WORK_S:.0f} s"
        case End.GUARD:
            return "it accessed memory out of bounds of a tensor: it hit a guard page"
        case End.MEMORY:
            return "no memory was left on the device"
        case End.NOT_LOADED:
            return f"the device cannot load it: {ended.text}"
        case End.SIGNAL if ended.code in set(signal.Signals):
            return f"its process was ended by {signal.Signals(ended.code).name}"
        case _:
            return f"its process ended with code {ended.code}"
