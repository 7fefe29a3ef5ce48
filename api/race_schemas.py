"""Answers about kernels' races over time, and about what they lost."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from tuner.api.schemas import Answer

RegressionState = Literal["suspected", "raised", "dismissed", "resolved"]


class ContestAnswer(Answer):
    """A library, or the default schedule, in a race."""

    contender: str
    version: str
    median_s: float
    ci95_s: tuple[float, float]
    ratio: float = Field(
        description="its time divided by the kernel's, round by round: above 1 the kernel is faster"
    )
    ratio_ci95: tuple[float, float]


class RaceAnswer(Answer):
    """A kernel's race against what was installed at the time."""

    raced_at: datetime
    libraries: dict[str, str] = Field(description="installed then: version by name")
    median_s: float | None = Field(description="of the kernel; null where it failed")
    ci95_s: tuple[float, float] | None
    disturbed: bool = Field(description="whether its interval is too wide to say anything")
    error: str | None = Field(description="why the kernel failed")
    contests: list[ContestAnswer]


class RacesAnswer(Answer):
    """All races of a kernel since it was promoted, in order of time."""

    kernel: str
    items: list[RaceAnswer]


class RegressionAnswer(Answer):
    """What a promoted kernel lost."""

    id: int
    kernel: str
    kind: Literal["slower", "overtaken", "failed"]
    contender: str | None = Field(description="the library that overtook it")
    version: str | None = Field(description="of that library")
    state: RegressionState
    factor: float | None = Field(
        description="the kernel's time divided by what it was, or by the library's"
    )
    suspected_at: datetime
    raised_at: datetime | None
    ended_at: datetime | None
