"""Jobs have an objective, and kernels what objectives beside time are judged by."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

FIGURES: tuple[tuple[str, Any], ...] = (
    ("workspace_bytes", sa.BigInteger()),
    ("code_bytes", sa.BigInteger()),
    ("instances", sa.Integer()),
    ("calls_per_s", sa.Double()),
    ("energy_j", sa.Double()),
)


def upgrade() -> None:
    op.add_column(
        "jobs",
        sa.Column("objective", sa.String(length=32), server_default="time", nullable=False),
    )
    for name, kind in FIGURES:
        op.add_column("kernels", sa.Column(name, kind, nullable=True))


def downgrade() -> None:
    # The state is unknown to older programs: what they ask for is the fastest alone.
    op.execute("UPDATE kernels SET state = 'superseded' WHERE state = 'tradeoff'")
    for name, _ in FIGURES:
        op.drop_column("kernels", name)
    op.drop_column("jobs", "objective")
