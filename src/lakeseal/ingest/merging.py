"""Rows that wait in a table of their own change the target: the modes that are not append.

A `TargetMerging` is planned with the rows' destination and travels with it as a value. `apply` does it, in transactions
that it is given: the target's, and that of the table beside it which remembers deletes. It commits neither alone where
both are parts of one transaction over many tables.

Deletes are remembered in a table of their own, keys and sequence only. Rows that stay in the target with a mark would
be seen by everybody who reads it; keys in the ledger would make it as large as the data. Where the two are not one
transaction the target goes first: done again after a crash, the rows find the deletes as they were.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from lakeseal import clock, expr
from lakeseal.commands.command import Command, NothingToDo
from lakeseal.commands.merge.clauses import Clause, MergeCommand
from lakeseal.commands.merge.command import ArrowMerge, read_source
from lakeseal.commands.running import run
from lakeseal.commands.transactional_write import WriteOptions
from lakeseal.commands.write import Write, WriteCommand
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.errors import InvalidArgument, InvalidInput, UnsupportedExpression
from lakeseal.expr.render import quote_name
from lakeseal.ingest import unchanged
from lakeseal.ingest.config import TableTarget
from lakeseal.ingest.row_changes import (
    ARRIVAL,
    DELETED,
    VALID_FROM,
    VALID_TO,
    WHOLE,
    ChangeRule,
    history,
    latest,
    of_keys,
)
from lakeseal.jobs.in_process import InProcessEngine
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.scan import Scan
from lakeseal.protocol.feed_columns import CHANGE_FIELDS, CHANGE_TYPE
from lakeseal.protocol.schema import (
    BINARY,
    BOOLEAN,
    DOUBLE,
    FLOAT,
    TIMESTAMP,
    DataType,
    DecimalType,
    PrimitiveType,
    StructField,
    StructType,
)
from lakeseal.storage import StoreSpec
from lakeseal.table import outside_of

DELETED_AT = "deleted_at"
_FEED = tuple(field.name for field in CHANGE_FIELDS)


class TargetMerging(Struct, frozen=True, kw_only=True):
    mode: Literal["upsert", "scd2", "replace", "cdc"]
    rule: ChangeRule
    columns: tuple[str, ...]
    """Of the rows, those that the target gets."""
    target: str
    deletes: str | None = None
    """The table that remembers deletes, if one does."""
    waiting: str
    """The table in which the rows wait."""
    merge_schema: bool = False
    remember_deletes_seconds: float | None = None
    note: str = ""

    @property
    def tables(self) -> tuple[str, ...]:
        """Those that change."""
        return (self.target,) if self.deletes is None else (self.target, self.deletes)


class ChangingTable(Struct, frozen=True, kw_only=True):
    """A table that changes: its transaction, and where it is."""

    txn: OptimisticTransaction
    store: StoreSpec
    is_done: bool = False
    """It has changed before; only the other has not."""

    def rows(self, columns: Sequence[str], where: str | None) -> pa.Table:
        """As the transaction sees them, and they count as read. Columns are called as they are asked for: the table may
        spell them in another case."""
        snapshot = self.txn.snapshot
        assert snapshot is not None
        files = self.txn.filter_files(where)
        store = self.store.open()
        scan = Scan(snapshot, store, columns=columns, files=files, outside=outside_of(self.store))
        return scan.to_arrow().rename_columns(list(columns))

    def run(self, command: Command) -> bool:
        """Whether there was anything to commit."""
        return not self.is_done and not isinstance(
            run(command, self.txn, engine=InProcessEngine(), store=self.store), NothingToDo
        )


def rule_for(target: TableTarget, rows: StructType, order_by: str | None) -> ChangeRule:
    """With names as the rows spell them; raises for what the rows can't do."""
    names = {field.name.lower(): field for field in rows.fields}

    def named(name: str, what: str) -> StructField:
        if name.lower() not in names:
            raise InvalidArgument(
                f"{what} names the column {name!r}, which the rows do not have",
                table=target.uri,
                column=name,
                hint=f"They have {', '.join(rows.names)}",
            )
        return names[name.lower()]

    own = (ARRIVAL, DELETED, WHOLE, unchanged.UNCHANGED)
    for taken in (name for name in own if name in names):
        raise InvalidArgument(f"Rows can't have a column {taken}", table=target.uri, column=names[taken].name)
    keys = tuple(named(name, "keys") for name in target.keys)
    for field in keys:
        _must_be_ordered(field, "a key", target.uri)
    sequence = None if target.sequence_by is None else named(target.sequence_by, "sequence_by")
    if sequence is not None:
        _must_be_ordered(sequence, "a sequence", target.uri)
    if target.mode == "cdc":
        named(CHANGE_TYPE, "The mode cdc")
    if target.delete_when is not None:
        try:
            expr.bind_predicate(expr.parse(target.delete_when), rows)
        except UnsupportedExpression as error:
            raise InvalidArgument(
                f"delete_when can't be evaluated here: {error.message}",
                table=target.uri,
                hint="Make a column of it in the transform, and name that",
            ) from error
    return ChangeRule(
        keys=tuple(field.name for field in keys),
        sequence_by=None if sequence is None else sequence.name,
        delete_when=target.delete_when,
        partial=target.partial,
        is_feed=target.mode == "cdc",
        order_by=order_by if target.mode == "cdc" else None,
    )


