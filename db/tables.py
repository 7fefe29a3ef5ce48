"""The tables as SQLAlchemy models.

Rows stay inside `db`: other packages get the frozen records of the modules beside this one.
Portable between SQLite and PostgreSQL. Keys of workloads, targets and artifacts are
SHA-256 in hex; other ids are short and sort by time.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from sqlalchemy import (
    BigInteger,
    Boolean,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    UniqueConstraint,
    text,
)
from sqlalchemy.engine.default import DefaultExecutionContext
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tuner.db.knob_bits import knob_bits
from tuner.db.values import CleanText, UtcDateTime, json_type
from tuner.measure.cache import WARM
from tuner.measure.objective import TIME

SHA256 = String(64)
IDENTIFIER = String(32)
WORD = String(32)
NAME = String(200)
# SQLite only numbers rows by itself where the type is exactly INTEGER.
ROW_NUMBER = BigInteger().with_variant(Integer, "sqlite")

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        datetime: UtcDateTime(),
        dict[str, Any]: json_type(),
        list[Any]: json_type(),
        int: BigInteger(),
        bool: Boolean(),
    }


class WorkloadRow(Base):
    __tablename__ = "workloads"
    key: Mapped[str] = mapped_column(SHA256, primary_key=True)
    op: Mapped[str | None] = mapped_column(NAME, index=True)
    name: Mapped[str] = mapped_column(NAME)
    spec: Mapped[str] = mapped_column(CleanText)
    numerics: Mapped[str] = mapped_column(WORD)
    document: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class TargetRow(Base):
    __tablename__ = "targets"
    key: Mapped[str] = mapped_column(SHA256, primary_key=True)
    kind: Mapped[str] = mapped_column(WORD)
    name: Mapped[str] = mapped_column(NAME)
    document: Mapped[dict[str, Any]]  # all but the limits
    limits: Mapped[dict[str, Any] | None] = mapped_column(json_type())
    measured_at: Mapped[datetime | None]  # the limits
    created_at: Mapped[datetime]


class JobRow(Base):
    __tablename__ = "jobs"
    id: Mapped[str] = mapped_column(IDENTIFIER, primary_key=True)
    kind: Mapped[str] = mapped_column(WORD)
    state: Mapped[str] = mapped_column(WORD)
    target_key: Mapped[str] = mapped_column(ForeignKey("targets.key"))
    threads: Mapped[int] = mapped_column(Integer)
    trials: Mapped[int] = mapped_column(Integer)  # budget per task
    seconds: Mapped[float | None]  # budget per task
    strategy: Mapped[str] = mapped_column(WORD)
    seed: Mapped[int]
    priority: Mapped[int] = mapped_column(Integer)
    owner: Mapped[str | None] = mapped_column(IDENTIFIER)  # api key id
    cache: Mapped[str] = mapped_column(WORD, server_default=WARM)  # of its timed calls
    # one, or two with a comma, of `tuner.measure.objective`
    objective: Mapped[str] = mapped_column(WORD, server_default=TIME.name)
    settings: Mapped[dict[str, Any]]
    error: Mapped[str | None] = mapped_column(CleanText)
    last_event: Mapped[int]
    lease_owner: Mapped[str | None] = mapped_column(NAME)
    lease_expires_at: Mapped[datetime | None]
    fence: Mapped[int]
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    __table_args__ = (
        Index("ix_jobs_claim", "state", "priority", "id"),
        Index("ix_jobs_state_id", "state", "id"),
        Index("ix_jobs_owner_id", "owner", "id"),
    )


class TaskRow(Base):
    """One workload of a job, with its running totals."""

    __tablename__ = "tasks"
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    position: Mapped[int] = mapped_column(Integer, primary_key=True)
    workload_key: Mapped[str] = mapped_column(ForeignKey("workloads.key"))
    state: Mapped[str] = mapped_column(WORD)
    space_size: Mapped[str | None] = mapped_column(String(400))  # decimal: sizes exceed 64 bits
    trials_done: Mapped[int] = mapped_column(Integer)
    trials_ok: Mapped[int] = mapped_column(Integer)
    best_median_s: Mapped[float | None]
    # no foreign key: kernels refer to jobs
    kernel_id: Mapped[str | None] = mapped_column(IDENTIFIER)
    elapsed: Mapped[dict[str, Any]]
    stopped: Mapped[str | None] = mapped_column(WORD)  # why its last search ended
    error: Mapped[str | None] = mapped_column(CleanText)
    __table_args__ = (
        UniqueConstraint("job_id", "workload_key"),
        Index("ix_tasks_workload_key", "workload_key", "job_id"),
    )


def _bits_of_config(context: DefaultExecutionContext) -> int:
    parameters: dict[str, Any] = context.get_current_parameters()  # type: ignore[no-untyped-call]  # SQLAlchemy's own, untyped
    return knob_bits(parameters["config"])


class TrialRow(Base):
    __tablename__ = "trials"
    id: Mapped[int] = mapped_column(ROW_NUMBER, primary_key=True, autoincrement=True)
    job_id: Mapped[str] = mapped_column(IDENTIFIER)
    position: Mapped[int] = mapped_column(Integer)
    number: Mapped[int] = mapped_column(Integer)
    outcome: Mapped[str] = mapped_column(WORD)  # ok or a failure kind
    median_s: Mapped[float | None]
    max_rel_error: Mapped[float | None]
    build_s: Mapped[float]
    measure_s: Mapped[float]
    predicted: Mapped[float | None]  # the cost model's score before it was measured
    round: Mapped[int | None] = mapped_column(Integer)
    worker: Mapped[str | None] = mapped_column(NAME)
    attempts: Mapped[int] = mapped_column(Integer)
    quarantined: Mapped[bool]  # it kept killing workers
    suspect: Mapped[str | None] = mapped_column(CleanText)  # why its timing is in doubt
    # the timed library; the store keeps only those that were promoted
    artifact: Mapped[str | None] = mapped_column(SHA256)
    signature: Mapped[str | None] = mapped_column(WORD)  # groups failures with the same text
    created_at: Mapped[datetime]
    config: Mapped[dict[str, Any]]
    # see db/knob_bits.py
    knob_bits: Mapped[int] = mapped_column(default=_bits_of_config, server_default="0")
    samples_s: Mapped[list[Any] | None] = mapped_column(json_type())
    conditions: Mapped[dict[str, Any] | None] = mapped_column(json_type())
    error: Mapped[str | None] = mapped_column(CleanText)
    __table_args__ = (
        ForeignKeyConstraint(
            ["job_id", "position"], ["tasks.job_id", "tasks.position"], ondelete="CASCADE"
        ),
        UniqueConstraint("job_id", "position", "number"),
        Index(
            "ix_trials_median",
            "job_id",
            "median_s",
            "position",
            "number",
            "knob_bits",
            postgresql_include=["id"],
        ),
        Index(
            "ix_trials_number",
            "job_id",
            "position",
            "number",
            "knob_bits",
            postgresql_include=["id"],
        ),
        Index("ix_trials_outcome", "job_id", "outcome", "position", "number"),
        Index("ix_trials_worker", "worker", "created_at"),
    )


class ArtifactRow(Base):
    __tablename__ = "artifacts"
    sha256: Mapped[str] = mapped_column(SHA256, primary_key=True)
    size_bytes: Mapped[int]
    kind: Mapped[str] = mapped_column(WORD)
    signature: Mapped[str | None] = mapped_column(CleanText)  # Ed25519, base64
    created_at: Mapped[datetime]


class KernelRow(Base):
    __tablename__ = "kernels"
    id: Mapped[str] = mapped_column(IDENTIFIER, primary_key=True)
    workload_key: Mapped[str] = mapped_column(ForeignKey("workloads.key"))
    target_key: Mapped[str] = mapped_column(ForeignKey("targets.key"))
    threads: Mapped[int] = mapped_column(Integer)
    cache: Mapped[str] = mapped_column(WORD, server_default=WARM)  # of the calls that raced
    op: Mapped[str | None] = mapped_column(NAME)  # the workload's, here for the indexes
    state: Mapped[str] = mapped_column(WORD)
    artifact: Mapped[str] = mapped_column(ForeignKey("artifacts.sha256"))
    median_s: Mapped[float]
    ci95_low_s: Mapped[float]
    ci95_high_s: Mapped[float]
    gflops: Mapped[float]
    roofline_fraction: Mapped[float | None]
    max_rel_error: Mapped[float]
    verified: Mapped[bool]
    default_median_s: Mapped[float | None]
    workspace_bytes: Mapped[int | None]  # memory for temporaries, over all threads
    code_bytes: Mapped[int | None]  # machine code
    instances: Mapped[int | None] = mapped_column(Integer)  # side by side, as calls_per_s is of
    calls_per_s: Mapped[float | None]
    energy_j: Mapped[float | None]  # of a call
    job_id: Mapped[str | None] = mapped_column(
        ForeignKey("jobs.id", ondelete="SET NULL"), index=True
    )
    trial_number: Mapped[int | None] = mapped_column(Integer)
    previous_id: Mapped[str | None] = mapped_column(ForeignKey("kernels.id"))
    stale: Mapped[str | None] = mapped_column(CleanText)  # why it must be timed again
    validated_at: Mapped[datetime]
    created_at: Mapped[datetime]
    config: Mapped[dict[str, Any]]
    versions: Mapped[dict[str, Any]]
    race: Mapped[dict[str, Any]]  # the rivals timed in the same race
    # module and trace: large, hence loaded only when it is read
    schedule: Mapped[dict[str, Any]] = mapped_column(deferred=True)
    __table_args__ = (
        Index(
            "uq_kernels_promoted", "workload_key", "target_key", "threads", "cache", unique=True,
            sqlite_where=text("state = 'promoted'"), postgresql_where=text("state = 'promoted'"),
        ),
        Index("ix_kernels_lookup", "workload_key", "target_key", "threads", "id"),
        Index("ix_kernels_state", "state", "id"),
        Index("ix_kernels_op", "op", "state", "id"),
        Index("ix_kernels_neighbours", "op", "target_key", "threads", "state", "id"),
        Index("ix_kernels_artifact", "artifact"),
    )  # fmt: skip


class RaceRow(Base):
    """A race of a promoted kernel, some time later, against what is installed then."""

    __tablename__ = "races"
    id: Mapped[int] = mapped_column(ROW_NUMBER, primary_key=True, autoincrement=True)
    kernel_id: Mapped[str] = mapped_column(ForeignKey("kernels.id", ondelete="CASCADE"))
    raced_at: Mapped[datetime]
    libraries: Mapped[dict[str, Any]]  # installed then: version by name
    median_s: Mapped[float | None]  # of the kernel; None where it failed
    ci95_low_s: Mapped[float | None]
    ci95_high_s: Mapped[float | None]
    error: Mapped[str | None] = mapped_column(CleanText)  # why it failed
    __table_args__ = (Index("ix_races_kernel_id", "kernel_id", "id"),)


class ContestRow(Base):
    """A library, or the default schedule, in a race of a kernel."""

    __tablename__ = "contests"
    race_id: Mapped[int] = mapped_column(
        ForeignKey("races.id", ondelete="CASCADE"), primary_key=True
    )
    contender: Mapped[str] = mapped_column(WORD, primary_key=True)
    version: Mapped[str] = mapped_column(NAME)
    median_s: Mapped[float]
    ci95_low_s: Mapped[float]
    ci95_high_s: Mapped[float]
    ratio: Mapped[float]  # its time divided by the kernel's, round by round
    ratio_low: Mapped[float]
    ratio_high: Mapped[float]


class RegressionRow(Base):
    """What a promoted kernel lost, from the first suspicion on."""

    __tablename__ = "regressions"
    id: Mapped[int] = mapped_column(ROW_NUMBER, primary_key=True, autoincrement=True)
    kernel_id: Mapped[str] = mapped_column(ForeignKey("kernels.id", ondelete="CASCADE"))
    kind: Mapped[str] = mapped_column(WORD)
    contender: Mapped[str] = mapped_column(WORD)  # empty where it lost to none
    version: Mapped[str] = mapped_column(NAME)  # of the contender
    state: Mapped[str] = mapped_column(WORD)
    agreeing: Mapped[int] = mapped_column(Integer)
    contrary: Mapped[int] = mapped_column(Integer)
    factor: Mapped[float | None]  # the kernel's time by what it was, or by the contender's
    suspected_at: Mapped[datetime]
    raised_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]  # dismissed or resolved
    announced: Mapped[str | None] = mapped_column(WORD)  # the last state that was announced
    __table_args__ = (
        Index("ix_regressions_kernel_id", "kernel_id", "state"),
        Index("ix_regressions_state", "state", "id"),
    )


class EventRow(Base):
    __tablename__ = "events"
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    sequence: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    kind: Mapped[str] = mapped_column(WORD)
    data: Mapped[dict[str, Any]]
    recorded_at: Mapped[datetime] = mapped_column("at", index=True)


class WorkerRow(Base):
    __tablename__ = "workers"
    id: Mapped[str] = mapped_column(IDENTIFIER, primary_key=True)
    host: Mapped[str] = mapped_column(NAME)
    state: Mapped[str] = mapped_column(WORD, index=True)
    reason: Mapped[str | None] = mapped_column(CleanText)  # of the state, for people
    target_key: Mapped[str | None] = mapped_column(ForeignKey("targets.key"))
    isolation: Mapped[str | None] = mapped_column(NAME)
    lanes: Mapped[list[Any]]
    labels: Mapped[dict[str, Any]]
    versions: Mapped[dict[str, Any]]
    joined_at: Mapped[datetime]
    heartbeat_at: Mapped[datetime]


class LaneSpanRow(Base):
    __tablename__ = "lane_spans"
    id: Mapped[int] = mapped_column(ROW_NUMBER, primary_key=True, autoincrement=True)
    worker_id: Mapped[str] = mapped_column(ForeignKey("workers.id", ondelete="CASCADE"))
    lane: Mapped[str] = mapped_column(NAME)
    kind: Mapped[str] = mapped_column(WORD)  # build, wait, check, time or idle
    started_at: Mapped[datetime] = mapped_column(index=True)
    ended_at: Mapped[datetime]
    job_id: Mapped[str | None] = mapped_column(IDENTIFIER)
    trial_number: Mapped[int | None] = mapped_column(Integer)
    __table_args__ = (Index("ix_lane_spans_lane", "worker_id", "lane", "started_at"),)


class CalibrationRow(Base):
    """A timing of the calibration kernel on a lane: shows whether the worker drifts."""

    __tablename__ = "calibrations"
    id: Mapped[int] = mapped_column(ROW_NUMBER, primary_key=True, autoincrement=True)
    worker_id: Mapped[str] = mapped_column(ForeignKey("workers.id", ondelete="CASCADE"))
    lane: Mapped[str] = mapped_column(NAME)
    measured_at: Mapped[datetime] = mapped_column("at")
    median_s: Mapped[float]
    expected_s: Mapped[float]
    in_band: Mapped[bool]
    __table_args__ = (Index("ix_calibrations_lane", "worker_id", "lane", "at"),)


class CostModelRow(Base):
    __tablename__ = "cost_models"
    id: Mapped[int] = mapped_column(ROW_NUMBER, primary_key=True, autoincrement=True)
    target_key: Mapped[str] = mapped_column(ForeignKey("targets.key"))
    feature_version: Mapped[int] = mapped_column(Integer)
    trained_on: Mapped[int] = mapped_column(Integer)  # trials
    metrics: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    blob: Mapped[bytes] = mapped_column(LargeBinary, deferred=True)  # XGBoost's UBJ format
    __table_args__ = (Index("ix_cost_models_latest", "target_key", "feature_version", "id"),)


class ApiKeyRow(Base):
    __tablename__ = "api_keys"
    id: Mapped[str] = mapped_column(IDENTIFIER, primary_key=True)
    digest: Mapped[str] = mapped_column(SHA256)
    name: Mapped[str] = mapped_column(NAME)  # whose it is, for people
    scopes: Mapped[list[Any]]
    quota: Mapped[int | None] = mapped_column(Integer)  # unfinished jobs at a time
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]


class IdempotencyRow(Base):
    __tablename__ = "idempotency_keys"
    # API key id, empty without authentication
    owner: Mapped[str] = mapped_column(IDENTIFIER, primary_key=True)
    key: Mapped[str] = mapped_column(NAME, primary_key=True)
    digest: Mapped[str] = mapped_column(SHA256)  # of the request
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), index=True)
    expires_at: Mapped[datetime] = mapped_column(index=True)


class EntryRow(Base):
    """A text that another tuner put under a key of its own; nobody here reads it."""

    __tablename__ = "entries"
    number: Mapped[int] = mapped_column(ROW_NUMBER, primary_key=True, autoincrement=True)
    store: Mapped[str] = mapped_column(WORD)  # the tuner, such as "helion"
    key: Mapped[str] = mapped_column(NAME)
    content: Mapped[str] = mapped_column(CleanText)
    owner: Mapped[str | None] = mapped_column(IDENTIFIER)  # api key id
    created_at: Mapped[datetime]
    __table_args__ = (
        UniqueConstraint("store", "key"),
        Index("ix_entries_store_number", "store", "number"),
    )


class RunRow(Base):
    """A request to run a kernel or a model on a caller's arrays; the arrays are artifacts."""

    __tablename__ = "runs"
    id: Mapped[str] = mapped_column(IDENTIFIER, primary_key=True)
    # Either the kernel, or the job whose model it is.
    kernel_id: Mapped[str | None] = mapped_column(ForeignKey("kernels.id"))
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    owner: Mapped[str | None] = mapped_column(IDENTIFIER)
    state: Mapped[str] = mapped_column(WORD)  # queued, running, succeeded, failed
    input_artifact: Mapped[str] = mapped_column(ForeignKey("artifacts.sha256"))
    output_artifact: Mapped[str | None] = mapped_column(ForeignKey("artifacts.sha256"))
    error: Mapped[str | None] = mapped_column(CleanText)
    lease_owner: Mapped[str | None] = mapped_column(NAME)
    lease_expires_at: Mapped[datetime | None]
    fence: Mapped[int]
    created_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
    __table_args__ = (
        Index("ix_runs_state_id", "state", "id"),
        Index("ix_runs_finished_at", "finished_at"),
        Index("ix_runs_input_artifact", "input_artifact"),
        Index("ix_runs_output_artifact", "output_artifact"),
    )
