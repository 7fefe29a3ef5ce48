"""The target of programs with constants."""

from __future__ import annotations

from tuner.target.target import Target

TARGET = Target(
    key="0" * 64,
    kind="cpu",
    name="a CPU",
    tvm={"kind": "llvm"},
    isa=(),
    vector_bytes=32,
    vector_registers=16,
    cores=2,
    l1d_bytes=32 << 10,
    l2_bytes=1 << 20,
    l3_bytes=0,
)
