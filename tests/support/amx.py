"""A CPU with AMX's tile registers, whatever CPU tests run on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.targets import host_target

HERE = host_target()
TARGET = replace(
    HERE,
    tvm={"kind": "llvm", "mcpu": "sapphirerapids"},
    isa=(
        "amx-bf16",
        "amx-int8",
        "amx-tile",
        "avx2",
        "avx512bf16",
        "avx512bw",
        "avx512f",
        "avx512vnni",
    ),
    vector_bytes=64,
    vector_registers=32,
)
# The instructions run only where there are some; the same kernels are run as plain
# loops on every CPU.
NEEDS_AMX = pytest.mark.skipif(not set(TARGET.isa) <= set(HERE.isa), reason="this CPU has no AMX")
