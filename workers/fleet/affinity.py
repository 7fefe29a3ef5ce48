"""Confines threads of processes to cores, so that only candidates run on the lanes."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress

import psutil


def confine(process: psutil.Process, cores: Sequence[int]) -> dict[int, set[int]]:
    """Confines every thread of a process to `cores`; returns the previous masks by thread id.

    Threads that are pinned to a subset of `cores` stay as they are.
    """
    allowed, before = set(cores), {}
    with suppress(psutil.NoSuchProcess):
        for thread in process.threads():
            with suppress(ProcessLookupError):
                now = os.sched_getaffinity(thread.id)
                if not now <= allowed:
                    os.sched_setaffinity(thread.id, now & allowed or allowed)
                    before[thread.id] = now
    return before


def confine_family(cores: Sequence[int], *, besides: Collection[int] = ()) -> None:
    """Confines this process and its descendants, except those with the ids in `besides`.

    Processes that they start later inherit it.
    """
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        if process.pid not in besides:
            confine(process, cores)


@contextmanager
def confined(cores: Sequence[int]) -> Iterator[None]:
    """Confines this process to `cores` within the block.

    A search must not run on the core that is timing its candidates.
    """
    before = confine(psutil.Process(), cores)
    everything = set().union(*before.values())
    try:
        yield
    finally:
        for thread in psutil.Process().threads():
            with suppress(ProcessLookupError):
                # Threads created meanwhile inherited the confinement, and get all cores that
                # the process had.
                if everything:
                    os.sched_setaffinity(thread.id, before.get(thread.id, everything))
