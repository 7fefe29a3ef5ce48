"""Parallel loops over compressed rows, shared by what rows have to do instead of by rows.

The work of rows before row r is `P[r] + r`: their places, and each row once. It rises, so
the first row of a task is found by binary search in the pointers P, in as many steps as r
has bits. Merge-based SpMV (Merrill and Garland, SC 2016) weighs rows so; it cuts within
rows, too, which this does not.
"""

from __future__ import annotations

import tvm
from tvm import tirx
from tvm_ffi import structural_walk

from tuner.lowering.passes.substitution import with_replaced

SHARED = "tuner_share_by_places"  # the annotation; its value is the number of tasks


def share_rows(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with every annotated loop over rows in tasks of about equal work.

    Runs after ragged loops are cut: what they begin with are the pointers.
    """
    return with_replaced(mod, tirx.For, _shared)


def _shared(loop: tirx.For) -> tirx.Stmt:
    if SHARED not in loop.annotations:
        return loop
    pointers = _pointers(loop)
    if pointers is None:
        return loop
    dtype, tasks = str(loop.loop_var.ty), int(loop.annotations[SHARED])
    task = tirx.Var("task", dtype)
    ends = tirx.decl_buffer((2,), dtype, "rows")
    search = _Search(pointers, int(loop.extent), tasks, dtype)
    first, end = (tirx.BufferLoad(ends, [tirx.const(place, "int32")]) for place in (0, 1))
    rows = tirx.For(loop.loop_var, first, end - first, tirx.ForKind.SERIAL, loop.body)
    body = tirx.SeqStmt(
        [
            tirx.AllocBuffer(ends),
            search.of(task, ends, 0),
            search.of(task + tirx.const(1, dtype), ends, 1),
            rows,
        ]
    )
    return tirx.For(task, tirx.const(0, dtype), tirx.const(tasks, dtype), loop.kind, body)


def _pointers(loop: tirx.For) -> tirx.Buffer | None:
    """The buffer of which a loop inside begins with the element of the row."""
    buffers: list[tirx.Buffer] = []

    def of_row(load: tvm.ir.TensorLoad) -> None:
        if len(load.indices) == 1 and load.indices[0].same_as(loop.loop_var):
            buffers.append(load.source)

    def note(inner: tirx.For) -> None:
        structural_walk(inner.min, (tvm.ir.TensorLoad, of_row))

    structural_walk(loop.body, (tirx.For, note))
    return buffers[0] if buffers else None


class _Search:
    """Binary searches for the first rows of tasks."""

    def __init__(self, pointers: tirx.Buffer, rows: int, tasks: int, dtype: str) -> None:
        self._pointers, self._rows, self._tasks, self._dtype = pointers, rows, tasks, dtype

    def of(self, task: tvm.ir.PrimExpr, ends: tirx.Buffer, place: int) -> tirx.Stmt:
        """Puts there the number of rows before which there is less work than before the task.

        A loop over the bits of that number: as a chain of values it would take TVM's
        analysis a time that grows exponentially.
        """
        indices, bits = [tirx.const(place, "int32")], self._rows.bit_length()
        bit = tirx.Var("bit", self._dtype)
        row = tirx.BufferLoad(ends, indices)
        step = tirx.shift_left(tirx.const(1, self._dtype), tirx.const(bits - 1, self._dtype) - bit)
        last, limit = row + step - 1, tirx.const(self._rows - 1, self._dtype)
        moves = tirx.And(last <= limit, self._work(tirx.Min(last, limit)) < self._before(task))
        search = tirx.BufferStore(ends, tirx.Select(moves, row + step, row), indices)
        return tirx.SeqStmt(
            [
                tirx.BufferStore(ends, tirx.const(0, self._dtype), indices),
                tirx.For(
                    bit,
                    tirx.const(0, self._dtype),
                    tirx.const(bits, self._dtype),
                    tirx.ForKind.SERIAL,
                    search,
                ),
            ]
        )

    def _before(self, task: tvm.ir.PrimExpr) -> tvm.ir.PrimExpr:
        """The work before a task."""
        total = self._work(tirx.const(self._rows, self._dtype))
        return tirx.floordiv(total * task.astype("int64"), tirx.const(self._tasks, "int64"))

    def _work(self, row: tvm.ir.PrimExpr) -> tvm.ir.PrimExpr:
        """What there is to do before a row."""
        return tirx.BufferLoad(self._pointers, [row]).astype("int64") + row.astype("int64")
