"""`postgres`: a table of PostgreSQL, first as it is, then every change of it, by logical replication.

The server keeps what happened since the slot's confirmed position. That position moves only when what is before it is
published: `plan` moves it to the watermark, which was committed with the rows. So a run that dies loses nothing, and
the slot does not grow for ever as long as there are runs. Slot and publication are made where they are missing.

- Without a watermark the table is read as it is, in one snapshot, after its slot is there. Of what the slot has, the
  next run leaves out the transactions that the snapshot has seen.
- With one, a unit is all transactions that were committed from one place in the server's log up to another; in commit
  order, never a part of one. So a target in the mode `cdc` only ever shows states that the table had.

Rows have `_change_type`, `_commit_version` (the place of the commit) and `_commit_timestamp` behind their columns.
A large value that an update left alone does not come with it: see `ingest.unchanged`.
A watermark is `{"lsn", "slot", "system", "table", "columns", "seen"}`; `seen` is that snapshot, behind a load only.
Where rows have changed in a way that the log does not tell (`postgres_table`), the table is loaded again, in the place
of what was published: a truncate, and all rows behind it.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import msgspec
import pyarrow as pa

from lakeseal import clock
from lakeseal.errors import InvalidArgument, SourceChanged, SourceUnavailable, Unsupported
from lakeseal.ingest.row_changes import TRUNCATE
from lakeseal.ingest.sources.pgoutput import UNCHANGED, Decoder, RowChange, SeenTransactions
from lakeseal.ingest.sources.postgres_table import PostgresTable
from lakeseal.ingest.sources.source import (
    Chunk,
    Plan,
    RejectedRecord,
    Source,
    Watermark,
    WorkUnit,
    at_least_one,
    register_source,
)
from lakeseal.ingest.sources.sql_values import SqlRows
from lakeseal.ingest.unchanged import told
from lakeseal.protocol import schema as types
from lakeseal.protocol.arrow import to_arrow
from lakeseal.protocol.feed_columns import CHANGE_FIELDS
from lakeseal.protocol.schema import DataType, StructField, StructType

_CHUNK = 5_000
_KEEP_UP = 16 * 2**20
"""So much of the server's log without a change of the table, and the slot moves all the same."""
_SETTINGS = "-c datestyle=ISO -c timezone=UTC -c bytea_output=hex -c extra_float_digits=3 -c intervalstyle=iso_8601"
_PEEKED = " FROM pg_logical_slot_peek_binary_changes(%s, %s::pg_lsn, %s, 'proto_version', '1', 'publication_names', %s)"
_ANY = "SELECT bool_or(get_byte(data, 0) IN (73, 85, 68, 84))"  # insert, update, delete, truncate
_SHORT_ZONE = re.compile(r"[+-]\d\d$")
_NAME = re.compile(r"[a-z0-9_]{1,63}")


