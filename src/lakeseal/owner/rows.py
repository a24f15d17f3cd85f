"""The owner's rows in the ledger, to and from values. Every function runs inside a ledger transaction.

A table's row stands for its commits: writers lock it first (`read_table` in a write does).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from msgspec import Struct

from lakeseal.ledger import Row, Tx, key
from lakeseal.ledger.schema import commits, tables
from lakeseal.owner.kinds import Kind
from lakeseal.owner.messages import CommitRequest, TrackedCommit
from lakeseal.owner.ownership import Ownership, State

_PROMISES = "promises"
_BOUND = "bound"
_BATCH_SIZE = "batchSize"
_KIND = "kind"
_METADATA = "metadataVersion"


class TableRow(Struct, frozen=True, kw_only=True):
    ownership: Ownership
    batch_size: int
    kind: Kind = Kind.MANAGED
    metadata_version: int = -1

    @classmethod
    def from_row(cls, row: Row) -> TableRow:
        promises = row.conf.get(_PROMISES) or ((row.takeover_id,) if row.takeover_id is not None else ())
        ownership = Ownership(
            state=State(row.state),
            epoch=row.epoch,
            promises=tuple(promises),
            bound=tuple(row.conf.get(_BOUND, {}).items()),
            change_version=row.takeover_version,
            latest=-1 if row.latest_version is None else row.latest_version,
            latest_timestamp=row.latest_timestamp,
            backfilled=-1 if row.backfilled_version is None else row.backfilled_version,
        )
        kind = Kind(row.conf.get(_KIND, Kind.MANAGED))
        return cls(
            ownership=ownership,
            batch_size=row.conf.get(_BATCH_SIZE, 1),
            kind=kind,
            metadata_version=row.conf.get(_METADATA, -1),
        )

    def to_row(self) -> dict[str, Any]:
        own = self.ownership
        conf: dict[str, Any] = {_BATCH_SIZE: self.batch_size}
        if self.kind is not Kind.MANAGED:
            conf |= {_KIND: self.kind.value, _METADATA: self.metadata_version}
        if len(own.promises) > 1:
            conf[_PROMISES] = list(own.promises)
        if own.bound:
            conf[_BOUND] = dict(own.bound)
        return {
            "state": own.state.value,
            "epoch": own.epoch,
            "takeover_id": own.promises[-1] if own.promises else None,
            "takeover_version": own.change_version,
            "latest_version": own.latest if own.latest >= 0 else None,
            "latest_timestamp": own.latest_timestamp,
            "backfilled_version": own.backfilled if own.backfilled >= 0 else None,
            "conf": conf,
        }


class StoredCommit(Struct, frozen=True, kw_only=True):
    commit: TrackedCommit
    backfilled: bool

    @classmethod
    def from_row(cls, row: Row) -> StoredCommit:
        return cls(commit=_as_tracked(row), backfilled=row.backfilled)


def _as_tracked(row: Row) -> TrackedCommit:
    return TrackedCommit(
        version=row.version,
        txn_id=row.txn_id,
        size=row.size,
        in_commit_timestamp=row.in_commit_timestamp,
        data=row.inline,
        # Of those that were ratified before small commits lived in the ledger, both are there.
        file=row.file if row.inline is None else None,
        sha256=row.sha256,
    )


def read_table(tx: Tx, table: str) -> TableRow | None:
    row = tx.get(tables, table_id=table)
    return None if row is None else TableRow.from_row(row)


def read_tables(tx: Tx, named: Iterable[str]) -> dict[str, TableRow]:
    return {row.table_id: TableRow.from_row(row) for row in tx.get_all(tables, "table_id", named)}


def write_table(tx: Tx, table: str, row: TableRow, *, now: int) -> None:
    tx.put(tables, table_id=table, **row.to_row(), updated=now)


def insert_table(tx: Tx, table: str, row: TableRow, *, now: int) -> bool:
    return tx.insert(tables, table_id=table, **row.to_row(), updated=now)


def write_ratified(tx: Tx, requests: Sequence[CommitRequest], after: Mapping[str, Ownership], *, now: int) -> None:
    """The commits, and of the tables `after` them what ratifications change, and nothing else. `AlreadyExists` if one
    of the transactions has a version of its table already."""
    changes = [
        {
            "table_key": key(table),
            "latest_version": row.latest,
            "latest_timestamp": row.latest_timestamp,
            "updated": now,
        }
        for table, row in after.items()
    ]
    added = [{"table_id": request.table, **_commit(request, now)} for request in requests]
    tx.insert_and_update(commits, added, tables, "table_key", changes)


def insert_commit(tx: Tx, request: CommitRequest, *, now: int) -> bool:
    """False if the transaction has a version of the table already."""
    return tx.insert(commits, table_id=request.table, **_commit(request, now))


def _commit(request: CommitRequest, now: int) -> dict[str, Any]:
    return {
        "version": request.version,
        "txn_id": request.txn_id,
        "file": request.file,
        "size": request.size,
        "in_commit_timestamp": request.in_commit_timestamp,
        "sha256": request.sha256,
        "inline": request.data,
        "ratified": now,
        "backfilled": False,
        "backfilled_at": None,
    }


def commit_of(tx: Tx, table: str, txn_id: str) -> StoredCommit | None:
    row = tx.get(commits, table_id=table, txn_id=txn_id)
    return None if row is None else StoredCommit.from_row(row)


def commit_at(tx: Tx, table: str, version: int) -> StoredCommit | None:
    row = tx.get(commits, table_id=table, version=version)
    return None if row is None else StoredCommit.from_row(row)


_stored = (
    sa.select(commits)
    .where(commits.c.table_key == sa.bindparam("table"), commits.c.version >= sa.bindparam("start"))
    .order_by(commits.c.version)
    .limit(sa.bindparam("limit"))
)
# The later of two versions, in one bound: by two, a database might walk through all rows of the last hour.
_first_waiting = sa.case(
    (tables.c.backfilled_version >= sa.bindparam("start"), tables.c.backfilled_version + 1), else_=sa.bindparam("start")
)
_with_waiting = (
    sa.select(tables, *(column for column in commits.c if column.name not in ("table_key", "table_id")))
    .outerjoin(commits, sa.and_(commits.c.table_key == tables.c.table_key, commits.c.version >= _first_waiting))
    .where(tables.c.table_key.in_(sa.bindparam("keys", expanding=True)))
    .order_by(tables.c.table_key, commits.c.version)
)


def read_waiting(tx: Tx, named: Sequence[str], start: int) -> dict[str, tuple[TableRow, tuple[TrackedCommit, ...]]]:
    """Tables with their commits from `start` on that are not backfilled, by one question."""
    found: dict[str, tuple[TableRow, list[TrackedCommit]]] = {}
    for row in tx.rows(_with_waiting, {"keys": [key(table) for table in named], "start": start}, lock=False):
        if row.table_id not in found:
            found[row.table_id] = TableRow.from_row(row), []
        if row.version is not None:
            found[row.table_id][1].append(_as_tracked(row))
    return {table: (row, tuple(waiting)) for table, (row, waiting) in found.items()}


def stored_from(tx: Tx, table: str, start: int, *, limit: int) -> list[StoredCommit]:
    rows = tx.rows(_stored, {"table": key(table), "start": start, "limit": limit}, lock=False)
    return [StoredCommit.from_row(row) for row in rows]


# Both by what a row's key says exactly: older versions of a table may be there by the thousands.
_mark_commits = (
    sa.update(commits)
    .where(
        commits.c.table_key == sa.bindparam("of"),
        commits.c.version > sa.bindparam("above"),
        commits.c.version <= sa.bindparam("up_to"),
    )
    .values(backfilled=True, backfilled_at=sa.bindparam("at"), inline=None)
)
_mark_table = (
    sa.update(tables)
    .where(tables.c.table_key == sa.bindparam("of"))
    .values(backfilled_version=sa.bindparam("up_to"), updated=sa.bindparam("now"))
)


class Mark(Struct, frozen=True, kw_only=True):
    """The versions of a table above one and up to another are durable in the log."""

    table: str
    above: int
    up_to: int


def mark(tx: Tx, marks: Sequence[Mark], *, now: int) -> None:
    """From here on the commits' rows only answer those who ask again. The caller has locked the tables' rows."""
    at = tx.now()
    ranges = [{"of": key(one.table), "above": one.above, "up_to": one.up_to, "at": at} for one in marks]
    tx.run_many(_mark_commits, ranges)
    tx.run_many(_mark_table, [{"of": key(one.table), "up_to": one.up_to, "now": now} for one in marks])


def forget_commits(tx: Tx, table: str, *, grace_ms: int) -> int:
    """How many rows are gone."""
    statement = sa.delete(commits).where(
        commits.c.table_key == key(table),
        commits.c.backfilled.is_(True),
        commits.c.backfilled_at <= tx.now() - grace_ms,
    )
    return tx.run(statement)


def drop_commits_above(tx: Tx, table: str, version: int) -> None:
    """Rows of a former life of the table, which another one took the place of."""
    tx.run(sa.delete(commits).where(commits.c.table_key == key(table), commits.c.version > version))


def first_kept(tx: Tx, table: str) -> int | None:
    query = sa.select(sa.func.min(commits.c.version)).where(commits.c.table_key == key(table))
    found = tx.rows(query, lock=False)
    return found[0][0] if found else None


_open_work = sa.select(tables).where(
    sa.or_(
        tables.c.state.in_([State.PENDING.value, State.RELEASING.value]),
        tables.c.latest_version > tables.c.backfilled_version,
    )
)


def tables_with_work(tx: Tx) -> dict[str, TableRow]:
    """Tables with something pending, releasing or not yet backfilled."""
    return {row.table_id: TableRow.from_row(row) for row in tx.rows(_open_work, lock=False)}


def tables_to_forget(tx: Tx, *, grace_ms: int) -> list[str]:
    query = (
        sa.select(tables.c.table_id)
        .join(commits, commits.c.table_key == tables.c.table_key)
        .where(commits.c.backfilled.is_(True), commits.c.backfilled_at <= tx.now() - grace_ms)
        .distinct()
    )
    return [row.table_id for row in tx.rows(query, lock=False)]


def table_names(tx: Tx) -> list[str]:
    return [row.table_id for row in tx.rows(sa.select(tables.c.table_id), lock=False)]
