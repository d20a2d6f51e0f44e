"""Accepted runs

A failed run that an operator accepts, with the reason, is a baseline like one that passed.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("accepted", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("runs", "accepted")