def _must_be_ordered(field: StructField, what: str, table: str) -> None:
    if not isinstance(field.type, PrimitiveType | DecimalType) or field.type in (FLOAT, DOUBLE, BINARY, BOOLEAN):
        raise InvalidArgument(
            f"{field.name} is a {field.type}, which can't be {what}",
            table=table,
            column=field.name,
            hint="Use a number without a fraction or a decimal, a text, a date or a timestamp",
        )


def published_schema(target: TableTarget, rule: ChangeRule, rows: StructType) -> StructType:
    """That of the target's rows."""
    if target.mode == "cdc":
        return StructType(tuple(field for field in rows.fields if field.name not in _FEED))
    if target.mode != "scd2":
        return rows
    for name in (VALID_FROM, VALID_TO):
        if rows.field(name) is not None:
            raise InvalidArgument(f"scd2 has a column {name} of its own", table=target.uri, column=name)
    kind = _type(rows, str(rule.sequence_by))
    return StructType((*rows.fields, StructField(VALID_FROM, kind), StructField(VALID_TO, kind)))


def deletes_schema(rule: ChangeRule, rows: StructType) -> StructType:
    names = (*rule.keys, str(rule.sequence_by))
    fields = [StructField(name, _type(rows, name)) for name in dict.fromkeys(names)]
    return StructType((*fields, StructField(DELETED_AT, TIMESTAMP)))


def _type(rows: StructType, name: str) -> DataType:
    field = rows.field(name)
    assert field is not None, "the rule was made of these rows"
    return field.type


def waiting_rows(store: StoreSpec) -> pa.Table:
    opened = store.open()
    return Scan(DeltaLog(opened).snapshot(), opened).to_arrow()


def check_rows(merging: TargetMerging, waiting: StoreSpec) -> None:
    """Raises for rows that nobody could merge, such as two of one key without an order: known before the merge is
    recorded as a step, nobody has to abort it."""
    if merging.mode in ("upsert", "cdc") and _may_be_refused(merging.rule, waiting):
        rows = waiting_rows(waiting)
        latest(rows, merging.rule)
        if unchanged.UNCHANGED in rows.column_names:
            unchanged.check(rows[unchanged.UNCHANGED].combine_chunks(), merging.rule)


def _may_be_refused(rule: ChangeRule, waiting: StoreSpec) -> bool:
    """Rows in the order in which they came, that say nothing but what they are, can be merged whatever they are; and
    to read all of them first is not cheap."""
    if rule.is_feed or rule.delete_when is not None:
        return True
    return ARRIVAL not in DeltaLog(waiting.open()).snapshot().schema.names


