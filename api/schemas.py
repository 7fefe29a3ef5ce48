"""Requests and answers of the REST API as pydantic types, shared with `tuner.client`.

Requests refuse unknown fields. Answers may gain fields; clients ignore those that they do
not know.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from tuner.measure.cache import WARM, Cache
from tuner.measure.objective import FASTEST, objective_choices
from tuner.search.strategies import DEFAULT_STRATEGY, JobStrategy
from tuner.workload.workload import Numerics

Item = TypeVar("Item")
Parameter = (
    Annotated[bool, Field(strict=True)]
    | Annotated[int, Field(strict=True, ge=-(2**53), le=2**53)]
    | Annotated[float, Field(strict=True, allow_inf_nan=False)]
    | Annotated[str, Field(strict=True, max_length=64)]
)
Name = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$")]
State = Literal["queued", "running", "cancelling", "cancelled", "succeeded", "failed"]
CreationSort = Literal["-created_at", "created_at"]  # newest first, oldest first
TargetName = Annotated[
    str,
    Field(min_length=1, max_length=200, description="key, name or kind (cpu, cuda) of a target"),
]
# of anything that has an id, a key or a name in the catalogue
IDENTIFIER = r"^[A-Za-z0-9_-]{1,64}$"
MAX_NOTATION_CHARACTERS = 16 * 1024
MAX_WORKLOADS = 64
AskedObjective = Annotated[
    str,
    Field(
        max_length=64,
        description=f"what kernels are chosen by: {objective_choices()}; two with a comma for "
        f"their Pareto front",
    ),
]
AskedCache = Annotated[
    Cache,
    Field(description="what timed calls find in the caches; `cold`: each comes after others' data"),
]


class Request(BaseModel):
    """Base of the bodies of requests; refuses unknown fields."""

    model_config = ConfigDict(extra="forbid")


class Answer(BaseModel):
    """Base of all answers; ignores unknown fields, which a newer service may send."""

    model_config = ConfigDict(extra="ignore")


class CatalogueWorkload(Request):
    """An operator of the catalogue with its parameters, such as `matmul:M=512,N=512,K=512`.

    `const` and `numerics` are given as parameters, too.
    """

    op: Name
    params: dict[Name, Parameter] = Field(default_factory=dict, max_length=64)


class NotationWorkload(Request):
    """A text in the notation (docs/reference/notation.md), and the extents of its symbols.

    The text has at most 16 KiB.
    """

    notation: str = Field(min_length=1, max_length=MAX_NOTATION_CHARACTERS)
    shapes: dict[Name, Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)]] = Field(
        default_factory=dict, max_length=64
    )
    constants: list[Name] = Field(
        default_factory=list, max_length=16, description="inputs known ahead of time"
    )
    numerics: Numerics = "strict"


def form(value: Any) -> str:
    """The form a workload is written in: `notation` or `catalogue`."""
    if isinstance(value, dict):
        return "notation" if "notation" in value else "catalogue"
    return "notation" if isinstance(value, NotationWorkload) else "catalogue"


WorkloadRequest = Annotated[
    Annotated[CatalogueWorkload, Tag("catalogue")] | Annotated[NotationWorkload, Tag("notation")],
    Discriminator(form),
]


class JobRequest(Request):
    """What to tune and how long. Budgets count per workload."""

    workload: WorkloadRequest | None = None
    workloads: list[WorkloadRequest] | None = Field(
        default=None, min_length=1, max_length=MAX_WORKLOADS
    )
    target: TargetName | None = Field(
        default=None, description="left out: the service's only or most recently seen target"
    )
    threads: Annotated[int, Field(strict=True, ge=1, le=1024)] = 1
    trials: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] = 256
    seconds: Annotated[float, Field(ge=1.0, le=2_592_000.0, allow_inf_nan=False)] | None = None
    strategy: JobStrategy = Field(
        default=DEFAULT_STRATEGY,
        description="`external`: the caller proposes the configs, by POST /jobs/{id}/proposals",
    )
    seed: Annotated[int, Field(strict=True, ge=0, lt=2**63)] = 0
    priority: Annotated[int, Field(strict=True, ge=-100, le=100)] = Field(
        default=0, description="higher goes first"
    )
    improve: Annotated[bool, Field(strict=True)] = Field(
        default=False, description="tune again even where a kernel of a finished job is known"
    )
    cache: AskedCache = WARM
    objective: AskedObjective = FASTEST.text

    @model_validator(mode="after")
    def one_form(self) -> JobRequest:
        if (self.workload is None) == (self.workloads is None):
            raise ValueError("give either 'workload' or 'workloads'")
        return self

    @property
    def all_workloads(self) -> list[CatalogueWorkload | NotationWorkload]:
        return [self.workload] if self.workload is not None else list(self.workloads or [])


class ResumeRequest(Request):
    """A new budget per workload, which includes earlier trials; omitted fields stay."""

    trials: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] | None = None
    seconds: Annotated[float, Field(ge=1.0, le=2_592_000.0, allow_inf_nan=False)] | None = None


class Page(Answer, Generic[Item]):
    items: list[Item]
    next: str | None = Field(
        description="give it as `cursor` to get the following items; null on the last page"
    )


class WorkloadAnswer(Answer):
    key: str
    op: str | None = None
    params: dict[str, int | float | bool | str] | None = None
    notation: str | None = None
    shapes: dict[str, int] | None = None
    spec: str


class TargetRef(Answer):
    key: str
    kind: str
    name: str


class ArithmeticRateAnswer(Answer):
    """How fast a whole GPU multiplies and adds in one way."""

    unit: str = Field(description="cuda_cores, or tensor cores by mma or wgmma")
    dtype: str = Field(description="of the factors")
    flops: float = Field(description="median FLOP/s, a multiply-add as 2")
    flops_best: float = Field(description="the highest ever seen")


class LimitsAnswer(Answer):
    """Measured limits of one core, or of a whole GPU."""

    fma_flops: float
    fma_flops_best: float
    bandwidth: list[dict[str, float]] = Field(
        description="of one core, or of a whole GPU: bytes a second by read, write and copy, "
        "each at a working_set_bytes"
    )
    rates: list[ArithmeticRateAnswer] = Field(
        default_factory=list, description="of a GPU: each unit and dtype that was measured"
    )
    shared_bytes_per_s: float | None = Field(
        default=None, description="of a GPU: read from the shared memory of all multiprocessors"
    )
    launch_s: float | None = Field(
        default=None,
        description="of a GPU: seconds from an empty kernel to the next one in a graph",
    )


class TargetAnswer(TargetRef):
    isa: list[str]
    cores: int
    vector_bytes: int
    l1d_bytes: int
    l2_bytes: int
    l3_bytes: int
    fingerprint: dict[str, str | int]
    fma_flops: float | None = Field(
        description="measured float32 multiply-add rate of one core, or of a whole GPU, FLOP/s"
    )
    tvm: dict[str, str | int] = Field(
        default_factory=dict, description="options of the compiler's target"
    )
    vector_registers: int = 0
    limits: LimitsAnswer | None = None


class TaskAnswer(Answer):
    workload: WorkloadAnswer
    state: str
    space_size: int | None
    trials_done: int
    trials_ok: int
    best_median_s: float | None
    kernel: str | None
    elapsed_s: dict[str, float]
    stopped: str | None = Field(
        default=None,
        description="why the last search of this workload ended: trials, seconds, target, "
        "exhausted or cancelled",
    )
    error: str | None


class JobAnswer(Answer):
    id: str
    kind: str
    state: State
    target: TargetRef
    threads: int
    trials: int
    seconds: float | None
    strategy: str
    seed: int
    priority: int
    cache: str = Field(default=WARM, description="what timed calls find in the caches")
    objective: str = Field(
        default=FASTEST.text, description="what kernels are chosen by; two have a comma"
    )
    error: str | None
    waiting: str | None = Field(
        default=None,
        description="what a queued job waits for that no runner of its target is there for",
    )
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    elapsed_s: float | None = Field(
        default=None,
        description="seconds of work on the job so far by the database's clock, without the "
        "pauses between its runs; null before the first",
    )
    last_event: int = Field(description="number of the job's latest event")
    tasks: list[TaskAnswer]


class TrialAnswer(Answer):
    workload: int = Field(description="position of the workload in the job, from 0")
    number: int
    config: dict[str, Any]
    outcome: str = Field(description="ok, or the kind of failure")
    median_s: float | None
    samples_s: list[float] | None
    max_rel_error: float | None
    build_s: float
    measure_s: float
    predicted: float | None
    worker: str | None
    conditions: dict[str, Any] | None
    resources: dict[str, int] | None = Field(
        default=None, description="what a GPU's candidate takes, by the compiler's count"
    )
    workspace_bytes: int | None = Field(
        default=None, description="memory for temporaries, over all threads; null on GPUs"
    )
    code_bytes: int | None = Field(default=None, description="machine code; null on GPUs")
    error: str | None
    created_at: datetime


class FurtherTrialsAnswer(Answer):
    """What more trials would bring."""

    trials: int
    seconds: float | None = Field(
        description="at the rate of earlier searches; null where there were too few"
    )
    within: float = Field(description="the bound after them")


class LossAnswer(Answer):
    """How much longer than the best known a kernel of few trials takes, as earlier searches
    had it: 0.06 is 6% longer."""

    candidates: int = Field(description="that were tried, the default schedule not counted")
    median: float = Field(description="half of the searches lost less after as many")
    within: float = Field(description="`confidence` of the searches lost less")
    confidence: float
    searches: int = Field(description="that taught the bound")
    recorded: bool = Field(
        description="whether they were on recorded tables of another machine, as long as there "
        "are too few on this target"
    )
    more: FurtherTrialsAnswer | None = Field(description="null where no more would help")


class KernelAnswer(Answer):
    id: str
    state: str
    workload: WorkloadAnswer
    target: TargetRef
    threads: int
    cache: str = Field(default=WARM, description="what timed calls found in the caches")
    config: dict[str, Any]
    median_s: float
    ci95_s: tuple[float, float]
    disturbed: bool = Field(
        default=False,
        description="whether the interval is wider than a tenth of the median, so that the "
        "figure is in doubt",
    )
    gflops: float
    roofline_fraction: float | None
    max_rel_error: float
    verified: bool
    default_median_s: float | None
    workspace_bytes: int | None = Field(
        default=None, description="memory for temporaries, over all threads; null on GPUs"
    )
    code_bytes: int | None = Field(default=None, description="machine code; null on GPUs")
    instances: int | None = Field(
        default=None, description="side by side on all cores, as `calls_per_s` is of"
    )
    calls_per_s: float | None = Field(default=None, description="of all instances together")
    energy_j: float | None = Field(default=None, description="of a call")
    artifact: str = Field(description="SHA-256 of the compiled kernel")
    job: str | None
    trial: int | None
    previous: str | None = Field(description="the kernel it replaced")
    stale: str | None = Field(description="why it is due to be timed again")
    race: dict[str, Any] = Field(description="rivals timed in the same race")
    versions: dict[str, Any]
    loss: LossAnswer | None = Field(
        default=None,
        description="where one kernel is asked for by its id; null after a long search, and of "
        "a neighbour's schedule",
    )
    created_at: datetime


class RollbackAnswer(Answer):
    rolled_back: str
    promoted: KernelAnswer | None = Field(
        description="the kernel that is served now; null where there was none before"
    )


class ScheduleAnswer(Answer):
    """The schedule of a kernel, as text only; it is never accepted back."""

    kernel: str
    schedule: dict[str, Any]


class SourceAnswer(Answer):
    kernel: str
    sources: dict[str, str] = Field(description="generated code by language")


class RunAnswer(Answer):
    id: str
    kernel: str
    state: str
    created_at: datetime


class StationAnswer(Answer):
    name: str
    builds: bool = Field(description="a builder; else a lane")
    seconds: dict[str, float] = Field(description="by activity: build, wait, check, time, idle")


class WorkerAnswer(Answer):
    id: str
    host: str
    state: str
    reason: str | None
    target: str | None
    isolation: str | None
    lanes: list[Any]
    labels: dict[str, Any]
    versions: dict[str, Any]
    joined_at: datetime
    heartbeat_at: datetime
    heartbeat_age_s: float = Field(
        default=0.0, description="seconds since it was last heard of, when this was answered"
    )
    today: list[StationAnswer] = Field(
        default=[], description="what its lanes and builders did since midnight UTC"
    )


class OperatorParameter(Answer):
    name: str
    type: str
    default: int | float | bool | str | None
    choices: list[int | float | bool | str] | None
    least: int | None = Field(default=None, description="of a whole number")
    most: int | None = None
    description: str


class OperatorAnswer(Answer):
    name: str
    summary: str
    notation: str | None
    parameters: list[OperatorParameter]


class HealthAnswer(Answer):
    status: Literal["ok"]
    version: str


class EventAnswer(Answer):
    """An event of a job: the `data` of a server-sent event.

    Its `id` is the sequence, its `event` is the kind.
    """

    job: str
    sequence: int
    kind: str
    data: dict[str, Any]
    recorded_at: datetime = Field(alias="at")
