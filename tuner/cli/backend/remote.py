"""The roles played by a service, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from tuner.api.race_schemas import RacesAnswer, RegressionAnswer
from tuner.api.schemas import (
    EventAnswer,
    HealthAnswer,
    JobAnswer,
    KernelAnswer,
    OperatorAnswer,
    RollbackAnswer,
    TargetAnswer,
    TrialAnswer,
    WorkerAnswer,
)
from tuner.api.targets import choose
from tuner.cli.backend.download import unpack
from tuner.cli.backend.roles import LAST, Backend, Exported, ExportRequest, JobRequest
from tuner.client import Client
from tuner.db.errors import NotFound
from tuner.errors import UsageError
from tuner.measure.objective import FASTEST
from tuner.settings import BUILT_IN, LoadedSettings, Settings
from tuner.target.document import limits_from_document
from tuner.target.target import Target

if TYPE_CHECKING:
    from tuner.api.estimate_schemas import EstimatesAnswer
    from tuner.api.lookup_schemas import LookupAnswer
    from tuner.cli.progress import TuningDisplay
    from tuner.workload.workload import Workload


@contextmanager
def connected(settings: Settings) -> Iterator[Client]:
    """A client of the settings' service, closed after the block."""
    with Client(settings.server, key=settings.token.get_secret_value() or None) as client:
        yield client


@contextmanager
def remote_backend(loaded: LoadedSettings) -> Iterator[Backend]:
    """The backend on the settings' service."""
    with connected(loaded.values) as client:
        jobs = RemoteJobs(client)
        yield Backend(
            where=loaded.values.server,
            jobs=jobs,
            work=RemoteWork(client, jobs, loaded),
            kernels=RemoteKernels(client, loaded),
        )


@dataclass(frozen=True, slots=True)
class RemoteJobs:
    """`Jobs` of a service."""

    client: Client

    def list(self, *, states: Sequence[str], limit: int) -> Sequence[JobAnswer]:
        return list(
            islice(self.client.jobs(state=list(states) or None, limit=min(limit, 500)), limit)
        )

    def get(self, job: str) -> JobAnswer:
        return self._last() if job == LAST else self.client.job(job)

    def trials(self, job: str, *, outcomes: Sequence[str]) -> Sequence[TrialAnswer]:
        return list(self.client.trials(self.id_of(job), outcome=list(outcomes) or None, limit=500))

    def cancel(self, job: str) -> JobAnswer:
        return self.client.cancel(self.id_of(job))

    def events(self, job: str, *, after: int) -> Iterator[EventAnswer]:
        return self.client.events(job, after=after)

    def id_of(self, job: str) -> str:
        return self._last().id if job == LAST else job

    def _last(self) -> JobAnswer:
        for newest in self.client.jobs(limit=1):
            return newest
        raise UsageError("this key has no job yet; `tuner submit SPEC` makes one")


@dataclass(frozen=True, slots=True)
class RemoteWork:
    """`Work` that a service does."""

    client: Client
    jobs: RemoteJobs
    loaded: LoadedSettings

    def submit(self, request: JobRequest) -> JobAnswer:
        settings = self.loaded.values
        workloads = [*request.workloads, *self._members(request)]
        by_key = {workload.key: workload for workload in workloads}
        return self.client.submit(
            [written(workload) for workload in by_key.values()],
            target=target_name(self.loaded),
            threads=settings.threads,
            trials=settings.trials,
            seconds=settings.seconds,
            strategy=settings.strategy,
            seed=settings.seed,
            priority=request.priority,
            improve=request.improve,
            cache=settings.cache,
            objective=settings.objective,
        )

    def learn(
        self, workloads: Sequence[Workload], weights: Sequence[float], *, seconds: float
    ) -> JobAnswer:
        settings = self.loaded.values
        return self.client.learn(
            [written(workload) for workload in workloads],
            seconds=seconds,
            weights=weights,
            target=target_name(self.loaded),
            threads=settings.threads,
            trials=settings.trials,
        )

    def _members(self, request: JobRequest) -> list[Workload]:
        """The members of the families that are worth tuning.

        They depend on the measured limits of the machine that will tune them.
        """
        if not request.families:
            return []
        from tuner.app.export.portfolio import members_to_tune

        target = chosen_target(self.client, self.loaded)
        if target.limits is None:
            raise UsageError(
                f"the limits of {target.name} are not measured yet; tune one workload there "
                f"first, or give no range"
            )
        return [
            member
            for family in request.families
            for member in members_to_tune(family, target, self.loaded.values.threads)
        ]

    def resume(self, job: str, *, trials: int | None, seconds: float | None) -> JobAnswer:
        return self.client.resume(self.jobs.id_of(job), trials=trials, seconds=seconds)

    def run(self, job: str, display: TuningDisplay) -> JobAnswer:
        from tuner.cli.follow import follow

        return follow(self.jobs, job, display, on_interrupt=lambda: self.jobs.cancel(job))


