"""The client of a service: typed calls over HTTP, with retries.

A submission carries an Idempotency-Key, so repeating it cannot make a second job.
"""

from __future__ import annotations

import hashlib
import io
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self
from uuid import uuid4

import httpx
import numpy as np
from numpy.typing import NDArray

from tuner.api.coverage_schemas import CoverageAnswer
from tuner.api.entry_schemas import EntryAnswer
from tuner.api.estimate_schemas import EstimatesAnswer
from tuner.api.lookup_schemas import LookupAnswer
from tuner.api.model_schemas import ModelAnswer
from tuner.api.proposal_schemas import ProposalsAnswer, SpaceAnswer
from tuner.api.race_schemas import RacesAnswer, RegressionAnswer
from tuner.api.schemas import (
    EventAnswer,
    HealthAnswer,
    JobAnswer,
    KernelAnswer,
    OperatorAnswer,
    RollbackAnswer,
    ScheduleAnswer,
    SourceAnswer,
    TargetAnswer,
    TrialAnswer,
    WorkerAnswer,
)
from tuner.connection import (
    Connection,
    Filter,
    NoMoreEvents,
    Retries,
    ServiceError,
    ServiceUnreachable,
)
from tuner.measure.cache import WARM, Cache
from tuner.measure.objective import FASTEST
from tuner.search.strategies import DEFAULT_STRATEGY, JobStrategy

__all__ = ["Client", "Download", "Retries", "ServiceError", "ServiceUnreachable"]

HTTP_NOT_FOUND = 404
Workload = Mapping[str, Any]  # {"op", "params"} or {"notation", "shapes"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """A kernel's artifact, with its hash checked."""

    content: bytes
    sha256: str
    is_archive: bool  # of an exported library; else the bare library that was measured
    signature: str | None  # Ed25519 over the 64 hex digits of the hash, base64


