"""A run is of a kernel or of a model's job."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

JOB = "fk_runs_job_id_jobs"


def upgrade() -> None:
    with op.batch_alter_table("runs") as runs:
        runs.alter_column("kernel_id", existing_type=sa.String(length=32), nullable=True)
        runs.add_column(sa.Column("job_id", sa.String(length=32), nullable=True))
        runs.create_foreign_key(JOB, "jobs", ["job_id"], ["id"], ondelete="CASCADE")


def downgrade() -> None:
    op.execute("DELETE FROM runs WHERE kernel_id IS NULL")
    with op.batch_alter_table("runs") as runs:
        runs.drop_constraint(JOB, type_="foreignkey")
        runs.drop_column("job_id")
        runs.alter_column("kernel_id", existing_type=sa.String(length=32), nullable=False)
