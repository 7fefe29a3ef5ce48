"""Jobs and kernels say what their timed calls found in the caches; until now all were warm.

Warm and cold kernels of a workload are promoted side by side.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

NAME, PROMOTED = "uq_kernels_promoted", sa.text("state = 'promoted'")
KEY = ["workload_key", "target_key", "threads"]


def upgrade() -> None:
    for table in ("jobs", "kernels"):
        op.add_column(
            table, sa.Column("cache", sa.String(length=32), server_default="warm", nullable=False)
        )
    _index([*KEY, "cache"])


def downgrade() -> None:
    # What was measured with cold caches must not pass for warm.
    op.execute("UPDATE kernels SET state = 'superseded' WHERE cache <> 'warm'")
    op.execute("DELETE FROM trials WHERE job_id IN (SELECT id FROM jobs WHERE cache <> 'warm')")
    _index(KEY)
    for table in ("kernels", "jobs"):
        op.drop_column(table, "cache")


def _index(columns: list[str]) -> None:
    op.drop_index(NAME, table_name="kernels", sqlite_where=PROMOTED, postgresql_where=PROMOTED)
    op.create_index(
        NAME, "kernels", columns, unique=True, sqlite_where=PROMOTED, postgresql_where=PROMOTED
    )
