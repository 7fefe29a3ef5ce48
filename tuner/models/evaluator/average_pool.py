"""The average pool of ONNX's evaluator, put right where the number of windows is rounded up.

The evaluator pads half of what the last window lacks in front of the tensor, which moves
all windows, and is 0 for a window much larger than the tensor. By the standard it lies
behind the tensor, and counts for no average.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx.reference.ops import op_average_pool

Array = np.ndarray[Any, np.dtype[Any]]


class AveragePool(op_average_pool.AveragePool_19):  # type: ignore[misc]  # onnx has no types
    """Averages over windows of x [n, c, ...]."""

    op_domain = ""

    def _run(
        self,
        x: Array,
        ceil_mode: int | None = None,
        kernel_shape: Sequence[int] = (),
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        count_include_pad: int | None = None,
        **given: Any,
    ) -> tuple[Array]:
        if not ceil_mode:
            results: tuple[Array] = super()._run(
                x,
                kernel_shape=kernel_shape,
                pads=pads,
                strides=strides,
                dilations=dilations,
                count_include_pad=count_include_pad,
                **given,
            )
            return results
        rank = len(kernel_shape)
        before, behind = np.reshape(pads or [0] * 2 * rank, (2, rank))
        total, count = x.astype(np.float64), np.ones(())
        for axis in range(rank):
            inside, padded = _windows(
                x.shape[2 + axis],
                kernel_shape[axis],
                (int(before[axis]), int(behind[axis])),
                (strides or [1] * rank)[axis],
                (dilations or [1] * rank)[axis],
            )
            total = np.moveaxis(np.tensordot(total, inside, (2 + axis, 1)), -1, 2 + axis)
            counted = padded if count_include_pad else inside.sum(axis=1)
            count = count[..., None] * counted
        return ((total / count).astype(x.dtype),)


def _windows(
    extent: int, size: int, pads: tuple[int, int], stride: int, dilation: int
) -> tuple[Array, Array]:
    """Which elements each window of a dimension has [windows, extent], and how many elements
    of the padded dimension."""
    before, behind = pads
    windows = -(-(extent + before + behind - dilation * (size - 1) - 1) // stride) + 1
    if (windows - 1) * stride >= extent + before:  # the last would begin behind the tensor
        windows -= 1
    begins = np.arange(windows) * stride - before
    taps = begins[:, None] + np.arange(size) * dilation
    inside = (taps[:, :, None] == np.arange(extent)).sum(axis=1).astype(np.float64)
    return inside, (taps < extent + behind).sum(axis=1).astype(np.float64)
