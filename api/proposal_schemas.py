"""Requests and answers of external searchers, as `tuner.api.schemas` has the others."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from tuner.api.schemas import Answer, Request

MAX_PROPOSALS = 1000  # in a batch

Extent = Annotated[int, Field(strict=True, ge=-(2**53), le=2**53)]
KnobValue = (
    Annotated[bool, Field(strict=True)]
    | Extent
    | Annotated[str, Field(strict=True, max_length=200)]
    | Annotated[list[Extent], Field(max_length=64)]
)
KnobName = Annotated[str, Field(min_length=1, max_length=200)]


class ProposalRequest(Request):
    """Configs by knob, as trials have them; knobs that are left out stay at their first value."""

    workload: Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)] = 0
    first: Annotated[int, Field(strict=True, ge=0, le=10_000_000)] = Field(
        description="number of the first config among all proposals of the workload, from 0"
    )
    configs: list[Annotated[dict[KnobName, KnobValue], Field(max_length=500)]] = Field(
        max_length=MAX_PROPOSALS
    )
    close: Annotated[bool, Field(strict=True)] = Field(
        default=False, description="no more will come: the job ends when these are measured"
    )


class ProposalsAnswer(Answer):
    total: int = Field(description="proposals of the workload until now; the next one's number")
    closed: bool
    configs: list[dict[str, Any]] = Field(
        description="of the request; of a listing at most 1000, as the trials have them"
    )


class KnobAnswer(Answer):
    name: str
    values: list[Any]


class SketchAnswer(Answer):
    name: str = Field(description="the value of the knob `sketch`")
    knobs: list[KnobAnswer]


class SpaceAnswer(Answer):
    size: int = Field(description="points")
    sketches: list[SketchAnswer]
