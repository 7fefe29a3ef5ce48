"""Runs the revisions on the connection that db/schema.py opened; that one owns the transaction."""

from __future__ import annotations

from alembic import context

from tuner.db.tables import Base

connection = context.config.attributes.get("connection")
if connection is None:
    raise SystemExit("revisions are applied by `tuner db upgrade`, which opens the database itself")
context.configure(
    connection=connection,
    target_metadata=Base.metadata,
    render_as_batch=True,
    transactional_ddl=True,
)
context.run_migrations()
