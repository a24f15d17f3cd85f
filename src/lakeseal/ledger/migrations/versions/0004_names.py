"""Tables have names: schemas, the names in them, and tables that are being created and have none yet."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, _TEXT, nullable=False)


def _int(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False, autoincrement=False)


def upgrade() -> None:
    op.create_table(
        "schemas",
        _text("schema_id"),
        _text("catalog"),
        _text("catalog_folded"),
        _text("schema"),
        _text("schema_folded"),
        _int("created"),
        sa.PrimaryKeyConstraint("schema_id", name="schemas_pkey"),
        sa.UniqueConstraint("catalog_folded", "schema_folded", name="schemas_catalog_folded_schema_folded_key"),
    )
    op.create_table(
        "table_names",
        _text("table_uuid"),
        _text("schema_id"),
        _text("name"),
        _text("name_folded"),
        _text("uri_key"),
        _text("uri"),
        _text("kind"),
        _int("created"),
        _int("updated"),
        sa.PrimaryKeyConstraint("table_uuid", name="table_names_pkey"),
        sa.UniqueConstraint("schema_id", "name_folded", name="table_names_schema_id_name_folded_key"),
        sa.UniqueConstraint("uri_key", name="table_names_uri_key_key"),
        sa.ForeignKeyConstraint(["schema_id"], ["schemas.schema_id"], name="table_names_schema_id_fkey"),
    )
    op.create_table(
        "staged_tables",
        _text("table_uuid"),
        _text("catalog"),
        _text("schema"),
        _text("name"),
        _text("uri"),
        _text("kind"),
        _int("created"),
        sa.PrimaryKeyConstraint("table_uuid", name="staged_tables_pkey"),
    )
