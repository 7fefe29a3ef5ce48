"""A target with AVX2 alone, for tests of shorter vectors than this CPU may have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.targets import host_target

AVX2 = replace(
    host_target(),
    tvm={"kind": "llvm", "mcpu": "haswell"},
    isa=("avx2",),
    vector_bytes=32,
    vector_registers=16,
)
# Kernels for it are run here.
runs_avx2 = pytest.mark.skipif(
    "avx2" not in host_target().isa, reason="this CPU cannot run code with AVX2"
)
