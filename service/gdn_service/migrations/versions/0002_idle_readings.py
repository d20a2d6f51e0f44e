"""Idle readings

How idle a device was at the borders of each run and arm, with the canary and the load of
the host's other GPUs.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "idle_readings",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("run_id", sa.String(length=20), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("device_id", sa.String(length=250), nullable=False),
        sa.Column("arm", sa.Text(), nullable=False),
        sa.Column("moment", sa.String(length=10), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("used_bytes", sa.BigInteger(), nullable=True),
        sa.Column("canary", sa.Text(), nullable=False),
        sa.Column("others", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["device_id"], ["devices.id"]),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_idle_readings_run_id"), "idle_readings", ["run_id"], unique=False)


def downgrade() -> None:
    op.drop_index(op.f("ix_idle_readings_run_id"), table_name="idle_readings")
    op.drop_table("idle_readings")
