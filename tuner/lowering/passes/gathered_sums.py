"""Sums of products along the places of a row, of which one factor lies where indices say.

A row is summed in whole vectors. The last one ends with the row: what it has in common with
the vector before, or with the row before, is not added. So no loop over what is left ends at
another place in each row, and a short row is one vector. Only the first rows, before which
too little lies, stay loops.

The elements that a vector of indices names come by a gather instruction. On some CPUs, AMD's
among them, that takes longer than loads one by one. In loops marked so, a vector of indices
is compared with the bounds, and where all are inside, which the entry of a call has made sure
of, elements are loaded one by one. LLVM would make gathers of such loops, or take the indices
out of vectors again.
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
from tuner.lowering.passes.ragged_loops import LOAD_ELEMENTS, REASSOCIATE
from tuner.lowering.passes.substitution import substituted

FEATURES = ["avx2", "fma"]  # gathers, and sums of products
# With AVX-512, too: longer vectors waste more at the ends of rows, and were not faster.
VECTOR_BYTES = 32
BITS = {"float32": 32, "float64": 64, "int32": 32, "int64": 64}


def sum_gathered(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with its marked loops over places as calls of such sums, where they are.

    Runs after ragged loops are cut and rows are shared.
    """
    functions = {}
    for name, function in mod.functions.items():
        called: set[LlvmFunction] = set()
        if _gathers(function):
            summed = structural_map(function, (tirx.For, partial(_summed, called=called)))
            function = with_definitions(summed, called) if called else function
        functions[name] = function
    return tvm.IRModule(functions, attrs=mod.attrs)


def _gathers(function: tirx.PrimFunc) -> bool:
    """Whether the function's target has an instruction that gathers."""
    target = function.attrs.get("target") if function.attrs is not None else None
    is_cpu = target is not None and target.kind.name == "llvm"
    return is_cpu and bool(codegen.llvm_cpu_has_features(FEATURES, target))


def _summed(loop: tirx.For, called: set[LlvmFunction]) -> tirx.Stmt:
    """The loop as one call where a vector ends with the row; as it is where it is no such sum."""
    if REASSOCIATE not in loop.annotations:
        return loop
    form = _form(loop)
    if form is None:
        return loop
    dtype, index = str(form.values.source.dtype), str(form.indices.source.dtype)
    way = GatheredSum(dtype=dtype, index=index, loads=LOAD_ELEMENTS in loop.annotations)
    called.add(way.function)
    total = tirx.call_extern(
        dtype,
        way.function.name,
        *(_address(load.source, loop.min) for load in (form.values, form.indices)),
        _address(form.gathered.source, tirx.const(0, str(loop.min.ty))),
        loop.extent.astype("int64"),
        *(tirx.const(bound, index) for bound in (form.least, form.most)),
    )
    store = form.store
    summed = tirx.BufferStore(store.buffer, form.so_far + total, store.indices)
    is_behind_a_vector = loop.min + loop.extent >= tirx.const(way.lanes, str(loop.min.ty))
    return tirx.IfThenElse(is_behind_a_vector, summed, loop)


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


@dataclass(frozen=True, kw_only=True)
class GatheredSum:
    """One way to a sum, in LLVM IR."""

    dtype: str
    index: str
    loads: bool  # of elements one by one, instead of a gather

    @property
    def lanes(self) -> int:
        return VECTOR_BYTES * 8 // BITS[self.dtype]

    @property
    def function(self) -> LlvmFunction:
        """The function of the addresses of values, of indices and of what these name, the
        number of terms as i64, and the least and the greatest index.

        It reads whole vectors of values and of indices. The last one ends with the last
        term, so it may begin before the first one.
        """
        way = "loads" if self.loads else "gathers"
        name = f"tuner_sum_by_{way}_{self.dtype}_{self.index}"
        words = {**self._words, "block": self._block("", "%i")}
        return LlvmFunction(
            name=name, text=_TEXT.format(name=name, **words, last=self._block("last_", "%last"))
        )

    @property
    def _words(self) -> dict[str, Any]:
        """Types, and parts of names, as the text calls them."""
        size, wide = BITS[self.dtype], BITS[self.index]
        element = {32: "float", 64: "double"}[size]
        return {
            "lanes": self.lanes,
            "element": element,
            "bytes": size // 8,
            "vector": f"<{self.lanes} x {element}>",
            "of": f"v{self.lanes}f{size}",
            "index": f"i{wide}",
            "index_bytes": wide // 8,
            "indices": f"<{self.lanes} x i{wide}>",
            "of_index": f"v{self.lanes}i{wide}",
            "numbers": ", ".join(f"i32 {lane}" for lane in range(self.lanes)),
            "trues": ", ".join(["i1 true"] * self.lanes),
        }

    def _block(self, part: str, place: str) -> str:
        """What adds the products from a place on: %x are the elements, %a the values."""
        ways = _LOADED if self.loads else _GATHERED
        text = (_NAMED + ways + _ADDED).format(place=place, loads=self._loads(), **self._words)
        return text.replace("~", part)

    def _loads(self) -> str:
        """The elements that the indices from %index_at on name, as %e{lanes}.

        Indices are loaded 64 bits at a time, because a core has few loads a cycle. The loads
        are volatile, so that LLVM makes no vectors of them.
        """
        lines, wide = [], BITS[self.index]
        element, vector = self._words["element"], self._words["vector"]
        for lane in range(self.lanes):
            word = lane * wide // 64
            if lane * wide % 64 == 0:
                lines += [
                    f"%~p{word} = getelementptr i64, ptr %~index_at, i64 {word}",
                    f"%~w{word} = load volatile i64, ptr %~p{word}, align {wide // 8}",
                ]
            shifted, kept = lane * wide % 64, 2**wide - 1 if wide < 64 else -1
            before = f"%~e{lane}" if lane else "poison"
            lines += [
                f"%~s{lane} = lshr i64 %~w{word}, {shifted}",
                f"%~j{lane} = and i64 %~s{lane}, {kept}",
                f"%~a{lane} = getelementptr {element}, ptr %from, i64 %~j{lane}",
                f"%~f{lane} = load {element}, ptr %~a{lane}",
                f"%~e{lane + 1} = insertelement {vector} {before}, {element} %~f{lane}, i64 {lane}",
            ]
        return "\n".join(f"  {line}" for line in lines)


