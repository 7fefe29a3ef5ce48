"""Non-temporal stores: whole vectors that are written past the caches.

They suit outputs that the caches would not hold until they are read. An ordinary store
would first load the cache line that it writes to. The processor collects non-temporal
stores in write-combining buffers and may write them after later ordinary stores. So a
fence ends the work of each thread, before others learn that it is done, and precedes
each parallel loop.
"""

from __future__ import annotations

import tvm
from tvm import tirx
from tvm.sym import Analyzer
from tvm_ffi import structural_map, structural_walk

from tuner.lowering.llvm_functions import (
    FENCE,
    LlvmFunction,
    non_temporal_store,
    with_definitions,
)
from tuner.runtime.loader import ALIGNMENT

NON_TEMPORAL = "tuner_stream"  # the attribute around a block's store, as schedules hold it
LEAST_BYTES = 16  # of a vector: the narrowest non-temporal vector store


def use_non_temporal_stores(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with the marked stores made by non-temporal instructions.

    Runs late, since other passes do not know the calls. A vector that does not begin at
    a multiple of its size, or of a cache line if that is less, is stored as usual.
    """
    functions = {}
    for name, function in mod.functions.items():
        stores = _NonTemporalStores(function.body)
        replaced = stores.replaced()
        if replaced is not None:
            function = with_definitions(function.with_body(replaced), stores.called)
        functions[name] = function
    return tvm.IRModule(functions, attrs=mod.attrs)


class _NonTemporalStores:
    """Rewrites the stores of one function's body, and notes the functions that it calls."""

    def __init__(self, body: tirx.Stmt) -> None:
        self._body, self._analyzer = body, Analyzer()
        self.called: set[LlvmFunction] = set()
        structural_walk(body, (tirx.Bind, self._bind))

    def _bind(self, bound: tirx.Bind) -> None:
        if str(bound.var.ty) in ("int32", "int64"):
            self._analyzer.bind(bound.var, bound.value)

    def replaced(self) -> tirx.Stmt | None:
        """The body with its stores and fences; None where nothing changes."""
        body = structural_map(self._body, (tirx.AttrStmt, self._marked))
        if not self.called:
            return None if body.same_as(self._body) else body
        return structural_map(
            structural_map(body, (tirx.For, _fenced_iterations)), (tirx.AttrStmt, _fenced_whole)
        )

    def _marked(self, marked: tirx.AttrStmt) -> tirx.Stmt:
        return (
            structural_map(marked.body, (tirx.BufferStore, self._stored))
            if marked.attr_key == NON_TEMPORAL
            else marked
        )

    def _stored(self, store: tirx.BufferStore) -> tirx.Stmt:
        index = store.indices[-1]
        if (
            not isinstance(index, tirx.Ramp)
            or not isinstance(index.lanes, tirx.IntImm)
            or not _is_one(index.stride)
        ):
            return store
        itemsize, lanes = tvm.DataType(str(store.buffer.dtype)).bits // 8, int(index.lanes)
        aligned = min(lanes * itemsize, ALIGNMENT)
        alignment = self._analyzer.modular_set(index.base)
        if (
            lanes * itemsize < LEAST_BYTES
            or alignment.coeff * itemsize % aligned
            or alignment.base * itemsize % aligned
        ):
            return store
        element = tirx.BufferLoad(store.buffer, [*store.indices[:-1], index.base])
        function = non_temporal_store(str(store.buffer.dtype), lanes)
        self.called.add(function)
        address = tirx.address_of(element)
        return tirx.Evaluate(tirx.call_extern("void", function.name, address, store.value))


def _is_one(stride: tvm.ir.PrimExpr) -> bool:
    return isinstance(stride, tirx.IntImm) and int(stride) == 1


def _fenced_iterations(loop: tirx.For) -> tirx.Stmt:
    """A parallel loop with a fence before it, and one at the end of each iteration.

    An iteration is all the work of one thread. The threads may read what was stored
    before.
    """
    if loop.kind != tirx.ForKind.PARALLEL:
        return loop
    fenced = tirx.For(
        loop.loop_var,
        loop.min,
        loop.extent,
        loop.kind,
        _fenced(loop.body),
        annotations=loop.annotations,
    )
    return tirx.SeqStmt([_fence(), fenced])


def _fenced_whole(scope: tirx.AttrStmt) -> tirx.Stmt:
    """A function's computing scope with a fence at its end."""
    if scope.attr_key != "compute_scope":
        return scope
    return tirx.AttrStmt(scope.node, scope.attr_key, scope.value, _fenced(scope.body))


def _fenced(body: tirx.Stmt) -> tirx.Stmt:
    return tirx.SeqStmt([body, _fence()])


def _fence() -> tirx.Stmt:
    return tirx.Evaluate(tirx.call_extern("void", FENCE.name))
