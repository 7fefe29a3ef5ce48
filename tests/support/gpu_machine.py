"""Whether tests have a GPU or its compiler, and marks of those that need them: skipped
with the reason, never passed."""

from __future__ import annotations

import pytest

from tuner.errors import TunerError
from tuner.lowering.cuda.nvcc import find_nvcc
from tuner.runtime.cuda_driver import device_count


def why_no_gpu() -> str | None:
    """Why no GPU can be used here; None where one can."""
    try:
        return None if device_count() else "the NVIDIA driver shows no device"
    except TunerError as error:
        return str(error)


REASON = why_no_gpu()


def needs_gpu(test: object) -> object:
    marked = pytest.mark.skipif(REASON is not None, reason=f"no GPU: {REASON}")(test)
    return pytest.mark.gpu(marked)


needs_nvcc = pytest.mark.skipif(
    find_nvcc() is None, reason="no nvcc: neither a CUDA toolkit nor the `cuda` extra is installed"
)
