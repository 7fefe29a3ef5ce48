"""A list of arrays as bytes and back, for the way between processes; never a pickle."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any
from zipfile import BadZipFile

import numpy as np

from tuner.models.errors import ModelRefused

Array = np.ndarray[Any, np.dtype[Any]]


def arrays_to(arrays: Sequence[Array]) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, *arrays)
    return stream.getvalue()


def arrays_from(content: bytes) -> list[Array]:
    """Raises ModelRefused for anything else."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return [archive[f"arr_{number}"] for number in range(len(archive.files))]
    except (ValueError, KeyError, OSError, EOFError, BadZipFile) as error:
        raise ModelRefused(f"no arrays came back: {error}") from error
