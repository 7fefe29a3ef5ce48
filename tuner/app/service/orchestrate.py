"""The orchestrator process of `tuner serve`: `python -m tuner.app.service.orchestrate`.

Its settings come from the environment. It ends on SIGTERM, and when its standard input
is closed because the process that started it is dead. A running job then goes back to
the queue. Three threads run kernels on callers' arrays, delete old data, and have served
kernels raced again.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from tuner.app.devices import device_lanes
from tuner.app.jobs.abandoned import take_back
from tuner.app.jobs.lifecycle import orchestrator_options
from tuner.app.jobs.retention import kept_by, prune_now_and_then
from tuner.app.machine import checked_target, seen_gpus
from tuner.app.service.reraces import race_now_and_then
from tuner.db.engine import open_database
from tuner.export.artifacts import ArtifactStore
from tuner.export.signature import signer_at
from tuner.measure.gpu.visible import VisibleGpu
from tuner.settings import Settings, load_settings
from tuner.target.detect import detect_cpu
from tuner.workers.fleet.machine import plan_machine, usable_nodes
from tuner.workers.jobs.orchestrator import Orchestrator, OrchestratorOptions
from tuner.workers.jobs.runs import RunOptions, RunServer


def main() -> None:
    """Runs jobs until the process is told to end."""
    settings = load_settings().values
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: stop.set())
    threading.Thread(target=_watch_owner, args=(stop,), daemon=True, name="owner").start()
    database = open_database(settings.db, create=False)
    try:
        target = checked_target(settings, on_devices=True)
        devices = device_lanes(settings, target)
        gpus = seen_gpus(target)
        options = orchestrator_options(settings, tuple(gpu.lane for gpu in gpus), devices)
        # Only where races follow can a canary win them.
        if settings.rerace_days and not settings.device:
            options = replace(options, canary_races=settings.canary_races)
        take_back(database, owner=options.owner)
        runs = RunServer(database, _run_options(settings, options, gpus))
        with ThreadPoolExecutor(3, "beside") as beside:
            served = beside.submit(runs.serve, stop, on_error=_say("runs"))
            # If it fails, the whole service ends.
            served.add_done_callback(lambda done: stop.set())
            store = ArtifactStore(settings.artifacts)
            beside.submit(
                prune_now_and_then, database, kept_by(settings), store, stop, _say("retention")
            )
            beside.submit(race_now_and_then, database, target.key, settings, stop, _say("reraces"))
            try:
                Orchestrator(database, target, options).serve(stop, on_error=_say("orchestrator"))
            finally:
                stop.set()
            served.result()
    finally:
        database.close()


def _run_options(
    settings: Settings, options: OrchestratorOptions, gpus: tuple[VisibleGpu, ...]
) -> RunOptions:
    """Options for runs of kernels, on this machine's CPU and on the GPUs that it measures on."""
    plan = plan_machine(
        usable_nodes(), threads=1, declared=settings.lanes, builders=settings.builders
    )
    return RunOptions(
        artifacts=settings.artifacts,
        target=detect_cpu().key,
        cores=plan.builder_cores,
        gpus=gpus,
        owner=options.owner,
        timeout_s=settings.run_timeout_s,
        memory_bytes=options.limits.memory_bytes,
        public_key=None
        if options.signing_key is None
        else signer_at(options.signing_key).public_key,
    )


def _say(who: str) -> Callable[[str], None]:
    """Writes lines that begin with `who` to standard error."""
    return lambda text: print(f"{who}: {text}", file=sys.stderr, flush=True)


def _watch_owner(stop: threading.Event) -> None:
    """Sets `stop` when standard input is closed."""
    sys.stdin.read()
    stop.set()


if __name__ == "__main__":
    main()
