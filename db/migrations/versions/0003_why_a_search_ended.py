"""Why the last search of a workload ended; unknown for those of before."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tasks", sa.Column("stopped", sa.String(length=32), nullable=True))


def downgrade() -> None:
    op.drop_column("tasks", "stopped")
