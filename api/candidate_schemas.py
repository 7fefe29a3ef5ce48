"""Requests and answers of foreign kernels, as `tuner.api.schemas` has the others."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tuner.api.schemas import Answer, JobAnswer, Request, TargetName, WorkloadRequest
from tuner.measure.foreign.compiler import MOST_SOURCE_BYTES


class CandidateRequest(Request):
    """A kernel in C to be judged."""

    workload: WorkloadRequest
    source: str = Field(
        min_length=1,
        max_length=MOST_SOURCE_BYTES,
        description="C text with the function that `signature` of the answer declares; UTF-8",
    )
    target: TargetName | None = Field(
        default=None, description="a CPU; left out: the service's only or most recently seen one"
    )
    threads: Annotated[int, Field(strict=True, ge=1, le=1024)] = Field(
        default=1, description="of the kernel that it is timed with; its own have one"
    )
    priority: Annotated[int, Field(strict=True, ge=-100, le=100)] = Field(
        default=0, description="higher goes first"
    )


class ElementAnswer(Answer):
    output: str
    index: list[int]
    value: float | str = Field(description="a text where it is not finite")
    expected: float | str
    inputs: str = Field(
        description="kind of inputs: normal, large, zeros, fresh, special, positive"
    )


class ForeignTimeAnswer(Answer):
    median_s: float
    ci95_s: tuple[float, float]
    roofline_fraction: float | None = Field(description="share of the machine's limit")
    rival: str = Field(description="incumbent or default")
    rival_median_s: float
    ratio: float = Field(description="its time divided by the rival's: below 1 it is faster")
    ratio_ci95: tuple[float, float]


class VerdictAnswer(Answer):
    verdict: str = Field(description="verified, or what it did wrong")
    message: str
    element: ElementAnswer | None = Field(description="the first wrong element")
    max_rel_error: float | None
    time: ForeignTimeAnswer | None


class CandidateAnswer(Answer):
    job: JobAnswer
    symbol: str = Field(description="name of the function that the source defines")
    signature: str = Field(description="its declaration in C")
    verdict: VerdictAnswer | None = Field(description="null until the job has succeeded")
