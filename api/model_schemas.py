"""Answers about models: as they were read, what their kernels take, and calls of them."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from tuner.api.schemas import Answer
from tuner.workload.workload import Numerics


class ModelRunAnswer(Answer):
    id: str
    job: str = Field(description="the model's")
    state: str
    created_at: datetime


class TensorAnswer(Answer):
    name: str
    dtype: str
    shape: list[int]


class ModelStepAnswer(Answer):
    kernel: str = Field(description="key of the workload")
    name: str
    numerics: Numerics
    calls: int = Field(description="in one call of the model")
    reads: list[TensorAnswer]
    constants: list[str] = Field(description="which of `reads` are constants of the model")
    writes: list[TensorAnswer]
    after: list[int] = Field(description="positions of the steps whose results it reads, from 0")
    inputs: list[int] = Field(description="positions of the model's inputs that it reads")
    outputs: list[int] = Field(description="positions of the model's outputs that it computes")


class ModelShareAnswer(Answer):
    """What a kernel takes within the model's library."""

    kernel: str = Field(description="key of the workload")
    calls: int = Field(description="in one call of the model")
    inside_s: float = Field(description="of one call")
    share: float = Field(description="of the time of all kernels")
    peak_fraction: float | None = Field(description="of the machine's multiply-add rate")


class ModelAnswer(Answer):
    """A model as it was read from its file."""

    job: str
    state: str = Field(description="of the job")
    inputs: list[TensorAnswer] = Field(description="under the names of the file")
    outputs: list[TensorAnswer]
    steps: list[ModelStepAnswer] = Field(description="the calls of kernels, in order")
    constants_bytes: int
    activations_bytes: int = Field(description="of a call, at its peak, without its arguments")
    median_s: float | None = Field(description="of a call; null before there is a library")
    ci95_s: tuple[float, float] | None
    disturbed: bool = Field(
        default=False,
        description="whether the interval is wider than a tenth of the median, so that the "
        "figure is in doubt",
    )
    max_rel_error: float | None = Field(description="against ONNX's reference evaluator")
    shares: list[ModelShareAnswer] = Field(
        description="where the library's time goes, the greatest part first"
    )
