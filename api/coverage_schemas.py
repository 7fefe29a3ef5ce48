"""Answers about recorded calls: which have tuned kernels, and what these gain."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from tuner.api.schemas import Answer


class CoveredCallAnswer(Answer):
    """Calls of one operator with arguments of one kind."""

    library: Literal["numpy", "torch", "onnxruntime"]
    operator: str
    arguments: list[dict[str, Any]] = Field(description="as in the record of the program")
    count: float
    total_s: float = Field(description="of all of them, by the library")
    state: Literal["tuned", "untuned", "fallback"]
    reason: str | None = Field(description="why no kernel could compute it")
    kernels_s: float | None = Field(description="of all of them by kernels; null if not known")
    measured: bool = Field(description="whether that was measured, not estimated")
    gain_s: float
    answered: bool = Field(description="whether `tuner run` lets kernels answer")
    run_gain_s: float = Field(description="what that saves, looking at each call included")


class CoverageAnswer(Answer):
    """A program's recorded calls beside the kernels of today."""

    items: list[CoveredCallAnswer] = Field(description="the longest in all first")
    next: None = Field(description="always null: the list is whole")
    total_s: float = Field(description="of all recorded calls")
    tuned_s: float
    untuned_s: float
    gain_s: float
    run_gain_s: float
    unestimated: str | None = Field(description="why untuned calls have no time by kernels")
