"""Avro's schemas as columns: of messages and of files."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import msgspec

from lakeseal.errors import InvalidArgument
from lakeseal.protocol import schema as types
from lakeseal.protocol.schema import ArrayType, DataType, DecimalType, MapType, StructField, StructType

_AVRO_PLAIN: dict[str, DataType] = {
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
_AVRO_LOGICAL: dict[str, DataType] = {
    "date": types.DATE,
    "timestamp-millis": types.TIMESTAMP,
    "timestamp-micros": types.TIMESTAMP,
    "local-timestamp-millis": types.TIMESTAMP_NTZ,
    "local-timestamp-micros": types.TIMESTAMP_NTZ,
}


MOMENTS = tuple(f"{local}timestamp-{unit}" for local in ("", "local-") for unit in ("millis", "micros", "nanos"))
_MEANT_OF = {
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    **dict.fromkeys(MOMENTS, ("long",)),
    "decimal": ("bytes", "fixed"),
    "big-decimal": ("bytes",),
    "uuid": ("string", "fixed"),
    "duration": ("fixed",),
}


def meaning(schema: Mapping[str, Any]) -> str | None:
    """What values of a type mean beyond what they are. What Avro does not know, or not of this type, is nothing to it,
    as its specification says."""
    said = schema.get("logicalType")
    return said if isinstance(said, str) and schema.get("type") in _MEANT_OF.get(said, ()) else None


def avro_schema_of(schema: Mapping[str, Any]) -> StructType:
    """The columns of a record."""
    try:
        found = _avro_type(schema, {})
    except (KeyError, TypeError) as error:
        raise InvalidArgument(
            f"This is no Avro schema: {error}", hint="Say what Avro's specification asks for"
        ) from None
    if not isinstance(found, StructType):
        raise InvalidArgument("An Avro schema of rows is a record", hint="Add avro_schema: {type: record, fields: …}")
    return found


def _avro_type(schema: Any, named: dict[str, DataType]) -> DataType:
    if isinstance(schema, list):
        members = [one for one in schema if one != "null"]
        if len(members) == 1:
            return _avro_type(members[0], named)
        raise _unsupported_avro(schema)
    if isinstance(schema, str):
        found = _AVRO_PLAIN.get(schema) or named.get(schema)
        if found is None:
            raise _unsupported_avro(schema)
        return found
    if not isinstance(schema, Mapping) or "type" not in schema:
        raise _unsupported_avro(schema)
    kind, logical = schema["type"], meaning(schema)
    if logical == "decimal":
        return DecimalType(schema["precision"], schema.get("scale", 0))
    if logical in _AVRO_LOGICAL:
        return _AVRO_LOGICAL[logical]
    if isinstance(kind, list | dict):
        return _avro_type(kind, named)
    match kind:
        case "record":
            fields = tuple(StructField(str(f["name"]), _avro_type(f["type"], named)) for f in schema["fields"])
            made: DataType = StructType(fields)
        case "array":
            return ArrayType(_avro_type(schema["items"], named))
        case "map":
            return MapType(types.STRING, _avro_type(schema["values"], named))
        case _:
            made = _avro_type(kind, named)
    if "name" in schema:
        named[str(schema["name"])] = made
    return made


def _unsupported_avro(schema: Any) -> InvalidArgument:
    text = msgspec.json.encode(schema, enc_hook=str).decode()
    return InvalidArgument(f"No column can hold the Avro type {text}", hint="Read the value as bytes and decode it")


def as_stored(schema: Any, kept: Container[str] = (*_AVRO_LOGICAL, "decimal")) -> Any:
    """Without the meanings that no column has (uuid, time, duration): the values are then what is stored."""
    if isinstance(schema, list):
        return [as_stored(one, kept) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    is_known = schema.get("logicalType") in kept
    nested = ("type", "items", "values", "fields")
    return {
        name: as_stored(value, kept) if name in nested else value
        for name, value in schema.items()
        if is_known or name != "logicalType"
    }
