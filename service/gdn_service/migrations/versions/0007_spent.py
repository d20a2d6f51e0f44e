"""Time spent on a job

In seconds on monotonic clocks, over all hosts that had it.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("spent_s", sa.Float(), nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("jobs", "spent_s")
