"""Run by alembic inside a connection that the caller opened (`Database.migrate`)."""

from __future__ import annotations

from typing import Any, Literal

from alembic import context
from alembic.autogenerate.api import AutogenContext

from gdn_service.store.models import Base, UtcDateTime


def _render(kind: str, item: Any, _context: AutogenContext) -> str | Literal[False]:
    """Revisions name plain types only, so that an old one does not change with the models."""
    if kind == "type" and isinstance(item, UtcDateTime):
        return "sa.DateTime(timezone=True)"
    return False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_item=_render,
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
