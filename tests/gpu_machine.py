"""Whether tests have a GPU to run on, and the mark of those that need one: skipped with the reason, never counted as passed."""

from __future__ import annotations

import pytest

from tuner.errors import TunerError
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