@dataclass(frozen=True, slots=True)
class RemoteKernels:
    """`Kernels` of a service."""

    client: Client
    loaded: LoadedSettings

    def list(self, *, workload: str | None) -> Sequence[KernelAnswer]:
        return list(self.client.kernels(workload=workload, limit=500))

    def get(self, kernel: str) -> KernelAnswer:
        return self.client.kernel(kernel)

    def races(self, kernel: str) -> RacesAnswer:
        return self.client.races(kernel)

    def regressions(self, *, states: Sequence[str]) -> Sequence[RegressionAnswer]:
        return tuple(self.client.regressions(state=list(states)))

    def canaries(self) -> Sequence[KernelAnswer]:
        return tuple(self.client.kernels(alias="canary"))

    def promote(self, kernel: str) -> KernelAnswer:
        return self.client.promote(kernel)

    def rollback(self, kernel: str) -> RollbackAnswer:
        return self.client.rollback(kernel)

    def export(self, request: ExportRequest) -> Sequence[Exported]:
        """Downloads each kernel as its own library, as the service packed and signed it.

        Several libraries lie in folders named by the kernels' ids.
        """
        settings = self.loaded.values
        if request.families:
            raise UsageError(
                "a range becomes one function where its kernels are; export it on that machine, "
                "without --server"
            )
        if request.name is not None:
            raise UsageError(
                f"--name {request.name}: a downloaded library has the name it was signed under; "
                f"leave out --name"
            )
        if request.isa is not None:
            raise UsageError(
                f"--isa {request.isa}: a downloaded library is compiled already; export it "
                f"where its kernels are"
            )
        if request.within is not None or (request.every and settings.goal != FASTEST):
            raise UsageError(
                f"an objective chooses kernels where they are; name those that tuner lookup "
                f"--server {settings.server} prints"
            )
        if request.frameworks:
            raise UsageError(
                f"--for {','.join(request.frameworks)}: a downloaded library is linked already; "
                f"export it where its kernels are"
            )
        kernels = self._of_this_machine() if request.every else tuple(dict.fromkeys(request.ids))
        made = []
        for kernel in kernels:
            directory = request.directory if len(kernels) == 1 else request.directory / kernel
            manifest = unpack(
                kernel, self.client.download(kernel), directory, public_key=request.public_key
            )
            made.append(Exported(directory=directory, manifest=manifest.document()))
        return made

    def lookup(
        self, workload: Workload, *, threads: int | Literal["auto"] | None, within: float | None
    ) -> LookupAnswer:
        settings = self.loaded.values
        built_in = self.loaded.origins["threads"] == BUILT_IN
        answer = self.client.lookup(
            written(workload),
            target=target_name(self.loaded),
            threads=(None if built_in else settings.threads) if threads is None else threads,
            prepare=False,
            cache=settings.cache,
            objective=settings.objective,
            within=within,
        )
        if answer.source != "exact":
            raise NotFound(
                f"{settings.server} has no kernel of {workload.spec}; make one: tuner submit "
                f"{workload.spec}"
            )
        return answer

    def estimate(self, workloads: Sequence[Workload]) -> EstimatesAnswer:
        return self.client.estimates(
            [written(workload) for workload in workloads],
            target=target_name(self.loaded),
            threads=self.loaded.values.threads,
        )

    def _of_this_machine(self) -> tuple[str, ...]:
        from tuner.target.detect import detect_cpu

        machine = detect_cpu()
        cache = self.loaded.values.cache
        listed = self.client.kernels(target=machine.key, cache=cache, limit=500)
        kernels = tuple(kernel.id for kernel in listed)
        if not kernels:
            raise UsageError(
                f"{self.loaded.values.server} has no kernel for {machine.name}; tuner best lists "
                f"those it has"
            )
        return kernels


@dataclass(frozen=True, slots=True)
class RemoteFleet:
    """A `Fleet` of a service."""

    client: Client
    loaded: LoadedSettings

    def operators(self) -> Sequence[OperatorAnswer]:
        return list(self.client.operators())

    def target(self) -> Target:
        return chosen_target(self.client, self.loaded)

    def workers(self) -> Sequence[WorkerAnswer]:
        return list(self.client.workers())

    def health(self) -> HealthAnswer:
        return self.client.health()


def written(workload: Workload) -> Mapping[str, Any]:
    """A workload as requests have it. Raises UsageError for one that came as tensors."""
    if workload.op is not None:
        rest = {"const": "+".join(workload.constants)} if workload.constants else {}
        return {
            "op": workload.op,
            "params": {**workload.params, **rest, "numerics": workload.numerics},
        }
    if workload.notation is None:
        raise UsageError(
            f"{workload.spec} is neither of the catalogue nor a notation; a service takes "
            f"only these"
        )
    return {
        "notation": workload.notation,
        "shapes": dict(workload.shapes),
        "constants": list(workload.constants),
        "numerics": workload.numerics,
    }


def target_name(loaded: LoadedSettings) -> str | None:
    """The target that a request names.

    None where the user named none: the service's own target is meant.
    """
    return None if loaded.origins["target"] == BUILT_IN else loaded.values.target


def chosen_target(client: Client, loaded: LoadedSettings) -> Target:
    """The target among those of the service. Raises UsageError."""
    return choose(target_name(loaded), [_target(answer) for answer in client.targets()], None)


def _target(answer: TargetAnswer) -> Target:
    if answer.kind not in ("cpu", "cuda"):
        raise UsageError(
            f"target {answer.name} is of kind {answer.kind}, which this version does not know; "
            f"upgrade it"
        )
    same = (
        "key",
        "kind",
        "name",
        "tvm",
        "vector_bytes",
        "vector_registers",
        "cores",
        "l1d_bytes",
        "l2_bytes",
        "l3_bytes",
    )
    return Target(
        isa=tuple(answer.isa),
        fingerprint=answer.fingerprint,
        limits=None
        if answer.limits is None
        else limits_from_document(answer.limits.model_dump(mode="json")),
        **{name: getattr(answer, name) for name in same},
    )
