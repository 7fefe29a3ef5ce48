"""Comparisons of a body's positions with the border of a tensor, for a batch of configs."""

from __future__ import annotations

import numpy as np

from tuner.cost_model.arrays import Floats
from tuner.cost_model.cpu.nests import NONE, Nests, NestTable


def border_checks(table: NestTable, nest: Nests) -> tuple[Floats, Floats]:
    """(vectors loaded after a comparison with a border, of these those of two dimensions).

    Of a body, (n,) each. Only padded tensors that are read in place have borders. The
    second counts loads that are compared in two dimensions along which the tile
    extends: comparisons along one are hoisted out of the innermost loop.
    """
    checks, checks_2d = np.zeros((2, nest.span.shape[1]), np.float32)
    tile = nest.span.copy()
    tile[table.spatial :] = 1.0
    for number, (read, operand) in enumerate(zip(table.reads, table.operands, strict=False)):
        if not operand.padded:
            continue
        along_vector = (
            np.zeros(len(read.shape), np.bool_)
            if nest.vector < 0
            else read.coefficients[:, nest.vector] > 0
        )
        sizes = read.sizes(nest.span)
        sizes[along_vector] = np.ceil(sizes[along_vector] / max(nest.lanes, 1))
        in_window = (read.coefficients > 0).sum(axis=1) > 1
        extends = read.sizes(tile)[in_window & ~along_vector] > 1
        loads = sizes.prod(axis=0) * (nest.copy_mode[number] == NONE)
        checks += loads
        checks_2d += loads * (extends.sum(axis=0) > 1)
    return checks, checks_2d
