"""A ledger knows itself (`facts`), and of each ratified commit the SHA-256 of its bytes."""

from __future__ import annotations

import json
import uuid

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    facts = op.create_table(
        "facts",
        sa.Column("name", _TEXT, nullable=False),
        sa.Column("value", _TEXT, nullable=False),
        sa.PrimaryKeyConstraint("name", name="facts_pkey"),
    )
    op.bulk_insert(facts, [{"name": "identity", "value": json.dumps(str(uuid.uuid4()))}])
    op.add_column("commits", sa.Column("sha256", _TEXT, nullable=True))
