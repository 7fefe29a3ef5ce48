"""What an instruction set offers to generated code. Plain data, no tables, no detection.

The folders of `tuner.target.architectures` build these objects; spaces, cost model,
roofline and lowering read them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

# Which signs the two 8-bit factors of an instruction have: any, one without and one
# with a sign, or both alike.
Signs = Literal["any", "mixed", "same"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DotProduct:
    """An instruction that adds to each accumulator the products of several factors.

    With two `rows` the accumulators of a vector are a matrix: each row of the first
    factor meets each row of the second.
    """

    name: str  # mnemonic
    factors: frozenset[str]  # dtypes the factors may have
    accumulator: str  # dtype
    group: int  # products added to one accumulator: 1, 2 (dp2), 4 (dp4) or 8
    lanes: int  # accumulators in a vector
    rows: int = 1  # of the matrix that these accumulators are
    signs: Signs
    features: frozenset[str]  # LLVM features; any one of them gives the instruction

    @property
    def rate(self) -> float:
        """Multiply-adds in the time of one of float32."""
        return float(self.group)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixUnit:
    """Registers that hold a matrix, and the instruction that multiplies two of them.

    One instruction adds, to a register of 32-bit accumulators, the product of a
    register of `rows` steps of the reduction with one whose rows hold words of
    neighbouring factors for every vector lane.
    """

    factors: frozenset[str]  # dtypes the factors may have
    feature: str  # LLVM feature
    registers: int
    rows: int  # of a register
    word_bytes: int  # of a row's words; an accumulator is one word
    rate: float  # multiply-adds in the time of one of float32


@dataclass(frozen=True, slots=True, kw_only=True)
class IsaDescription:
    """What the code generated for one CPU target may use, and what its core can do."""

    features: tuple[str, ...]  # in LLVM's spelling, sorted
    vector_bytes: int  # of a vector register
    vector_registers: int
    dot_products: tuple[DotProduct, ...]
    matrix_units: tuple[MatrixUnit, ...]
    # Numbers of 32 bits in a register from which one instruction picks one for each lane; 0
    # where there is none such.
    table_numbers: int
    native_float16: bool  # whether vectors of float16 are multiplied and added as such
    non_temporal_stores: bool  # vector stores past the caches
    prefetch: bool  # an instruction that brings in a cache line ahead of its use
    line_bytes: int  # of a cache
    page_bytes: int  # of memory; lines a page apart share the sets of a first-level cache
    load_ports: int  # vectors a core loads in a cycle
    line_fill_buffers: int  # cache lines that a first-level cache awaits at once
    fma_units: int  # vectors of up to 32 bytes multiplied and added in a cycle
    wide_fma_units: int  # the same of vectors wider than 32 bytes
    converts_float16: bool = True  # whether float16 becomes float32, and back, by instructions
    # Whether NaN, converted to an integer, leaves a NaN that the integer's bits are added to.
    nan_survives_conversion: bool = True

    def fma_units_of(self, vector_bytes: int) -> int:
        """Vectors of a width that a core multiplies and adds in a cycle."""
        return self.wide_fma_units if vector_bytes > 32 else self.fma_units

    def matrix_unit(self, factors: Collection[str]) -> MatrixUnit | None:
        """The matrix unit for factors of these dtypes."""
        return next((unit for unit in self.matrix_units if set(factors) <= unit.factors), None)
