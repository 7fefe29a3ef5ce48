"""Settings of the C library's allocator for arrays that are freed and allocated repeatedly."""

from __future__ import annotations

import ctypes
from functools import cache

# Parameters of mallopt(3) in glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 64 << 20  # the arrays of a batch take 20 MB
_OF_THE_HEAP_BYTES = 32 << 20  # the most that glibc takes for the second


@cache
def keep_freed() -> None:
    """Lets this process keep up to 64 MiB of what it freed; does nothing where the C
    library is not glibc.

    Otherwise each batch gives its arrays back to the system, and those of the next are
    pages to be cleared anew: a third of the time of describing configs.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _OF_THE_HEAP_BYTES)
