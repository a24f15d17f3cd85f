"""The first schema: tables, commits, heads, tags, stores, sequences, task_states, watermarks, leases, runs, tokens."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Spelled out rather than imported: a migration says for ever what it said when it was released.
_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _text(name: str, *, null: bool = False) -> sa.Column[str]:
    return sa.Column(name, _TEXT, nullable=null)


def _int(name: str, *, null: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=null, autoincrement=False)


def _bytes(name: str) -> sa.Column[bytes]:
    return sa.Column(name, sa.LargeBinary, nullable=True)


def upgrade() -> None:
    op.create_table(
        "tables",
        _text("table_key"),
        _text("table_id"),
        _text("state"),
        _int("epoch"),
        _text("takeover_id", null=True),
        _int("takeover_version", null=True),
        _int("latest_version", null=True),
        _int("latest_timestamp", null=True),
        _int("backfilled_version", null=True),
        _text("conf"),
        _int("updated"),
        sa.PrimaryKeyConstraint("table_key", name="tables_pkey"),
    )
    op.create_table(
        "commits",
        _text("table_key"),
        _int("version"),
        _text("txn_id"),
        _text("file"),
        _int("size"),
        _int("in_commit_timestamp"),
        _bytes("inline"),
        _int("ratified"),
        sa.Column("backfilled", sa.Boolean, nullable=False),
        _int("backfilled_at", null=True),
        sa.PrimaryKeyConstraint("table_key", "version", name="commits_pkey"),
        sa.UniqueConstraint("table_key", "txn_id", name="commits_table_key_txn_id_key"),
        sa.ForeignKeyConstraint(["table_key"], ["tables.table_key"], name="commits_table_key_fkey"),
    )
    op.create_table(
        "heads",
        _text("repo_key"),
        _text("branch_key"),
        _text("repo"),
        _text("branch"),
        _text("commit_id"),
        _int("epoch"),
        _text("kind"),
        _text("info"),
        _int("created"),
        _int("updated"),
        sa.PrimaryKeyConstraint("repo_key", "branch_key", name="heads_pkey"),
    )
    op.create_table(
        "tags",
        _text("repo_key"),
        _text("tag_key"),
        _text("repo"),
        _text("tag"),
        _text("commit_id"),
        _text("info"),
        _int("created"),
        sa.PrimaryKeyConstraint("repo_key", "tag_key", name="tags_pkey"),
    )
    op.create_table(
        "stores",
        _text("store_key"),
        _text("store"),
        _int("created"),
        sa.PrimaryKeyConstraint("store_key", name="stores_pkey"),
    )
    op.create_table(
        "sequences",
        _text("store_key"),
        _text("dataset_key"),
        _text("store"),
        _text("dataset"),
        _text("state"),
        _int("epoch"),
        _int("count"),
        _text("checksum"),
        _bytes("payload"),
        _int("tries"),
        _text("reason", null=True),
        _int("created"),
        _int("updated"),
        sa.PrimaryKeyConstraint("store_key", "dataset_key", name="sequences_pkey"),
    )
    op.create_table(
        "task_states",
        _text("store_key"),
        _text("dataset_key"),
        _text("run_id"),
        _int("task"),
        _text("store"),
        _text("dataset"),
        _int("tasks"),
        _text("state"),
        _text("output"),
        _text("reason", null=True),
        _int("updated"),
        sa.PrimaryKeyConstraint("store_key", "dataset_key", "run_id", "task", name="task_states_pkey"),
    )
    op.create_table(
        "watermarks",
        _text("pipeline_key"),
        _text("dataset_key"),
        _text("partition_key"),
        _text("pipeline"),
        _text("dataset"),
        _text("partition"),
        _text("value"),
        _int("epoch"),
        _int("updated"),
        sa.PrimaryKeyConstraint("pipeline_key", "dataset_key", "partition_key", name="watermarks_pkey"),
    )
    op.create_table(
        "leases",
        _text("name_key"),
        _text("name"),
        _text("holder"),
        _int("epoch"),
        _int("expires"),
        _text("info"),
        sa.PrimaryKeyConstraint("name_key", name="leases_pkey"),
    )
    op.create_table(
        "runs",
        _text("run_id"),
        _text("pipeline_key"),
        _text("pipeline"),
        _text("state"),
        _int("started"),
        _int("ended", null=True),
        _text("detail"),
        sa.PrimaryKeyConstraint("run_id", name="runs_pkey"),
    )
    op.create_index("runs_pipeline_key_started_idx", "runs", ["pipeline_key", "started"])
    op.create_table(
        "tokens",
        _text("token_id"),
        _text("name"),
        _text("hash"),
        _text("roles"),
        _int("created"),
        _int("expires", null=True),
        _int("revoked", null=True),
        sa.PrimaryKeyConstraint("token_id", name="tokens_pkey"),
        sa.UniqueConstraint("hash", name="tokens_hash_key"),
    )
