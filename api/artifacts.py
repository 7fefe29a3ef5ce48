"""Artifacts of the store as answers: immutable, their digest as the tag, signed where
the service signs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Header, Response

from tuner.api.ranges import deliver
from tuner.api.service import Service
from tuner.db.artifacts import Artifact


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What of an artifact a request wants, and what its client has of it: a dependency
    of routes."""

    range_header: Annotated[str | None, Header(alias="Range", max_length=200)] = None
    if_none_match: Annotated[str | None, Header(max_length=2000)] = None
    if_range: Annotated[str | None, Header(max_length=200)] = None


def deliver_artifact(
    service: Service, artifact: Artifact, asked: Asked, *, filename: str, media_type: str
) -> Response:
    """Raises what the store raises where its bytes are gone or are not what their digest says."""
    headers = {
        "Content-Disposition": f'attachment; filename="{filename}"',
        "Cache-Control": "private, max-age=31536000, immutable",
        "Vary": "Authorization",
    }
    if artifact.signature is not None:
        headers["X-Signature-Ed25519"] = artifact.signature
    return deliver(
        service.artifacts.get(artifact.sha256),
        etag=f'"{artifact.sha256}"',
        headers=headers,
        media_type=media_type,
        range_header=asked.range_header,
        if_none_match=asked.if_none_match,
        if_range=asked.if_range,
    )
