"""Kafka messages to rows: their values by a format, and what else a message has.

Values are JSON, Avro, Protobuf, text or bytes. Decoding them is the work of packages of the extra `kafka`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, get_args

import msgspec
import pyarrow as pa

from lakeseal.errors import InvalidArgument, Unsupported
from lakeseal.expr.schema_text import parse_schema
from lakeseal.files.json_records import JsonRecords
from lakeseal.files.records import Misfit, Parsed, judged
from lakeseal.ingest.sources.avro_messages import avro_messages
from lakeseal.ingest.sources.avro_schema import avro_schema_of
from lakeseal.ingest.sources.protobuf_values import protobuf_values
from lakeseal.ingest.sources.schema_registry import Registry, framed, no_schema
from lakeseal.ingest.sources.source import Chunk, RejectedRecord
from lakeseal.protocol.arrow import to_arrow
from lakeseal.protocol.schema import (
    BINARY,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    ArrayType,
    DataType,
    StructField,
    StructType,
    duplicate_name,
)

ReadValues = Callable[[Sequence[Any]], Parsed]
"""Values of messages to rows."""
MetaColumn = Literal["key", "headers", "timestamp", "offset", "partition", "topic"]

_HEADERS = ArrayType(StructType((StructField("name", STRING), StructField("value", BINARY))))
_META: dict[str, tuple[DataType, Callable[[Any], Any]]] = {
    "key": (BINARY, lambda message: message.key()),
    "headers": (
        _HEADERS,
        lambda message: [{"name": name, "value": value} for name, value in message.headers() or ()],
    ),
    "timestamp": (TIMESTAMP, lambda message: _micros(message.timestamp())),
    "offset": (LONG, lambda message: message.offset()),
    "partition": (INTEGER, lambda message: message.partition()),
    "topic": (STRING, lambda message: message.topic()),
}
_PLAIN_META: tuple[MetaColumn, ...] = ("key", "partition", "offset", "timestamp")
_TOMBSTONE = "It has no value (a tombstone)"


def _micros(stamp: tuple[int, int]) -> int | None:
    kind, milliseconds = stamp
    return None if kind == 0 or milliseconds < 0 else milliseconds * 1000


class ValueReader:
    """Rows of messages: the columns of the value, then those of the message."""

    def __init__(
        self, value: StructType, read: ReadValues, meta: Mapping[str, str], *, takes_null: bool = False
    ) -> None:
        """`meta` are columns of the message, by what they are to their names; `takes_null` if a message without a value
        is a row too."""
        own = tuple(StructField(name, _META[what][0]) for what, name in meta.items())
        self.schema = StructType((*value.fields, *own))
        if (twice := duplicate_name(self.schema.names)) is not None:
            raise InvalidArgument(
                f"Both the value and the message have {twice!r}",
                column=twice,
                hint="Give the message's columns a prefix",
            )
        self._arrow = to_arrow(self.schema)
        self._read = read
        self._takes_null = takes_null
        self._meta = meta

    @property
    def has_meta(self) -> bool:
        return bool(self._meta)

    def read(self, messages: Sequence[Any]) -> Chunk:
        values = self._values([message.value() for message in messages])
        rows = messages if values.record_numbers is None else [messages[n] for n in values.record_numbers]
        columns = list(values.rows.columns)
        for what, name in self._meta.items():
            get, arrow = _META[what][1], self._arrow.field(name).type
            if pa.types.is_timestamp(arrow):
                columns.append(pa.array([get(m) for m in rows], pa.int64()).cast(pa.timestamp("us")).cast(arrow))
            else:
                columns.append(pa.array([get(m) for m in rows], arrow))
        bad = tuple(
            RejectedRecord.of(one.reason, messages[one.at].value() or b"", place(messages[one.at]))
            for one in values.misfits
        )
        return Chunk(rows=pa.RecordBatch.from_arrays(columns, schema=self._arrow), bad=bad)

    def _values(self, values: Sequence[bytes | None]) -> Parsed:
        if self._takes_null or None not in values:
            return self._read(values)
        full = [n for n, value in enumerate(values) if value is not None]
        done = self._read([values[n] for n in full])
        misfits = [Misfit(at=full[one.at], reason=one.reason) for one in done.misfits]
        misfits += (Misfit(at=n, reason=_TOMBSTONE) for n, value in enumerate(values) if value is None)
        numbers = full if done.record_numbers is None else [full[n] for n in done.record_numbers]
        return Parsed(rows=done.rows, misfits=tuple(misfits), record_numbers=numbers)


def value_reader(
    kind: str,
    *,
    schema: str | None,
    avro_schema: Mapping[str, Any] | None,
    schema_registry: str | None,
    registry_auth: str | None = None,
    include: Sequence[MetaColumn] | None,
    prefix: str,
) -> ValueReader:
    is_plain = kind in ("string", "bytes")
    wanted = include if include is not None else _PLAIN_META if is_plain else ()
    meta = {what: prefix + what for what in get_args(MetaColumn) if what in wanted}
    if is_plain:
        own = StructType((StructField("value", STRING if kind == "string" else BINARY),))
        read = _texts(to_arrow(own)) if kind == "string" else _plain(to_arrow(own))
        return ValueReader(own, read, meta, takes_null=True)
    if kind == "json":
        if schema is None:
            raise InvalidArgument("JSON values need a schema", hint='Add schema: "id long, at timestamp"')
        own = parse_schema(schema)
        if schema_registry is not None:
            return ValueReader(own, _json_schema(own, Registry(schema_registry, registry_auth)), meta)
        return ValueReader(own, JsonRecords(own).parse, meta)
    if kind == "protobuf":
        if schema is None or schema_registry is None:
            raise InvalidArgument(
                "Protobuf values need a schema of the rows, and a schema_registry that has their writers'",
                hint='Add schema: "id long, at timestamp" and schema_registry: https://…',
            )
        own = parse_schema(schema)
        return ValueReader(own, protobuf_values(own, Registry(schema_registry, registry_auth)), meta)
    if avro_schema is None:
        raise InvalidArgument("Avro values need an avro_schema", hint="Add avro_schema: {type: record, …}")
    own = avro_schema_of(avro_schema)
    asked = None if schema_registry is None else Registry(schema_registry, registry_auth)
    return ValueReader(own, avro_messages(avro_schema, own, asked), meta)


def place(message: Any) -> str:
    return f"offset {message.offset()}"


def _plain(schema: pa.Schema) -> ReadValues:
    return lambda values: Parsed(rows=pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], schema=schema))


def _texts(schema: pa.Schema) -> ReadValues:
    def read(values: Sequence[Any]) -> Parsed:
        array = pa.array(values, pa.binary())

        def part(start: int, end: int) -> pa.RecordBatch:
            return pa.RecordBatch.from_arrays([array.slice(start, end - start).cast(pa.string())], schema=schema)

        found = judged(len(values), part, (pa.ArrowInvalid,))
        misfits = tuple(Misfit(at=one.at, reason="It is not UTF-8") for one in found.misfits)
        return Parsed(rows=found.rows, misfits=misfits, record_numbers=found.record_numbers)

    return read


def _json_schema(own: StructType, registry: Registry) -> ReadValues:
    """JSON whose writers' schemas are registered: each value is judged by its writer's, then by the columns."""
    records = JsonRecords(own)

    def read(values: Sequence[Any]) -> Parsed:
        texts: list[bytes] = []
        valid: list[int] = []
        misfits: list[Misfit] = []
        for at, value in enumerate(values):
            try:
                number, text = framed(value)
                json_validator(registry, number)(text)
                texts.append(text)
                valid.append(at)
            except ValueError as error:
                misfits.append(Misfit(at=at, reason=str(error)))
        done = records.parse(texts)
        misfits += (Misfit(at=valid[one.at], reason=one.reason) for one in done.misfits)
        rows = valid if done.record_numbers is None else [valid[n] for n in done.record_numbers]
        misfits.sort(key=lambda one: one.at)
        return Parsed(rows=done.rows, misfits=tuple(misfits), record_numbers=rows if misfits else None)

    return read


@lru_cache(maxsize=100)
def json_validator(registry: Registry, number: int) -> Callable[[bytes], None]:
    """Raises ValueError for a text that is not as the schema says. Nothing that a schema refers to is fetched but what
    the registry says that it refers to."""
    try:
        import jsonschema  # an extra
        import referencing
        from referencing.exceptions import Unresolvable
        from referencing.jsonschema import DRAFT7
    except ModuleNotFoundError as error:
        raise Unsupported("jsonschema is not installed", hint="pip install 'lakeseal[kafka]'") from error
    written = registry.schema(number)
    if written.schemaType != "JSON":
        raise no_schema("JSON schema", written.schemaType)
    try:
        schema = msgspec.json.decode(written.schema)
        validators: Any = jsonschema.validators
        made = validators.validator_for(schema, default=jsonschema.Draft7Validator)
        made.check_schema(schema)
        resources = [
            (name, referencing.Resource.from_contents(msgspec.json.decode(one.schema), default_specification=DRAFT7))
            for name, one in registry.referred(written).items()
        ]
    except (msgspec.MsgspecError, jsonschema.SchemaError) as error:
        raise no_schema("JSON schema", str(error).partition("\n")[0]) from None
    exact = validators.extend(made, {"multipleOf": _multiple_of})
    validator = exact(schema, registry=referencing.Registry().with_resources(resources))

    def judge(text: bytes) -> None:
        try:
            wrong = next(iter(validator.iter_errors(msgspec.json.decode(text))), None)
        except msgspec.MsgspecError as error:
            raise ValueError(f"It is no JSON: {error}") from None
        except Unresolvable as error:
            raise no_schema("JSON schema", f"it refers to {error}") from None
        if wrong is not None:
            raise ValueError(f"Its writer's schema refuses {wrong.json_path}: {wrong.message}"[:500])

    return judge


def _multiple_of(_validator: Any, factor: Any, value: Any, _schema: Any) -> Iterator[Exception]:
    """As the numbers are spelt: of doubles, 19.99 is no multiple of 0.01."""
    import jsonschema  # an extra

    if isinstance(value, int | float) and not isinstance(value, bool) and Fraction(str(value)) % Fraction(str(factor)):
        yield jsonschema.ValidationError(f"{value!r} is not a multiple of {factor!r}")
