"""Delivers artifacts of the store: immutable, with their digest as ETag, possibly signed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Header, Response

from tuner.api.ranges import deliver
from tuner.api.service import Service
from tuner.db.artifacts import Artifact


@dataclass(frozen=True, kw_only=True)
class DownloadHeaders:
    """Request headers for partial and conditional downloads, as a dependency of routes."""

    range_header: Annotated[str | None, Header(alias="Range", max_length=200)] = None
    if_none_match: Annotated[str | None, Header(max_length=2000)] = None
    if_range: Annotated[str | None, Header(max_length=200)] = None


def deliver_artifact(
    service: Service,
    artifact: Artifact,
    download: DownloadHeaders,
    *,
    filename: str,
    media_type: str,
) -> Response:
    """The artifact, or the requested part of it, as an answer.

    Raises the store's errors if its bytes are missing or do not match their digest.
    """
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
        range_header=download.range_header,
        if_none_match=download.if_none_match,
        if_range=download.if_range,
    )
