"""Kernels of a region by a search on a service; they are compiled here, from its configs.

So no machine code is taken from a service, and it may have another machine: its configs
are then only good guesses. A kernel whose config has no schedule here gets the default one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import Any

from tuner.api.schemas import KernelAnswer
from tuner.client import Client
from tuner.errors import IllegalSchedule, TunerError, UsageError
from tuner.export.kernel import ExportKernel, TargetName, arguments_of
from tuner.lowering.compiler import BuildError, Compiled, compile_kernel
from tuner.models.graph import Graph
from tuner.models.graph_archive import packed
from tuner.models.tuning.numerics import NumericsPolicy
from tuner.settings import Settings
from tuner.spaces.program.in_place import overwritable
from tuner.target.target import Target
from tuner.workers.jobs.orchestrator import Interrupt
from tuner.workers.jobs.progress import ModelRound, Observer
from tuner.workload.workload import Workload

MEDIA_TYPE = "application/x-tuner-graph"
_WATCHED_S = 0.5  # between two looks at whether to stop


class ServiceNotDone(TunerError):
    """A service's job of a region ended without kernels."""

    code = "no_kernel"


def kernels_by_service(
    traced: Graph,
    fused: Graph,
    policy: NumericsPolicy,
    target: Target,
    settings: Settings,
    observer: Observer,
    interrupt: Interrupt,
) -> dict[str, ExportKernel]:
    """The kernels of all workloads of the graph, by key.

    Waits until the service has searched them, and takes its job back where `interrupt`
    says to stop. Raises ServiceNotDone, and what a client raises.
    """
    workloads = {part.workload.key: part.workload for part in policy.workloads(fused, target)}
    with Client(settings.server, key=settings.token.get_secret_value() or None) as client:
        kernels = _searched(client, traced, len(workloads), settings, observer, interrupt)
    return {
        key: _compiled(workload, kernels.get(key), target, settings.threads)
        for key, workload in workloads.items()
    }


def _searched(
    client: Client,
    traced: Graph,
    count: int,
    settings: Settings,
    observer: Observer,
    interrupt: Interrupt,
) -> Mapping[str, KernelAnswer]:
    """The service's kernels, by the keys of their workloads."""
    content = packed(traced)
    options: dict[str, str | int | float | None] = {
        "threads": settings.threads,
        "trials": settings.trials,
        "seconds": settings.seconds,
        "strategy": settings.strategy,
        "seed": settings.seed,
        "numerics": settings.numerics,
        "max_error": settings.max_error,
    }
    given = {name: value for name, value in options.items() if value is not None}
    # Processes that want the same region at once share a job.
    shared = sha256(repr(sorted(given.items())).encode() + content).hexdigest()
    job = client.submit_model(content, idempotency_key=shared, media_type=MEDIA_TYPE, **given)
    if job.state in ("cancelling", "cancelled") and client.wait(job.id).state == "cancelled":
        job = client.resume(job.id)  # a process that wanted it has ended, perhaps by Ctrl-C
    done = 0
    with _cancelled_at(interrupt, client, job.id):
        for event in client.events(job.id):
            if event.kind == "trial":
                done += 1
                observer(
                    ModelRound(
                        trials=done, budget=settings.trials * count, searched=count, kernels=count
                    )
                )
    job = client.job(job.id)
    if job.state != "succeeded":
        raise ServiceNotDone(
            f"job {job.id} of {settings.server} {job.state}: {job.error or 'it was stopped'}"
        )
    return {task.workload.key: client.kernel(task.kernel) for task in job.tasks if task.kernel}


@contextmanager
def _cancelled_at(interrupt: Interrupt, client: Client, job: str) -> Iterator[None]:
    """Takes a job back once `interrupt` says to stop, which ends its events. A job that waits
    for others has none for hours."""
    left = threading.Event()

    def watch() -> None:
        while interrupt() is None:
            if left.wait(_WATCHED_S):
                return
        with suppress(TunerError):  # it is over, or the service is gone
            client.cancel(job)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        left.set()
        watcher.join()


def _compiled(
    workload: Workload, kernel: KernelAnswer | None, target: Target, threads: int
) -> ExportKernel:
    made = _made(workload, kernel.config if kernel else None, target, threads)
    return ExportKernel(
        workload_key=workload.key,
        constants=workload.constants,
        numerics=workload.numerics,
        arguments=arguments_of(workload.expression),
        target=TargetName.of(target),
        isa=target.isa,
        threads=threads,
        object_code=made.object_code,
        tvm_symbol=f"__tvm_ffi_{made.symbol}",
        prepack=made.prepack,
        overwritable=overwritable(made.program),
        # The service's, on its machine; the caller races the whole region here.
        median_s=kernel.median_s if kernel else 0.0,
        ci95_s=kernel.ci95_s if kernel else (0.0, 0.0),
        verified=False,
        max_rel_error=kernel.max_rel_error if kernel else 0.0,
    )


def _made(
    workload: Workload, config: Mapping[str, Any] | None, target: Target, threads: int
) -> Compiled:
    symbol = f"kernel_{workload.key[:16]}"
    for chosen in (config or None, None):
        try:
            return compile_kernel(
                workload=workload, target=target, threads=threads, config=chosen, symbol=symbol
            )
        except (IllegalSchedule, BuildError, UsageError):  # a knob or value of another space
            if chosen is None:
                raise
    raise AssertionError("the default schedule is compiled or raises")
