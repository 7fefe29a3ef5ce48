"""Sums of products along the places of a row, of which one factor lies where indices say.

A gather instruction takes longer than its loads one by one: on a Zen 4 a product of 671,089
elements took 0.33 ms by gathers and 0.26 ms by loads, other work running. So whole vectors
of indices are compared with their bounds. Where all are inside, which the entry of a call
has made sure of, elements are loaded one by one. The rest of a row is a vector whose lanes
are masked, so that no loop of a few iterations ends at another place in each row. Short
rows, of which the masked vector would be the most, stay loops.

LLVM makes gathers of such loops, or takes the indices out of vectors again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm
from tvm import tirx
from tvm.target import codegen
from tvm_ffi import structural_equal, structural_map

from tuner.lowering.llvm_functions import LlvmFunction, with_definitions
from tuner.lowering.passes.ragged_loops import REASSOCIATE
from tuner.lowering.passes.substitution import substituted

VECTOR_BYTES = 64
FEWEST_VECTORS = 2  # of a row; a gather of few lanes takes almost as long as one of all
FEATURE = "avx512f"  # masked loads and gathers of whole vectors
BITS = {"float32": 32, "float64": 64, "int32": 32, "int64": 64}


def sum_gathered(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with its marked loops over places as calls of such sums, where they are.

    Runs after ragged loops are cut and rows are shared.
    """
    functions = {}
    for name, function in mod.functions.items():
        called: set[LlvmFunction] = set()
        if _has_vectors(function):
            summed = structural_map(function, (tirx.For, partial(_summed, called=called)))
            function = with_definitions(summed, called) if called else function
        functions[name] = function
    return tvm.IRModule(functions, attrs=mod.attrs)


def _has_vectors(function: tirx.PrimFunc) -> bool:
    target = function.attrs.get("target") if function.attrs is not None else None
    is_cpu = target is not None and target.kind.name == "llvm"
    return is_cpu and bool(codegen.llvm_cpu_has_features([FEATURE], target))


def _summed(loop: tirx.For, called: set[LlvmFunction]) -> tirx.Stmt:
    """The loop as one call where a row is long; as it is where it is no such sum."""
    if REASSOCIATE not in loop.annotations:
        return loop
    form = _form(loop)
    if form is None:
        return loop
    function = gathered_sum(str(form.values.source.dtype), str(form.indices.source.dtype))
    called.add(function)
    index = str(form.indices.source.dtype)
    total = tirx.call_extern(
        str(form.values.source.dtype),
        function.name,
        *(_address(load.source, loop.min) for load in (form.values, form.indices)),
        _address(form.gathered.source, tirx.const(0, str(loop.min.ty))),
        loop.extent.astype("int64"),
        *(tirx.const(bound, index) for bound in (form.least, form.most)),
    )
    store = form.store
    summed = tirx.BufferStore(store.buffer, form.so_far + total, store.indices)
    lanes = VECTOR_BYTES * 8 // BITS[str(form.values.source.dtype)]
    is_long = loop.extent >= tirx.const(FEWEST_VECTORS * lanes, str(loop.extent.ty))
    return tirx.IfThenElse(is_long, summed, loop)


def _address(buffer: tirx.Buffer, place: tvm.ir.PrimExpr) -> tvm.ir.PrimExpr:
    return tirx.address_of(tirx.BufferLoad(buffer, [place]))


@dataclass(frozen=True, kw_only=True)
class _Form:
    """`so_far + values[e] * gathered[clamp(indices[e])]`, stored where so_far was read."""

    store: tirx.BufferStore
    so_far: tvm.ir.TensorLoad
    values: tvm.ir.TensorLoad
    gathered: tvm.ir.TensorLoad
    indices: tvm.ir.TensorLoad
    least: int
    most: int


def _form(loop: tirx.For) -> _Form | None:
    store = _only_store(loop.body)
    if store is None or not isinstance(store.value, tirx.Add):
        return None
    for so_far, product in _both(store.value):
        if not isinstance(product, tirx.Mul) or not _is_same(so_far, store):
            continue
        for values, gathered in _both(product):
            if not (_is_load(values) and _is_load(gathered)):
                continue
            dtypes = {str(load.source.dtype) for load in (so_far, values, gathered)}
            clamped = _clamped(gathered.indices[0])
            if clamped is None or not _is_at(values, loop) or not _is_at(clamped[0], loop):
                continue
            if len(dtypes) == 1 and dtypes <= {"float32", "float64"}:
                indices, least, most = clamped
                return _Form(
                    store=store, so_far=so_far, values=values, gathered=gathered,
                    indices=indices, least=least, most=most,
                )  # fmt: skip
    return None


def _only_store(body: tirx.Stmt) -> tirx.BufferStore | None:
    """The store that a body is, without the names that it binds; None where it is more."""
    names: dict[tirx.Var, tvm.ir.PrimExpr] = {}
    *bound, last = body.seq if isinstance(body, tirx.SeqStmt) else [body]
    for each in bound:
        if not isinstance(each, tirx.Bind):
            return None
        names[each.var] = substituted(each.value, names)
    store: tirx.Stmt = substituted(last, names)
    return store if isinstance(store, tirx.BufferStore) else None


