"""Requests and answers of foreign kernels, as `tuner.api.schemas` has the others."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tuner.api.schemas import Answer, JobAnswer, Request, TargetName, WorkloadRequest
from tuner.measure.foreign.compiler import MOST_SOURCE_BYTES

Language = Literal["c", "cuda"]
Extents = Annotated[
    list[Annotated[int, Field(strict=True, ge=1, le=2**31 - 1)]], Field(min_length=1, max_length=3)
]


class LaunchRequest(Request):
    """How a kernel in CUDA C++ is launched, once in each call."""

    grid: Extents = Field(description="blocks along x, y, z; those left out are 1")
    block: Extents = Field(description="threads of a block along x, y, z; those left out are 1")
    shared_bytes: Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)] = Field(
        default=0, description="dynamic shared memory of a block"
    )


class CandidateRequest(Request):
    """A kernel in C or CUDA C++ to be judged."""

    workload: WorkloadRequest
    source: str = Field(
        min_length=1,
        max_length=MOST_SOURCE_BYTES,
        description="text with the function that `signature` of the answer declares; UTF-8",
    )
    language: Language = Field(default="c", description="c for a CPU, cuda (C++) for a GPU")
    launch: LaunchRequest | None = Field(default=None, description="of a source in cuda alone")
    target: TargetName | None = Field(
        default=None,
        description="what it is for; left out: the service's only or most recently seen one",
    )
    threads: Annotated[int, Field(strict=True, ge=1, le=1024)] = Field(
        default=1, description="of the kernel that it is timed with; its own have one"
    )
    priority: Annotated[int, Field(strict=True, ge=-100, le=100)] = Field(
        default=0, description="higher goes first"
    )

    @model_validator(mode="after")
    def launched(self) -> CandidateRequest:
        if (self.language == "c") == (self.launch is not None):
            raise ValueError(
                "a source in cuda comes with 'launch', its grid and block; one in c without"
            )
        return self


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
    language: Language
    signature: str = Field(description="its declaration")
    verdict: VerdictAnswer | None = Field(description="null until the job has succeeded")
