"""Requests and answers of lookups, as `tuner.api.schemas` has those of the other routes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tuner.api.schemas import (
    Answer,
    AskedCache,
    AskedObjective,
    KernelAnswer,
    LossAnswer,
    Request,
    TargetName,
    WorkloadRequest,
)
from tuner.measure.cache import WARM
from tuner.measure.objective import FASTEST


class LookupRequest(Request):
    workload: WorkloadRequest
    cache: AskedCache = WARM
    objective: AskedObjective = FASTEST.text
    within: Annotated[float, Field(ge=0.0, le=1e6, allow_inf_nan=False)] | None = Field(
        default=None,
        description="only kernels that take longer than the fastest by at most this share: 0.2 "
        "for 20%",
    )
    target: TargetName | None = None
    threads: Annotated[int, Field(strict=True, ge=1, le=1024)] | Literal["auto"] | None = Field(
        default=None,
        description="`auto`: whatever count serves the objective best, 1 where there is no kernel; "
        "left out: 1, and `auto` for throughput",
    )
    prepare: Annotated[bool, Field(strict=True)] = Field(
        default=True,
        description="queue a job that prepares an exact kernel where there is none (needs the "
        "submit scope)",
    )


class LookupAnswer(Answer):
    source: Literal["exact", "neighbour", "default"]
    kernel: KernelAnswer | None = Field(
        description="the exact kernel; for `neighbour` the kernel whose schedule will be "
        "replayed; null for `default`"
    )
    front: list[KernelAnswer] | None = Field(
        default=None,
        description="of two objectives: the kernels that none beats in both, the best by the "
        "first at the beginning; `kernel` is that one",
    )
    job: str | None = Field(
        description="the job that prepares an exact kernel, where one was queued or is under way"
    )
    loss: LossAnswer | None = Field(
        default=None,
        description="of the kernel, and for `default` without one, of that which the job makes",
    )
