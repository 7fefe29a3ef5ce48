"""Which cores a process may run on, thread by thread: how everything but candidates is
kept off the lanes."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress

import psutil


def confine(process: psutil.Process, cores: Sequence[int]) -> dict[int, set[int]]:
    """Keeps every thread of a process to `cores`, one pinned to fewer as it is. What
    each thread had before, by its id."""
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
    """The same for this process and all that descends from it, `besides` those ids;
    what they start later inherits it."""
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        if process.pid not in besides:
            confine(process, cores)


@contextmanager
def confined(cores: Sequence[int]) -> Iterator[None]:
    """Keeps the calling process to `cores` within the block: a search must not run on
    the core that is timing its candidates."""
    before = confine(psutil.Process(), cores)
    everything = set().union(*before.values())
    try:
        yield
    finally:
        for thread in psutil.Process().threads():
            with suppress(ProcessLookupError):
                if (
                    everything
                ):  # threads made meanwhile inherited the confinement and get what the process had
                    os.sched_setaffinity(thread.id, before.get(thread.id, everything))
