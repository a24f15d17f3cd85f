"""Debezium's envelopes, in JSON or Avro, as rows that say what they are.

A message is a change of one row: `op` is c (create), r (read), u (update), d (delete) or t (truncate). Rows have the
columns of `schema`, by name, and behind them `_change_type`, `_commit_version` (the message's offset) and
`_commit_timestamp`. Columns that came later than the schema are left out, and those that an older message does not have
are null; a large value that an update left alone (`__debezium_unavailable_value`) stays as the target has it. What is
no change of a row is passed over: tombstones, `m`, and notes on the database's schema.

Where the connector tells the meaning of a number (`io.debezium.time.…`, Connect's `Decimal`), dates, moments and
decimals are what they mean; without it, a number is no moment, and the record is a bad one.
"""

from __future__ import annotations

import base64
import datetime as dt
import io
import struct
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal

import msgspec
import pyarrow as pa
from msgspec import Raw, Struct

from lakeseal.errors import InvalidArgument, Unsupported
from lakeseal.expr.schema_text import parse_schema
from lakeseal.files.json_records import JsonRecords
from lakeseal.files.records import Parsed
from lakeseal.ingest.row_changes import TRUNCATE
from lakeseal.ingest.sources.avro_stored import stored_reader
from lakeseal.ingest.sources.kafka_values import place
from lakeseal.ingest.sources.schema_registry import Registry, framed
from lakeseal.ingest.sources.source import Chunk, RejectedRecord
from lakeseal.ingest.sources.sql_values import SqlRows
from lakeseal.ingest.unchanged import told as unchanged_of
from lakeseal.protocol.arrow import to_arrow
from lakeseal.protocol.feed_columns import CHANGE_FIELDS
from lakeseal.protocol.schema import StructType

_KINDS = {"c": "insert", "r": "insert", "u": "update_postimage", "d": "delete", "t": TRUNCATE}
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001  Debezium's times without a zone have none
_NANOS = {
    "io.debezium.time.Timestamp": 1_000_000,
    "org.apache.kafka.connect.data.Timestamp": 1_000_000,
    "io.debezium.time.MicroTimestamp": 1000,
    "io.debezium.time.NanoTimestamp": 1,
}
"""How many are in one of the numbers."""
_DATES = ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date")
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_MOST_DIGITS = 10_000
_NULL = b"null"
_PLACEHOLDER = "__debezium_unavailable_value"
_JSON_PLACEHOLDERS = (
    msgspec.json.encode(_PLACEHOLDER),
    msgspec.json.encode(base64.b64encode(_PLACEHOLDER.encode()).decode()),
)


class _Meaning(Struct, frozen=True):
    name: str
    scale: int = 0


class _Envelope(Struct):
    op: str | None = None
    before: Raw = Raw(_NULL)
    after: Raw = Raw(_NULL)
    ts_ms: int | None = None


class _Field(Struct):
    field: str = ""
    name: str | None = None
    parameters: dict[str, str] = {}
    fields: list[_Field] = []


class _WithSchema(Struct):
    payload: _Envelope | None = None
    schema: _Field | None = None


class _Change(Struct, frozen=True):
    at: int
    """Of its message."""
    kind: str
    row: Any
    ts_ms: int | None
    left_out: tuple[str, ...] = ()
    """Large values that the database did not tell, as they stay."""


