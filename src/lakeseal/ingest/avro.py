"""Avro: a schema's columns, and values decoded by it. The work is fastavro's, of the extra `kafka`."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from lakeseal.errors import InvalidArgument, Unsupported
from lakeseal.protocol import schema as types
from lakeseal.protocol.schema import ArrayType, DataType, DecimalType, MapType, StructField, StructType

_PLAIN: dict[str, DataType] = {
    "boolean": types.BOOLEAN,
    "int": types.INTEGER,
    "long": types.LONG,
    "float": types.FLOAT,
    "double": types.DOUBLE,
    "bytes": types.BINARY,
    "fixed": types.BINARY,
    "string": types.STRING,
    "enum": types.STRING,
}
_LOGICAL: dict[str, DataType] = {
    "date": types.DATE,
    "timestamp-millis": types.TIMESTAMP,
    "timestamp-micros": types.TIMESTAMP,
    "local-timestamp-millis": types.TIMESTAMP_NTZ,
    "local-timestamp-micros": types.TIMESTAMP_NTZ,
}


def avro_schema_of(schema: Mapping[str, Any]) -> StructType:
    """The columns of a record."""
    found = _type(schema, {})
    if not isinstance(found, StructType):
        raise InvalidArgument("An Avro schema of rows is a record", hint="Add avro_schema: {type: record, fields: …}")
    return found


def _type(schema: Any, named: dict[str, DataType]) -> DataType:
    if isinstance(schema, list):
        members = [one for one in schema if one != "null"]
        if len(members) == 1:
            return _type(members[0], named)
        raise _unsupported(schema)
    if isinstance(schema, str):
        found = _PLAIN.get(schema) or named.get(schema)
        if found is None:
            raise _unsupported(schema)
        return found
    if not isinstance(schema, Mapping) or "type" not in schema:
        raise _unsupported(schema)
    kind, logical = schema["type"], schema.get("logicalType")
    if logical == "decimal":
        return DecimalType(schema["precision"], schema.get("scale", 0))
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if isinstance(kind, list | dict):
        return _type(kind, named)
    match kind:
        case "record":
            fields = tuple(StructField(str(f["name"]), _type(f["type"], named)) for f in schema["fields"])
            made: DataType = StructType(fields)
        case "array":
            return ArrayType(_type(schema["items"], named))
        case "map":
            return MapType(types.STRING, _type(schema["values"], named))
        case _:
            made = _type(kind, named)
    if "name" in schema:
        named[str(schema["name"])] = made
    return made


def _unsupported(schema: Any) -> InvalidArgument:
    text = msgspec.json.encode(schema, enc_hook=str).decode()
    return InvalidArgument(f"No column can hold the Avro type {text}", hint="Read the value as bytes and decode it")


def _as_stored(schema: Any) -> Any:
    """Without the meanings that no column has (uuid, time, duration): the values are then what is stored."""
    if isinstance(schema, list):
        return [_as_stored(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    is_known = schema.get("logicalType") in (*_LOGICAL, "decimal")
    nested = ("type", "items", "values", "fields")
    return {
        name: _as_stored(value) if name in nested else value
        for name, value in schema.items()
        if is_known or name != "logicalType"
    }


def avro_decoder(reader_schema: Mapping[str, Any]) -> Callable[[bytes, str | None], Any]:
    """Decodes one value: by a writer's schema, given as text, or by the reader's own."""
    try:
        import fastavro  # an extra
    except ModuleNotFoundError as error:
        raise Unsupported(
            "fastavro is not installed", hint="pip install 'lakeseal[kafka]', on executors too"
        ) from error
    try:
        reader = fastavro.parse_schema(_as_stored(reader_schema))
    except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType, KeyError, TypeError) as error:
        raise InvalidArgument(f"This is no Avro schema: {error}") from None

    @lru_cache(maxsize=100)
    def written_by(text: str) -> Any:
        return fastavro.parse_schema(_as_stored(msgspec.json.decode(text)))

    def decode(value: bytes, writer: str | None) -> Any:
        stream = io.BytesIO(value)
        try:
            if writer is None:
                row = fastavro.schemaless_reader(stream, reader, None)
            else:
                row = fastavro.schemaless_reader(stream, written_by(writer), reader)
        except (EOFError, IndexError, KeyError, fastavro.schema.SchemaParseException) as error:
            raise ValueError(f"It is not Avro of this schema: {error or type(error).__name__}") from None
        if stream.read(1):
            raise ValueError("It is longer than its Avro schema says")
        return row

    return decode
