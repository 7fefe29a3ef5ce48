"""Kernels ready for export, from the hand-written ones of the runtime's tests: no
tensor compiler needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner.export.examples import example_inputs
from tuner.export.kernel import Argument, ExportKernel, TargetName
from tuner.runtime.link import runtime_sources
from tuner.runtime.toolchain import Toolchain

KERNELS = Path(__file__).parents[1] / "runtime" / "kernels.c"


@pytest.fixture(scope="session")
def toolchain(tmp_path_factory: pytest.TempPathFactory) -> Toolchain:
    return Toolchain.find(cache=tmp_path_factory.mktemp("cc-cache"))


@pytest.fixture(scope="session")
def kernel(toolchain: Toolchain) -> Callable[..., ExportKernel]:
    """`kernel("double")` computes Y = 2 X on 1024 float32; fields can be replaced by name."""
    # Static but for the one entry, as a compiler's objects are, so that several go into
    # one library.
    text = KERNELS.read_text().replace(
        "\nint entry_", "\nstatic __attribute__((unused)) int entry_"
    )
    headers = {"tvm_abi.h": runtime_sources()["tvm_abi.h"]}

    def make(entry: str = "double", **changes: Any) -> ExportKernel:
        visible = (
            '__attribute__((visibility("default"))) int __tvm_ffi_main(void *s, const TunerAny '
            "*a, int32_t n, TunerAny *r)"
            f"{{ return entry_{entry}(s, a, n, r); }}\n"
        )
        made = ExportKernel(
            workload_key="ab" * 32,
            arguments=(
                Argument(name="X", dtype="float32", shape=(1024,), role="in"),
                Argument(name="Y", dtype="float32", shape=(1024,), role="out"),
            ),
            target=TargetName(key="cd" * 32, kind="cpu", name="a CPU"),
            isa=(),
            threads=2,
            object_code=toolchain.compile("kernel.c", text + visible, headers).read_bytes(),
            tvm_symbol="__tvm_ffi_main",
            median_s=1e-6,
            ci95_s=(0.9e-6, 1.1e-6),
            verified=True,
            max_rel_error=0.0,
            op="elementwise",
            params={"N": 1024, "act": "double", "dtype": "float32"},
            provenance={
                "job": "j1",
                "trial": 3,
                "trace": [["split", [4, 8]]],
                "versions": {"tuner": "0.1"},
            },
        )
        made = replace(made, **changes)
        if made.expected is None and entry in ("double", "parallel", "workspace"):
            made = replace(made, expected=(2 * example_inputs(made)[0].astype(np.float64),))
        return made

    return make
