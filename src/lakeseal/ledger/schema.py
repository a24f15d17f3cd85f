"""The ledger's tables, as migrations leave them at `HEAD`.

The ledger keeps these rows and the promises of its transactions; what a row means is decided by the room that owns it,
named at each table. Migrations make the tables (`migrations/versions`), these definitions are what queries are built
from, and a test holds the two together.

A name of any length has a key column beside it (`types.key`), which is filled in by itself on insert; `Tx` takes the
plain name wherever a key is asked for. All times are milliseconds since the epoch and come from the caller.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import Column, Index, Table

from lakeseal.ledger.types import Bytes, Id, Int, Json, Name, key

HEAD = "0004"
"""The newest migration. A constant, so that opening a ledger that is up to date need not load Alembic."""

VERSION_TABLE = "ledger_version"
IDENTITY = "identity"

# Names make a constraint's violation readable and let a later migration find it, on both databases.
metadata = sa.MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
        "fk": "%(table_name)s_%(column_0_name)s_fkey",
    }
)


def _key(key_column: str, name: str, *rest: Any, primary_key: bool = True) -> Column[str]:
    def filled_in(context: Any) -> str:
        return key(context.get_current_parameters()[name])

    default = filled_in if not rest else None
    return Column(
        key_column, Id, *rest, primary_key=primary_key, nullable=False, default=default, info={"key_of": name}
    )


def _name(name: str) -> Column[str]:
    return Column(name, Name, nullable=False)


# What is true of the ledger as a whole. `identity` is made once, with the ledger, and stays with every copy of it.
facts = Table(
    "facts",
    metadata,
    Column("name", Id, primary_key=True),
    Column("value", Json, nullable=False),
)

# owner/: who may commit to a table, and how far it is. One row per table that ever had an owner here.
tables = Table(
    "tables",
    metadata,
    _key("table_key", "table_id"),
    _name("table_id"),  # the normalised URI of the table
    Column("state", Id, nullable=False),  # none, pending, active, releasing
    Column("epoch", Int, nullable=False),  # grows with each release; a commit names the one it knows
    Column("takeover_id", Id),  # while pending: the id that the take-over's commit carries
    Column("takeover_version", Int),  # while pending: the version that it wants
    Column("latest_version", Int),  # the newest ratified
    Column("latest_timestamp", Int),  # its in-commit timestamp: it outlives the row in `commits`
    Column("backfilled_version", Int),  # the newest that is plain in the files; never above latest_version
    Column("conf", Json, nullable=False),
    Column("updated", Int, nullable=False),
)

# owner/: ratified commits that are not forgotten yet.
commits = Table(
    "commits",
    metadata,
    _key("table_key", "table_id", sa.ForeignKey("tables.table_key")),
    Column("version", Int, primary_key=True, autoincrement=False),
    Column("txn_id", Id, nullable=False),  # asked again with the same one: the first answer
    Column("file", Name),  # its name in _commits; absent where `inline` has it, or had it until it was published
    Column("size", Int, nullable=False),
    Column("in_commit_timestamp", Int, nullable=False),
    Column("sha256", Id),  # of the ratified bytes; absent of those that were ratified before it was kept
    Column("inline", Bytes),  # a small commit itself, until it is published
    Column("ratified", Int, nullable=False),
    Column("backfilled", sa.Boolean, nullable=False),
    Column("backfilled_at", Int),  # tells when no reader can need the row any more
    sa.UniqueConstraint("table_key", "txn_id"),
)

# branches/: where each branch stands. Moved by compare-and-set on (commit_id, epoch) only.
heads = Table(
    "heads",
    metadata,
    _key("repo_key", "repo"),
    _key("branch_key", "branch"),
    _name("repo"),
    _name("branch"),
    Column("commit_id", Id, nullable=False),
    Column("epoch", Int, nullable=False),
    Column("kind", Id, nullable=False),  # branch, or the branch of a job
    Column("info", Json, nullable=False),  # protection; of a job: who writes where, since when
    Column("created", Int, nullable=False),
    Column("updated", Int, nullable=False),
)

tags = Table(
    "tags",
    metadata,
    _key("repo_key", "repo"),
    _key("tag_key", "tag"),
    _name("repo"),
    _name("tag"),
    Column("commit_id", Id, nullable=False),
    Column("info", Json, nullable=False),
    Column("created", Int, nullable=False),
)

# steps/: the stores of commit sequences that were created, with or without sequences in them.
stores = Table(
    "stores",
    metadata,
    _key("store_key", "store"),
    _name("store"),
    Column("created", Int, nullable=False),
)

# steps/: one record per sequence, whole or not there. A dataset without open steps may have a row without a payload.
sequences = Table(
    "sequences",
    metadata,
    _key("store_key", "store"),
    _key("dataset_key", "dataset"),
    _name("store"),
    _name("dataset"),  # the dataset's URN
    Column("state", Id, nullable=False),  # empty, open, set_aside
    Column("epoch", Int, nullable=False),  # of the run that wrote it; a run that lost its turn has a smaller one
    Column("count", Int, nullable=False),
    Column("checksum", Id, nullable=False),
    Column("payload", Bytes),
    Column("tries", Int, nullable=False),
    Column("reason", Name),  # why it was set aside
    Column("created", Int, nullable=False),
    Column("updated", Int, nullable=False),
)

# steps/: which tasks of a dataset have ended in a run, and with which output.
task_states = Table(
    "task_states",
    metadata,
    _key("store_key", "store"),
    _key("dataset_key", "dataset"),
    Column("run_id", Id, primary_key=True),
    Column("task", Int, primary_key=True, autoincrement=False),
    _name("store"),
    _name("dataset"),
    Column("tasks", Int, nullable=False),  # how many the dataset has in this run
    Column("state", Id, nullable=False),  # finished, failed
    Column("output", Json, nullable=False),  # what a sequence is built from
    Column("reason", Name),  # why it failed
    Column("updated", Int, nullable=False),
)

# steps/: how far each partition of each dataset has been published.
watermarks = Table(
    "watermarks",
    metadata,
    _key("pipeline_key", "pipeline"),
    _key("dataset_key", "dataset"),
    _key("partition_key", "partition"),
    _name("pipeline"),
    _name("dataset"),
    _name("partition"),
    Column("value", Json, nullable=False),
    Column("epoch", Int, nullable=False),
    Column("updated", Int, nullable=False),
)

# Who may work on something now. A lease only spares useless work: safety rests on the epoch, which grows with each
# new holder and is checked by every write of that holder.
leases = Table(
    "leases",
    metadata,
    _key("name_key", "name"),
    _name("name"),
    Column("holder", Name, nullable=False),
    Column("epoch", Int, nullable=False),
    Column("expires", Int, nullable=False),  # by `Tx.now`
    Column("info", Json, nullable=False),
)

# ingest/: what ran, and what came of it.
runs = Table(
    "runs",
    metadata,
    Column("run_id", Id, primary_key=True),
    _key("pipeline_key", "pipeline", primary_key=False),
    _name("pipeline"),
    Column("state", Id, nullable=False),
    Column("started", Int, nullable=False),
    Column("ended", Int),
    Column("detail", Json, nullable=False),  # per dataset: rows, bytes, watermarks before and after, steps, errors
    Index(None, "pipeline_key", "started"),
)

# catalog/: the schemas that names of tables are in. `…_folded` is what a name is compared by.
schemas = Table(
    "schemas",
    metadata,
    Column("schema_id", Id, primary_key=True),
    _name("catalog"),
    Column("catalog_folded", Id, nullable=False),
    _name("schema"),
    Column("schema_folded", Id, nullable=False),
    Column("created", Int, nullable=False),
    sa.UniqueConstraint("catalog_folded", "schema_folded"),
)

# catalog/: which table a name means. A table has one name, and a place has one table.
table_names = Table(
    "table_names",
    metadata,
    Column("table_uuid", Id, primary_key=True),
    Column("schema_id", Id, sa.ForeignKey("schemas.schema_id"), nullable=False),
    _name("name"),
    Column("name_folded", Id, nullable=False),
    _key("uri_key", "uri", primary_key=False),
    _name("uri"),  # in its normal form
    Column("kind", Id, nullable=False),  # filesystem, managed, catalog: who decides on its commits
    Column("created", Int, nullable=False),
    Column("updated", Int, nullable=False),
    sa.UniqueConstraint("schema_id", "name_folded"),
    sa.UniqueConstraint("uri_key"),
)

# catalog/: tables that somebody is creating, or has begun to create, and that have no name yet.
staged_tables = Table(
    "staged_tables",
    metadata,
    Column("table_uuid", Id, primary_key=True),
    _name("catalog"),
    _name("schema"),
    _name("name"),
    _name("uri"),
    Column("kind", Id, nullable=False),
    Column("created", Int, nullable=False),
)

# service/: bearer tokens, of which only a hash is kept.
tokens = Table(
    "tokens",
    metadata,
    Column("token_id", Id, primary_key=True),
    Column("name", Name, nullable=False),
    Column("hash", Id, nullable=False),
    Column("roles", Json, nullable=False),
    Column("created", Int, nullable=False),
    Column("expires", Int),
    Column("revoked", Int),
    sa.UniqueConstraint("hash"),
)
