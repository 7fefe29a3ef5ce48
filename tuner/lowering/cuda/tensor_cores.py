"""TVM intrinsics of tensor-core instructions: what each computes and what it becomes.

An intrinsic is a pair of functions. TVM puts the second in the place of loops that do
the same as the first. TVM ships descriptions of its own, but importing that module
parses hundreds of programs, which takes 13 s of a process.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T

from tuner.lowering.cuda.warpgroup import fill_accumulators, multiply_panels, store_accumulators
from tuner.spaces.program.instructions import (
    FragmentFill,
    FragmentLoad,
    FragmentMultiply,
    FragmentStore,
    TensorInstruction,
    WarpgroupFill,
    WarpgroupMultiply,
    WarpgroupStore,
    instructions_by_name,
)


@cache
def registered(instruction: TensorInstruction) -> str:
    """The instruction's name, under which TVM has its intrinsic from now on.

    The registry is TVM's and belongs to the process, so each is registered once.
    """
    TensorIntrin.register(instruction.name, *_intrinsic(instruction))
    return instruction.name


def register_for_trace(trace: str) -> None:
    """Registers every intrinsic of ours that a trace names.

    `trace` is JSON of `Trace.as_json()`: a list of instructions, each of the form [kind,
    inputs, attributes, outputs], and a list of decisions.
    """
    by_name = instructions_by_name()
    instructions, _ = json.loads(trace)
    for kind, _, attributes, _ in instructions:
        if kind == "Tensorize" and attributes[0] in by_name:
            registered(by_name[attributes[0]])


def _intrinsic(instruction: TensorInstruction) -> tuple[Any, Any]:
    """What the instruction computes, as loops, and the call that does the same."""
    match instruction:
        case FragmentLoad(operand=operand, dtype=dtype, transposed=transposed):
            return _load(dtype, operand, "col_major" if transposed else "row_major")
        case FragmentFill(dtype=dtype):
            return _fill(dtype)
        case FragmentMultiply(dtype=dtype, accumulator=accumulator, transposed=transposed):
            return _multiply(dtype, accumulator, transposed)
        case FragmentStore(dtype=dtype):
            return _store(dtype)
        case WarpgroupFill():
            return fill_accumulators()
        case WarpgroupStore():
            return store_accumulators()
        case WarpgroupMultiply():
            return multiply_panels(instruction)


def _copied(dtype: str, source: str, target: str) -> Any:
    """Loops that copy a fragment from one memory scope to another."""

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def description(a: T.handle, c: T.handle) -> None:
        A = T.match_buffer(a, (16, 16), dtype, align=64, offset_factor=16, scope=source)
        C = T.match_buffer(c, (16, 16), dtype, align=64, offset_factor=16, scope=target)
        with T.sblock("root"):
            T.reads(A[0:16, 0:16])
            T.writes(C[0:16, 0:16])
            for i, j in T.grid(16, 16):
                with T.sblock("copy"):
                    v, w = T.axis.remap("SS", [i, j])
                    C[v, w] = A[v, w]

    return description


def _load(dtype: str, operand: str, order: str) -> tuple[Any, Any]:
    scope = f"wmma.matrix_{operand}"

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def implementation(a: T.handle, c: T.handle) -> None:
        row = T.int32()
        column = T.int32()
        A = T.match_buffer(
            a,
            (16, 16),
            dtype,
            align=64,
            offset_factor=16,
            scope="shared.dyn",
            strides=[row, column],
        )
        C = T.match_buffer(c, (16, 16), dtype, align=64, offset_factor=16, scope=scope)
        with T.sblock("root"):
            T.reads(A[0:16, 0:16])
            T.writes(C[0:16, 0:16])
            T.evaluate(
                T.tvm_load_matrix_sync(
                    C.data,
                    16,
                    16,
                    16,
                    C.elem_offset // 256,
                    A.access_ptr("r", ptr_type=dtype),
                    row,
                    order,
                    dtype="void",
                )
            )

    return _copied(dtype, "shared.dyn", scope), implementation


def _fill(dtype: str) -> tuple[Any, Any]:
    zero = T.float32(0) if dtype == "float32" else T.int32(0)

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def description(c: T.handle) -> None:
        C = T.match_buffer(c, (16, 16), dtype, align=64, offset_factor=16, scope="wmma.accumulator")
        with T.sblock("root"):
            T.reads()
            T.writes(C[0:16, 0:16])
            for i, j in T.grid(16, 16):
                with T.sblock("fill"):
                    v, w = T.axis.remap("SS", [i, j])
                    C[v, w] = zero

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def implementation(c: T.handle) -> None:
        C = T.match_buffer(c, (16, 16), dtype, align=64, offset_factor=16, scope="wmma.accumulator")
        with T.sblock("root"):
            T.reads()
            T.writes(C[0:16, 0:16])
            T.evaluate(
                T.tvm_fill_fragment(
                    C.data, 16, 16, 16, C.elem_offset // 256, T.float32(0), dtype="void"
                )
            )

    return description, implementation


def _store(dtype: str) -> tuple[Any, Any]:
    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def implementation(a: T.handle, c: T.handle) -> None:
        row = T.int32()
        column = T.int32()
        A = T.match_buffer(a, (16, 16), dtype, align=64, offset_factor=16, scope="wmma.accumulator")
        C = T.match_buffer(
            c,
            (16, 16),
            dtype,
            align=64,
            offset_factor=16,
            scope="shared.dyn",
            strides=[row, column],
        )
        with T.sblock("root"):
            T.reads(A[0:16, 0:16])
            T.writes(C[0:16, 0:16])
            T.evaluate(
                T.tvm_store_matrix_sync(
                    A.data,
                    16,
                    16,
                    16,
                    A.elem_offset // 256,
                    C.access_ptr("w", ptr_type=dtype),
                    row,
                    "row_major",
                    dtype="void",
                )
            )

    return _copied(dtype, "wmma.accumulator", "shared.dyn"), implementation


def _multiply(dtype: str, accumulator: str, transposed: bool) -> tuple[Any, Any]:
    def right_element(B: Any, j: Any, k: Any) -> Any:
        return B[j, k] if transposed else B[k, j]

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def description(a: T.handle, b: T.handle, c: T.handle) -> None:
        A = T.match_buffer(a, (16, 16), dtype, align=64, offset_factor=16, scope="wmma.matrix_a")
        B = T.match_buffer(b, (16, 16), dtype, align=64, offset_factor=16, scope="wmma.matrix_b")
        C = T.match_buffer(
            c, (16, 16), accumulator, align=64, offset_factor=16, scope="wmma.accumulator"
        )
        with T.sblock("root"):
            T.reads(C[0:16, 0:16], A[0:16, 0:16], B[0:16, 0:16])
            T.writes(C[0:16, 0:16])
            for i, j, k in T.grid(16, 16, 16):
                with T.sblock(""):
                    u, v, w = T.axis.remap("SSR", [i, j, k])
                    C[u, v] = C[u, v] + T.Cast(accumulator, A[u, w]) * T.Cast(
                        accumulator, right_element(B, v, w)
                    )

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def implementation(a: T.handle, b: T.handle, c: T.handle) -> None:
        A = T.match_buffer(a, (16, 16), dtype, align=64, offset_factor=16, scope="wmma.matrix_a")
        B = T.match_buffer(b, (16, 16), dtype, align=64, offset_factor=16, scope="wmma.matrix_b")
        C = T.match_buffer(
            c, (16, 16), accumulator, align=64, offset_factor=16, scope="wmma.accumulator"
        )
        with T.sblock("root"):
            T.reads(C[0:16, 0:16], A[0:16, 0:16], B[0:16, 0:16])
            T.writes(C[0:16, 0:16])
            T.evaluate(
                T.tvm_mma_sync(
                    C.data, C.elem_offset // 256, A.data, A.elem_offset // 256, B.data,
                    B.elem_offset // 256,
                    C.data, C.elem_offset // 256, dtype="void",
                )
            )  # fmt: skip

    return description, implementation
