"""Options of an orchestrator, and its report of a job."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from tuner.db.jobs import Job
from tuner.measure.assignment import Lane
from tuner.measure.gpu.runner import GpuLane
from tuner.workers.fleet.messages import Limits
from tuner.workers.fleet.policy import PolicyName

LEASE_S = 30.0
# Enough to keep lanes busy while one job plans and another races. A search takes 150 MB.
RUNNING_JOBS = 4


class Interruption(Enum):
    """Why a caller wants the running job to stop."""

    CANCEL = "cancel"  # the job ends as cancelled; it can be resumed
    RELEASE = "release"  # the job goes back to the queue, for the next orchestrator


Interrupt = Callable[[], Interruption | None]


class Interrupted(Exception):
    """The job is to stop: raised between steps that cannot be interrupted themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrchestratorOptions:
    """How an orchestrator runs jobs, and on what."""

    artifacts: Path  # folder of the artifact store
    # file of the key that signs artifacts, made if it is missing; None: nothing is signed
    signing_key: Path | None = None
    lanes: str = ""  # declared lane plan; empty: detected
    builders: int = 0  # largest number of builders; 0: what the cores allow
    gpus: tuple[GpuLane, ...] = ()  # that measure, a lane each; empty: cores do
    devices: tuple[Lane, ...] = ()  # other machines that measure
    address: str | None = None  # of a Ray cluster; None: a local one is started
    limits: Limits = field(default_factory=Limits)
    lease_s: float = LEASE_S
    # who holds the leases
    owner: str = field(default_factory=lambda: f"{socket.gethostname()}:{os.getpid()}")
    policy: PolicyName = "fair"  # whose candidates go first when several jobs run
    running_jobs: int = RUNNING_JOBS  # most jobs at a time
    # races that a kernel must win before it takes a champion's place; 0: it takes it at once
    canary_races: int = 0
    judges: bool = True  # whether sources of others are compiled and judged
    running_per_key: int = 0  # of them, most of one API key; 0: no limit
    # largest share of the lanes' time for the jobs of one API key, while others need it
    lane_share: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """The job after this run."""

    job: Job
    # not even the default schedule of some workload could be verified (exit code 5)
    unverified: bool = False