def apply(merging: TargetMerging, waiting: StoreSpec, target: ChangingTable, deletes: ChangingTable | None) -> bool:
    """Whether anything changes."""
    rows = waiting_rows(waiting)
    if merging.mode == "replace":
        return _replaced(merging, rows.select(list(merging.columns)), target)
    _refuse_empty_keys(merging, rows, target)
    if merging.mode == "scd2":
        return _historized(merging, rows, target, deletes)
    return _upserted(merging, rows, target, deletes)


def _refuse_empty_keys(merging: TargetMerging, rows: pa.Table, target: ChangingTable) -> None:
    """For a table that was partitioned by a key before the pipeline came; see `Dataset.rules`."""
    snapshot = target.txn.snapshot
    partitions = {name.lower() for name in (snapshot.metadata.partition_columns if snapshot else ())}
    for key in (key for key in merging.rule.keys if key.lower() in partitions):
        kind = rows.schema.field(key).type
        if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
            continue
        if pc.any(pc.equal(pc.binary_length(rows[key]), 0)).as_py():
            raise InvalidInput(
                "An empty text is null as a partition's value, so that no row of this key is ever found again",
                table=merging.target,
                column=key,
                hint=f"Set such rows aside by a rule: {quote_name(key)} <> ''",
            )


def _replaced(merging: TargetMerging, rows: pa.Table, target: ChangingTable) -> bool:
    options = WriteOptions(merge_schema=merging.merge_schema)
    command = WriteCommand(mode="overwrite", options=options, user_metadata=merging.note)
    return target.run(Write(asked=command, data=rows))


def _upserted(merging: TargetMerging, rows: pa.Table, target: ChangingTable, deletes: ChangingTable | None) -> bool:
    rule = merging.rule
    known = None
    if rule.sequence_by is not None:
        names = list(dict.fromkeys((*rule.keys, rule.sequence_by)))
        where = _in_range(rows, rule.keys[0])
        found = [] if deletes is None else [deletes.rows(names, where)]
        if rule.partial and not target.is_done:
            found.append(target.rows(names, where))
        # One of them may have got wider types than the other.
        known = pa.concat_tables(found, promote_options="permissive") if found else None
    if not target.is_done:
        rows = unchanged.filled(rows, rule, lambda columns, keys: _of_keys_in(target, columns, keys))
    counted = latest(rows, rule, known)
    source = counted.rows.select([*merging.columns, DELETED, WHOLE])
    if counted.is_truncated:
        left = source.filter(pc.invert(source[DELETED])).select(list(merging.columns))
        changes = _replaced(merging, left, target)
    else:
        changes = bool(source.num_rows) and target.run(_merge(merging, source))
    if deletes is not None:
        changes |= _remembered(merging, source, deletes)
    return changes


def _of_keys_in(target: ChangingTable, columns: Sequence[str], keys: pa.Table) -> pa.Table:
    names = keys.column_names
    return of_keys(target.rows(columns, _in_range(keys, names[0])), names, keys)


def _merge(merging: TargetMerging, source: pa.Table) -> ArrowMerge:
    rule = merging.rule
    newer = None
    if rule.sequence_by is not None:
        ours = quote_name(rule.sequence_by)
        newer = f"(t.{ours} IS NULL OR s.{ours} {'>=' if rule.is_feed else '>'} t.{ours})"
    given = {quote_name(name): f"s.{quote_name(name)}" for name in merging.columns}
    clauses = [Clause(kind="matched", action="delete", condition=_both(f"s.{DELETED}", newer))]
    if rule.partial:
        laid_over = {
            name: text if _is(name, rule.keys) else f"coalesce({text}, t.{name})" for name, text in given.items()
        }
        clauses += [
            Clause(kind="matched", action="update", condition=_both(f"s.{WHOLE}", newer), values=given),
            Clause(kind="matched", action="update", condition=newer, values=laid_over),
        ]
    else:
        clauses.append(Clause(kind="matched", action="update", condition=newer, values=given))
    clauses.append(Clause(kind="not_matched", action="insert", condition=f"NOT s.{DELETED}", values=given))
    return _command(merging, rule.keys, clauses, source)


def _is(quoted: str, names: Iterable[str]) -> bool:
    return quoted in {quote_name(name) for name in names}


def _both(one: str, other: str | None) -> str:
    return one if other is None else f"{one} AND {other}"


