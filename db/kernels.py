"""Queries about kernels: which is promoted, and what is known of each.

At most one kernel of a (workload, target, threads, cache) is promoted. Queries are for warm
caches where they are not told otherwise: what was measured cold answers only who asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, cast

from sqlalchemy import literal, select, update

from tuner.db.engine import Session
from tuner.db.errors import NotFound
from tuner.db.pages import Page, checked_limit, decode, page
from tuner.db.tables import KernelRow, WorkloadRow
from tuner.db.values import config_from_json
from tuner.errors import UsageError
from tuner.measure.cache import WARM, Cache
from tuner.measure.objective import Figures
from tuner.measure.statistics import disturbed
from tuner.spaces.core.space import Config

PROMOTED, SUPERSEDED, ROLLED_BACK = "promoted", "superseded", "rolled back"
CANARY = "canary"  # won its race, and is to win again beside the champion, which is promoted
TRADEOFF = "tradeoff"  # beside the promoted one, with less workspace or code
STATES = (PROMOTED, SUPERSEDED, ROLLED_BACK, CANARY, TRADEOFF)
RUNNERS_UP = "runners_up"  # in a schedule: others of the race, to be tried within a model
# Written into the statement, not bound: SQLite uses the partial index only where it
# sees the constant.
IS_PROMOTED = KernelRow.state == literal(PROMOTED, literal_execute=True)

FIGURES = tuple(each.name for each in fields(Figures))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """All of a kernel but its schedule, which is large: see `schedule`."""

    id: str
    workload: str
    target: str
    threads: int
    cache: Cache
    state: str
    config: Config
    artifact: str
    median_s: float
    ci95_s: tuple[float, float]
    gflops: float
    roofline_fraction: float | None
    max_rel_error: float
    verified: bool
    default_median_s: float | None
    versions: Mapping[str, str]
    race: Mapping[str, Any]
    job: str | None
    trial: int | None
    previous: str | None
    stale: str | None  # why it must be timed again before it is trusted
    validated_at: datetime
    created_at: datetime
    workspace_bytes: int | None = None  # memory for temporaries, over all threads
    code_bytes: int | None = None  # machine code
    instances: int | None = None  # side by side on all cores, as `calls_per_s` is of
    calls_per_s: float | None = None
    energy_j: float | None = None  # of a call

    @property
    def figures(self) -> Figures:
        return Figures(**{each: getattr(self, each) for each in FIGURES})

    @property
    def disturbed(self) -> bool:
        """Whether its race had so wide an interval that the median is in doubt."""
        return disturbed(self.median_s, self.ci95_s)


def find_promoted(
    session: Session, workload: str, target: str, threads: int, *, cache: Cache = WARM
) -> Kernel | None:
    """The kernel of (workload, target, threads, cache), if there is one."""
    query = select(KernelRow).where(
        KernelRow.workload_key == workload,
        KernelRow.target_key == target,
        KernelRow.threads == threads,
        KernelRow.cache == cache,
        IS_PROMOTED,
    )
    row = session.scalars(query.execution_options(populate_existing=True)).one_or_none()
    return None if row is None else record_of(row)


def fastest_threads(
    session: Session, workload: str, target: str, *, cache: Cache = WARM
) -> int | None:
    """The thread count of the fastest promoted kernel; None where there is none."""
    query = (
        select(KernelRow.threads)
        .where(
            KernelRow.workload_key == workload,
            KernelRow.target_key == target,
            KernelRow.cache == cache,
            IS_PROMOTED,
        )
        .order_by(KernelRow.median_s, KernelRow.threads)
        .limit(1)
    )
    return session.scalars(query).one_or_none()


def find_canary(
    session: Session, workload: str, target: str, threads: int, *, cache: Cache = WARM
) -> Kernel | None:
    """The canary of (workload, target, threads, cache), if there is one."""
    query = select(KernelRow).where(
        KernelRow.workload_key == workload,
        KernelRow.target_key == target,
        KernelRow.threads == threads,
        KernelRow.cache == cache,
        KernelRow.state == CANARY,
    )
    row = session.scalars(query.execution_options(populate_existing=True)).one_or_none()
    return None if row is None else record_of(row)


def get(session: Session, kernel_id: str) -> Kernel:
    query = (
        select(KernelRow).where(KernelRow.id == kernel_id).execution_options(populate_existing=True)
    )
    row = session.scalars(query).one_or_none()
    if row is None:
        raise NotFound(f"no kernel {kernel_id!r} is known; `tuner best` lists them")
    return record_of(row)


def schedule(session: Session, kernel_id: str) -> Mapping[str, Any]:
    """The schedule a kernel was built from: module, trace and versions."""
    document: Mapping[str, Any] | None = session.scalars(
        select(KernelRow.schedule).where(KernelRow.id == kernel_id)
    ).one_or_none()
    if document is None:
        raise NotFound(f"no kernel {kernel_id!r} is known; `tuner best` lists them")
    return document


def lineage(session: Session, kernel_id: str) -> tuple[Kernel, ...]:
    """The kernel and those it replaced, the newest first."""
    chain = [get(session, kernel_id)]
    while chain[-1].previous is not None:
        chain.append(get(session, chain[-1].previous))
    return tuple(chain)


def list_page(
    session: Session,
    *,
    state: Sequence[str] = (PROMOTED,),
    workload: str | None = None,
    target: str | None = None,
    op: str | None = None,
    job: str | None = None,
    cache: Cache | None = None,
    text: str = "",
    oldest_first: bool = False,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[Kernel]:
    """One page of kernels: by default the promoted ones, the newest first.

    With a `text`, only those whose workload's spec contains it.
    """
    limit = checked_limit(limit)
    listing = "kernels, oldest first" if oldest_first else "kernels"
    unknown = set(state) - set(STATES)
    if unknown:
        raise UsageError(f"unknown state {sorted(unknown)[0]!r}; kernels are {', '.join(STATES)}")
    query = (
        select(KernelRow)
        .order_by(KernelRow.id.asc() if oldest_first else KernelRow.id.desc())
        .limit(limit + 1)
    )
    if state:
        query = query.where(KernelRow.state.in_(state))
    columns = {
        KernelRow.workload_key: workload,
        KernelRow.target_key: target,
        KernelRow.job_id: job,
        KernelRow.op: op,
        KernelRow.cache: cache,
    }
    query = query.where(
        *(column == value for column, value in columns.items() if value is not None)
    )
    if text:
        query = query.join(WorkloadRow, WorkloadRow.key == KernelRow.workload_key).where(
            WorkloadRow.spec.icontains(text, autoescape=True)
        )
    if cursor is not None:
        last_id = decode(listing, cursor, [str])[0]
        query = query.where(KernelRow.id > last_id if oldest_first else KernelRow.id < last_id)
    rows = session.scalars(query).all()
    return page([record_of(row) for row in rows], limit, listing, [(row.id,) for row in rows])


def neighbours(
    session: Session,
    op: str,
    target: str,
    threads: int,
    *,
    cache: Cache = WARM,
    limit: int = 100,
) -> tuple[Kernel, ...]:
    """Promoted kernels of one operator, the newest first: candidates for a neighbour."""
    query = (
        select(KernelRow)
        .where(
            KernelRow.op == op,
            KernelRow.target_key == target,
            KernelRow.threads == threads,
            KernelRow.cache == cache,
            IS_PROMOTED,
        )
        .order_by(KernelRow.id.desc())
        .limit(limit)
    )
    return tuple(record_of(row) for row in session.scalars(query))


def mark_stale(session: Session, target: str, reason: str) -> int:
    """Marks all promoted kernels of a target, and tradeoffs; returns how many.

    The promoted ones are timed again, the others are no longer chosen.

    Needed after TVM, the driver or the machine changed.
    """
    served = KernelRow.state.in_((PROMOTED, TRADEOFF))
    where = (KernelRow.target_key == target, served, KernelRow.stale.is_(None))
    return session.count_rows(update(KernelRow).where(*where).values(stale=reason))


def mark_validated(session: Session, kernel_id: str) -> None:
    """Notes that a kernel was timed again and stands."""
    session.execute(
        update(KernelRow)
        .where(KernelRow.id == kernel_id)
        .values(stale=None, validated_at=session.now())
    )


def settle_disturbed(
    session: Session,
    kernel_id: str,
    median_s: float,
    ci95_s: tuple[float, float],
    default_median_s: float | None,
) -> None:
    """Puts the time of an undisturbed race in the place of a disturbed one.

    A time that was not disturbed stays: what a kernel has lost since is told by its races.
    """
    before = get(session, kernel_id)
    if not before.disturbed:
        return
    if default_median_s is None:  # the race that was disturbed says no more of it
        default_median_s = before.default_median_s
    ratio = before.median_s / median_s
    share = before.roofline_fraction
    session.execute(
        update(KernelRow)
        .where(KernelRow.id == kernel_id)
        .values(
            median_s=median_s,
            ci95_low_s=ci95_s[0],
            ci95_high_s=ci95_s[1],
            gflops=before.gflops * ratio,
            roofline_fraction=None if share is None else share * ratio,
            default_median_s=default_median_s,
        )
    )


def record_of(row: KernelRow) -> Kernel:
    same = (
        "id", "threads", "state", "artifact", "median_s", "gflops", "roofline_fraction",
        "max_rel_error", "verified",
        "default_median_s", "workspace_bytes", "code_bytes", "instances", "calls_per_s", "energy_j",
        "versions", "race", "stale", "validated_at", "created_at",
    )  # fmt: skip
    return Kernel(
        workload=row.workload_key,
        target=row.target_key,
        cache=cast(Cache, row.cache),
        config=config_from_json(row.config),
        ci95_s=(row.ci95_low_s, row.ci95_high_s),
        job=row.job_id,
        trial=row.trial_number,
        previous=row.previous_id,
        **{name: getattr(row, name) for name in same},
    )