# In blocks a tilde stands for what tells the names of one from those of the other.
_NAMED = """\
  %~index_at = getelementptr {index}, ptr %indices, i64 {place}
  %~value_at = getelementptr {element}, ptr %values, i64 {place}
  %~named = load {indices}, ptr %~index_at, align {index_bytes}
"""
_CLAMPED = """\
  %~up = call {indices} @llvm.smax.{of_index}({indices} %~named, {indices} %leasts)
  %~kept = call {indices} @llvm.smin.{of_index}({indices} %~up, {indices} %mosts)
  %~places = getelementptr {element}, ptr %from, {indices} %~kept
  %~taken = call {vector} @llvm.masked.gather.{of}.v{lanes}p0(<{lanes} x ptr> %~places, \
i32 {bytes}, <{lanes} x i1> <{trues}>, {vector} zeroinitializer)
  br label %~added
~added:
"""
_GATHERED = _CLAMPED.replace("%~taken", "%~x")
_LOADED = (
    """\
  %~offset = sub {indices} %~named, %leasts
  %~wrong = icmp ugt {indices} %~offset, %ranges
  %~flags = bitcast <{lanes} x i1> %~wrong to i{lanes}
  %~inside = icmp eq i{lanes} %~flags, 0
  br i1 %~inside, label %~elements, label %~outside, !prof !0
~elements:
{loads}
  br label %~added
~outside:
"""
    + _CLAMPED
    + """\
  %~x = phi {vector} [%~e{lanes}, %~elements], [%~taken, %~outside]
"""
)
_ADDED = """\
  %~a = load {vector}, ptr %~value_at, align {bytes}
"""
_TEXT = """
declare {vector} @llvm.masked.gather.{of}.v{lanes}p0(\
<{lanes} x ptr>, i32, <{lanes} x i1>, {vector})
declare {vector} @llvm.fma.{of}({vector}, {vector}, {vector})
declare {indices} @llvm.smax.{of_index}({indices}, {indices})
declare {indices} @llvm.smin.{of_index}({indices}, {indices})
declare {element} @llvm.vector.reduce.fadd.{of}({element}, {vector})
define weak_odr hidden {element} @{name}(ptr %values, ptr %indices, ptr %from, i64 %count, \
{index} %least, {index} %most) alwaysinline {{
start:
  %range = sub {index} %most, %least
  %r0 = insertelement {indices} poison, {index} %range, i64 0
  %ranges = shufflevector {indices} %r0, {indices} poison, <{lanes} x i32> zeroinitializer
  %l0 = insertelement {indices} poison, {index} %least, i64 0
  %leasts = shufflevector {indices} %l0, {indices} poison, <{lanes} x i32> zeroinitializer
  %m0 = insertelement {indices} poison, {index} %most, i64 0
  %mosts = shufflevector {indices} %m0, {indices} poison, <{lanes} x i32> zeroinitializer
  %last = sub i64 %count, {lanes}
  %any = icmp sgt i64 %last, 0
  br i1 %any, label %vector, label %rest
vector:
  %i = phi i64 [0, %start], [%next, %added]
  %sums = phi {vector} [zeroinitializer, %start], [%more, %added]
{block}
  %more = call {vector} @llvm.fma.{of}({vector} %a, {vector} %x, {vector} %sums)
  %next = add i64 %i, {lanes}
  %again = icmp slt i64 %next, %last
  br i1 %again, label %vector, label %rest
rest:
  %so_far = phi {vector} [zeroinitializer, %start], [%more, %added]
  %done = phi i64 [0, %start], [%next, %added]
{last}
  %last_more = call {vector} @llvm.fma.{of}({vector} %last_a, {vector} %last_x, {vector} %so_far)
  %summed = sub i64 %done, %last
  %first = trunc i64 %summed to i32
  %n0 = insertelement <{lanes} x i32> poison, i32 %first, i64 0
  %firsts = shufflevector <{lanes} x i32> %n0, <{lanes} x i32> poison, \
<{lanes} x i32> zeroinitializer
  %new = icmp uge <{lanes} x i32> <{numbers}>, %firsts
  %all = select <{lanes} x i1> %new, {vector} %last_more, {vector} %so_far
  %sum = call reassoc {element} @llvm.vector.reduce.fadd.{of}({element} -0.0, {vector} %all)
  ret {element} %sum
}}
!0 = !{{!"branch_weights", i32 1000000, i32 1}}
"""
