"""Queries about artifacts: metadata of the store's contents, and which are unused."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import and_, delete, exists, or_, select

from tuner.db.engine import Session
from tuner.db.errors import NotFound
from tuner.db.tables import ArtifactRow, KernelRow, RunRow

# kinds that are deleted with the last run that refers to them; all others stay
OF_RUNS = ("input", "output")


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    sha256: str
    size_bytes: int
    kind: str  # library, object, export, model, input, output
    signature: str | None  # Ed25519 over the digest as 64 hex digits, base64
    created_at: datetime


def remember(
    session: Session, *, sha256: str, size_bytes: int, kind: str, signature: str | None = None
) -> str:
    """Records that the store holds these bytes, which must be put there first.

    A row that exists is left as it is and locked until the transaction ends, so that it
    may be referred to. An artifact that so far belonged to runs only changes its kind to
    `kind`, so that it is not deleted with them.
    """
    new = {
        "sha256": sha256,
        "size_bytes": size_bytes,
        "kind": kind,
        "signature": signature,
        "created_at": session.now(),
    }
    same_digest = (
        select(ArtifactRow)
        .where(ArtifactRow.sha256 == sha256)
        .with_for_update(read=True, key_share=True)
    )
    while not session.insert_new(ArtifactRow, new):
        row = session.scalars(
            same_digest, execution_options={"populate_existing": True}
        ).one_or_none()
        if row is None:
            continue  # another transaction forgot it just now
        if row.kind in OF_RUNS and kind not in OF_RUNS:
            row.kind, row.signature = kind, signature
        break
    return sha256


def get(session: Session, sha256: str) -> Artifact:
    row = session.get(ArtifactRow, sha256)
    if row is None:
        raise NotFound(f"no artifact {sha256!r} is known")
    return Artifact(
        sha256=row.sha256,
        size_bytes=row.size_bytes,
        kind=row.kind,
        signature=row.signature,
        created_at=row.created_at,
    )


def forget_unused(session: Session, digests: Collection[str]) -> tuple[str, ...]:
    """Deletes the rows of artifacts of runs that nothing refers to any more.

    Returns their digests, which may be dropped from the store afterwards. The rows are
    locked first: a transaction that has just remembered one of them ends before, and its
    references are seen.
    """
    ours = and_(ArtifactRow.sha256.in_(digests), ArtifactRow.kind.in_(OF_RUNS))
    session.execute(
        select(ArtifactRow.sha256).where(ours).order_by(ArtifactRow.sha256).with_for_update()
    )
    of_run = or_(
        RunRow.input_artifact == ArtifactRow.sha256, RunRow.output_artifact == ArtifactRow.sha256
    )
    used = or_(exists().where(of_run), exists().where(KernelRow.artifact == ArtifactRow.sha256))
    unused = delete(ArtifactRow).where(ours, ~used).returning(ArtifactRow.sha256)
    return tuple(session.scalars(unused, execution_options={"synchronize_session": False}))