@register_source
class PostgresSource(Source, frozen=True, kw_only=True, tag="postgres", dict=True):
    url: str
    """`postgresql://user@host/database`; the password comes from the environment: `${NAME}`."""
    table: str
    """`orders`, or `shop.orders`."""
    slot: str
    """The slot's name; each dataset needs its own."""
    publication: str | None = None
    """As the slot, if it is not given."""
    max_changes: int | None = None
    """In one run, about: transactions are whole. The first run takes the table as it is."""

    def __post_init__(self) -> None:
        at_least_one("max_changes", self.max_changes)
        if _NAME.fullmatch(self.slot) is None:
            raise InvalidArgument(f"A slot can't be called {self.slot!r}", hint="Use a-z, 0-9 and _, at most 63")

    @property
    def commit_policies(self) -> tuple[str, ...]:
        return ("full",)

    def describe(self) -> str:
        return f"PostgreSQL table {self.table}"

    def row_schema(self) -> StructType:
        return StructType((*self._described.columns.fields, *CHANGE_FIELDS))

    @property
    def _named(self) -> tuple[str, str]:
        schema, _, name = self.table.rpartition(".")
        return schema or "public", name

    @cached_property
    def _described(self) -> PostgresTable:
        with self._connected() as connection:
            return PostgresTable.described(connection, *self._named)

    def plan(self, watermarks: Mapping[str, Watermark]) -> Plan:
        mark, table = watermarks.get(""), self._described
        with self._connected() as connection:
            system = self._system(connection)
            confirmed = self._slot(connection, is_new=mark is None)
            table.check_publication(connection, self.publication or self.slot)
            begun = {"slot": self.slot, "system": system, **table.mark()}
            if mark is None:
                return self._loading({**begun, "lsn": confirmed})
            self._check(mark, system, confirmed)
            if confirmed < mark["lsn"]:
                # What is before it is published, and so is what the watermark says.
                connection.execute(
                    "SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", (self.slot, _text(mark["lsn"]))
                )
            upto = _number(connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()[0])
            if reason := table.untold(mark):
                # What was committed before this place is in the table when it is read.
                note = f"{self.table} is loaded again, as its log does not tell all: {reason}"
                return self._loading({**begun, "lsn": upto}, mark, note)
            if not self._has_changes(connection, upto) and upto - mark["lsn"] < _KEEP_UP:
                return Plan()
            newest, upto = upto, self._cut(connection, upto)
        high = {**mark, **begun, "lsn": upto, "seen": None}
        payload = {"from": mark["lsn"], "upto": upto, "seen": mark.get("seen")}
        unit = WorkUnit(partition="", low=mark, high=high, size=upto - mark["lsn"], payload=payload)
        return Plan(units=(unit,), has_more=upto < newest)

    def _loading(self, begun: dict[str, Any], mark: Watermark = None, note: str | None = None) -> Plan:
        """All of the table; in the place of what was published, if there is a watermark."""
        payload = {"whole": begun, "again": mark is not None}
        unit = WorkUnit(partition="", low=mark, high=None, payload=payload)
        return Plan(units=(unit,), notes=() if note is None else (note,))

    def preview(self, watermarks: Mapping[str, Watermark]) -> Plan:
        # To plan makes the slot, and moves it.
        if "" in watermarks:
            return Plan(notes=("Changes since the last run, which only the run counts",))
        return Plan(units=(WorkUnit(partition="", high=None),), notes=("All of the table, and a new slot",))

    def read(self, unit: WorkUnit) -> Iterator[Chunk]:
        table = self._described
        rows = _Rows(table.columns)
        if begun := unit.payload.get("whole"):
            yield from self._whole(rows, begun, is_again=unit.payload.get("again", False))
            return
        seen = None if unit.payload["seen"] is None else SeenTransactions.parse(unit.payload["seen"])
        with self._connected(autocommit=False) as connection, connection.cursor(name="lakeseal", binary=True) as cursor:
            cursor.itersize = _CHUNK
            cursor.execute("SELECT data" + _PEEKED, self._peeked(unit.payload["upto"]))
            found: list[RowChange] = []
            for change in Decoder().changes(bytes(row[0]) for row in cursor):
                is_new = seen is None or not seen.has(change.xid)
                if is_new and unit.payload["from"] <= change.lsn < unit.payload["upto"] and self._is_ours(change):
                    found.append(change)
                if len(found) >= _CHUNK:
                    yield rows.chunk(found)
                    found = []
            if found:
                yield rows.chunk(found)

    def _is_ours(self, change: RowChange) -> bool:
        table = self._described
        if not table.has(change.relation.oid):
            return False
        if change.kind != TRUNCATE:
            return True
        if left := sorted(table.stored[oid] for oid in table.stored.keys() - change.together):
            raise SourceChanged(
                f"Only a part of {self.table} was truncated, and not {', '.join(left)}: its rows are not told",
                hint="Load it again: lakeseal ingest reset, and a new target. DELETE instead of TRUNCATE is told",
            )
        return change.relation.oid == min(table.stored)  # all of it, at once

    def _whole(self, rows: _Rows, begun: dict[str, Any], *, is_again: bool) -> Iterator[Chunk]:
        sql = _sql()
        columns = sql.SQL(", ").join(
            sql.SQL("{}::text").format(sql.Identifier(field.name)) for field in self._described.columns.fields
        )
        query = sql.SQL("SELECT {} FROM {}").format(columns, sql.Identifier(*self._named))
        moment = clock.now()
        with self._connected(autocommit=False) as connection, connection.cursor(name="lakeseal") as cursor:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            seen = connection.execute("SELECT txid_current_snapshot()::text").fetchone()[0]
            cursor.itersize = _CHUNK
            cursor.execute(query)
            if is_again:
                yield rows.truncated(begun["lsn"], moment)
            while part := cursor.fetchmany(_CHUNK):
                yield rows.whole(part, begun["lsn"], moment)
        yield msgspec.structs.replace(rows.whole([], begun["lsn"], moment), high={**begun, "seen": seen})

    def _has_changes(self, connection: Any, upto: int) -> bool:
        """Of the table. The server decodes the first transaction only; before version 15 that may be one of other
        tables, which it tells by its begin and its commit, and then it decodes all."""
        found: bool | None = connection.execute(_ANY + _PEEKED, self._peeked(upto, most=1)).fetchone()[0]
        if found is False:
            found = connection.execute(_ANY + _PEEKED, self._peeked(upto)).fetchone()[0]
        return bool(found)

    def _cut(self, connection: Any, upto: int) -> int:
        """Behind the transaction with which there are as many changes as a run takes."""
        if self.max_changes is None:
            return upto
        ends = "SELECT count(*), max(lsn)::text" + _PEEKED
        count, last = connection.execute(ends, self._peeked(upto, most=self.max_changes)).fetchone()
        return _number(last) if count >= self.max_changes else upto

    def _peeked(self, upto: int, most: int | None = None) -> tuple[Any, ...]:
        """`most` changes, or a few more: all of a transaction come together."""
        return self.slot, _text(upto), most, self.publication or self.slot

    def _system(self, connection: Any) -> str:
        row = connection.execute(
            "SELECT system_identifier::text, current_database() FROM pg_control_system()"
        ).fetchone()
        return "/".join(row)

    def _slot(self, connection: Any, *, is_new: bool) -> int:
        """The confirmed position of the slot, which is made if nothing was read from it yet."""
        errors = _psycopg().errors
        asked = "SELECT confirmed_flush_lsn::text, plugin, wal_status FROM pg_replication_slots WHERE slot_name = %s"
        found = connection.execute(asked, (self.slot,)).fetchone()
        if found is None and not is_new:
            raise SourceChanged(
                f"The replication slot {self.slot!r} is gone, and with it the changes since the last run",
                hint="Load the table again: lakeseal ingest reset, and a new target or mode: replace",
            )
        if found is None:
            name = self.publication or self.slot
            known = connection.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", (name,)).fetchone()
            if known is None:
                sql = _sql()
                made = sql.SQL("CREATE PUBLICATION {} FOR TABLE {}")
                connection.execute(made.format(sql.Identifier(name), sql.Identifier(*self._named)))
            try:
                connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (self.slot,))
            except errors.ObjectNotInPrerequisiteState as error:
                raise InvalidArgument(
                    f"The server keeps no changes: {_line(error)}", hint="Set wal_level = logical and restart it"
                ) from error
            found = connection.execute(asked, (self.slot,)).fetchone()
        if found[1] != "pgoutput":
            raise InvalidArgument(f"The slot {self.slot!r} is of {found[1]}, not of pgoutput", hint="Name another")
        if found[2] == "lost":
            raise SourceChanged(
                f"The server has dropped changes that the slot {self.slot!r} had not confirmed",
                hint="Load the table again, run more often, and raise max_slot_wal_keep_size",
            )
        return _number(found[0])

    def _check(self, mark: Mapping[str, Any], system: str, confirmed: int) -> None:
        if (mark["system"], mark["slot"]) != (system, self.slot):
            raise SourceChanged(
                f"{self.table} was read from another server or slot before ({mark['slot']})",
                hint="Set its watermark by lakeseal ingest reset, to load it again",
            )
        if confirmed > mark["lsn"]:
            raise SourceChanged(
                f"Somebody else has read the slot {self.slot!r}: it is at {_text(confirmed)}, and published is what is "
                f"before {_text(mark['lsn'])}",
                hint="Give each dataset a slot of its own, and load the table again",
            )

    @contextmanager
    def _connected(self, *, autocommit: bool = True) -> Iterator[Any]:
        psycopg = _psycopg()
        try:
            with psycopg.connect(self.url, autocommit=autocommit, options=_SETTINGS, connect_timeout=30) as connection:
                yield connection
        except psycopg.errors.ObjectInUse as error:
            raise SourceUnavailable(f"The slot {self.slot!r} is being read by another: {_line(error)}") from error
        except psycopg.OperationalError as error:
            raise SourceUnavailable(f"The database of {self.table} does not answer: {_line(error)}") from error
        except psycopg.Error as error:
            raise SourceUnavailable(f"{self.table} can't be read: {_line(error)}") from error