class DebeziumReader:
    """Rows of messages, as `kafka_values.ValueReader` gives them."""

    def __init__(
        self, value: Literal["json", "avro"], schema: str | None, registry: str | None, registry_auth: str | None
    ) -> None:
        if schema is None:
            raise InvalidArgument("An envelope needs the schema of its rows", hint='Add schema: "id long, name string"')
        if value == "avro" and registry is None:
            raise InvalidArgument("Avro envelopes need the registry of their schemas", hint="Add schema_registry: …")
        own = parse_schema(schema)
        self.schema = StructType((*own.fields, *CHANGE_FIELDS))
        self._arrow = to_arrow(self.schema)
        self._names = own.names
        self._is_json = value == "json"
        self._json, self._values = JsonRecords(own), SqlRows(own)
        self._registry, self._auth = registry, registry_auth

    def read(self, messages: Sequence[Any]) -> Chunk:
        changes: list[_Change] = []
        bad: list[tuple[int, str]] = []
        for at, message in enumerate(messages):
            data = message.value()
            if data is None:
                continue  # a tombstone: the delete came before it
            try:
                found = self._by_json(data, at) if self._is_json else self._by_avro(data, at)
            except (msgspec.MsgspecError, ValueError, KeyError, TypeError, ArithmeticError, RecursionError) as error:
                bad.append((at, f"It is no envelope: {error}"))
                continue
            if found is not None:
                changes.append(found)
        parsed = self._parsed(changes)
        bad += [(changes[one.at].at, one.reason) for one in parsed.misfits]
        read = changes if parsed.record_numbers is None else [changes[n] for n in parsed.record_numbers]
        stamps = pa.array([None if one.ts_ms is None else one.ts_ms * 1000 for one in read], pa.int64())
        feed = [
            pa.array([one.kind for one in read], pa.string()),
            pa.array([messages[one.at].offset() for one in read], pa.int64()),
            stamps.cast(pa.timestamp("us", "UTC")),
        ]
        rows = pa.RecordBatch.from_arrays([*parsed.rows.columns, *feed], schema=self._arrow)
        told = (RejectedRecord.of(reason, messages[at].value(), place(messages[at])) for at, reason in sorted(bad))
        unchanged = unchanged_of(one.left_out for one in read)
        return Chunk(rows=rows, bad=tuple(told), unchanged=unchanged)

    def _parsed(self, changes: Sequence[_Change]) -> Parsed:
        if self._is_json:
            return self._json.parse([one.row for one in changes])
        return self._values.parse([[one.row.get(name) for name in self._names] for one in changes])

    def _by_json(self, data: bytes, at: int) -> _Change | None:
        whole = msgspec.json.decode(data, type=_WithSchema)
        envelope = whole.payload or msgspec.json.decode(data, type=_Envelope)
        if envelope.op is None or envelope.op == "m":
            return None
        kind = _kind(envelope.op)
        row = bytes(envelope.before if kind == "delete" else envelope.after)
        if row == _NULL and kind != TRUNCATE:
            raise ValueError(f"its op is {envelope.op!r}, and it has no row")
        meanings = {} if whole.schema is None else _meanings(whole.schema)
        if row == _NULL:
            row = b"{}"
        elif meanings:
            row = _meant(row, meanings)
        row, left_out = self._without_placeholders(row)
        return _Change(at, kind, row, envelope.ts_ms, left_out)

    def _without_placeholders(self, row: bytes) -> tuple[bytes, tuple[str, ...]]:
        if not any(one in row for one in _JSON_PLACEHOLDERS):
            return row, ()
        fields = msgspec.json.decode(row, type=dict[str, Raw])
        left_out = tuple(name for name in self._names if bytes(fields.get(name, Raw())) in _JSON_PLACEHOLDERS)
        return msgspec.json.encode({**fields, **dict.fromkeys(left_out, Raw(_NULL))}), left_out

    def _by_avro(self, data: bytes, at: int) -> _Change | None:
        assert self._registry is not None
        number, value = framed(data)
        decode, meanings = _avro(Registry(self._registry, self._auth).schema(number).schema)
        found = decode(value)
        if not isinstance(found, dict) or found.get("op") in (None, "m"):
            return None
        kind = _kind(found["op"])
        row = found.get("before" if kind == "delete" else "after")
        if row is None and kind != TRUNCATE:
            raise ValueError(f"its op is {found['op']!r}, and it has no row")
        meant = {name: _value(one, meanings.get(name)) for name, one in (row or {}).items()}
        left_out = tuple(name for name in self._names if meant.get(name) in (_PLACEHOLDER, _PLACEHOLDER.encode()))
        return _Change(at, kind, {**meant, **dict.fromkeys(left_out)}, found.get("ts_ms"), left_out)


