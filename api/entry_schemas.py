"""Requests and answers of the stores of other tuners, as `tuner.api.schemas` has the others."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from tuner.api.schemas import Answer, Request

MOST_CONTENT = 256 * 1024  # characters of an entry


class EntryRequest(Request):
    content: str = Field(max_length=MOST_CONTENT, description="a text; nobody here reads it")


class EntryAnswer(Answer):
    store: str
    key: str
    content: str
    created_at: datetime = Field(description="when it was last put")
