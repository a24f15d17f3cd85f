"""Names that come and go together with commits, as rows of the ledger that ride along with them (`LedgerRecord`).

Whoever commits makes them from what the catalog told him; a service that is asked to write them looks whether they say
what these functions say (`place_of_record`), and whose place it is. That the schema is there, that the table was staged
at this place, and that a name which goes still is that table's, is seen to in the ledger transaction itself.
"""

from __future__ import annotations

import uuid

import msgspec
from msgspec import Struct

from lakeseal.catalog.names import CommitKind, NamedSchema, NamedTable, StagedTable
from lakeseal.catalog.table_name import check_part, fold
from lakeseal.clock import now_ms
from lakeseal.errors import InvalidArgument
from lakeseal.ledger.schema import table_names
from lakeseal.owner.messages import MAX_INT, LedgerRecord


class _Key(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    table_uuid: str


class _Given(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema_id: str
    name: str
    name_folded: str
    uri: str
    kind: CommitKind
    created: int
    updated: int


class _Taken(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema_id: str
    name_folded: str
    uri: str


def record_of_name(staged: StagedTable, schema: NamedSchema) -> LedgerRecord:
    """What gives a staged table its name in this schema."""
    now = now_ms()
    row = _Given(
        schema_id=schema.schema_id,
        name=staged.name.table,
        name_folded=fold(staged.name.table),
        uri=staged.uri,
        kind=staged.kind,
        created=now,
        updated=now,
    )
    return LedgerRecord(
        table=str(table_names.name), key={"table_uuid": staged.table_id}, values=msgspec.to_builtins(row), insert=True
    )


def record_of_drop(table: NamedTable, schema: NamedSchema) -> LedgerRecord:
    """What takes away the name that a table has in this schema, if it still has it."""
    row = _Taken(schema_id=schema.schema_id, name_folded=fold(table.name.table), uri=table.uri)
    return LedgerRecord(
        table=str(table_names.name),
        key={"table_uuid": table.table_id},
        values={},
        expected=msgspec.to_builtins(row),
        delete=True,
    )


def place_of_record(record: LedgerRecord) -> str | None:
    """Where the table is that a record gives a name, or takes it from; None for records of other things.
    `InvalidArgument` for one that neither of the two above would make."""
    if record.table != table_names.name:
        return None
    try:
        if record.insert and not record.delete and record.expected is None:
            given = msgspec.convert(record.values, _Given)
            check_part("table", given.name)
            if given.name_folded == fold(given.name) and all(
                0 <= number <= MAX_INT for number in (given.created, given.updated)
            ):
                return _of_one_table(record, given.uri)
        elif record.delete and not record.insert and not record.values:
            return _of_one_table(record, msgspec.convert(record.expected, _Taken).uri)
    except ValueError:  # msgspec's is one
        pass
    raise InvalidArgument("This is no record of a name that is given or taken")


def _of_one_table(record: LedgerRecord, uri: str) -> str:
    table_id = msgspec.convert(record.key, _Key).table_uuid
    if str(uuid.UUID(table_id)) != table_id:
        raise ValueError(table_id)
    return uri