def _command(
    merging: TargetMerging,
    keys: Sequence[str],
    clauses: Sequence[Clause],
    source: pa.Table,
) -> ArrowMerge:
    on = " AND ".join(f"t.{quote_name(name)} = s.{quote_name(name)}" for name in keys)
    asked = MergeCommand(
        on=on,
        clauses=tuple(clauses),
        merge_schema=merging.merge_schema,
        user_metadata=merging.note,
    )
    return ArrowMerge(asked=asked, source=read_source(source))


def _remembered(merging: TargetMerging, source: pa.Table, deletes: ChangingTable) -> bool:
    """A key that came back is forgotten; so is what is older than anybody may be late."""
    rule, now = merging.rule, clock.now()
    names = list(dict.fromkeys((*rule.keys, str(rule.sequence_by))))
    rows = source.select([*names, DELETED]).append_column(DELETED_AT, _moments(now, source.num_rows))
    given = {quote_name(name): f"s.{quote_name(name)}" for name in (*names, DELETED_AT)}
    clauses = [
        Clause(kind="matched", action="update", condition=f"s.{DELETED}", values=given),
        Clause(kind="matched", action="delete"),
        Clause(kind="not_matched", action="insert", condition=f"s.{DELETED}", values=given),
    ]
    return deletes.run(_command(merging, rule.keys, [*clauses, *_forgotten(merging, now)], rows))


def _forgotten(merging: TargetMerging, now: dt.datetime) -> list[Clause]:
    if merging.remember_deletes_seconds is None:
        return []
    since = expr.literal(now - dt.timedelta(seconds=merging.remember_deletes_seconds)).sql
    return [Clause(kind="not_matched_by_source", action="delete", condition=f"t.{DELETED_AT} < {since}")]


def _historized(merging: TargetMerging, rows: pa.Table, target: ChangingTable, deletes: ChangingTable | None) -> bool:
    rule = merging.rule
    names = list(dict.fromkeys((*rule.keys, str(rule.sequence_by))))
    where = _in_range(rows, rule.keys[0])
    # Of versions that are there only the end may change.
    before = of_keys(target.rows([*names, VALID_TO], where), rule.keys, rows)
    none = rows.select(names).slice(0, 0)
    known = none if deletes is None else of_keys(deletes.rows(names, where), rule.keys, rows)
    versions, gone = history(rows.select([*merging.columns, *_arrival(rows)]), rule, before, known)
    given = {quote_name(name): f"s.{quote_name(name)}" for name in (*merging.columns, VALID_FROM, VALID_TO)}
    ends = {VALID_TO: f"s.{VALID_TO}"}
    clauses = [
        Clause(kind="matched", action="update", values=ends),
        Clause(kind="not_matched", action="insert", values=given),
    ]
    changes = bool(versions.num_rows) and target.run(_command(merging, (*rule.keys, VALID_FROM), clauses, versions))
    if deletes is not None and (gone.num_rows or merging.remember_deletes_seconds is not None):
        now = clock.now()
        gone = gone.append_column(DELETED_AT, _moments(now, gone.num_rows))
        values = {quote_name(name): f"s.{quote_name(name)}" for name in (*names, DELETED_AT)}
        insert = Clause(kind="not_matched", action="insert", values=values)
        changes |= deletes.run(_command(merging, names, [insert, *_forgotten(merging, now)], gone))
    return changes


def _arrival(rows: pa.Table) -> list[str]:
    return [ARRIVAL] if ARRIVAL in rows.column_names else []


def _moments(now: dt.datetime, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(now, pa.timestamp("us", "UTC")), count)


def _in_range(rows: pa.Table, key: str) -> str | None:
    """What of a table can have the keys of these rows; None: anything."""
    ends = pc.min_max(rows[key]).as_py()
    if ends["min"] is None or not isinstance(ends["min"], int | str | dt.date) or isinstance(ends["min"], dt.datetime):
        return None
    name = quote_name(key)
    return f"{name} >= {expr.literal(ends['min']).sql} AND {name} <= {expr.literal(ends['max']).sql}"
