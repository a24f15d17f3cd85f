"""A small commit lives in its row until it is published: it has no file."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    with op.batch_alter_table("commits") as table:
        table.alter_column("file", existing_type=_TEXT, nullable=True)