class Client:
    """Calls one service. Close it, or use it in a `with` block. It is thread-safe."""

    def __init__(
        self,
        server: str,
        *,
        key: str | None = None,
        timeout_s: float = 60.0,
        retries: Retries | None = None,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._connection = Connection(
            server,
            key=key,
            timeout_s=timeout_s,
            retries=retries or Retries(),
            transport=transport,
            sleep=sleep,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    # jobs

    def submit(
        self,
        workloads: Sequence[Workload] | Workload,
        *,
        target: str | None = None,
        threads: int = 1,
        trials: int = 256,
        seconds: float | None = None,
        strategy: JobStrategy = DEFAULT_STRATEGY,
        seed: int = 0,
        priority: int = 0,
        improve: bool = False,
        cache: Cache = WARM,
        objective: str = FASTEST.text,
        idempotency_key: str | None = None,
    ) -> JobAnswer:
        body: dict[str, Any] = {
            "workloads": [workloads] if isinstance(workloads, Mapping) else list(workloads),
            "target": target,
            "threads": threads,
            "trials": trials,
            "seconds": seconds,
            "strategy": strategy,
            "seed": seed,
            "priority": priority,
            "improve": improve,
            # Left out as they mostly are, so that an older service takes the request too.
            "cache": None if cache == WARM else cache,
            "objective": None if objective == FASTEST.text else objective,
        }
        given = {name: value for name, value in body.items() if value is not None}
        headers = {"Idempotency-Key": idempotency_key or uuid4().hex}
        return self._connection.model(JobAnswer, "POST", "/jobs", json=given, headers=headers)

    def job(self, job: str) -> JobAnswer:
        return self._connection.model(JobAnswer, "GET", f"/jobs/{job}")

    def jobs(self, **filters: Filter) -> Iterator[JobAnswer]:
        """All jobs that the key may see, the newest first; filters as of `GET /v1/jobs`."""
        return self._connection.pages(JobAnswer, "/jobs", filters)

    def trials(self, job: str, **filters: Filter) -> Iterator[TrialAnswer]:
        return self._connection.pages(TrialAnswer, f"/jobs/{job}/trials", filters)

    def cancel(self, job: str) -> JobAnswer:
        return self._connection.model(JobAnswer, "POST", f"/jobs/{job}/cancel")

    def resume(
        self, job: str, *, trials: int | None = None, seconds: float | None = None
    ) -> JobAnswer:
        given = {
            name: value
            for name, value in (("trials", trials), ("seconds", seconds))
            if value is not None
        }
        return self._connection.model(JobAnswer, "POST", f"/jobs/{job}/resume", json=given)

    def events(self, job: str, *, after: int = 0) -> Iterator[EventAnswer]:
        """The job's events numbered above `after`, in order, until the job is finished.

        A dropped connection is resumed after the last event. Raises ServiceUnreachable
        when it drops too often without a new event.
        """
        failures = 0
        while True:
            before = after
            try:
                # A service that shuts down ends its streams, too: only its word is an end.
                for event in self._connection.stream(job, after):
                    failures, after = 0, event.sequence
                    yield event
            except NoMoreEvents:
                return
            except (httpx.TransportError, ServiceUnreachable) as error:
                failures += 1
                if failures >= self._connection.retries.attempts:
                    raise ServiceUnreachable(
                        f"{self._connection.address} dropped the stream {failures} times: {error}"
                    ) from error
            if failures or after == before:
                self._connection.pause(failures)

    def wait(self, job: str) -> JobAnswer:
        """Blocks until the job is finished."""
        for _ in self.events(job, after=self.job(job).last_event):
            pass
        return self.job(job)

    # kernels

    def kernels(self, **filters: Filter) -> Iterator[KernelAnswer]:
        return self._connection.pages(KernelAnswer, "/kernels", filters)

    def kernel(self, kernel: str) -> KernelAnswer:
        return self._connection.model(KernelAnswer, "GET", f"/kernels/{kernel}")

    def schedule(self, kernel: str) -> ScheduleAnswer:
        return self._connection.model(ScheduleAnswer, "GET", f"/kernels/{kernel}/schedule")

    def source(self, kernel: str) -> SourceAnswer:
        return self._connection.model(SourceAnswer, "GET", f"/kernels/{kernel}/source")

    def artifact(self, kernel: str) -> bytes:
        """The compiled kernel as an archive of an exported library, with its hash checked."""
        return self.download(kernel).content

    def download(self, kernel: str) -> Download:
        """The kernel's artifact with its kind and signature.

        Raises ServiceError where the bytes do not match the service's hash.
        """
        response = self._connection.call("GET", f"/kernels/{kernel}/artifact")
        digest = hashlib.sha256(response.content).hexdigest()
        if response.headers.get("etag") != f'"{digest}"':
            detail = f"the artifact of {kernel} arrived damaged: its SHA-256 is {digest}"
            raise ServiceError(502, {"detail": detail, "code": "damaged"})
        return Download(
            content=response.content,
            sha256=digest,
            is_archive=response.headers.get("content-type", "").startswith("application/gzip"),
            signature=response.headers.get("x-signature-ed25519"),
        )

    def races(self, kernel: str) -> RacesAnswer:
        """The kernel's races since it was promoted, in order of time."""
        return self._connection.model(RacesAnswer, "GET", f"/kernels/{kernel}/races")

    def regressions(self, **filters: Filter) -> Iterator[RegressionAnswer]:
        """What promoted kernels lost, the newest first; by default what is raised."""
        return self._connection.pages(RegressionAnswer, "/regressions", filters)

    def promote(self, kernel: str) -> KernelAnswer:
        """Promotes a canary in place of the champion; needs the admin scope."""
        return self._connection.model(KernelAnswer, "POST", f"/kernels/{kernel}/promote")

    def rollback(self, kernel: str) -> RollbackAnswer:
        """Takes a promoted kernel back and promotes the one before it; needs the admin scope."""
        return self._connection.model(RollbackAnswer, "POST", f"/kernels/{kernel}/rollback")

    def run(
        self, kernel: str, inputs: Mapping[str, NDArray[Any]], *, timeout_s: float = 300.0
    ) -> dict[str, NDArray[Any]]:
        """Runs a kernel on `inputs`, by name, and returns its outputs by name.

        bfloat16 travels as uint16. Raises ServiceUnreachable after `timeout_s`.
        """
        return self._run(f"/kernels/{kernel}/run", inputs, timeout_s)

    def _run(
        self, path: str, inputs: Mapping[str, NDArray[Any]], timeout_s: float
    ) -> dict[str, NDArray[Any]]:
        deadline = time.monotonic() + timeout_s
        # A repeated run computes the same and leaves nothing behind, so it is safe to repeat.
        response = self._connection.call(
            "POST",
            path,
            content=npz_of(inputs),
            headers={"Content-Type": "application/x-npz"},
        )
        while response.status_code == 202:
            if time.monotonic() > deadline:
                where = response.headers["location"]
                raise ServiceUnreachable(
                    f"{path} has not answered within {timeout_s:g} s; its result will be at {where}"
                )
            self._connection.sleep(min(1.0, max(0.0, deadline - time.monotonic())))
            response = self._connection.call(
                "GET", response.headers["location"].removeprefix("/v1")
            )
        with np.load(io.BytesIO(response.content), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}

    def lookup(
        self,
        workload: Workload,
        *,
        target: str | None = None,
        threads: int | Literal["auto"] | None = None,
        prepare: bool = True,
        cache: Cache = WARM,
        objective: str = FASTEST.text,
        within: float | None = None,
    ) -> LookupAnswer:
        """The kernel of a workload: the fastest, or the best by `objective`.

        With two objectives and a comma between them, `front` has all that none beats in
        both. `within`: the share by which it may take longer than the fastest.
        """
        body: dict[str, Any] = {
            "workload": workload,
            "threads": threads,
            "prepare": prepare,
            "target": target,
            "cache": None if cache == WARM else cache,
            "objective": None if objective == FASTEST.text else objective,
            "within": within,
        }
        given = {name: value for name, value in body.items() if value is not None}
        return self._connection.model(LookupAnswer, "POST", "/lookup", json=given)

    def space(self, job: str, *, workload: int = 0) -> SpaceAnswer:
        """What the configs of a job may hold."""
        return self._connection.model(
            SpaceAnswer, "GET", f"/jobs/{job}/space", params={"workload": workload}
        )

    def proposals(self, job: str, *, workload: int = 0, first: int = 0) -> ProposalsAnswer:
        """What was proposed to a job of the strategy `external` until now."""
        return self._connection.model(
            ProposalsAnswer,
            "GET",
            f"/jobs/{job}/proposals",
            params={"workload": workload, "first": first},
        )

    def propose(
        self,
        job: str,
        configs: Sequence[Mapping[str, Any]],
        *,
        first: int,
        workload: int = 0,
        close: bool = False,
    ) -> ProposalsAnswer:
        """Adds configs from number `first` on; sent again, they are taken once."""
        body = {"workload": workload, "first": first, "configs": list(configs), "close": close}
        return self._connection.model(ProposalsAnswer, "POST", f"/jobs/{job}/proposals", json=body)

    def estimates(
        self, workloads: Sequence[Workload], *, target: str | None = None, threads: int = 1
    ) -> EstimatesAnswer:
        """Times of workloads, at most 10,000, without tuning them."""
        body: dict[str, Any] = {"workloads": list(workloads), "threads": threads}
        return self._connection.model(
            EstimatesAnswer,
            "POST",
            "/estimates",
            json=body if target is None else {**body, "target": target},
        )

    def coverage(self, job: str) -> CoverageAnswer:
        """The recorded calls of a job of `tuner tune --trace`, beside the kernels of today."""
        return self._connection.model(CoverageAnswer, "GET", f"/jobs/{job}/coverage")

    def learn(
        self,
        workloads: Sequence[Workload],
        *,
        seconds: float,
        weights: Sequence[float] | None = None,
        target: str | None = None,
        threads: int = 1,
        trials: int = 256,
    ) -> JobAnswer:
        """Queues a job that tunes what makes the estimates of `workloads` surest."""
        body: dict[str, Any] = {
            "workloads": list(workloads),
            "seconds": seconds,
            "weights": None if weights is None else list(weights),
            "threads": threads,
            "trials": trials,
        }
        return self._connection.model(
            JobAnswer,
            "POST",
            "/estimates/jobs",
            json=body if target is None else {**body, "target": target},
            headers={"Idempotency-Key": uuid4().hex},
        )

    def submit_model(
        self,
        model: bytes,
        *,
        idempotency_key: str | None = None,
        media_type: str = "application/octet-stream",
        **options: str | int | float,
    ) -> JobAnswer:
        """Submits an ONNX file, or what `media_type` names, as one job of its kernels.

        `options` are the query parameters of `POST /v1/models`.
        """
        headers = {
            "Idempotency-Key": idempotency_key or uuid4().hex,
            "Content-Type": media_type,
        }
        return self._connection.model(
            JobAnswer, "POST", "/models", content=model, headers=headers, params=options
        )

    def model(self, job: str) -> ModelAnswer:
        """What the model of a job takes and gives, and its kernels."""
        return self._connection.model(ModelAnswer, "GET", f"/models/{job}")

    def run_model(
        self, job: str, inputs: Mapping[str, NDArray[Any]], *, timeout_s: float = 300.0
    ) -> dict[str, NDArray[Any]]:
        """Runs the model of a finished job on `inputs`, by the names of its file.

        Returns its outputs by name. bfloat16 travels as uint16. Raises
        ServiceUnreachable after `timeout_s`.
        """
        return self._run(f"/models/{job}/run", inputs, timeout_s)

    # the service

    def put_entry(self, store: str, key: str, content: str) -> EntryAnswer:
        """Keeps another tuner's text under a key of its own."""
        return self._connection.model(
            EntryAnswer, "PUT", f"/stores/{store}/{key}", json={"content": content}
        )

    def entry(self, store: str, key: str) -> EntryAnswer | None:
        """The text that was last put under the key; None where there is none."""
        try:
            return self._connection.model(EntryAnswer, "GET", f"/stores/{store}/{key}")
        except ServiceError as error:
            if error.status == HTTP_NOT_FOUND:
                return None
            raise

    def entries(self, store: str, **filters: Filter) -> Iterator[EntryAnswer]:
        """All entries of a store, the newest first."""
        return self._connection.pages(EntryAnswer, f"/stores/{store}", filters)

    def workers(self) -> Iterator[WorkerAnswer]:
        return self._connection.pages(WorkerAnswer, "/workers", {})

    def targets(self) -> Iterator[TargetAnswer]:
        return self._connection.pages(TargetAnswer, "/targets", {})

    def operators(self) -> Iterator[OperatorAnswer]:
        return self._connection.pages(OperatorAnswer, "/operators", {})

    def health(self) -> HealthAnswer:
        """Raises ServiceError while the service is not ready."""
        return self._connection.model(HealthAnswer, "GET", "/health/ready")


def npz_of(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """The arrays as `.npz`, under any names: `numpy.savez` takes none called `file`."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array, order="C"), allow_pickle=False)
    return buffer.getvalue()