def _kind(op: str) -> str:
    if op not in _KINDS:
        raise ValueError(f"its op is {op!r}")
    return _KINDS[op]


def _meanings(schema: _Field) -> dict[str, _Meaning]:
    """Of the columns of a row, by the schema that came with it."""
    rows = [field for field in schema.fields if field.field in ("before", "after")]
    return {
        field.field: _Meaning(field.name, int(field.parameters.get("scale", 0)))
        for row in rows
        for field in row.fields
        if field.name is not None
    }


def _meant(row: bytes, meanings: Mapping[str, _Meaning]) -> bytes:
    """The row with its numbers as texts of what they mean; all others stay as they are spelt."""
    fields = msgspec.json.decode(row, type=dict[str, Raw])
    for name, meaning in meanings.items():
        if name in fields and bytes(fields[name]) != _NULL:
            value = _value(msgspec.json.decode(fields[name]), meaning)
            fields[name] = Raw(msgspec.json.encode(value, enc_hook=str))
    return msgspec.json.encode(fields)


def _value(value: Any, meaning: _Meaning | None) -> Any:
    if value is None or meaning is None:
        return value
    if meaning.name in _DATES and isinstance(value, int):
        return (_EPOCH + dt.timedelta(days=value)).date()
    if meaning.name in _NANOS and isinstance(value, int):
        # A double does not hold so many digits; what is left of a microsecond is cut downwards, as everywhere.
        return _EPOCH + dt.timedelta(microseconds=value * _NANOS[meaning.name] // 1000)
    if meaning.name == _DECIMAL and isinstance(value, str):
        unscaled = int.from_bytes(base64.b64decode(value, validate=True), "big", signed=True)
        return format(Decimal(unscaled).scaleb(-meaning.scale), "f")
    return value


@lru_cache(maxsize=100)
def _avro(text: str) -> tuple[Callable[[bytes], Any], dict[str, _Meaning]]:
    """How values of a writer's schema are read, and what its columns mean."""
    try:
        import fastavro  # an extra
    except ModuleNotFoundError as error:
        raise Unsupported("fastavro is not installed", hint="pip install 'lakeseal[kafka]'") from error
    raw = msgspec.json.decode(text)
    try:
        read = stored_reader(fastavro.parse_schema(_with_all_digits(raw)), {})
    except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise ValueError(f"its schema is no Avro schema: {error}") from None

    def decode(data: bytes) -> Any:
        stream = io.BytesIO(data)
        try:
            found = read(stream)
        except (EOFError, IndexError, struct.error, RecursionError) as error:
            raise ValueError(f"it is not Avro of its schema: {error or type(error).__name__}") from None
        if stream.read(1):
            raise ValueError("it is longer than its schema says")
        return found

    return decode, _avro_meanings(raw)


def _with_all_digits(schema: Any) -> Any:
    """Where a decimal has more digits than its schema says, fastavro rounds it to those: a column says how many it has
    room for."""
    if isinstance(schema, list):
        return [_with_all_digits(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    nested = ("type", "items", "values", "fields")
    found = {name: _with_all_digits(value) if name in nested else value for name, value in schema.items()}
    if found.get("logicalType") == "decimal" and found["type"] == "bytes":
        found["precision"] = _MOST_DIGITS
    return found


def _avro_meanings(schema: Any) -> dict[str, _Meaning]:
    found: dict[str, _Meaning] = {}
    fields = schema.get("fields", ()) if isinstance(schema, dict) else ()
    rows = [_record(field["type"]) for field in fields if field.get("name") in ("before", "after")]
    for field in (field for row in rows if row is not None for field in row.get("fields", ())):
        kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
        for kind in kinds:
            if isinstance(kind, dict) and kind.get("connect.name") and "logicalType" not in kind:
                found[field["name"]] = _Meaning(kind["connect.name"])
    return found


def _record(kind: Any) -> dict[str, Any] | None:
    members = kind if isinstance(kind, list) else [kind]
    return next((one for one in members if isinstance(one, dict) and one.get("type") == "record"), None)
