"""Requests and answers of estimates, as `tuner.api.schemas` has those of the other routes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tuner.api.schemas import (
    Answer,
    Request,
    TargetName,
    TargetRef,
    WorkloadAnswer,
    WorkloadRequest,
)

MAX_ESTIMATES = 10_000


class EstimatesRequest(Request):
    """Workloads whose time is asked for. Nothing is queued or compiled."""

    workloads: list[WorkloadRequest] = Field(min_length=1, max_length=MAX_ESTIMATES)
    target: TargetName | None = None
    threads: Annotated[int, Field(strict=True, ge=1, le=1024)] = 1


class LearningRequest(EstimatesRequest):
    """Workloads whose times are to be surer, and what may be spent on it."""

    weights: list[Annotated[float, Field(ge=0.0, le=1e12, allow_inf_nan=False)]] | None = Field(
        default=None,
        description="how much each workload's time matters, such as its calls; left out: alike",
    )
    seconds: Annotated[float, Field(ge=20.0, le=2_592_000.0, allow_inf_nan=False)] = Field(
        description="of tuning in all; each workload gets 20 or more"
    )
    trials: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] = Field(
        default=256, description="for each workload at most"
    )
    priority: Annotated[int, Field(strict=True, ge=-100, le=100)] = 0

    @model_validator(mode="after")
    def one_weight_each(self) -> LearningRequest:
        if self.weights is not None and len(self.weights) != len(self.workloads):
            raise ValueError(
                f"{len(self.weights)} weights for {len(self.workloads)} workloads; give one each, "
                f"or none"
            )
        return self


class EstimateAnswer(Answer):
    workload: WorkloadAnswer
    median_s: float
    low_s: float = Field(description="of the interval: 95% of a measurement, else 90%")
    high_s: float
    source: Literal["measured", "neighbour", "predicted"]
    kernel: str | None = Field(
        default=None, description="the measured kernel, or that of the neighbour"
    )
    neighbour: str | None = Field(default=None, description="spec of the neighbour")
    disturbed: bool = Field(
        default=False, description="of a measurement: whether its interval is wider than a tenth"
    )


class AccuracyAnswer(Answer):
    """How wrong the predictor is about kernels that were left out of what it learned."""

    kernels: int = Field(description="promoted kernels it learns from")
    median_error: float = Field(description="|estimate / time - 1|")
    within_10_percent: float = Field(description="share of the kernels")
    coverage: float = Field(description="share whose time lay in its interval of 90%")
    tau: float | None = Field(description="Kendall's, mean over operators of three kernels or more")


class EstimatesAnswer(Answer):
    items: list[EstimateAnswer] = Field(description="in the order of the request")
    target: TargetRef
    threads: int
    accuracy: AccuracyAnswer | None = Field(
        description="null where every workload was measured and too few kernels are there"
    )
