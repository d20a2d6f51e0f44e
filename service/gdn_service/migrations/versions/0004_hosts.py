"""Jobs move between hosts

Which host has a job, by numbered claims; the tries that a host spoiled, each with its host;
the commit that may be at fault for a device's last host failure.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("claim", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("devices", sa.Column("suspect", sa.String(length=40), nullable=True))
    op.create_table(
        "host_failures",
        sa.Column("run_id", sa.String(length=20), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("host", sa.String(length=200), nullable=False),
        sa.Column("device_id", sa.String(length=250), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("dirty", sa.Boolean(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["device_id"], ["devices.id"]),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"]),
        sa.PrimaryKeyConstraint("run_id", "attempt"),
    )


def downgrade() -> None:
    op.drop_table("host_failures")
    op.drop_column("devices", "suspect")
    op.drop_column("jobs", "claim")
