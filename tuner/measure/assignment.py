"""What a runner is given: a workload and lane once, then a request for each candidate.

Plain data, with its form on the wire.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

from tuner.measure.outcome import (
    Failed,
    FailureKind,
    Outcome,
    Timed,
    conditions_from_document,
)
from tuner.measure.sandbox.isolation import DEFAULT_LEVEL
from tuner.measure.timing import SCREENING, TimingPlan
from tuner.measure.wire import Document
from tuner.workload.spec import from_document, to_document
from tuner.workload.workload import Workload

Verification = Literal["timed", "screening", "promotion"]
"""How much a kernel is checked.

timed: only the outputs of its timed calls. screening: on normal inputs before it is timed.
promotion: on all kinds of inputs.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Another machine, as the command that starts the agent there."""

    command: tuple[str, ...]  # e.g. ("ssh", "pi", "./tuner-agent"); it speaks on its streams
    folder: str = ""  # that the command is started in; empty: the current one
    memory_bytes: int = 0  # of the machine, as its agent said; 0: it was not asked

    @property
    def text(self) -> str:
        return shlex.join(self.command)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """The cores, the GPU, or the device that candidates are measured on."""

    name: str  # e.g. "cpu:1"
    # The operating system's numbers. Of a GPU's lane, the cores that it is driven from.
    cores: tuple[int, ...]
    # Number of the GPU among those that the process may use; None: the cores measure.
    gpu: int | None = None
    visible: str = ""  # of a GPU's lane: the only device that its processes may use
    device: Device | None = None  # that the cores belong to; None: this machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where generated code runs, and what it may use there."""

    lane: Lane
    threads: int = 1  # of the kernel, at most the lane's cores
    # "required", a level, or a level without some mechanisms: see
    # tuner.measure.sandbox.isolation.
    isolation: str = DEFAULT_LEVEL
    memory_bytes: int = 8 << 30  # address space that the code may map


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment(Placement):
    """The workload of all following requests, and where and how it is measured."""

    workload: Workload
    seed: int = 0  # of the inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One measurement: of a compiled library, or of a rival by name."""

    name: str  # of the contender, for messages
    library: str | None = None  # path of the shared library; None for a rival
    symbol: str = ""  # of the kernel in the library
    rival: str | None = None  # one of tuner.measure.rivals.rivals.RIVALS
    timeout_s: float = 10.0  # of the child, from its start to its result
    verification: Verification = "screening"
    plan: TimingPlan = field(default_factory=lambda: SCREENING)
    abandon_above_s: float | None = None
    # A disturbed timing is repeated where it may be below this; None: always.
    promising_s: float | None = None


def placement_to_document(placement: Placement) -> Document:
    """The placement as JSON."""
    return {
        "lane": asdict(placement.lane),
        "threads": placement.threads,
        "isolation": placement.isolation,
        "memory_bytes": placement.memory_bytes,
    }


def placement_from_document(document: Document) -> Placement:
    """The inverse of `placement_to_document`. Raises KeyError or TypeError."""
    return Placement(**_placement_fields(document))


def _placement_fields(document: Document) -> Document:
    lane = document["lane"]
    return {
        "lane": Lane(**{**lane, "cores": tuple(lane["cores"])}),
        **{name: document[name] for name in ("threads", "isolation", "memory_bytes")},
    }


def assignment_to_document(assignment: Assignment) -> Document:
    """The assignment as JSON."""
    return {
        **placement_to_document(assignment),
        "workload": to_document(assignment.workload),
        "seed": assignment.seed,
    }


def assignment_from_document(document: Document) -> Assignment:
    """The inverse of `assignment_to_document`.

    Raises KeyError or TypeError for what is no assignment, UsageError for an invalid
    workload.
    """
    return Assignment(
        workload=from_document(document["workload"]),
        seed=document["seed"],
        **_placement_fields(document),
    )


def request_to_document(request: Request) -> Document:
    return asdict(request)


def request_from_document(document: Document) -> Request:
    return Request(**{**document, "plan": TimingPlan(**document["plan"])})


def outcome_to_document(outcome: Outcome) -> Document:
    """The outcome as JSON."""
    if isinstance(outcome, Failed):
        return {"failed": {"kind": str(outcome.kind), "message": outcome.message}}
    return {"timed": asdict(outcome)}


def outcome_from_document(document: Mapping[str, Document]) -> Outcome:
    """The inverse of `outcome_to_document`.

    Raises KeyError, TypeError or ValueError for what is no outcome.
    """
    if "failed" in document:
        failed = document["failed"]
        return Failed(kind=FailureKind(failed["kind"]), message=str(failed["message"]))
    timed = dict(document["timed"])
    timed["samples_s"] = tuple(float(sample) for sample in timed["samples_s"])
    timed["conditions"] = conditions_from_document(timed["conditions"])
    return Timed(**timed)
