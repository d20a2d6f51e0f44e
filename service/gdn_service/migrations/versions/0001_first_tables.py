"""First tables

The first revision.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "devices",
        sa.Column("id", sa.String(length=250), nullable=False),
        sa.Column("host", sa.String(length=200), nullable=False),
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=120), nullable=False),
        sa.Column("uuid", sa.String(length=80), nullable=True),
        sa.Column("measures", sa.JSON(), nullable=False),
        sa.Column("present", sa.Boolean(), nullable=False),
        sa.Column("idle", sa.Boolean(), nullable=False),
        sa.Column("why_not_idle", sa.Text(), nullable=False),
        sa.Column("quarantined", sa.Text(), nullable=True),
        sa.Column("failures_in_row", sa.Integer(), nullable=False),
        sa.Column("vram_baseline", sa.BigInteger(), nullable=True),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_devices_kind"), "devices", ["kind"], unique=False)
    op.create_table(
        "environments",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "kernels",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("arch", sa.Text(), nullable=False),
        sa.Column("resources", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("digest"),
    )
    op.create_table(
        "leases",
        sa.Column("name", sa.String(length=250), nullable=False),
        sa.Column("holder", sa.String(length=80), nullable=False),
        sa.Column("host", sa.String(length=200), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "targets",
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("repository", sa.Text(), nullable=False),
        sa.Column("import_path", sa.String(length=200), nullable=False),
        sa.Column("python_path", sa.JSON(), nullable=False),
        sa.Column("chain_import_path", sa.String(length=200), nullable=True),
        sa.Column("default_device_kind", sa.String(length=40), nullable=True),
        sa.Column("suites", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(length=20), nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("scope", sa.String(length=10), nullable=False),
        sa.Column("secret_hash", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "bundles",
        sa.Column("id", sa.String(length=20), nullable=False),
        sa.Column("target", sa.String(length=80), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("heads", sa.JSON(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["target"],
            ["targets.name"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "commits",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("target", sa.String(length=80), nullable=False),
        sa.Column("sha", sa.String(length=40), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("author_date", sa.String(length=40), nullable=False),
        sa.Column("parents", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["target"],
            ["targets.name"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("target", "sha"),
    )
    op.create_index(op.f("ix_commits_sha"), "commits", ["sha"], unique=False)
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=20), nullable=False),
        sa.Column("target", sa.String(length=80), nullable=False),
        sa.Column("commit_sha", sa.String(length=40), nullable=False),
        sa.Column("subject", sa.Text(), nullable=True),
        sa.Column("worktree", sa.Boolean(), nullable=False),
        sa.Column("bundle_id", sa.String(length=20), nullable=True),
        sa.Column("device_kind", sa.String(length=40), nullable=False),
        sa.Column("suites", sa.JSON(), nullable=False),
        sa.Column("batch_sizes", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("heads", sa.String(length=20), nullable=True),
        sa.Column("quick", sa.Boolean(), nullable=False),
        sa.Column("judge_version", sa.String(length=40), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("failure_class", sa.String(length=20), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("retry_of", sa.String(length=20), nullable=True),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("worker", sa.String(length=200), nullable=True),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("log_seq", sa.Integer(), nullable=False),
        sa.Column("submitted_by", sa.String(length=80), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("duration_s", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["bundle_id"],
            ["bundles.id"],
        ),
        sa.ForeignKeyConstraint(
            ["retry_of"],
            ["jobs.id"],
        ),
        sa.ForeignKeyConstraint(
            ["target"],
            ["targets.name"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_jobs_commit_sha", "jobs", ["commit_sha", "target"], unique=False)
    op.create_index("ix_jobs_fingerprint", "jobs", ["fingerprint", "state"], unique=False)
    op.create_index("ix_jobs_state", "jobs", ["state", "id"], unique=False)
    op.create_table(
        "idempotency_keys",
        sa.Column("token_id", sa.String(length=20), nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("request_hash", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.String(length=20), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.ForeignKeyConstraint(
            ["token_id"],
            ["tokens.id"],
        ),
        sa.PrimaryKeyConstraint("token_id", "key"),
    )
    op.create_table(
        "log_events",
        sa.Column("job_id", sa.String(length=20), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.PrimaryKeyConstraint("job_id", "seq"),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.String(length=20), nullable=False),
        sa.Column("job_id", sa.String(length=20), nullable=False),
        sa.Column("suite", sa.String(length=20), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("verdict", sa.String(length=20), nullable=True),
        sa.Column("failure_class", sa.String(length=20), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("partial", sa.Boolean(), nullable=False),
        sa.Column("valid", sa.Boolean(), nullable=False),
        sa.Column("host_tries", sa.Integer(), nullable=False),
        sa.Column("device_id", sa.String(length=250), nullable=True),
        sa.Column("environment_id", sa.String(length=64), nullable=True),
        sa.Column("judge_version", sa.Text(), nullable=True),
        sa.Column("kernel_digest", sa.Text(), nullable=True),
        sa.Column("image_digest", sa.String(length=100), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("duration_s", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["device_id"],
            ["devices.id"],
        ),
        sa.ForeignKeyConstraint(
            ["environment_id"],
            ["environments.id"],
        ),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("job_id", "suite"),
    )
    op.create_table(
        "cases",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("run_id", sa.String(length=20), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("params", sa.JSON(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("ratios", sa.JSON(), nullable=False),
        sa.Column("kernel_names", sa.JSON(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["run_id"],
            ["runs.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("run_id", "name"),
    )
    op.create_table(
        "documents",
        sa.Column("run_id", sa.String(length=20), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"],
            ["runs.id"],
        ),
        sa.PrimaryKeyConstraint("run_id"),
    )
    op.create_table(
        "run_kernels",
        sa.Column("run_id", sa.String(length=20), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["digest"],
            ["kernels.digest"],
        ),
        sa.ForeignKeyConstraint(
            ["run_id"],
            ["runs.id"],
        ),
        sa.PrimaryKeyConstraint("run_id", "digest"),
    )
    op.create_table(
        "checks",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("case_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("passed", sa.Boolean(), nullable=False),
        sa.Column("value", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("bound", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("relation", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["case_id"],
            ["cases.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_checks_case_id"), "checks", ["case_id"], unique=False)
    op.create_table(
        "measurements",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("run_id", sa.String(length=20), nullable=False),
        sa.Column("case_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("samples", sa.JSON(), nullable=False),
        sa.Column("median", sa.Float(), nullable=True),
        sa.Column("p10", sa.Float(), nullable=True),
        sa.Column("p90", sa.Float(), nullable=True),
        sa.Column("calls_per_sample", sa.Integer(), nullable=True),
        sa.Column("contract_bytes", sa.BigInteger(), nullable=True),
        sa.Column("measured_bytes", sa.BigInteger(), nullable=True),
        sa.Column("tb_per_s", sa.Double(), nullable=True),
        sa.Column("percent_of_peak", sa.Double(), nullable=True),
        sa.Column("percent_of_rmw_ceiling", sa.Double(), nullable=True),
        sa.Column("regime", sa.Text(), nullable=True),
        sa.Column("clocks", sa.JSON(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["case_id"],
            ["cases.id"],
        ),
        sa.ForeignKeyConstraint(
            ["run_id"],
            ["runs.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_measurements_case_id"), "measurements", ["case_id"], unique=False)
    op.create_index(op.f("ix_measurements_run_id"), "measurements", ["run_id"], unique=False)


def downgrade() -> None:
    op.drop_index(op.f("ix_measurements_run_id"), table_name="measurements")
    op.drop_index(op.f("ix_measurements_case_id"), table_name="measurements")
    op.drop_table("measurements")
    op.drop_index(op.f("ix_checks_case_id"), table_name="checks")
    op.drop_table("checks")
    op.drop_table("run_kernels")
    op.drop_table("documents")
    op.drop_table("cases")
    op.drop_table("runs")
    op.drop_table("log_events")
    op.drop_table("idempotency_keys")
    op.drop_index("ix_jobs_state", table_name="jobs")
    op.drop_index("ix_jobs_fingerprint", table_name="jobs")
    op.drop_index("ix_jobs_commit_sha", table_name="jobs")
    op.drop_table("jobs")
    op.drop_index(op.f("ix_commits_sha"), table_name="commits")
    op.drop_table("commits")
    op.drop_table("bundles")
    op.drop_table("tokens")
    op.drop_table("targets")
    op.drop_table("leases")
    op.drop_table("kernels")
    op.drop_table("environments")
    op.drop_index(op.f("ix_devices_kind"), table_name="devices")
    op.drop_table("devices")