class _Rows:
    """Texts of the server to rows."""

    def __init__(self, columns: StructType) -> None:
        self._columns = columns
        self._arrow = to_arrow(StructType((*columns.fields, *CHANGE_FIELDS)))
        self._parser = SqlRows(columns)

    def chunk(self, changes: Sequence[RowChange]) -> Chunk:
        rows = [[_value(change, field) for field in self._columns.fields] for change in changes]
        left_out = [self._left_out(change) for change in changes]
        return self._made(
            rows, [change.kind for change in changes], [c.lsn for c in changes], [c.micros for c in changes], left_out
        )

    def whole(self, rows: Sequence[Sequence[str | None]], lsn: int, moment: dt.datetime) -> Chunk:
        micros = int(moment.timestamp() * 1_000_000)
        values = [
            [
                None if one is None else _python(one, field.type)
                for one, field in zip(row, self._columns.fields, strict=True)
            ]
            for row in rows
        ]
        return self._made(values, ["insert"] * len(rows), [lsn] * len(rows), [micros] * len(rows))

    def truncated(self, lsn: int, moment: dt.datetime) -> Chunk:
        nothing = [None] * len(self._columns.fields)
        return self._made([nothing], [TRUNCATE], [lsn], [int(moment.timestamp() * 1_000_000)])

    def _left_out(self, change: RowChange) -> tuple[str, ...]:
        return tuple(field.name for field in self._columns.fields if change.values.get(field.name) is UNCHANGED)

    def _made(
        self,
        rows: list[list[Any]],
        kinds: list[str],
        lsns: list[int],
        micros: list[int],
        left_out: Sequence[tuple[str, ...]] = (),
    ) -> Chunk:
        parsed = self._parser.parse(rows)
        places = range(len(rows)) if parsed.record_numbers is None else parsed.record_numbers
        stamps = pa.array([micros[n] for n in places], pa.int64()).cast(pa.timestamp("us", "UTC"))
        feed = [
            pa.array([kinds[n] for n in places], pa.string()),
            pa.array([lsns[n] for n in places], pa.int64()),
            stamps,
        ]
        batch = pa.RecordBatch.from_arrays([*parsed.rows.columns, *feed], schema=self._arrow)
        bad = tuple(
            RejectedRecord.of(
                one.reason, msgspec.json.encode(rows[one.at], enc_hook=str), f"commit {_text(lsns[one.at])}"
            )
            for one in parsed.misfits
        )
        unchanged = told(left_out[n] for n in places) if left_out else None
        return Chunk(rows=batch, bad=bad, bytes=batch.nbytes, unchanged=unchanged)


def _value(change: RowChange, field: StructField) -> Any:
    found = change.values.get(field.name)
    return None if found is None or found is UNCHANGED else _python(str(found), field.type)


def _python(text: str, kind: DataType) -> Any:
    if kind == types.BOOLEAN:
        return text in ("t", "true")
    if kind == types.BINARY:
        return bytes.fromhex(text.removeprefix("\\x"))
    if kind == types.TIMESTAMP:
        return text + ":00" if _SHORT_ZONE.search(text) else text
    if kind in (types.FLOAT, types.DOUBLE):
        return float(text)
    return text


def _number(lsn: str) -> int:
    high, low = lsn.split("/")
    return (int(high, 16) << 32) + int(low, 16)


def _text(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _psycopg() -> Any:
    try:
        import psycopg  # an extra
    except ModuleNotFoundError as error:
        raise Unsupported("psycopg is not installed", hint="pip install 'lakeseal[server]'") from error
    return psycopg


def _sql() -> Any:
    _psycopg()
    from psycopg import sql

    return sql