def _both(node: Any) -> list[tuple[Any, Any]]:
    return [(node.a, node.b), (node.b, node.a)]


def _is_load(node: Any) -> bool:
    return isinstance(node, tvm.ir.TensorLoad) and len(node.indices) == 1


def _is_same(load: Any, store: tirx.BufferStore) -> bool:
    return (
        _is_load(load)
        and load.source.same_as(store.buffer)
        and bool(structural_equal(load.indices[0], store.indices[0]))
    )


def _is_at(load: Any, loop: tirx.For) -> bool:
    """Whether an element is read at the loop's place."""
    return _is_load(load) and bool(load.indices[0].same_as(loop.loop_var))


def _clamped(index: Any) -> tuple[Any, int, int] | None:
    """What is clamped to constant bounds, and these; None for other indices."""
    index = _plain(index)
    bounds: dict[type, int] = {}
    for _ in range(2):
        if not isinstance(index, tirx.Max | tirx.Min) or type(index) in bounds:
            return None
        constants = [side for side in (index.a, index.b) if isinstance(side, tirx.IntImm)]
        others = [side for side in (index.a, index.b) if not isinstance(side, tirx.IntImm)]
        if len(constants) != 1:
            return None
        bounds[type(index)] = int(constants[0])
        index = _plain(others[0])
    if not _is_load(index) or str(index.source.dtype) not in ("int32", "int64"):
        return None
    return index, bounds[tirx.Max], bounds[tirx.Min]


def _plain(node: Any) -> Any:
    while isinstance(node, tirx.Cast):
        node = node.value
    return node


def gathered_sum(dtype: str, index: str) -> LlvmFunction:
    """The function of the addresses of values, of indices and of what these name, the number
    of terms as i64, and the least and the greatest index. It gives the sum."""
    size, wide = BITS[dtype], BITS[index]
    lanes = VECTOR_BYTES * 8 // size
    name = f"tuner_gathered_sum_{dtype}_{index}"
    element = {32: "float", 64: "double"}[size]
    return LlvmFunction(
        name=name,
        text=_TEXT.format(
            name=name,
            lanes=lanes,
            element=element,
            bytes=size // 8,
            of=f"v{lanes}f{size}",
            index=f"i{wide}",
            index_bytes=wide // 8,
            of_index=f"v{lanes}i{wide}",
            numbers=", ".join(f"i64 {lane}" for lane in range(lanes)),
            trues=", ".join(["i1 true"] * lanes),
            elements=_elements(lanes, element, f"i{wide}"),
        ),
    )


def _elements(lanes: int, element: str, index: str) -> str:
    """The elements that the indices from %index_at on name, as %e{lanes}.

    The loads of indices are volatile, so that LLVM makes no vectors of them.
    """
    lines, vector = [], f"<{lanes} x {element}>"
    for lane in range(lanes):
        before = f"%e{lane}" if lane else "poison"
        lines += [
            f"%p{lane} = getelementptr {index}, ptr %index_at, i64 {lane}",
            f"%j{lane} = load volatile {index}, ptr %p{lane}",
            f"%a{lane} = getelementptr {element}, ptr %from, {index} %j{lane}",
            f"%f{lane} = load {element}, ptr %a{lane}",
            f"%e{lane + 1} = insertelement {vector} {before}, {element} %f{lane}, i64 {lane}",
        ]
    return "\n".join(f"  {line}" for line in lines)


