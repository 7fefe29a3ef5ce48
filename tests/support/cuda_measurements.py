"""Kernels measured on an H200, as recorded."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.spaces import shared_space
from tests.support.targets import SM_90
from tuner.spaces.core.space import Points
from tuner.spaces.core.target_space import TargetSpace

TABLE = Path(__file__).parents[1] / "tables" / "h200.json.gz"


MEASURED: Mapping[str, Any] = json.loads(gzip.decompress(TABLE.read_bytes()))["workloads"]


def measured(
    spec: str,
) -> tuple[TargetSpace[Any], Points, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Space, points, seconds, and the sketch of each point by number."""
    space = shared_space(spec, SM_90)
    rest = space.space.config(space.space.unrank(0))
    configs = [
        {
            **rest,
            **{
                name: tuple(value) if isinstance(value, list) else value
                for name, value in config.items()
            },
        }
        for _, config in MEASURED[spec]
    ]
    points = np.stack([space.space.point(config) for config in configs])
    return space, points, np.array([seconds for seconds, _ in MEASURED[spec]]), points[:, 0]
