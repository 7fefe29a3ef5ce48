"""Queries about artifacts: what is known of the bytes in the store, and which of them are still needed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, select

from db.engine import Session
from db.errors import NotFound
from db.models import ArtifactRow, JobRow, KernelRow, RunRow

KEPT = ("object", "export")  # digests that a kernel's schedule names: its object code, the archive of its export


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    sha256: str
    size_bytes: int
    kind: str  # library, object, export, model, input, output
    signature: str | None  # Ed25519 over the digest as 64 hex digits, base64
    created_at: datetime


def remember(session: Session, *, sha256: str, size_bytes: int, kind: str, signature: str | None = None) -> str:
    """Notes that the store holds these bytes; put them there first. Known ones are left as they are."""
    session.insert_new(
        ArtifactRow,
        {"sha256": sha256, "size_bytes": size_bytes, "kind": kind, "signature": signature, "created_at": session.now()},
    )
    return sha256


def get(session: Session, sha256: str) -> Artifact:
    row = session.get(ArtifactRow, sha256)
    if row is None:
        raise NotFound(f"no artifact {sha256!r} is known")
    return Artifact(
        sha256=row.sha256, size_bytes=row.size_bytes, kind=row.kind, signature=row.signature, created_at=row.created_at
    )


def live(session: Session) -> frozenset[str]:
    """Digests that a kernel, its schedule, a run or a model's job refers to; the store may drop all others that are not fresh."""
    used: set[str] = set()
    used.update(session.scalars(select(KernelRow.artifact).distinct()))
    used.update(session.scalars(select(RunRow.input_artifact).distinct()))
    used.update(digest for digest in session.scalars(select(RunRow.output_artifact).distinct()) if digest is not None)
    named = [KernelRow.schedule[name].as_string() for name in KEPT]
    for digest in (*named, *(JobRow.settings[name].as_string() for name in ("model", "library"))):
        used.update(session.scalars(select(digest).where(digest.is_not(None)).distinct()))
    return frozenset(used)


def forget_unused(session: Session, before: datetime) -> tuple[str, ...]:
    """Deletes the rows of artifacts made before `before` that nothing refers to; their digests, to be dropped from the store."""
    used = live(session)
    old = session.scalars(select(ArtifactRow.sha256).where(ArtifactRow.created_at < before))
    unused = tuple(digest for digest in old if digest not in used)
    for digest in unused:
        session.execute(delete(ArtifactRow).where(ArtifactRow.sha256 == digest))
    return unused
