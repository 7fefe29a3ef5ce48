"""Runs are found by when they finished and by their artifacts, so that old ones can be
deleted without reading all of them."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

COLUMNS = ("finished_at", "input_artifact", "output_artifact")


def upgrade() -> None:
    for column in COLUMNS:
        op.create_index(f"ix_runs_{column}", "runs", [column], unique=False)


def downgrade() -> None:
    for column in COLUMNS:
        op.drop_index(f"ix_runs_{column}", table_name="runs")
