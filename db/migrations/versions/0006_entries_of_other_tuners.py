"""Entries of other tuners have a table."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

ROW_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "entries",
        sa.Column("number", ROW_NUMBER, nullable=False, autoincrement=True),
        sa.Column("store", sa.String(length=32), nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("owner", sa.String(length=32), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_entries"),
        sa.UniqueConstraint("store", "key", name="uq_entries_store_key"),
    )
    op.create_index("ix_entries_store_number", "entries", ["store", "number"], unique=False)


def downgrade() -> None:
    op.drop_index("ix_entries_store_number", table_name="entries")
    op.drop_table("entries")
