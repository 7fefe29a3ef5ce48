"""`tuner.judge`: what a kernel that somebody wrote in C or CUDA C++ is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.app.races.foreign import judged
from tuner.app.workloads import Source, as_workload
from tuner.db.engine import open_database
from tuner.export.header import cuda_signature_of, signature_of
from tuner.measure.foreign.dimensions import dimensions_given
from tuner.measure.foreign.verdict import Verdict
from tuner.settings import load_settings
from tuner.workload.workload import Numerics


def judge(
    workload: Source,
    source: str,
    *,
    shapes: Mapping[str, int] | None = None,
    numerics: Numerics = "strict",
    threads: int | None = None,
    race: bool = True,
    db: str | None = None,
    target: str | None = None,
    grid: Sequence[int] | None = None,
    block: Sequence[int] | None = None,
    shared_bytes: int = 0,
) -> Verdict:
    """Judges a kernel in C on this machine, or one in CUDA C++ on its GPU.

    `workload` is what `tuner.tune` takes. `source` is a C text with the function that
    `tuner.c_signature` declares. It is compiled and run apart, checked on all kinds of
    inputs, and timed in turn with the incumbent kernel for so many `threads`, else with
    the default schedule. Without `race` it is only checked.

    With `grid` and `block`, one to three extents each, the text is CUDA C++ with the kernel
    that `tuner.cuda_signature` declares. It is launched once in each call, with
    `shared_bytes` of dynamic shared memory, and needs the `target` "cuda".

    What it does wrong is the verdict's name, and no exception. Raises UsageError
    (WorkloadError) for a wrong workload or one with constants and for a launch that the GPU
    cannot do, DatabaseError, RaceError and RivalFailed where our own kernel fails, LinkError
    without a C compiler, and FenceMissing where that cannot be fenced in.
    """
    subject = as_workload(workload, shapes=shapes, constants=(), numerics=numerics)
    launch = dimensions_given(grid, block, shared_bytes)
    given = {"threads": threads, "db": db, "target": target}
    settings = load_settings(given, given_as="argument {}").values
    database = open_database(settings.db)
    try:
        return judged(database, subject, source, settings, race=race, launch=launch)
    finally:
        database.close()


def c_signature(workload: Source, *, shapes: Mapping[str, int] | None = None) -> str:
    """The C declaration of the function that a kernel of the workload defines.

    `workload` and `shapes` are what `tuner.judge` takes. Raises UsageError.
    """
    return signature_of(as_workload(workload, shapes=shapes, constants=(), numerics="strict"))


def cuda_signature(workload: Source, *, shapes: Mapping[str, int] | None = None) -> str:
    """The CUDA C++ declaration of the kernel that a source for a GPU defines.

    `workload` and `shapes` are what `tuner.judge` takes. Raises UsageError.
    """
    subject = as_workload(workload, shapes=shapes, constants=(), numerics="strict")
    return cuda_signature_of(subject)
