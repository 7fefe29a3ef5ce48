"""Stores past the caches: of outputs that these would not hold until they are read, and
would first fetch to write into.

The processor collects such stores in buffers of its own and writes them when it likes,
also after what it stores later as ever; a fence at the end of what a thread does, and
before others are given work, makes sure that they are there for whoever is told.
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

STREAM = "tuner_stream"  # the attribute around a block's store
LEAST_BYTES = 16  # of a vector that an instruction writes so


def stream_stores(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with every whole vector that is to go past the caches written by an
    instruction that does; late, since other passes would not know the calls. What does
    not begin at a multiple of its size is stored as ever."""
    functions = {}
    for name, function in mod.functions.items():
        streaming = _Streaming(function.body)
        replaced = streaming.replaced()
        if replaced is not None:
            function = with_definitions(function.with_body(replaced), streaming.called)
        functions[name] = function
    return tvm.IRModule(functions, attrs=mod.attrs)


class _Streaming:
    """Of one function's body."""

    def __init__(self, body: tirx.Stmt) -> None:
        self._body, self._analyzer = body, Analyzer()
        self.called: set[LlvmFunction] = set()
        structural_walk(body, (tirx.Bind, self._know))

    def _know(self, bound: tirx.Bind) -> None:
        if str(bound.var.ty) in ("int32", "int64"):
            self._analyzer.bind(bound.var, bound.value)

    def replaced(self) -> tirx.Stmt | None:
        """None where nothing is to go past the caches."""
        body = structural_map(self._body, (tirx.AttrStmt, self._marked))
        if not self.called:
            return None if body.same_as(self._body) else body
        return structural_map(
            structural_map(body, (tirx.For, _fenced_turns)), (tirx.AttrStmt, _fenced_whole)
        )

    def _marked(self, marked: tirx.AttrStmt) -> tirx.Stmt:
        return (
            structural_map(marked.body, (tirx.BufferStore, self._stored))
            if marked.attr_key == STREAM
            else marked
        )

    def _stored(self, store: tirx.BufferStore) -> tirx.Stmt:
        at = store.indices[-1]
        if (
            not isinstance(at, tirx.Ramp)
            or not isinstance(at.lanes, tirx.IntImm)
            or not _is_one(at.stride)
        ):
            return store
        itemsize, lanes = tvm.DataType(str(store.buffer.dtype)).bits // 8, int(at.lanes)
        aligned = min(lanes * itemsize, ALIGNMENT)
        known = self._analyzer.modular_set(at.base)
        if (
            lanes * itemsize < LEAST_BYTES
            or known.coeff * itemsize % aligned
            or known.base * itemsize % aligned
        ):
            return store
        element = tirx.BufferLoad(store.buffer, [*store.indices[:-1], at.base])
        function = non_temporal_store(str(store.buffer.dtype), lanes)
        self.called.add(function)
        address = tirx.address_of(element)
        return tirx.Evaluate(tirx.call_extern("void", function.name, address, store.value))


def _is_one(stride: tvm.ir.PrimExpr) -> bool:
    return isinstance(stride, tirx.IntImm) and int(stride) == 1


def _fenced_turns(loop: tirx.For) -> tirx.Stmt:
    """Each turn is what one thread does without anybody being told; what came before
    the loop its threads may read."""
    if loop.kind != tirx.ForKind.PARALLEL:
        return loop
    turns = tirx.For(
        loop.loop_var,
        loop.min,
        loop.extent,
        loop.kind,
        _fenced(loop.body),
        annotations=loop.annotations,
    )
    return tirx.SeqStmt([_fence(), turns])


def _fenced_whole(scope: tirx.AttrStmt) -> tirx.Stmt:
    if scope.attr_key != "compute_scope":
        return scope
    return tirx.AttrStmt(scope.node, scope.attr_key, scope.value, _fenced(scope.body))


def _fenced(body: tirx.Stmt) -> tirx.Stmt:
    return tirx.SeqStmt([body, _fence()])


def _fence() -> tirx.Stmt:
    return tirx.Evaluate(tirx.call_extern("void", FENCE.name))
