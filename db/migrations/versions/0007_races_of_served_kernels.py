"""Races of served kernels, their contests and what was lost have tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
ROW_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "races",
        sa.Column("id", ROW_NUMBER, nullable=False, autoincrement=True),
        sa.Column("kernel_id", sa.String(length=32), nullable=False),
        sa.Column("raced_at", TIME, nullable=False),
        sa.Column("libraries", JSON, nullable=False),
        sa.Column("median_s", sa.Double(), nullable=True),
        sa.Column("ci95_low_s", sa.Double(), nullable=True),
        sa.Column("ci95_high_s", sa.Double(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["kernel_id"], ["kernels.id"], name="fk_races_kernel_id_kernels", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_races"),
    )
    op.create_index("ix_races_kernel_id", "races", ["kernel_id", "id"], unique=False)
    op.create_table(
        "contests",
        sa.Column("race_id", ROW_NUMBER, nullable=False),
        sa.Column("contender", sa.String(length=32), nullable=False),
        sa.Column("version", sa.String(length=200), nullable=False),
        *(
            sa.Column(name, sa.Double(), nullable=False)
            for name in (
                "median_s",
                "ci95_low_s",
                "ci95_high_s",
                "ratio",
                "ratio_low",
                "ratio_high",
            )
        ),
        sa.ForeignKeyConstraint(
            ["race_id"], ["races.id"], name="fk_contests_race_id_races", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("race_id", "contender", name="pk_contests"),
    )
    op.create_table(
        "regressions",
        sa.Column("id", ROW_NUMBER, nullable=False, autoincrement=True),
        sa.Column("kernel_id", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("contender", sa.String(length=32), nullable=False),
        sa.Column("version", sa.String(length=200), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("agreeing", sa.Integer(), nullable=False),
        sa.Column("contrary", sa.Integer(), nullable=False),
        sa.Column("factor", sa.Double(), nullable=True),
        sa.Column("suspected_at", TIME, nullable=False),
        sa.Column("raised_at", TIME, nullable=True),
        sa.Column("ended_at", TIME, nullable=True),
        sa.Column("announced", sa.String(length=32), nullable=True),
        sa.ForeignKeyConstraint(
            ["kernel_id"],
            ["kernels.id"],
            name="fk_regressions_kernel_id_kernels",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_regressions"),
    )
    op.create_index("ix_regressions_kernel_id", "regressions", ["kernel_id", "state"], unique=False)
    op.create_index("ix_regressions_state", "regressions", ["state", "id"], unique=False)


def downgrade() -> None:
    op.drop_table("regressions")
    op.drop_table("contests")
    op.drop_table("races")
