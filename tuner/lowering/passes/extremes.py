"""Maxima and minima of floats as IEEE 754-2019 defines them: NaN where an operand is NaN.

TVM's are the selection `a > b ? a : b` on CPUs, for which x86 has an instruction. It
gives b where an operand is NaN, so that a NaN is kept on the right and lost on the left.
On GPUs they are the number that stands beside a NaN. Both are replaced here, after
TVM's own passes, which take them for what they are called.

On a CPU a constant operand goes to the left, which costs nothing. Elsewhere a function
with LLVM's own maximum is called: on AArch64 one instruction, on x86 a comparison and a
blend more. Zeros of both signs count as equal, as in NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

import tvm
from tvm import tirx
from tvm_ffi import structural_map

from tuner.lowering.float_arithmetic import shown
from tuner.lowering.llvm_functions import LlvmFunction, extreme, with_definitions

Extreme: TypeAlias = tirx.Max | tirx.Min
FLOATS = ("float32", "float64")  # the dtypes in which floats are compared
MAXIMUM, MINIMUM = "tuner_maximum", "tuner_minimum"  # the functions that GPU kernels call
# max.NaN is there from sm_80 on (PTX ISA, "max"), for float32 only.
_SOURCE = """
static __device__ __forceinline__ float {name}(float a, float b) {{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  float extreme;
  asm("{instruction}.NaN.f32 %0, %1, %2;" : "=f"(extreme) : "f"(a), "f"(b));
  return extreme;
#else
  return a {sign} b || a != a ? a : b;
#endif
}}
static __device__ __forceinline__ double {name}(double a, double b) {{
  return a {sign} b || a != a ? a : b;
}}
"""
# CUDA C++ of each function.
SOURCES: Mapping[str, str] = {
    MAXIMUM: _SOURCE.format(name=MAXIMUM, instruction="max", sign=">"),
    MINIMUM: _SOURCE.format(name=MINIMUM, instruction="min", sign="<"),
}


def propagate_nans(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with the maxima and minima of a CPU's functions NaN where an operand is.

    Runs late, since other passes do not know the calls.
    """
    functions = {}
    for name, function in mod.functions.items():
        called: set[LlvmFunction] = set()
        replaced = _mapped(function, partial(_on_cpu, called=called))
        replaced = structural_map(replaced, (tirx.NE, _unequal))
        functions[name] = with_definitions(replaced, called)
    return tvm.IRModule(functions, attrs=mod.attrs)


def propagate_nans_on_gpu(mod: tvm.IRModule) -> tvm.IRModule:
    """The same of a GPU's kernels, which call the functions of `SOURCES`.

    Runs last. Constants that are hidden from TVM's passes are not any more.
    """
    functions = {
        name: structural_map(_mapped(function, _on_gpu), (tvm.ir.Call, shown))
        for name, function in mod.functions.items()
    }
    return tvm.IRModule(functions, attrs=mod.attrs)


def _mapped(
    function: tirx.PrimFunc, replacement: Callable[[Extreme], tvm.ir.PrimExpr]
) -> tirx.PrimFunc:
    """The function with its maxima and minima of floats replaced."""

    def replaced(node: Extreme) -> tvm.ir.PrimExpr:
        return replacement(node) if _element(node) in FLOATS else node

    for kind in (tirx.Max, tirx.Min):
        function = structural_map(function, (kind, replaced))
    return function


def _on_cpu(node: Extreme, called: set[LlvmFunction]) -> tvm.ir.PrimExpr:
    if _is_number(node.a):
        return node
    if _is_number(node.b):
        return type(node)(node.b, node.a)
    function = extreme(
        "maximum" if isinstance(node, tirx.Max) else "minimum",
        _element(node),
        tvm.DataType(str(node.ty)).lanes,
    )
    called.add(function)
    return tirx.call_pure_extern(str(node.ty), function.name, node.a, node.b)


def _unequal(node: tirx.NE) -> tvm.ir.PrimExpr:
    """NaN differs from everything. TVM's inequality of floats does not hold of it."""
    return tirx.Not(tirx.EQ(node.a, node.b)) if _element(node.a) in FLOATS else node


def _on_gpu(node: Extreme) -> tvm.ir.PrimExpr:
    name = MAXIMUM if isinstance(node, tirx.Max) else MINIMUM
    return tirx.call_pure_extern(str(node.ty), name, node.a, node.b)


def _element(node: tvm.ir.PrimExpr) -> str:
    """The dtype of one vector lane."""
    return str(node.ty).partition("x")[0]


def _is_number(node: tvm.ir.PrimExpr) -> bool:
    """Whether it is a constant, in all vector lanes, and not NaN."""
    value = node.value if isinstance(node, tirx.Broadcast) else node
    return isinstance(value, tirx.FloatImm) and not math.isnan(value.value)
