"""A target with measured limits."""

from __future__ import annotations

from tuner.target.target import Bandwidth, Limits, Target

LIMITS = Limits(
    fma_flops=100e9,
    fma_flops_best=110e9,
    bandwidth=(
        Bandwidth(working_set_bytes=1 << 14, read=400e9, write=100e9, copy=300e9),
        Bandwidth(working_set_bytes=1 << 20, read=100e9, write=100e9, copy=50e9),
        Bandwidth(working_set_bytes=1 << 28, read=10e9, write=8e9, copy=9e9),
    ),
)


TARGET = Target(
    key="k", kind="cpu", name="test", tvm={"kind": "llvm"}, isa=("avx512bf16", "avx512f",
    "avx512vnni"), vector_bytes=64,
    vector_registers=32, cores=4, l1d_bytes=1 << 15, l2_bytes=1 << 20, l3_bytes=1 << 25,
    limits=LIMITS,
)  # fmt: skip
