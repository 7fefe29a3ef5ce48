"""Runs kernels on callers' arrays, in a sandboxed child process.

Runs are claimed from the database one after the other. They stay on the builders' cores,
so that they disturb no timing; a kernel tuned for more threads runs with fewer.
"""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from math import prod
from pathlib import Path

import numpy as np

from tuner.db import artifacts, kernels, runs, workloads
from tuner.db.engine import Database
from tuner.db.errors import StaleLease
from tuner.db.kernels import Kernel
from tuner.db.runs import Run
from tuner.errors import DatabaseError, TunerError, UsageError
from tuner.export.artifacts import ArtifactError, ArtifactStore
from tuner.measure.assignment import Assignment, Lane
from tuner.measure.execution import Execution
from tuner.measure.outcome import FailureKind
from tuner.measure.runner import RunnerOptions, RunnerProcess
from tuner.runtime.loader import NUMPY
from tuner.workers.jobs.delivery import check_signature
from tuner.workload.expression import Expression
from tuner.workload.spec import from_document
from tuner.workload.workload import Workload

log = logging.getLogger("tuner.runs")

IDLE_S = 0.05  # between two looks at an empty queue
MAX_OUTPUT_BYTES = 256 * 2**20  # of all outputs together
MARGIN_S = 60.0  # of a run's lease beyond its timeout: reading and writing arrays, a busy machine


class OutputTooLarge(UsageError):
    """The kernel's outputs are larger than a run may answer with."""

    code = "output_too_large"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    artifacts: Path  # folder of the artifact store
    target: str  # key: kernels of other machines are left to those
    cores: tuple[int, ...]  # that runs may use
    owner: str  # who holds the leases
    timeout_s: float = 20.0  # of one call, loading included
    memory_bytes: int = 8 * 2**30
    # artifacts must be signed by its holder; None: signatures are not checked
    public_key: str | None = None


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
            if not runs.waiting(session, lifetime=lifetime, targets=[options.target]):
                return False
        with self._database.write("run-claim") as session:
            run = runs.claim_next(
                session, owner=options.owner, lifetime=lifetime, targets=[options.target]
            )
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

    def _answer(self, run: Run) -> tuple[str | None, str | None]:
        """The digest of the outputs, or None and the reason."""
        kernel, workload, symbol = self._loaded(run)
        check_size(workload.expression)
        cores, options = self._options.cores, self._options
        assignment = Assignment(
            workload=workload,
            lane=Lane(name="runs", cores=cores),
            threads=min(kernel.threads, len(cores)),
            memory_bytes=options.memory_bytes,
        )
        with tempfile.TemporaryDirectory(prefix="tuner-run-") as scratch:
            outputs = Path(scratch) / "outputs.npz"
            execution = Execution(
                library=str(self._store.verify(kernel.artifact)),
                symbol=symbol,
                inputs=str(self._store.verify(run.input)),
                outputs=str(outputs),
                timeout_s=options.timeout_s,
            )
            failed = self._process.execute(assignment, execution)
            if failed is not None and failed.kind is FailureKind.INFRASTRUCTURE:
                # Again in a fresh process, since the last one was lost.
                failed = self._process.execute(assignment, execution)
            if failed is not None:
                return None, f"{failed.kind}: {failed.message}"
            return self._store.put_file(outputs), None

    def _loaded(self, run: Run) -> tuple[Kernel, Workload, str]:
        """The kernel, its workload and its symbol, after a check of the signature."""
        with self._database.read() as session:
            kernel = kernels.get(session, run.kernel)
            workload = from_document(workloads.get(session, kernel.workload).document)
            symbol = kernels.schedule(session, kernel.id).get("symbol")
            signed = artifacts.get(session, kernel.artifact).signature
        if self._options.public_key is not None:
            check_signature(kernel.artifact, signed, self._options.public_key)
        if not isinstance(symbol, str):
            raise UsageError(
                f"kernel {kernel.id} names no function of its library; tune its workload again"
            )
        return kernel, workload, symbol


def check_size(expression: Expression) -> None:
    """Raises OutputTooLarge for a kernel whose outputs are too large for a run."""
    tensors = [expression.tensor(name) for name in expression.outputs]
    size_bytes = sum(
        prod(tensor.shape) * np.dtype(NUMPY[tensor.dtype]).itemsize for tensor in tensors
    )
    if size_bytes > MAX_OUTPUT_BYTES:
        raise OutputTooLarge(
            f"the outputs have {size_bytes} bytes, a run answers with {MAX_OUTPUT_BYTES} at most; "
            "download the artifact and call it where its arrays are"
        )
