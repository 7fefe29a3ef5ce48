"""x86-64 as generated code sees it.

The number of line fill buffers is that of Intel's Golden Cove, which the cost model was
made on.
"""

from __future__ import annotations

from tuner.target.architectures.architecture import Architecture
from tuner.target.architectures.x86_64.cpuid import CPUID, LEVELS
from tuner.target.architectures.x86_64.instructions import DOT_PRODUCTS, MATRIX_UNITS
from tuner.target.architectures.x86_64.models import FEATURES, ONE_WIDE_UNIT, llvm_cpu
from tuner.target.isa import IsaDescription


def describe(features: tuple[str, ...], mcpu: str) -> IsaDescription:
    """AVX-512 has 32 registers of 64 bytes, AVX 16 of 32, SSE 16 of 16."""
    if "avx512f" in features:
        vector_bytes, vector_registers = 64, 32
    elif "avx2" in features:
        vector_bytes, vector_registers = 32, 16
    else:
        vector_bytes, vector_registers = 16, 16
    return IsaDescription(
        features=features,
        vector_bytes=vector_bytes,
        vector_registers=vector_registers,
        dot_products=tuple(dot for dot in DOT_PRODUCTS if dot.features & set(features)),
        matrix_units=tuple(unit for unit in MATRIX_UNITS if unit.feature in features),
        table_numbers=vector_bytes // 4 if vector_bytes >= 32 else 0,  # vpermps
        native_float16="avx512fp16" in features,
        non_temporal_stores=True,
        prefetch=True,
        line_bytes=64,
        page_bytes=4096,
        load_ports=2,
        line_fill_buffers=16,
        fma_units=2,
        wide_fma_units=1 if mcpu in ONE_WIDE_UNIT else 2,
    )


X86_64 = Architecture(
    features=FEATURES,
    llvm_cpu=llvm_cpu,
    describe=describe,
    cpuid=CPUID,
    levels=LEVELS,
    triple="x86_64-linux-gnu",
)
