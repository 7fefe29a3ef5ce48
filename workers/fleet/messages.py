"""Messages between orchestrator, Ray driver, builders and runners, as frozen dataclasses."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.measure.assignment import Lane
from tuner.measure.cache import WARM, Cache
from tuner.measure.foreign.dimensions import Dimensions
from tuner.measure.foreign.verdict import Verdict
from tuner.measure.gpu.resources import Resources
from tuner.measure.outcome import Candidate, Failed, Outcome, Trial
from tuner.measure.sandbox.isolation import DEFAULT_LEVEL
from tuner.measure.statistics import Ratio
from tuner.spaces.core.space import Config
from tuner.target.target import Target
from tuner.workers.fleet.policy import JobShare, PolicyName
from tuner.workload.workload import Workload

DEFAULT_PATIENCE = 5.0  # times that the default schedule may build longer than a candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What all candidates of a batch have in common.

    It is sent to each worker once and named by its key afterwards.
    """

    workload: Workload
    target: Target
    threads: int
    seed: int = 0  # of the inputs that candidates are checked on
    cache: Cache = WARM  # what timed calls find in the caches

    @property
    def key(self) -> str:
        text = f"{self.workload.key}/{self.target.key}/{self.threads}/{self.seed}/{self.cache}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A linked candidate in storage that builders and runners share, named by its hash."""

    sha256: str  # of the shared library's bytes, hex
    path: str  # of the shared library; object code and schedule lie beside it with other suffixes
    symbol: str  # the function it exports
    # of a GPU, as the compiler reports them; not part of hand-off messages
    resources: Resources | None = field(default=None, compare=False)
    # machine code of a CPU's; not part of them either
    code_bytes: int | None = field(default=None, compare=False)
    # the files by suffix, if they are sent to another machine
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """An activity of a lane or a builder; its times are on the driver's steady clock."""

    worker: str  # the lane's or the builder's name
    activity: str  # build, wait, check, time or idle
    number: int | None  # of the trial; None while idle or held by a race
    started_s: float
    ended_s: float
    job: str = ""  # whose candidate it was, or the next one after an idle time


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """A candidate to be built."""

    number: int
    config: Config | None  # None: the default schedule
    # Name of a folder of its own for library, object code and stored schedule, which whoever
    # asks deletes; empty for a candidate's library alone, which the fleet deletes.
    keep: str = ""
    lane: str = ""  # a lane that waits, and may begin as soon as the library exists
    best_s: float | None = None  # the best median so far, for that lane

    @property
    def patience(self) -> float:
        """How many times a candidate's limit its build may take.

        Nothing can take the place of the default schedule, and the machine may be busy.
        """
        return DEFAULT_PATIENCE if self.config is None else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """The library of a candidate, or why there is none."""

    number: int
    result: Library | Failed
    started_s: float  # on the steady clock of its machine, which all its processes share
    ended_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSetup:
    """The first message to a compiler process: its storage, cores and limits."""

    storage: str
    cores: tuple[int, ...]
    build_timeout_s: float
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildReply:
    """A compiler process's answer to a build request."""

    result: Library | Failed
    resident_bytes: int  # of this process, after the build


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureRequest:
    """A library to be measured."""

    number: int
    library: Library
    best_s: float | None  # the best median so far: far slower candidates may stop early


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The outcome of a measurement, and when it held the lane."""

    number: int
    outcome: Outcome
    started_s: float  # the lane is held from here, on its machine's steady clock
    ended_s: float  # to here
    waited_s: float = 0.0  # before that, while another run of tuner had the lane's cores


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on the time and memory of single steps."""

    build_timeout_s: float = 30.0
    run_timeout_s: float = 20.0  # the whole measurement of one candidate
    memory_bytes: int = 8 * 2**30  # of the process that runs a candidate, and of the compiler
    # fresh processes of each contestant of a race, unless it is surely beaten before
    race_rounds: int = 5
    # timed in each of them; medians differ more between processes than within this time
    race_budget_s: float = 0.06
    builds_per_server: int = 2000  # a compiler process is replaced after as many builds
    builder_resident_bytes: int = 1536 * 2**20  # or when it has grown to this
    isolation: str = DEFAULT_LEVEL  # of the process that runs a candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlan:
    """A machine that joins a cluster: its lanes, builders and properties."""

    name: str  # its own among the hosts of the cluster; part of its workers' names
    address: str  # of the cluster, HOST:PORT
    lanes: tuple[Lane, ...]
    builder_cores: tuple[int, ...]
    alternates: bool
    target: str  # key
    versions: Mapping[str, str]
    labels: Mapping[str, str]
    storage: str  # directory of its built libraries
    node_ip: str = ""  # address by which the cluster reaches it; empty: Ray finds out
    # keys of declared targets ("cuda:sm_90") that it measures for besides its own
    serves: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """What the driver process starts: Ray, its builders and its runners."""

    lanes: tuple[Lane, ...]
    builder_cores: tuple[int, ...]
    alternates: bool
    limits: Limits
    storage: str  # directory of the built libraries, shared by all workers of the machine
    lent_cores: tuple[int, ...] = ()  # of lanes that lend them to a builder in between
    address: str | None = None  # of an existing cluster; None starts a local one
    threads: int = 1  # of the kernels: a host's shorter lanes are not used
    target: str = ""  # key; hosts of a cluster that are for another target are left alone
    # hosts of a cluster with other versions are refused
    versions: Mapping[str, str] = field(default_factory=dict)
    policy: PolicyName = "fair"  # whose candidates go first if several jobs share the fleet
    lane_share: float = 1.0  # largest share of the lanes' time for one owner while others need it


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """Candidates of a job to be measured; none announce the problem."""

    problem: Problem
    candidates: tuple[Candidate, ...]
    # outcomes of libraries measured in earlier runs of the job, by hash
    known_outcomes: Mapping[str, Outcome]
    job_share: JobShare = field(default_factory=JobShare)  # of the job they belong to


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A trial that ended, and what it took."""

    problem: str  # key
    trial: Trial
    # the lane that measured it, or the builder that refused it; empty for a duplicate and
    # for a candidate that was given up
    worker: str
    attempts: int  # how often it was sent out
    quarantined: bool  # given up because it kept losing its worker
    job: str = ""  # id


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """A lane's calibration, and what follows from it for the lane."""

    lane: str
    at_s: float  # on the driver's steady clock
    median_s: float  # of the slowest of the lane's cores
    expected_s: float  # the middle of the lane's band
    in_band: bool
    drained: bool  # the lane is given nothing until it is back in its band
    # of a lane that has drifted: its trials since then are in doubt
    suspect_since_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """From the driver: trials that ended, and the workers' activities."""

    reports: tuple[Report, ...]
    spans: tuple[Span, ...]
    calibrations: tuple[Calibrated, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandon:
    """To the driver: forget every candidate of a job that was not measured yet."""

    job: str = ""  # id
    leaves: bool = False  # the job submits nothing more: its account is closed, too


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildFinalists:
    """Builds outside of any trial, whose files are all kept."""

    requests: tuple[BuildRequest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """A library that takes part in a race."""

    name: str
    path: str
    symbol: str
    content: bytes = b""  # the library's bytes, if it is sent to another machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A verified contestant and its time in the race."""

    name: str
    median_s: float
    ci95_s: tuple[float, float]
    max_rel_error: float  # over all verified inputs
    samples: int  # timed, over all processes
    workspace_bytes: int | None = None  # memory for temporaries, over all threads


@dataclass(frozen=True, slots=True, kw_only=True)
class Disqualified:
    """A contestant that failed in the race."""

    name: str
    failure: Failed


Finalist = Ranked | Disqualified


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceOutcome:
    """The result of a race."""

    finalists: tuple[Finalist, ...]
    winner: str | None  # None: no contestant could be verified
    reason: str  # for people
    # Where the race has rivals: each other finalist's time divided by the incumbent's, round
    # by round, and the versions of the libraries that are installed.
    ratios: Mapping[str, Ratio] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRace:
    """A race: verifies and times contestants alternately, in fresh processes, on one lane.

    Nothing builds meanwhile.
    """

    contestants: tuple[Contestant, ...]
    # Name of the contestant that is promoted in doubt, mostly the default schedule's. None:
    # the fastest is, after as few rounds as say who that is.
    default: str | None
    incumbent: str | None  # name of the incumbent's, where it takes part
    limit_s: float  # for the whole race
    # Libraries that take part, by name. With some the incumbent is compared with everybody,
    # in every round, and nobody is promoted.
    rivals: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunExamination:
    """A stranger's kernel: compiled, verified, and timed in turn with a contestant of ours.

    On one lane, while nothing builds.
    """

    source: str  # C text, or CUDA C++
    symbol: str  # of the function in it
    contestants: tuple[Contestant, ...]  # the kernel it is timed with
    limit_s: float  # for all of it
    launch: Dimensions | None = None  # of CUDA C++


@dataclass(frozen=True, slots=True, kw_only=True)
class ExaminationOutcome:
    """What was said of a stranger's kernel."""

    verdict: Verdict


Control = BuildFinalists | RunRace | RunExamination
ControlValue = Built | RaceOutcome | ExaminationOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRequest:
    """To the driver: builds, a race or an examination, outside the pipeline.

    A builder does the builds while all else continues; the others wait for an idle fleet.
    """

    number: int
    problem: Problem
    what: Control


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlReply:
    """The driver's reply to a control request."""

    number: int  # of the control request
    # builds in the order of their requests, or one outcome
    value: tuple[ControlValue, ...]
    error: str | None  # why there is no value
    spans: tuple[Span, ...] = ()  # of the lane that was held for it
