"""`tuner.tune`: from a workload to its verified kernel in one call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tuner.app.jobs.lifecycle import results, run, submit
from tuner.app.kernels.cuda_kernel import CudaKernel
from tuner.app.kernels.kernel import Kernel
from tuner.app.machine import checked_target, with_limits
from tuner.app.platforms.table import platform_of
from tuner.app.races.idle import measure_idle
from tuner.app.workloads import Source, as_workload
from tuner.db.engine import open_database
from tuner.errors import TunerError
from tuner.export.artifacts import ArtifactStore
from tuner.measure.cache import Cache
from tuner.search.strategies import StrategyName
from tuner.settings import load_settings
from tuner.workers.jobs.progress import Observer, unobserved
from tuner.workload.workload import Numerics


class NoKernel(TunerError):
    """The job ended without a kernel: not even the default schedule could be verified."""

    code = "no_kernel"


def tune(
    source: Source,
    *,
    shapes: Mapping[str, int] | None = None,
    pattern: Any = None,
    constants: Iterable[str] = (),
    numerics: Numerics = "strict",
    trials: int | None = None,
    seconds: float | None = None,
    threads: int | None = None,
    target: str | None = None,
    strategy: StrategyName | None = None,
    seed: int | None = None,
    cache: Cache | None = None,
    objective: str | None = None,
    db: str | None = None,
    observer: Observer = unobserved,
) -> Kernel | CudaKernel:
    """Tunes one workload in this process and returns its kernel.

    The kernel is callable on NumPy arrays; for a GPU, on arrays in its memory.

    `source` is a spec (`"matmul:M=512,N=512,K=512"`), a text in the tensor notation
    with its symbols' extents in `shapes`, a list of `tvm.te` tensors (placeholders,
    then outputs; the kernel takes its arguments in that order), or a `Workload`. What
    is None comes from the settings. Inputs named in `constants` are known before the
    first call. `numerics="fast"` allows errors up to 1e-4, "tensor" up to 2e-3. With
    `cache="cold"` every timed call comes after others' data. `objective` says what the
    kernel is chosen by, as `--objective` does. `observer` gets every trial.

    `pattern` is the sparse matrix of a spec such as `"spmm:K=64"`: one of SciPy, or a
    PyTorch tensor of compressed rows. It gives extents, density and dtypes, and the
    distributions from which trials draw patterns like it.

    Raises UsageError (WorkloadError with line and column or parameter) before anything
    is written, DatabaseError, NoKernel. An interrupted call (KeyboardInterrupt) leaves
    a job that `tuner resume` continues.
    """
    workload = as_workload(
        source, shapes=shapes, constants=constants, numerics=numerics, pattern=pattern
    )
    given = {
        "trials": trials,
        "seconds": seconds,
        "threads": threads,
        "target": target,
        "strategy": strategy,
        "seed": seed,
        "cache": cache,
        "objective": objective,
        "db": db,
    }
    settings = load_settings(given, given_as="argument {}").values
    machine = checked_target(settings, elsewhere=True)
    database = open_database(settings.db)
    try:
        job = submit(database, [workload], with_limits(database, machine), settings)
        report = run(database, job.id, settings, observer=observer)
        (result,) = results(database, job.id)
        if result.kernel is not None and settings.goal.on_idle_machine:
            measure_idle(
                database,
                workload,
                machine.key,
                settings.threads,
                settings.goal.objectives,
                settings,
            )
            (result,) = results(database, job.id)
    finally:
        database.close()
    if result.kernel is None:
        raise NoKernel(
            f"job {job.id} of {workload.spec} {report.job.state} without a kernel: "
            f"{result.error or report.job.error}"
        )
    return platform_of(result.target).open(
        stored=result.kernel, workload=workload, artifacts=ArtifactStore(settings.artifacts)
    )
