"""Instructions of tensor cores for TVM, by the names that sketches use: what each does,
so that it can take the place of loops.

TVM has descriptions of its own; its module of them parses hundreds of programs when it
is loaded, which takes 13 s of a process.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T

from tuner.lowering.cuda.warpgroup import register

DTYPES = {"f16": "float16", "bf16": "bfloat16", "s8": "int8", "f32": "float32", "s32": "int32"}
_SQUARE = re.compile(
    r"square_(load_a|load_b|fill|multiply|store)_(f16|bf16|s8|f32|s32)(?:_(f32|s32))?(_turned)?"
)
_NAMES = re.compile(r'"((?:square|warpgroup)_\w+)"')


@cache
def known(name: str) -> str:
    """The name, once TVM knows the instruction. The registry is TVM's, one a process.
    Raises ValueError for any other name."""
    if name.startswith("warpgroup"):
        register(name)
        return name
    found = _SQUARE.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r} is no instruction of tensor cores")
    what, kind, sums, turned = found[1], DTYPES[found[2]], found[3], found[4] is not None
    if what == "multiply":
        TensorIntrin.register(name, *_multiply(kind, DTYPES[sums], turned))
    elif what == "fill":
        TensorIntrin.register(name, *_fill(kind))
    elif what == "store":
        TensorIntrin.register(name, *_store(kind))
    else:
        TensorIntrin.register(
            name, *_load(kind, what.removeprefix("load_"), "col_major" if turned else "row_major")
        )
    return name


def know_all(trace: str) -> None:
    """Makes every instruction that a trace, as JSON, names known to TVM."""
    for name in set(_NAMES.findall(trace)):
        known(name)


def _copied(dtype: str, source: str, target: str) -> Any:
    """A square brought from one kind of memory to another."""

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def described(a: T.handle, c: T.handle) -> None:
        A = T.match_buffer(a, (16, 16), dtype, align=64, offset_factor=16, scope=source)
        C = T.match_buffer(c, (16, 16), dtype, align=64, offset_factor=16, scope=target)
        with T.sblock("root"):
            T.reads(A[0:16, 0:16])
            T.writes(C[0:16, 0:16])
            for i, j in T.grid(16, 16):
                with T.sblock("copy"):
                    v, w = T.axis.remap("SS", [i, j])
                    C[v, w] = A[v, w]

    return described


def _load(dtype: str, operand: str, order: str) -> tuple[Any, Any]:
    scope = f"wmma.matrix_{operand}"

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def made(a: T.handle, c: T.handle) -> None:
        row = T.int32()
        one = T.int32()
        A = T.match_buffer(
            a, (16, 16), dtype, align=64, offset_factor=16, scope="shared.dyn", strides=[row, one]
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

    return _copied(dtype, "shared.dyn", scope), made


def _fill(dtype: str) -> tuple[Any, Any]:
    zero = T.float32(0) if dtype == "float32" else T.int32(0)

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def described(c: T.handle) -> None:
        C = T.match_buffer(c, (16, 16), dtype, align=64, offset_factor=16, scope="wmma.accumulator")
        with T.sblock("root"):
            T.reads()
            T.writes(C[0:16, 0:16])
            for i, j in T.grid(16, 16):
                with T.sblock("fill"):
                    v, w = T.axis.remap("SS", [i, j])
                    C[v, w] = zero

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def made(c: T.handle) -> None:
        C = T.match_buffer(c, (16, 16), dtype, align=64, offset_factor=16, scope="wmma.accumulator")
        with T.sblock("root"):
            T.reads()
            T.writes(C[0:16, 0:16])
            T.evaluate(
                T.tvm_fill_fragment(
                    C.data, 16, 16, 16, C.elem_offset // 256, T.float32(0), dtype="void"
                )
            )

    return described, made


def _store(dtype: str) -> tuple[Any, Any]:
    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def made(a: T.handle, c: T.handle) -> None:
        row = T.int32()
        one = T.int32()
        A = T.match_buffer(a, (16, 16), dtype, align=64, offset_factor=16, scope="wmma.accumulator")
        C = T.match_buffer(
            c, (16, 16), dtype, align=64, offset_factor=16, scope="shared.dyn", strides=[row, one]
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

    return _copied(dtype, "wmma.accumulator", "shared.dyn"), made


def _multiply(dtype: str, sums: str, turned: bool) -> tuple[Any, Any]:
    def at(B: Any, j: Any, k: Any) -> Any:
        return B[j, k] if turned else B[k, j]

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def described(a: T.handle, b: T.handle, c: T.handle) -> None:
        A = T.match_buffer(a, (16, 16), dtype, align=64, offset_factor=16, scope="wmma.matrix_a")
        B = T.match_buffer(b, (16, 16), dtype, align=64, offset_factor=16, scope="wmma.matrix_b")
        C = T.match_buffer(c, (16, 16), sums, align=64, offset_factor=16, scope="wmma.accumulator")
        with T.sblock("root"):
            T.reads(C[0:16, 0:16], A[0:16, 0:16], B[0:16, 0:16])
            T.writes(C[0:16, 0:16])
            for i, j, k in T.grid(16, 16, 16):
                with T.sblock(""):
                    u, v, w = T.axis.remap("SSR", [i, j, k])
                    C[u, v] = C[u, v] + T.Cast(sums, A[u, w]) * T.Cast(sums, at(B, v, w))

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def made(a: T.handle, b: T.handle, c: T.handle) -> None:
        A = T.match_buffer(a, (16, 16), dtype, align=64, offset_factor=16, scope="wmma.matrix_a")
        B = T.match_buffer(b, (16, 16), dtype, align=64, offset_factor=16, scope="wmma.matrix_b")
        C = T.match_buffer(c, (16, 16), sums, align=64, offset_factor=16, scope="wmma.accumulator")
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

    return described, made
