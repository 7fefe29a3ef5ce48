"""Everything of release 0.1: workloads, targets, jobs, trials, kernels, artifacts,
events, workers, keys."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
PROMOTED = sa.text("state = 'promoted'")
ROW_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("scopes", JSON, nullable=False),
        sa.Column("quota", sa.Integer(), nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("expires_at", TIME, nullable=True),
        sa.Column("revoked_at", TIME, nullable=True),
        sa.Column("last_used_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
    )
    op.create_table(
        "artifacts",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("signature", sa.Text(), nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_artifacts")),
    )
    op.create_table(
        "targets",
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("document", JSON, nullable=False),
        sa.Column("limits", JSON, nullable=True),
        sa.Column("measured_at", TIME, nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_targets")),
    )
    op.create_table(
        "workloads",
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("op", sa.String(length=200), nullable=True),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("numerics", sa.String(length=32), nullable=False),
        sa.Column("document", JSON, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_workloads")),
    )
    op.create_index(op.f("ix_workloads_op"), "workloads", ["op"], unique=False)
    op.create_table(
        "cost_models",
        sa.Column("id", ROW_NUMBER, autoincrement=True, nullable=False),
        sa.Column("target_key", sa.String(length=64), nullable=False),
        sa.Column("feature_version", sa.Integer(), nullable=False),
        sa.Column("trained_on", sa.Integer(), nullable=False),
        sa.Column("metrics", JSON, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("blob", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["target_key"], ["targets.key"], name=op.f("fk_cost_models_target_key_targets")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cost_models")),
    )
    op.create_index(
        "ix_cost_models_latest",
        "cost_models",
        ["target_key", "feature_version", "id"],
        unique=False,
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("target_key", sa.String(length=64), nullable=False),
        sa.Column("threads", sa.Integer(), nullable=False),
        sa.Column("trials", sa.Integer(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.Column("strategy", sa.String(length=32), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("owner", sa.String(length=32), nullable=True),
        sa.Column("settings", JSON, nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("last_event", sa.BigInteger(), nullable=False),
        sa.Column("lease_owner", sa.String(length=200), nullable=True),
        sa.Column("lease_expires_at", TIME, nullable=True),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("started_at", TIME, nullable=True),
        sa.Column("finished_at", TIME, nullable=True),
        sa.ForeignKeyConstraint(
            ["target_key"], ["targets.key"], name=op.f("fk_jobs_target_key_targets")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    op.create_index("ix_jobs_claim", "jobs", ["state", "priority", "id"], unique=False)
    op.create_index("ix_jobs_owner_id", "jobs", ["owner", "id"], unique=False)
    op.create_index("ix_jobs_state_id", "jobs", ["state", "id"], unique=False)
    op.create_table(
        "workers",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("host", sa.String(length=200), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("target_key", sa.String(length=64), nullable=True),
        sa.Column("isolation", sa.String(length=200), nullable=True),
        sa.Column("lanes", JSON, nullable=False),
        sa.Column("labels", JSON, nullable=False),
        sa.Column("versions", JSON, nullable=False),
        sa.Column("joined_at", TIME, nullable=False),
        sa.Column("heartbeat_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["target_key"], ["targets.key"], name=op.f("fk_workers_target_key_targets")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
    )
    op.create_index(op.f("ix_workers_state"), "workers", ["state"], unique=False)
    op.create_table(
        "calibrations",
        sa.Column("id", ROW_NUMBER, autoincrement=True, nullable=False),
        sa.Column("worker_id", sa.String(length=32), nullable=False),
        sa.Column("lane", sa.String(length=200), nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("median_s", sa.Double(), nullable=False),
        sa.Column("expected_s", sa.Double(), nullable=False),
        sa.Column("in_band", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["worker_id"],
            ["workers.id"],
            name=op.f("fk_calibrations_worker_id_workers"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_calibrations")),
    )
    op.create_index(
        "ix_calibrations_lane", "calibrations", ["worker_id", "lane", "at"], unique=False
    )
    op.create_table(
        "events",
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("sequence", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("data", JSON, nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_events_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "sequence", name=op.f("pk_events")),
    )
    op.create_index(op.f("ix_events_at"), "events", ["at"], unique=False)
    op.create_table(
        "idempotency_keys",
        sa.Column("owner", sa.String(length=32), nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
            name=op.f("fk_idempotency_keys_job_id_jobs"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("owner", "key", name=op.f("pk_idempotency_keys")),
    )
    op.create_index(
        op.f("ix_idempotency_keys_expires_at"), "idempotency_keys", ["expires_at"], unique=False
    )
    op.create_index(
        op.f("ix_idempotency_keys_job_id"), "idempotency_keys", ["job_id"], unique=False
    )
    op.create_table(
        "kernels",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("workload_key", sa.String(length=64), nullable=False),
        sa.Column("target_key", sa.String(length=64), nullable=False),
        sa.Column("threads", sa.Integer(), nullable=False),
        sa.Column("op", sa.String(length=200), nullable=True),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("artifact", sa.String(length=64), nullable=False),
        sa.Column("median_s", sa.Double(), nullable=False),
        sa.Column("ci95_low_s", sa.Double(), nullable=False),
        sa.Column("ci95_high_s", sa.Double(), nullable=False),
        sa.Column("gflops", sa.Double(), nullable=False),
        sa.Column("roofline_fraction", sa.Double(), nullable=True),
        sa.Column("max_rel_error", sa.Double(), nullable=False),
        sa.Column("verified", sa.Boolean(), nullable=False),
        sa.Column("default_median_s", sa.Double(), nullable=True),
        sa.Column("job_id", sa.String(length=32), nullable=True),
        sa.Column("trial_number", sa.Integer(), nullable=True),
        sa.Column("previous_id", sa.String(length=32), nullable=True),
        sa.Column("stale", sa.Text(), nullable=True),
        sa.Column("validated_at", TIME, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("config", JSON, nullable=False),
        sa.Column("versions", JSON, nullable=False),
        sa.Column("race", JSON, nullable=False),
        sa.Column("schedule", JSON, nullable=False),
        sa.ForeignKeyConstraint(
            ["artifact"], ["artifacts.sha256"], name=op.f("fk_kernels_artifact_artifacts")
        ),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_kernels_job_id_jobs"), ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["previous_id"], ["kernels.id"], name=op.f("fk_kernels_previous_id_kernels")
        ),
        sa.ForeignKeyConstraint(
            ["target_key"], ["targets.key"], name=op.f("fk_kernels_target_key_targets")
        ),
        sa.ForeignKeyConstraint(
            ["workload_key"], ["workloads.key"], name=op.f("fk_kernels_workload_key_workloads")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_kernels")),
    )
    op.create_index("ix_kernels_artifact", "kernels", ["artifact"], unique=False)
    op.create_index(op.f("ix_kernels_job_id"), "kernels", ["job_id"], unique=False)
    op.create_index(
        "ix_kernels_lookup",
        "kernels",
        ["workload_key", "target_key", "threads", "id"],
        unique=False,
    )
    op.create_index(
        "ix_kernels_neighbours",
        "kernels",
        ["op", "target_key", "threads", "state", "id"],
        unique=False,
    )
    op.create_index("ix_kernels_op", "kernels", ["op", "state", "id"], unique=False)
    op.create_index("ix_kernels_state", "kernels", ["state", "id"], unique=False)
    op.create_index(
        "uq_kernels_promoted",
        "kernels",
        ["workload_key", "target_key", "threads"],
        unique=True,
        sqlite_where=PROMOTED,
        postgresql_where=PROMOTED,
    )
    op.create_table(
        "lane_spans",
        sa.Column("id", ROW_NUMBER, autoincrement=True, nullable=False),
        sa.Column("worker_id", sa.String(length=32), nullable=False),
        sa.Column("lane", sa.String(length=200), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("started_at", TIME, nullable=False),
        sa.Column("ended_at", TIME, nullable=False),
        sa.Column("job_id", sa.String(length=32), nullable=True),
        sa.Column("trial_number", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["worker_id"],
            ["workers.id"],
            name=op.f("fk_lane_spans_worker_id_workers"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_lane_spans")),
    )
    op.create_index(
        "ix_lane_spans_lane", "lane_spans", ["worker_id", "lane", "started_at"], unique=False
    )
    op.create_index(op.f("ix_lane_spans_started_at"), "lane_spans", ["started_at"], unique=False)
    op.create_table(
        "tasks",
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("workload_key", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("space_size", sa.String(length=400), nullable=True),
        sa.Column("trials_done", sa.Integer(), nullable=False),
        sa.Column("trials_ok", sa.Integer(), nullable=False),
        sa.Column("best_median_s", sa.Double(), nullable=True),
        sa.Column("kernel_id", sa.String(length=32), nullable=True),
        sa.Column("elapsed", JSON, nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_tasks_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["workload_key"], ["workloads.key"], name=op.f("fk_tasks_workload_key_workloads")
        ),
        sa.PrimaryKeyConstraint("job_id", "position", name=op.f("pk_tasks")),
        sa.UniqueConstraint("job_id", "workload_key", name=op.f("uq_tasks_job_id_workload_key")),
    )
    op.create_index("ix_tasks_workload_key", "tasks", ["workload_key", "job_id"], unique=False)
    op.create_table(
        "runs",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("kernel_id", sa.String(length=32), nullable=False),
        sa.Column("owner", sa.String(length=32), nullable=True),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("input_artifact", sa.String(length=64), nullable=False),
        sa.Column("output_artifact", sa.String(length=64), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("lease_owner", sa.String(length=200), nullable=True),
        sa.Column("lease_expires_at", TIME, nullable=True),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("finished_at", TIME, nullable=True),
        sa.ForeignKeyConstraint(
            ["input_artifact"], ["artifacts.sha256"], name=op.f("fk_runs_input_artifact_artifacts")
        ),
        sa.ForeignKeyConstraint(
            ["kernel_id"], ["kernels.id"], name=op.f("fk_runs_kernel_id_kernels")
        ),
        sa.ForeignKeyConstraint(
            ["output_artifact"],
            ["artifacts.sha256"],
            name=op.f("fk_runs_output_artifact_artifacts"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
    )
    op.create_index("ix_runs_state_id", "runs", ["state", "id"], unique=False)
    op.create_table(
        "trials",
        sa.Column("id", ROW_NUMBER, autoincrement=True, nullable=False),
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.String(length=32), nullable=False),
        sa.Column("median_s", sa.Double(), nullable=True),
        sa.Column("max_rel_error", sa.Double(), nullable=True),
        sa.Column("build_s", sa.Double(), nullable=False),
        sa.Column("measure_s", sa.Double(), nullable=False),
        sa.Column("predicted", sa.Double(), nullable=True),
        sa.Column("round", sa.Integer(), nullable=True),
        sa.Column("worker", sa.String(length=200), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("quarantined", sa.Boolean(), nullable=False),
        sa.Column("suspect", sa.Text(), nullable=True),
        sa.Column("artifact", sa.String(length=64), nullable=True),
        sa.Column("signature", sa.String(length=32), nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("config", JSON, nullable=False),
        sa.Column("samples_s", JSON, nullable=True),
        sa.Column("conditions", JSON, nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id", "position"],
            ["tasks.job_id", "tasks.position"],
            name=op.f("fk_trials_job_id_position_tasks"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trials")),
        sa.UniqueConstraint(
            "job_id", "position", "number", name=op.f("uq_trials_job_id_position_number")
        ),
    )
    op.create_index(
        "ix_trials_median", "trials", ["job_id", "median_s", "position", "number"], unique=False
    )
    op.create_index(
        "ix_trials_outcome", "trials", ["job_id", "outcome", "position", "number"], unique=False
    )
    op.create_index("ix_trials_worker", "trials", ["worker", "created_at"], unique=False)
    # ### end Alembic commands ###


def downgrade() -> None:
    op.drop_index("ix_trials_worker", table_name="trials")
    op.drop_index("ix_trials_outcome", table_name="trials")
    op.drop_index("ix_trials_median", table_name="trials")
    op.drop_table("trials")
    op.drop_index("ix_runs_state_id", table_name="runs")
    op.drop_table("runs")
    op.drop_index("ix_tasks_workload_key", table_name="tasks")
    op.drop_table("tasks")
    op.drop_index(op.f("ix_lane_spans_started_at"), table_name="lane_spans")
    op.drop_index("ix_lane_spans_lane", table_name="lane_spans")
    op.drop_table("lane_spans")
    op.drop_index(
        "uq_kernels_promoted",
        table_name="kernels",
        sqlite_where=PROMOTED,
        postgresql_where=PROMOTED,
    )
    op.drop_index("ix_kernels_state", table_name="kernels")
    op.drop_index("ix_kernels_op", table_name="kernels")
    op.drop_index("ix_kernels_neighbours", table_name="kernels")
    op.drop_index("ix_kernels_lookup", table_name="kernels")
    op.drop_index(op.f("ix_kernels_job_id"), table_name="kernels")
    op.drop_index("ix_kernels_artifact", table_name="kernels")
    op.drop_table("kernels")
    op.drop_index(op.f("ix_idempotency_keys_job_id"), table_name="idempotency_keys")
    op.drop_index(op.f("ix_idempotency_keys_expires_at"), table_name="idempotency_keys")
    op.drop_table("idempotency_keys")
    op.drop_index(op.f("ix_events_at"), table_name="events")
    op.drop_table("events")
    op.drop_index("ix_calibrations_lane", table_name="calibrations")
    op.drop_table("calibrations")
    op.drop_index(op.f("ix_workers_state"), table_name="workers")
    op.drop_table("workers")
    op.drop_index("ix_jobs_state_id", table_name="jobs")
    op.drop_index("ix_jobs_owner_id", table_name="jobs")
    op.drop_index("ix_jobs_claim", table_name="jobs")
    op.drop_table("jobs")
    op.drop_index("ix_cost_models_latest", table_name="cost_models")
    op.drop_table("cost_models")
    op.drop_index(op.f("ix_workloads_op"), table_name="workloads")
    op.drop_table("workloads")
    op.drop_table("targets")
    op.drop_table("artifacts")
    op.drop_table("api_keys")
    # ### end Alembic commands ###
