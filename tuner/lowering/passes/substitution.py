"""Replacement of nodes and variables in TVM's trees, and what they load."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import SBlockRealize
from tvm_ffi import structural_map


def with_replaced(
    mod: tvm.IRModule, kind: type | tuple[type, ...], replaced: Callable[[Any], Any]
) -> tvm.IRModule:
    """The module with each node of a kind in its functions as `replaced` has it."""
    functions = {
        name: structural_map(function, (kind, replaced)) for name, function in mod.functions.items()
    }
    return tvm.IRModule(functions, attrs=mod.attrs)


def substituted(node: tvm.ir.Node, values: Mapping[tirx.Var, tvm.ir.PrimExpr]) -> Any:
    """The node with variables replaced by their values."""
    return structural_map(node, (tirx.Var, lambda name: values.get(name, name)))


def loads_of(value: tvm.ir.PrimExpr) -> list[tvm.ir.TensorLoad]:
    """The loads in a value."""
    loads: list[tvm.ir.TensorLoad] = []

    def seen(load: tvm.ir.TensorLoad) -> tvm.ir.TensorLoad:
        loads.append(load)
        return load

    structural_map(value, (tvm.ir.TensorLoad, seen))
    return loads


def bound_body(realize: SBlockRealize) -> Any:
    """A block's body in terms of the loops around it, without iterators of its own and
    what it prefetches."""
    return _bound(realize)[-1]


def bound_prefetches(realize: SBlockRealize) -> list[Any]:
    """The prefetches before a block's body, likewise. They name no vector lane."""
    return _bound(realize)[:-1]


def _bound(realize: SBlockRealize) -> list[Any]:
    iterators = (iterator.var for iterator in realize.block.iter_vars)
    values = dict(zip(iterators, realize.iter_values, strict=True))
    body = substituted(realize.block.body, values)
    return list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]
