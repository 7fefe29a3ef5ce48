"""Runs kernels and models on callers' arrays, in a sandboxed child process.

Runs are claimed from the database one after the other. They stay on the builders' cores,
so that they disturb no timing; what was tuned for more threads runs with fewer. Those of
a GPU's kernels take turns with what is timed on it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from math import prod
from pathlib import Path

import numpy as np

from tuner.db import artifacts, jobs, kernels, runs, targets, tasks, workloads
from tuner.db.engine import Database, Session
from tuner.db.errors import StaleLease
from tuner.db.runs import Run
from tuner.errors import DatabaseError, TunerError, UsageError
from tuner.export.archive import library_in
from tuner.export.artifacts import ArtifactError, ArtifactStore
from tuner.measure.assignment import Lane, Placement
from tuner.measure.execution import Execution
from tuner.measure.gpu.caller import execute
from tuner.measure.gpu.visible import VisibleGpu
from tuner.measure.outcome import Failed, FailureKind
from tuner.measure.runner import RunnerOptions, RunnerProcess
from tuner.models.description import from_json
from tuner.runtime.signature import NUMPY
from tuner.scratch import temporary_folder
from tuner.target.capability import serves
from tuner.target.target import Target
from tuner.workers.jobs.delivery import check_signature
from tuner.workers.jobs.model_jobs import NAME
from tuner.workload.bounded import BoundedExtents
from tuner.workload.expression import Tensor
from tuner.workload.spec import from_document

log = logging.getLogger("tuner.runs")

IDLE_S = 0.05  # between two looks at an empty queue
MAX_OUTPUT_BYTES = 256 * 2**20  # of all outputs together
MARGIN_S = 60.0  # of a run's lease beyond its timeout: reading and writing arrays, a busy machine


class OutputTooLarge(UsageError):
    """The outputs are larger than a run may answer with."""

    code = "output_too_large"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How runs of promoted kernels are carried out, and on what."""

    artifacts: Path  # folder of the artifact store
    target: str  # key: what was made for other machines is left to those
    cores: tuple[int, ...]  # that runs may use
    gpus: tuple[VisibleGpu, ...] = ()  # that runs may use
    owner: str  # who holds the leases
    timeout_s: float = 20.0  # of one call, loading included
    memory_bytes: int = 8 * 2**30
    # artifacts must be signed by its holder; None: signatures are not checked
    public_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loadable:
    """A function that a run calls, in a library whose hash and signature were checked."""

    library: Path
    symbol: str
    takes: tuple[Tensor, ...]
    gives: tuple[Tensor, ...]
    threads: int  # that it was tuned for
    target: Target
    bounded: Mapping[str, BoundedExtents] = field(default_factory=dict)


