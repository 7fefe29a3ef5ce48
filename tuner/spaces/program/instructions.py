"""Tensor-core instructions, each of which stands for a loop and all loops inside it.

Two families. A fragment is a matrix of 16 by 16 elements that one warp holds (WMMA). A
warpgroup is 128 threads, whose instructions read both operands from shared memory
(wgmma, sm_90). Every instruction has a name, the text form that stored schedules hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Literal

from tuner.workload.dtypes import DType

SHORT_DTYPES: Mapping[DType, str] = {
    "float16": "f16",
    "bfloat16": "bf16",
    "int8": "s8",
    "float32": "f32",
    "int32": "s32",
}
FRAGMENT_OPERANDS: tuple[DType, ...] = ("float16", "bfloat16", "int8")
WARPGROUP_OPERANDS: tuple[DType, ...] = ("float16", "bfloat16")
ACCUMULATORS: tuple[DType, ...] = ("float32", "int32")
MOST_WARPGROUP_TILES = 9  # fragments or panels that one instruction may have


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentLoad:
    """Loads a fragment of an operand from shared memory."""

    operand: Literal["a", "b"]  # the left factor, or the right one
    dtype: DType
    transposed: bool = False  # the right operand lies with the reduction last

    @property
    def name(self) -> str:
        return f"square_load_{self.operand}_{SHORT_DTYPES[self.dtype]}{_order(self.transposed)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentFill:
    """Sets the accumulators of a fragment to zero."""

    dtype: DType

    @property
    def name(self) -> str:
        return f"square_fill_{SHORT_DTYPES[self.dtype]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentMultiply:
    """Adds the product of two fragments to a fragment of accumulators."""

    dtype: DType  # of both operands
    accumulator: DType
    transposed: bool = False  # the right operand lies with the reduction last

    @property
    def name(self) -> str:
        dtypes = f"{SHORT_DTYPES[self.dtype]}_{SHORT_DTYPES[self.accumulator]}"
        return f"square_multiply_{dtypes}{_order(self.transposed)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentStore:
    """Stores the accumulators of a fragment to shared memory."""

    dtype: DType

    @property
    def name(self) -> str:
        return f"square_store_{SHORT_DTYPES[self.dtype]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpgroupFill:
    """Sets the float32 accumulators of 64 rows by 32 columns to zero."""

    @property
    def name(self) -> str:
        return "warpgroup_fill"


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpgroupMultiply:
    """Adds the product of two operands in shared memory to float32 accumulators."""

    fragments: int  # of 64 rows each, one below another
    panels: int  # of 64 columns each, side by side
    dtype: DType  # of both operands
    transposed: bool = False  # the right operand lies with the reduction last

    @property
    def name(self) -> str:
        size = f"{self.fragments}_{self.panels}_{SHORT_DTYPES[self.dtype]}"
        return f"warpgroup_multiply_{size}{_order(self.transposed)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpgroupStore:
    """Stores the accumulators of 64 rows by 32 columns to shared memory."""

    @property
    def name(self) -> str:
        return "warpgroup_store"


TensorInstruction = (
    FragmentLoad
    | FragmentFill
    | FragmentMultiply
    | FragmentStore
    | WarpgroupFill
    | WarpgroupMultiply
    | WarpgroupStore
)


@cache
def instructions_by_name() -> Mapping[str, TensorInstruction]:
    """Every instruction by the name that stored schedules have for it."""
    orders, tiles = (False, True), range(1, MOST_WARPGROUP_TILES + 1)
    every: list[TensorInstruction] = [WarpgroupFill(), WarpgroupStore()]
    every += [FragmentLoad(operand="a", dtype=dtype) for dtype in FRAGMENT_OPERANDS]
    for dtype, transposed in product(FRAGMENT_OPERANDS, orders):
        every.append(FragmentLoad(operand="b", dtype=dtype, transposed=transposed))
        every += [
            FragmentMultiply(dtype=dtype, accumulator=accumulator, transposed=transposed)
            for accumulator in ACCUMULATORS
        ]
    for dtype in ACCUMULATORS:
        every += [FragmentFill(dtype=dtype), FragmentStore(dtype=dtype)]
    every += [
        WarpgroupMultiply(fragments=fragments, panels=panels, dtype=dtype, transposed=transposed)
        for fragments, panels, dtype, transposed in product(
            tiles, tiles, WARPGROUP_OPERANDS, orders
        )
    ]
    return {instruction.name: instruction for instruction in every}


def _order(transposed: bool) -> str:
    return "_turned" if transposed else ""
