"""Failures after a candidate

The commit whose candidate had ended when a device failed, which counts once in a row.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("devices", sa.Column("counted", sa.String(length=40), nullable=True))


def downgrade() -> None:
    op.drop_column("devices", "counted")