class RunServer:
    """Serves the queue of runs with one runner process. Not thread-safe; `serve` closes it."""

    def __init__(self, database: Database, options: RunOptions) -> None:
        self._database = database
        self._options = options
        self._store = ArtifactStore(options.artifacts)
        self._process = RunnerProcess()

    def serve(
        self, stop: threading.Event, *, on_error: Callable[[str], None] = lambda text: None
    ) -> None:
        """Serves until `stop` is set; the run in progress is finished first."""
        try:
            while not stop.is_set():
                served = False
                try:
                    served = self.serve_one()
                # A failed run must not end the service: its lease runs out, and it is
                # claimed again.
                except Exception as error:
                    on_error(f"{type(error).__name__}: {error}")
                    stop.wait(1.0)
                if not served:
                    stop.wait(IDLE_S)
        finally:
            self._process.close()

    def serve_one(self) -> bool:
        """Claims a run and answers it; returns whether there was one."""
        options = self._options
        lifetime = timedelta(
            seconds=options.timeout_s + RunnerOptions().arrays_timeout_s + MARGIN_S
        )
        with self._database.read() as session:
            served = self._served(session)
            if not runs.waiting(session, lifetime=lifetime, targets=served):
                return False
        with self._database.write("run-claim") as session:
            run = runs.claim_next(session, owner=options.owner, lifetime=lifetime, targets=served)
        if run is None:
            return False
        try:
            output, error = self._answer(run)
        except DatabaseError:
            raise
        except (ArtifactError, OSError) as failed:
            log.error("run %s: %s", run.id, failed)  # it names folders, which is not for clients
            output, error = (
                None,
                "infrastructure: the machine that runs kernels could not read or write its files",
            )
        except (TunerError, MemoryError) as refused:
            output, error = None, str(refused)
        # With a stale lease, another worker answers it by now.
        with suppress(StaleLease), self._database.write("run-end") as session:
            if output is not None:
                size_bytes = self._store.path(output).stat().st_size
                artifacts.remember(session, sha256=output, size_bytes=size_bytes, kind="output")
            runs.finish(session, run.id, run.fence, output=output, error=error)
        return True

    def _served(self, session: Session) -> tuple[str, ...]:
        """Keys of the targets whose runs are answered here."""
        stored = targets.list_all(session) if self._options.gpus else ()
        every = (gpu.target for gpu in self._options.gpus)
        machines = {machine.key: machine for machine in every}.values()
        on_gpus = (each.key for each in stored if any(serves(m, each) for m in machines))
        return self._options.target, *on_gpus

    def _answer(self, run: Run) -> tuple[str | None, str | None]:
        """The digest of the outputs, or None and the reason."""
        options = self._options
        with temporary_folder("tuner-scratch-call-") as scratch:
            match run.of.kind:
                case "kernel":
                    loadable = self._kernel(run.of.id)
                case "model":
                    loadable = self._model(run.of.id, scratch)
            check_size(loadable.gives)
            outputs = scratch / "outputs.npz"
            execution = Execution(
                library=str(loadable.library),
                symbol=loadable.symbol,
                takes=loadable.takes,
                gives=loadable.gives,
                inputs=str(self._store.verify(run.input)),
                outputs=str(outputs),
                bounded=loadable.bounded,
                timeout_s=options.timeout_s,
            )
            if loadable.target.on_device:
                failed = self._on_gpu(loadable.target, execution)
            else:
                failed = self._on_cores(loadable.threads, execution)
            if failed is not None:
                return None, f"{failed.kind}: {failed.message}"
            return self._store.put_file(outputs), None

    def _on_cores(self, threads: int, execution: Execution) -> Failed | None:
        cores = self._options.cores
        placement = Placement(
            lane=Lane(name="runs", cores=cores),
            threads=min(threads, len(cores)),
            memory_bytes=self._options.memory_bytes,
        )
        failed = self._process.execute(placement, execution)
        if failed is not None and failed.kind is FailureKind.INFRASTRUCTURE:
            # Again in a fresh process, since the last one was lost.
            failed = self._process.execute(placement, execution)
        return failed

    def _on_gpu(self, target: Target, execution: Execution) -> Failed | None:
        """On the first GPU that serves the target."""
        gpu = next(gpu for gpu in self._options.gpus if serves(gpu.target, target))
        arrays_timeout_s = RunnerOptions().arrays_timeout_s
        return execute(gpu.lane, execution, arrays_timeout_s=arrays_timeout_s)

    def _kernel(self, kernel_id: str) -> Loadable:
        with self._database.read() as session:
            kernel = kernels.get(session, kernel_id)
            target = targets.get(session, kernel.target)
            workload = from_document(workloads.get(session, kernel.workload).document)
            symbol = kernels.schedule(session, kernel.id).get("symbol")
            signed = artifacts.get(session, kernel.artifact).signature
        self._check_signature(kernel.artifact, signed)
        if not isinstance(symbol, str):
            raise UsageError(
                f"kernel {kernel.id} names no function of its library; tune its workload again"
            )
        expression = workload.expression
        return Loadable(
            library=self._store.verify(kernel.artifact),
            symbol=symbol,
            takes=expression.inputs,
            gives=tuple(expression.tensor(name) for name in expression.outputs),
            threads=kernel.threads,
            target=target,
        )

    def _model(self, job_id: str, folder: Path) -> Loadable:
        """The function of a model's job; its library is unpacked into the folder."""
        with self._database.read() as session:
            job = jobs.get(session, job_id)
            target = targets.get(session, job.target)
            archive = str(job.settings[tasks.LIBRARY])
            signed = artifacts.get(session, archive).signature
        self._check_signature(archive, signed)
        library = folder / "model.so"
        library.write_bytes(library_in(self._store.get(archive), NAME))
        description = from_json(self._store.get(str(job.settings[tasks.DESCRIPTION])))
        return Loadable(
            library=library,
            symbol=f"{NAME}_run",
            takes=description.inputs,
            gives=description.outputs,
            bounded=description.bounded,
            threads=job.threads,
            target=target,
        )

    def _check_signature(self, digest: str, signed: str | None) -> None:
        if self._options.public_key is not None:
            check_signature(digest, signed, self._options.public_key)


def check_size(tensors: Sequence[Tensor]) -> None:
    """Raises OutputTooLarge for outputs that are too large for a run."""
    size_bytes = sum(
        prod(tensor.shape) * np.dtype(NUMPY[tensor.dtype]).itemsize for tensor in tensors
    )
    if size_bytes > MAX_OUTPUT_BYTES:
        raise OutputTooLarge(
            f"the outputs have {size_bytes} bytes, a run answers with {MAX_OUTPUT_BYTES} at most; "
            "download the artifact and call it where its arrays are"
        )
