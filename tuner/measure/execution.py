"""One run of a kernel or a model on a caller's arrays.

The runner's parent reads the inputs, a fenced child computes, and the outputs come back
in shared memory. The child gets copies of the inputs between guard pages. What it hands
back is raw numbers of known dtypes and shapes.
"""

from __future__ import annotations

import mmap
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from types import TracebackType
from typing import Any

import numpy as np

from tuner.errors import UsageError
from tuner.measure.buffers import guarded, guarded_copy
from tuner.measure.child import Report
from tuner.measure.wire import Document
from tuner.runtime.loader import Library, LibraryError
from tuner.runtime.signature import NUMPY
from tuner.workload.bounded import BoundedExtents, bounded_from, first
from tuner.workload.expression import Tensor

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One run: the function, its inputs, and where the outputs go."""

    library: str  # path of the shared library
    symbol: str  # of the function in it
    takes: tuple[Tensor, ...]  # its inputs in order, under their names in the .npz
    gives: tuple[Tensor, ...]  # its outputs likewise
    inputs: str  # path of an .npz with the inputs by name; bfloat16 as uint16
    outputs: str  # path of the .npz to write
    # Outputs that are cut to extents that others hold, which are not written.
    bounded: Mapping[str, BoundedExtents] = field(default_factory=dict)
    timeout_s: float = 20.0  # of the child, from its start to its end


def execution_from_document(document: Document) -> Execution:
    """The inverse of `dataclasses.asdict`. Raises KeyError or TypeError."""
    tensors = {
        name: tuple(
            Tensor(name=each["name"], shape=tuple(each["shape"]), dtype=each["dtype"])
            for each in document[name]
        )
        for name in ("takes", "gives")
    }
    bounded = {name: bounded_from(each) for name, each in document["bounded"].items()}
    return Execution(**{**document, **tensors, "bounded": bounded})


class SharedOutputs:
    """Memory for the outputs that a forked child writes and its parent reads."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        # Shared and anonymous.
        self._mappings = [mmap.mmap(-1, max(1, _nbytes(tensor))) for tensor in tensors]
        self.arrays: Mapping[str, Array] = {
            tensor.name: np.ndarray(tensor.shape, _dtype(tensor), buffer=mapping)
            for tensor, mapping in zip(tensors, self._mappings, strict=True)
        }

    def write(self, path: str, bounded: Mapping[str, BoundedExtents]) -> None:
        """Write the outputs as .npz, those with computed extents cut to them.

        Extents beyond an array, which a child may have left, cut nothing.
        """
        held = {extents.extents for extents in bounded.values()}
        with zipfile.ZipFile(path, "w") as archive:
            for name, array in self.arrays.items():
                if name in held:
                    continue
                if name in bounded:
                    array = first(array, bounded[name], self.arrays)
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)

    def __enter__(self) -> SharedOutputs:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.arrays = {}  # the mappings go with the last view of them


def read_inputs(path: str, tensors: Sequence[Tensor]) -> list[Array]:
    """The arrays of these names, dtypes and shapes, in their order.

    Raises UsageError where the file does not hold them, OSError where it cannot be
    read.
    """
    inputs = []
    try:
        with np.load(path, allow_pickle=False) as arrays:
            for tensor in tensors:
                array = arrays[tensor.name]
                if array.dtype != _dtype(tensor) or array.shape != tensor.shape:
                    raise UsageError(
                        f"input {tensor.name} is {array.dtype} {list(array.shape)}, not "
                        f"{_dtype(tensor)} {list(tensor.shape)}"
                    )
                inputs.append(array)
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UsageError(
            f"the inputs are no .npz with the arrays that are taken: {error}"
        ) from error
    return inputs


def compute(
    execution: Execution,
    threads: int,
    inputs: Sequence[Array],
    outputs: Mapping[str, Array],
    report: Report,
) -> None:
    """The child's part: call the function once on guarded buffers, copy its outputs.

    Values that the function refuses are reported as the caller's fault.
    """
    report.stage("loading")
    library = Library(execution.library)
    library.set_num_threads(threads)
    guarded_inputs = [guarded_copy(array) for array in inputs]
    computed = [guarded(array.shape, array.dtype) for array in outputs.values()]
    report.stage("running")
    try:
        library.call(execution.symbol, [buffer.array for buffer in (*guarded_inputs, *computed)])
    except LibraryError as error:
        if error.kind != "value":
            raise
        report.refused(str(error))
        return
    report.stage("handing back the outputs")
    for target, buffer in zip(outputs.values(), computed, strict=True):
        target[...] = buffer.array
    report.done()


def _dtype(tensor: Tensor) -> np.dtype[Any]:
    return np.dtype(NUMPY[tensor.dtype])


def _nbytes(tensor: Tensor) -> int:
    return prod(tensor.shape) * _dtype(tensor).itemsize
