"""TVM intrinsics of warpgroup instructions (wgmma, sm_90).

TVM 0.27 has them under another backend only. Accumulators are TVM's `wmma.accumulator`
buffers: arrays of fragments of 64 rows by 32 columns, each spread over 128 threads. The
CUDA C++ that the intrinsics call is in `tuner.lowering.cuda.warpgroup_source`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize
from tvm.s_tir.analysis import get_sblock_access_region
from tvm.script import tirx as T

from tuner.spaces.program.instructions import WarpgroupMultiply


def warpgroup_symbol(instruction: WarpgroupMultiply) -> str:
    """The CUDA C++ function that multiplies."""
    return f"tuner_{instruction.name}"


def fill_accumulators() -> tuple[Any, Any]:
    """The intrinsic that sets a fragment of accumulators to zero: loops and call."""

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def description(c: T.handle) -> None:
        C = T.match_buffer(
            c, (8, 8, 4, 8), "float32", align=64, offset_factor=32, scope="wmma.accumulator"
        )
        with T.sblock("root"):
            T.reads()
            T.writes(C[0:8, 0:8, 0:4, 0:8])
            for group, row, piece, column in T.grid(8, 8, 4, 8):
                with T.sblock("init"):
                    g, r, p, e = T.axis.remap("SSSS", [group, row, piece, column])
                    C[g, r, p, e] = T.float32(0)

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def implementation(c: T.handle) -> None:
        C = T.match_buffer(
            c, (8, 8, 4, 8), "float32", align=64, offset_factor=32, scope="wmma.accumulator"
        )
        with T.sblock("root"):
            T.reads()
            T.writes(C[0:8, 0:8, 0:4, 0:8])
            T.evaluate(
                T.tvm_fill_fragment(
                    C.data, 64, 32, 64, C.elem_offset // 2048, T.float32(0), dtype="void"
                )
            )

    return description, implementation


def store_accumulators() -> tuple[Any, Any]:
    """The intrinsic that stores a fragment of accumulators to shared memory."""

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def description(a: T.handle, c: T.handle) -> None:
        A = T.match_buffer(
            a, (8, 8, 4, 8), "float32", align=64, offset_factor=32, scope="wmma.accumulator"
        )
        C = T.match_buffer(
            c, (8, 8, 4, 8), "float32", align=64, offset_factor=8, scope="shared.dyn"
        )
        with T.sblock("root"):
            T.reads(A[0:8, 0:8, 0:4, 0:8])
            T.writes(C[0:8, 0:8, 0:4, 0:8])
            for group, row, piece, column in T.grid(8, 8, 4, 8):
                with T.sblock("store"):
                    g, r, p, e = T.axis.remap("SSSS", [group, row, piece, column])
                    C[g, r, p, e] = A[g, r, p, e]

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def implementation(a: T.handle, c: T.handle) -> None:
        s3 = T.int32()
        s2 = T.int32()
        s1 = T.int32()
        s0 = T.int32()
        A = T.match_buffer(
            a, (8, 8, 4, 8), "float32", align=64, offset_factor=32, scope="wmma.accumulator"
        )
        C = T.match_buffer(
            c,
            (8, 8, 4, 8),
            "float32",
            align=64,
            offset_factor=8,
            scope="shared.dyn",
            strides=[s3, s2, s1, s0],
        )
        with T.sblock("root"):
            T.reads(A[0:8, 0:8, 0:4, 0:8])
            T.writes(C[0:8, 0:8, 0:4, 0:8])
            T.evaluate(
                T.tvm_store_matrix_sync(
                    A.data, 64, 32, 64, A.elem_offset // 2048, C.access_ptr("w",
                    ptr_type="float32"), s2, "row_major",
                    dtype="void",
                )
            )  # fmt: skip

    return description, implementation


def multiply_panels(instruction: WarpgroupMultiply) -> tuple[tirx.PrimFunc, tirx.PrimFunc]:
    """The intrinsic that multiplies fragments of the left operand by panels of the right one.

    Both operands lie in shared memory in rows of 128 bytes, whose eight pieces of 16 bytes
    are permuted by the row's number (128-byte swizzle).
    """
    symbol = warpgroup_symbol(instruction)
    dtype, transposed = instruction.dtype, instruction.transposed
    fragments, panels = instruction.fragments, instruction.panels
    left_shape, right_shape, accumulator_shape = (
        (fragments, 8, 8, 8, 8),
        (panels, 2, 4, 8, 8, 8) if transposed else (panels, 8, 8, 8, 8),
        (fragments, panels, 2, 8, 8, 4, 8),
    )
    all_left, all_right, all_accumulators = [
        tuple(slice(0, extent) for extent in shape)
        for shape in (left_shape, right_shape, accumulator_shape)
    ]

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def implementation(a: T.handle, b: T.handle, c: T.handle) -> None:
        A = T.match_buffer(a, left_shape, dtype, align=64, offset_factor=512, scope="shared.dyn")
        B = T.match_buffer(b, right_shape, dtype, align=64, offset_factor=512, scope="shared.dyn")
        C = T.match_buffer(
            c, accumulator_shape, "float32", align=64, offset_factor=32, scope="wmma.accumulator"
        )
        with T.sblock("root"):
            T.reads(C[all_accumulators], A[all_left], B[all_right])
            T.writes(C[all_accumulators])
            T.evaluate(
                T.call_extern(
                    "void", symbol, C.data, C.elem_offset // 2048, A.access_ptr("r",
                    ptr_type=dtype),
                    B.access_ptr("r", ptr_type=dtype),
                )
            )  # fmt: skip

    return _product_loops(instruction, *map(_like, implementation.params)), implementation


def _like(buffer: tirx.Buffer) -> tirx.Buffer:
    return tirx.decl_buffer(
        buffer.shape,
        buffer.dtype,
        buffer.name,
        scope=buffer.scope(),
        data_alignment=64,
        offset_factor=buffer.offset_factor,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loop:
    """A loop of the multiplication. One iteration needs no loop: TVM leaves none either."""

    name: str
    extent: int
    reduced: bool = False

    def variable(self) -> tirx.Var:
        return tirx.Var(self.name, "int32")

    def iterator(self) -> tirx.IterVar:
        kind = tirx.IterVar.CommReduce if self.reduced else tirx.IterVar.DataPar
        return tirx.IterVar(tvm.ir.Range(0, self.extent), f"v_{self.name}", kind)


def _loops(instruction: WarpgroupMultiply) -> tuple[_Loop, ...]:
    """The loops over one multiplication, outermost first."""
    return (
        _Loop(name="square", extent=instruction.fragments),
        _Loop(name="panel", extent=instruction.panels),
        _Loop(name="half", extent=2),
        _Loop(name="group", extent=8),
        _Loop(name="row", extent=8),
        _Loop(name="piece", extent=4),
        _Loop(name="column", extent=8),
        _Loop(name="depth_1", extent=8, reduced=True),
        _Loop(name="depth_0", extent=8, reduced=True),
    )


def _product_loops(
    instruction: WarpgroupMultiply, a: tirx.Buffer, b: tirx.Buffer, c: tirx.Buffer
) -> tirx.PrimFunc:
    """What the multiplication does, element by element."""
    loops = [loop for loop in _loops(instruction) if loop.extent > 1]
    variables = [loop.variable() for loop in loops]
    iterators = [loop.iterator() for loop in loops]
    values = {loop.name: tirx.const(0, "int32") for loop in _loops(instruction)}
    values |= {loop.name: axis.var for loop, axis in zip(loops, iterators, strict=True)}
    store = _multiply_add(instruction, values, a, b, c)
    bare = SBlock(iterators, [], [], "", store)
    read, write, _ = get_sblock_access_region(bare, {buffer: buffer for buffer in (a, b, c)})
    always, zero = tirx.const(True, "bool"), tirx.const(0, "int32")
    body: tirx.Stmt = SBlockRealize(variables, always, SBlock(iterators, read, write, "", store))
    for loop, variable in zip(reversed(loops), reversed(variables), strict=True):
        extent = tirx.const(loop.extent, "int32")
        body = tirx.For(variable, zero, extent, tirx.ForKind.SERIAL, body)
    regions = [
        tirx.BufferRegion(buffer, [tvm.ir.Range(0, extent) for extent in buffer.shape])
        for buffer in (c, a, b)
    ]
    root = SBlock([], regions, regions[:1], "root", body)
    return tirx.PrimFunc([a, b, c], SBlockRealize([], always, root)).with_attr({"s_tir": True})


def _multiply_add(
    instruction: WarpgroupMultiply,
    values: Mapping[str, tvm.ir.PrimExpr],
    a: tirx.Buffer,
    b: tirx.Buffer,
    c: tirx.Buffer,
) -> tirx.BufferStore:
    """`c += a * b` of one element, where each loop has one of `values`."""
    fragment, panel, half, group, row, piece, column, depth_1, depth_0 = values.values()
    left = [fragment, group, row, tirx.bitwise_xor(depth_1, row), depth_0]
    if instruction.transposed:
        right = [panel, half, piece, column, tirx.bitwise_xor(depth_1, column), depth_0]
    else:
        pair = tirx.bitwise_xor(half * 4 + piece, depth_0)
        right = [panel, depth_1, depth_0, pair, column]
    place = [fragment, panel, half, group, row, piece, column]
    factors = [
        tirx.BufferLoad(buffer, indices).astype("float32")
        for buffer, indices in ((a, left), (b, right))
    ]
    return tirx.BufferStore(c, tirx.BufferLoad(c, place) + factors[0] * factors[1], place)
