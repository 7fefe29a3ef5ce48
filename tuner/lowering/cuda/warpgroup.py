"""Instructions of Hopper's warpgroups for TVM: what they do, so that they can be put in
the place of loops that do the same.

TVM 0.27 has them under another backend only. Sums go TVM's way of accumulators of
tensor cores, as an array of fragments of 64 rows by 32 columns spread over 128 threads;
what they are in CUDA C++ is in `tuner.lowering.cuda.warpgroup_source`.
"""

from __future__ import annotations

import re
from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize, TensorIntrin
from tvm.s_tir.analysis import get_sblock_access_region
from tvm.script import tirx as T

NAME = re.compile(r"warpgroup_multiply_(\d)_(\d)_(f16|bf16)(_turned)?")
DTYPES = {"f16": "float16", "bf16": "bfloat16"}


def register(name: str) -> None:
    """Makes an instruction known to TVM: `warpgroup_fill`, `warpgroup_store`,
    `warpgroup_multiply_<squares>_<panels>_<kind>`."""
    if name == "warpgroup_fill":
        TensorIntrin.register(name, *_fill())
    elif name == "warpgroup_store":
        TensorIntrin.register(name, *_store())
    else:
        found = NAME.fullmatch(name)
        if found is None:
            raise ValueError(f"{name!r} is no instruction of warpgroups")
        squares, panels, kind, turned = found.groups()
        TensorIntrin.register(
            name, *_multiply(name, int(squares), int(panels), DTYPES[kind], turned is not None)
        )


def _fill() -> tuple[Any, Any]:
    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def described(c: T.handle) -> None:
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
    def made(c: T.handle) -> None:
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

    return described, made


def _store() -> tuple[Any, Any]:
    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def described(a: T.handle, c: T.handle) -> None:
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
    def made(a: T.handle, c: T.handle) -> None:
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

    return described, made


def _multiply(
    name: str, squares: int, panels: int, dtype: str, turned: bool
) -> tuple[tirx.PrimFunc, tirx.PrimFunc]:
    symbol = f"tuner_{name}"
    left, right, sums = (
        (squares, 8, 8, 8, 8),
        (panels, 2, 4, 8, 8, 8) if turned else (panels, 8, 8, 8, 8),
        (squares, panels, 2, 8, 8, 4, 8),
    )
    deep, across, whole = [
        tuple(slice(0, extent) for extent in shape) for shape in (left, right, sums)
    ]

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def made(a: T.handle, b: T.handle, c: T.handle) -> None:
        A = T.match_buffer(a, left, dtype, align=64, offset_factor=512, scope="shared.dyn")
        B = T.match_buffer(b, right, dtype, align=64, offset_factor=512, scope="shared.dyn")
        C = T.match_buffer(c, sums, "float32", align=64, offset_factor=32, scope="wmma.accumulator")
        with T.sblock("root"):
            T.reads(C[whole], A[deep], B[across])
            T.writes(C[whole])
            T.evaluate(
                T.call_extern(
                    "void", symbol, C.data, C.elem_offset // 2048, A.access_ptr("r",
                    ptr_type=dtype),
                    B.access_ptr("r", ptr_type=dtype),
                )
            )  # fmt: skip

    return _product(squares, panels, turned, *map(_like, made.params)), made


def _like(buffer: tirx.Buffer) -> tirx.Buffer:
    return tirx.decl_buffer(
        buffer.shape,
        buffer.dtype,
        buffer.name,
        scope=buffer.scope(),
        data_alignment=64,
        offset_factor=buffer.offset_factor,
    )


def _product(
    squares: int, panels: int, turned: bool, a: tirx.Buffer, b: tirx.Buffer, c: tirx.Buffer
) -> tirx.PrimFunc:
    """What the multiplication does, one by one. Axes of one step have no loop, as TVM
    leaves none of a nest it looks at."""
    extents = {
        "square": squares,
        "panel": panels,
        "half": 2,
        "group": 8,
        "row": 8,
        "piece": 4,
        "column": 8,
        "depth_1": 8,
        "depth_0": 8,
    }
    loops = {name: tirx.Var(name, "int32") for name, extent in extents.items() if extent > 1}
    iterators = {
        name: tirx.IterVar(
            tvm.ir.Range(0, extents[name]),
            f"v_{name}",
            tirx.IterVar.CommReduce if "depth" in name else tirx.IterVar.DataPar,
        )
        for name in loops
    }
    at = {
        name: iterators[name].var if name in loops else tirx.const(0, "int32") for name in extents
    }
    place = [at[name] for name in ("square", "panel", "half", "group", "row", "piece", "column")]
    one = [
        at["square"],
        at["group"],
        at["row"],
        tirx.bitwise_xor(at["depth_1"], at["row"]),
        at["depth_0"],
    ]
    if turned:
        other = [at[name] for name in ("panel", "half", "piece", "column")]
        other += [tirx.bitwise_xor(at["depth_1"], at["column"]), at["depth_0"]]
    else:
        other = [at["panel"], at["depth_1"], at["depth_0"]]
        other += [tirx.bitwise_xor(at["half"] * 4 + at["piece"], at["depth_0"]), at["column"]]
    product = tirx.BufferLoad(a, one).astype("float32") * tirx.BufferLoad(b, other).astype(
        "float32"
    )
    store = tirx.BufferStore(c, tirx.BufferLoad(c, place) + product, place)
    bare = SBlock(list(iterators.values()), [], [], "", store)
    read, write, _ = get_sblock_access_region(bare, {buffer: buffer for buffer in (a, b, c)})
    block = SBlock(list(iterators.values()), read, write, "", store)
    body: tirx.Stmt = SBlockRealize(list(loops.values()), tirx.const(True, "bool"), block)
    for name in reversed(loops):
        body = tirx.For(
            loops[name],
            tirx.const(0, "int32"),
            tirx.const(extents[name], "int32"),
            tirx.ForKind.SERIAL,
            body,
        )
    whole = [
        tirx.BufferRegion(one, [tvm.ir.Range(0, extent) for extent in one.shape])
        for one in (c, a, b)
    ]
    root = SBlock([], whole, whole[:1], "root", body)
    return tirx.PrimFunc([a, b, c], SBlockRealize([], tirx.const(True, "bool"), root)).with_attr(
        {"s_tir": True}
    )
