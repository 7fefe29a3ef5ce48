"""Trials are found by the values of their knobs without reading their configs: bits of
them, in the indexes that lists walk."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from tuner.db.knob_bits import knob_bits

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

AT_ONCE = 5000  # rows: a million take about a minute, and memory for a few thousand
JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
TRIALS = sa.table(
    "trials",
    sa.column("id", sa.BigInteger),
    sa.column("config", JSON),
    sa.column("knob_bits", sa.BigInteger),
)


def upgrade() -> None:
    op.add_column(
        "trials", sa.Column("knob_bits", sa.BigInteger(), server_default="0", nullable=False)
    )
    op.drop_index("ix_trials_median", table_name="trials")
    fill()
    by_median = ["job_id", "median_s", "position", "number", "knob_bits"]
    op.create_index(
        "ix_trials_median", "trials", by_median, unique=False, postgresql_include=["id"]
    )
    by_number = ["job_id", "position", "number", "knob_bits"]
    op.create_index(
        "ix_trials_number", "trials", by_number, unique=False, postgresql_include=["id"]
    )


def downgrade() -> None:
    op.drop_index("ix_trials_number", table_name="trials")
    op.drop_index("ix_trials_median", table_name="trials")
    op.drop_column("trials", "knob_bits")
    op.create_index(
        "ix_trials_median", "trials", ["job_id", "median_s", "position", "number"], unique=False
    )


def fill() -> None:
    """The bits of the trials that are there already."""
    connection, last = op.get_bind(), 0
    change = (
        sa.update(TRIALS)
        .where(TRIALS.c.id == sa.bindparam("row"))
        .values(knob_bits=sa.bindparam("bits"))
    )
    while True:
        query = (
            sa.select(TRIALS.c.id, TRIALS.c.config)
            .where(TRIALS.c.id > last)
            .order_by(TRIALS.c.id)
            .limit(AT_ONCE)
        )
        rows = connection.execute(query).all()
        if not rows:
            return
        connection.execute(change, [{"row": row.id, "bits": knob_bits(row.config)} for row in rows])
        last = rows[-1].id