_TEXT = """
declare <{lanes} x {element}> @llvm.masked.load.{of}.p0(\
ptr, i32, <{lanes} x i1>, <{lanes} x {element}>)
declare <{lanes} x {index}> @llvm.masked.load.{of_index}.p0(\
ptr, i32, <{lanes} x i1>, <{lanes} x {index}>)
declare <{lanes} x {element}> @llvm.masked.gather.{of}.v{lanes}p0(\
<{lanes} x ptr>, i32, <{lanes} x i1>, <{lanes} x {element}>)
declare <{lanes} x {element}> @llvm.fma.{of}(\
<{lanes} x {element}>, <{lanes} x {element}>, <{lanes} x {element}>)
declare <{lanes} x {index}> @llvm.smax.{of_index}(<{lanes} x {index}>, <{lanes} x {index}>)
declare <{lanes} x {index}> @llvm.smin.{of_index}(<{lanes} x {index}>, <{lanes} x {index}>)
declare {element} @llvm.vector.reduce.fadd.{of}({element}, <{lanes} x {element}>)
define weak_odr hidden {element} @{name}(ptr %values, ptr %indices, ptr %from, i64 %count, \
{index} %least, {index} %most) alwaysinline {{
start:
  %range = sub {index} %most, %least
  %r0 = insertelement <{lanes} x {index}> poison, {index} %range, i64 0
  %ranges = shufflevector <{lanes} x {index}> %r0, <{lanes} x {index}> poison, \
<{lanes} x i32> zeroinitializer
  %l0 = insertelement <{lanes} x {index}> poison, {index} %least, i64 0
  %leasts = shufflevector <{lanes} x {index}> %l0, <{lanes} x {index}> poison, \
<{lanes} x i32> zeroinitializer
  %m0 = insertelement <{lanes} x {index}> poison, {index} %most, i64 0
  %mosts = shufflevector <{lanes} x {index}> %m0, <{lanes} x {index}> poison, \
<{lanes} x i32> zeroinitializer
  %whole = and i64 %count, -{lanes}
  %any = icmp ne i64 %whole, 0
  br i1 %any, label %vector, label %rest
vector:
  %i = phi i64 [0, %start], [%next, %added]
  %sums = phi <{lanes} x {element}> [zeroinitializer, %start], [%more, %added]
  %index_at = getelementptr {index}, ptr %indices, i64 %i
  %value_at = getelementptr {element}, ptr %values, i64 %i
  %named = load <{lanes} x {index}>, ptr %index_at, align {index_bytes}
  %offset = sub <{lanes} x {index}> %named, %leasts
  %wrong = icmp ugt <{lanes} x {index}> %offset, %ranges
  %flags = bitcast <{lanes} x i1> %wrong to i{lanes}
  %inside = icmp eq i{lanes} %flags, 0
  br i1 %inside, label %elements, label %outside, !prof !0
elements:
{elements}
  br label %added
outside:
  %up = call <{lanes} x {index}> @llvm.smax.{of_index}(<{lanes} x {index}> %named, \
<{lanes} x {index}> %leasts)
  %kept = call <{lanes} x {index}> @llvm.smin.{of_index}(<{lanes} x {index}> %up, \
<{lanes} x {index}> %mosts)
  %places = getelementptr {element}, ptr %from, <{lanes} x {index}> %kept
  %taken = call <{lanes} x {element}> @llvm.masked.gather.{of}.v{lanes}p0(\
<{lanes} x ptr> %places, i32 {bytes}, <{lanes} x i1> <{trues}>, \
<{lanes} x {element}> zeroinitializer)
  br label %added
added:
  %x = phi <{lanes} x {element}> [%e{lanes}, %elements], [%taken, %outside]
  %a = load <{lanes} x {element}>, ptr %value_at, align {bytes}
  %more = call <{lanes} x {element}> @llvm.fma.{of}(<{lanes} x {element}> %a, \
<{lanes} x {element}> %x, <{lanes} x {element}> %sums)
  %next = add i64 %i, {lanes}
  %again = icmp ult i64 %next, %whole
  br i1 %again, label %vector, label %rest
rest:
  %so_far = phi <{lanes} x {element}> [zeroinitializer, %start], [%more, %added]
  %left = sub i64 %count, %whole
  %some = icmp ne i64 %left, 0
  br i1 %some, label %part, label %end
part:
  %n0 = insertelement <{lanes} x i64> poison, i64 %left, i64 0
  %lefts = shufflevector <{lanes} x i64> %n0, <{lanes} x i64> poison, \
<{lanes} x i32> zeroinitializer
  %mask = icmp ult <{lanes} x i64> <{numbers}>, %lefts
  %last_index_at = getelementptr {index}, ptr %indices, i64 %whole
  %last_value_at = getelementptr {element}, ptr %values, i64 %whole
  %last_named = call <{lanes} x {index}> @llvm.masked.load.{of_index}.p0(\
ptr %last_index_at, i32 {index_bytes}, <{lanes} x i1> %mask, <{lanes} x {index}> %leasts)
  %last_up = call <{lanes} x {index}> @llvm.smax.{of_index}(<{lanes} x {index}> %last_named, \
<{lanes} x {index}> %leasts)
  %last_kept = call <{lanes} x {index}> @llvm.smin.{of_index}(<{lanes} x {index}> %last_up, \
<{lanes} x {index}> %mosts)
  %last_places = getelementptr {element}, ptr %from, <{lanes} x {index}> %last_kept
  %last_x = call <{lanes} x {element}> @llvm.masked.gather.{of}.v{lanes}p0(\
<{lanes} x ptr> %last_places, i32 {bytes}, <{lanes} x i1> %mask, \
<{lanes} x {element}> zeroinitializer)
  %last_a = call <{lanes} x {element}> @llvm.masked.load.{of}.p0(\
ptr %last_value_at, i32 {bytes}, <{lanes} x i1> %mask, <{lanes} x {element}> zeroinitializer)
  %last_sums = call <{lanes} x {element}> @llvm.fma.{of}(<{lanes} x {element}> %last_a, \
<{lanes} x {element}> %last_x, <{lanes} x {element}> %so_far)
  br label %end
end:
  %all = phi <{lanes} x {element}> [%so_far, %rest], [%last_sums, %part]
  %sum = call reassoc {element} @llvm.vector.reduce.fadd.{of}({element} -0.0, \
<{lanes} x {element}> %all)
  ret {element} %sum
}}
!0 = !{{!"branch_weights", i32 1000000, i32 1}}
"""
