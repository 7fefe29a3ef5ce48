"""Blocks of a program as a schedulable TVM module: one PrimFunc, one S-block a block, loops named after their axes."""

from __future__ import annotations

from math import prod

import tvm
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize
from tvm.s_tir.analysis import get_sblock_access_region

from tuner.lowering.scalars import Scope, identity, lower
from tuner.spaces.program import Block, Program
from tuner.workload.expression import Binary, Cast, Read

_COMBINE = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}


def module(program: Program, symbol: str) -> tvm.IRModule:
    """The program's blocks, in order, before any step; the function is exported as `symbol`."""
    index_dtype = _index_dtype(program)
    buffers = {
        tensor.name: tirx.decl_buffer(tensor.shape, tensor.dtype, tensor.name) for tensor in (*program.inputs, *program.outputs)
    }
    inner = {
        buffer.name: tirx.decl_buffer(buffer.shape, buffer.dtype, buffer.name, scope=_scope(buffer.scope))
        for buffer in program.buffers
    }
    scope = Scope(buffers | inner, {}, index_dtype)
    nests = [_nest(block, scope) for block in program.blocks]
    body = tirx.SeqStmt(nests) if len(nests) > 1 else nests[0]
    root = SBlock([], [], [], "root", body, alloc_buffers=list(inner.values()))
    function = tirx.PrimFunc(
        [buffers[tensor.name] for tensor in (*program.inputs, *program.outputs)],
        SBlockRealize([], tirx.const(True, "bool"), root),
    )
    function = function.with_attr({"global_symbol": symbol, "tirx.noalias": True, "s_tir": True})
    return tvm.IRModule({symbol: function})


def _scope(scope: str) -> str:
    return "" if scope == "global" else scope


def _index_dtype(program: Program) -> str:
    shapes = [tensor.shape for tensor in (*program.inputs, *program.outputs)] + [buffer.shape for buffer in program.buffers]
    largest = max(prod(shape) for shape in shapes)
    return "int32" if largest < 2**31 else "int64"


def _nest(block: Block, scope: Scope) -> tirx.Stmt:
    axes = [(axis, tirx.IterVar.DataPar) for axis in block.axes] + [(axis, tirx.IterVar.CommReduce) for axis in block.reduce_axes]
    loops = [tirx.Var(axis.name, scope.index_dtype) for axis, _ in axes]
    iterators = [
        tirx.IterVar(
            tvm.ir.Range(tirx.const(0, scope.index_dtype), tirx.const(axis.extent, scope.index_dtype)), f"v_{axis.name}", kind
        )
        for axis, kind in axes
    ]
    inside = scope.bind({axis.name: iterator.var for (axis, _), iterator in zip(axes, iterators, strict=True)})
    target = scope.buffers[block.buffer]
    indices = [inside.index(index) for index in block.indices]
    body, init = block.body, None
    if block.reducer is not None:
        dtype = str(target.dtype)
        body = Binary(_COMBINE[block.reducer], Read(block.buffer, block.indices), Cast(dtype, body))  # type: ignore[arg-type]  # closed tables
        init = tirx.BufferStore(target, identity(block.reducer, dtype), indices)
    value = lower(body, inside, block.mathematics)
    store = tirx.BufferStore(target, value.astype(str(target.dtype)), indices)
    bare = SBlock(iterators, [], [], block.name, store, init=init)
    read, write, _ = get_sblock_access_region(bare, {buffer: buffer for buffer in scope.buffers.values()})
    if init is not None:
        read = [region for region in read if not region.source.same_as(target)]
    statement: tirx.Stmt = SBlockRealize(
        loops, tirx.const(True, "bool"), SBlock(iterators, read, write, block.name, store, init=init)
    )
    for loop, (axis, _) in zip(reversed(loops), reversed(axes), strict=True):
        statement = tirx.For(
            loop, tirx.const(0, scope.index_dtype), tirx.const(axis.extent, scope.index_dtype), tirx.ForKind.SERIAL, statement
        )
    return statement
