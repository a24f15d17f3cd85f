"""How far an owner's tables are, read from its ledger."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from msgspec import Struct

from lakeseal.ledger import Ledger, Tx, key
from lakeseal.ledger.schema import commits, tables
from lakeseal.service.wire import TableStatus

_waits = tables.c.latest_version > sa.func.coalesce(tables.c.backfilled_version, -1)
_oldest = sa.and_(
    commits.c.table_key == tables.c.table_key,
    commits.c.version == sa.func.coalesce(tables.c.backfilled_version, -1) + 1,
    _waits,
)
_all = (
    sa.select(
        tables.c.table_id,
        tables.c.state,
        tables.c.epoch,
        tables.c.latest_version,
        tables.c.backfilled_version,
        tables.c.updated,
        commits.c.ratified,
    )
    .select_from(tables.outerjoin(commits, _oldest))
    .order_by(tables.c.table_id)
)
_waiting = (
    sa.select(tables.c.latest_version, tables.c.backfilled_version, commits.c.ratified)
    .select_from(tables.outerjoin(commits, _oldest))
    .where(_waits)
)
_copied = (
    sa.select(commits.c.ratified, commits.c.backfilled_at)
    .where(commits.c.table_key == sa.bindparam("table"))
    .order_by(commits.c.version.desc())
    .limit(sa.bindparam("most"))
)
_owned = sa.select(sa.func.count().label("owned")).where(tables.c.state != "none")


class Backlog(Struct, frozen=True, kw_only=True):
    """What waits for its backfill, over all tables."""

    tables: int
    unbackfilled: int
    most_of_a_table: int
    lag_ms: int
    """How long the oldest commit has been waiting."""


def of_tables(ledger: Ledger, *, now: int, after: str = "") -> list[TableStatus]:
    """In the order of their URIs, those after `after`."""
    query = _all.where(tables.c.table_id > after) if after else _all
    return [_status(row, now) for row in ledger.read(lambda tx: tx.rows(query, lock=False))]


def backlog(ledger: Ledger, *, now: int) -> Backlog:
    def do(tx: Tx) -> Backlog:
        rows = tx.rows(_waiting, lock=False)
        counts = [row.latest_version - _version(row.backfilled_version) for row in rows]
        return Backlog(
            tables=tx.rows(_owned, lock=False)[0].owned,
            unbackfilled=sum(counts),
            most_of_a_table=max(counts, default=0),
            lag_ms=max((_age(row.ratified, now) for row in rows), default=0),
        )

    return ledger.read(do)


def lags(ledger: Ledger, table: str, *, now: int, most: int = 500) -> list[tuple[int, int]]:
    """Of a table's last commits, as far as the ledger still has them, oldest first: when each was ratified, and for how
    many milliseconds it waited, or has been waiting, for its copy in the log."""
    rows = ledger.read(lambda tx: tx.rows(_copied, {"table": key(table), "most": most}, lock=False))
    return [
        (row.ratified, max(0, (now if row.backfilled_at is None else row.backfilled_at) - row.ratified))
        for row in reversed(rows)
    ]


def _status(row: Any, now: int) -> TableStatus:
    latest, backfilled = _version(row.latest_version), _version(row.backfilled_version)
    return TableStatus(
        table=row.table_id,
        state=row.state,
        epoch=row.epoch,
        latest=latest,
        backfilled=backfilled,
        unbackfilled=max(0, latest - backfilled),
        lag_ms=_age(row.ratified, now),
        updated=row.updated,
    )


def _version(value: int | None) -> int:
    return -1 if value is None else value


def _age(ratified: int | None, now: int) -> int:
    return 0 if ratified is None else max(0, now - ratified)
