"""Protobuf messages to rows, by the descriptors that a schema registry has of their writers' schemas.

Columns are found by the names of fields, in any case, and first as they are spelt; one that the writer did not know is
null, and fields that no column is called after are left out. A field that can be absent and is, is null; any other has
its default. Enums are their names, or numbers to a whole number; `google.protobuf.Timestamp` is a timestamp, and
wrappers are what they wrap. Nothing is rounded or turned into text to make it fit.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from lakeseal.errors import Unsupported, UnsupportedType
from lakeseal.files.records import Parsed, judged
from lakeseal.ingest.sources.schema_registry import RegisteredSchema, Registry, framed, no_schema
from lakeseal.protocol import schema as types
from lakeseal.protocol.arrow import to_arrow
from lakeseal.protocol.schema import ArrayType, DataType, MapType, StructField, StructType

_WHOLE = (types.BYTE, types.SHORT, types.INTEGER, types.LONG)
_WRAPPERS = "google.protobuf."
_EXACT = 2**53

Convert = Callable[[Any, Any], Any]
"""A value and its field, to what the column has."""


def protobuf_values(own: StructType, registry: Registry) -> Callable[[Sequence[Any]], Parsed]:
    arrow = to_arrow(own)
    convert = _struct(own.fields)

    @lru_cache(maxsize=100)
    def classes(number: int) -> Any:
        schema = registry.schema(number, serialized=True)
        return _file(schema, registry)

    def one(value: bytes) -> dict[str, Any]:
        number, rest = framed(value)
        file, made = classes(number)
        path, at = _indexes(rest)
        message = made(_chosen(file, path))()
        try:
            message.ParseFromString(rest[at:])
        except Exception as error:  # protobuf's own kind, which is another in each of its implementations
            raise ValueError(f"It is no {message.DESCRIPTOR.full_name}: {error}") from None
        row: dict[str, Any] = convert(message, None)
        return row

    def read(values: Sequence[Any]) -> Parsed:
        def part(start: int, end: int) -> pa.RecordBatch:
            return pa.RecordBatch.from_pylist([one(value) for value in values[start:end]], schema=arrow)

        return judged(len(values), part, (pa.ArrowException, ValueError, TypeError, OverflowError))

    return read


def _file(schema: RegisteredSchema, registry: Registry) -> tuple[Any, Any]:
    """Its descriptor, and what makes classes of descriptors."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # an extra
    except ModuleNotFoundError as error:
        raise Unsupported(
            "protobuf is not installed", hint="pip install 'lakeseal[kafka]', on executors too"
        ) from error
    if schema.schemaType != "PROTOBUF":
        raise no_schema("Protobuf", schema.schemaType)
    pool = descriptor_pool.DescriptorPool()
    texts = {name: one.schema for name, one in registry.referred(schema, serialized=True).items()}

    def add(name: str, text: str, within: tuple[str, ...]) -> None:
        if name in within:
            raise no_schema("Protobuf", f"{name} imports itself")
        proto = descriptor_pb2.FileDescriptorProto()
        proto.ParseFromString(_known(name) or base64.b64decode(text, validate=True))
        proto.name = name
        for other in proto.dependency:
            try:
                pool.FindFileByName(other)
            except KeyError:
                add(other, texts.get(other, ""), (*within, name))
        pool.AddSerializedFile(proto.SerializeToString())

    try:
        add("", schema.schema, ())
        return pool.FindFileByName(""), message_factory.GetMessageClass
    except (binascii.Error, KeyError, TypeError, ValueError) as error:
        raise no_schema("Protobuf", error) from None
    except Exception as error:  # as above
        if type(error).__name__ != "DecodeError":
            raise
        raise no_schema("Protobuf", error) from None


def _known(name: str) -> bytes | None:
    """The descriptor of one of Protobuf's own files."""
    import google.protobuf.descriptor_pool as pools  # as above
    from google.protobuf import (  # noqa: F401  which makes them known
        duration_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )

    if not name.startswith("google/protobuf/"):
        return None
    found: bytes = pools.Default().FindFileByName(name).serialized_pb
    return found


def _indexes(rest: bytes) -> tuple[list[int], int]:
    """Which message of the file it is, as places inside of each other; and where it begins."""
    count, at = _varint(rest, 0)
    if count == 0:
        return [0], at
    if not 0 < count <= 100:
        raise ValueError("It does not say which message it is")
    path = []
    for _ in range(count):
        place, at = _varint(rest, at)
        path.append(place)
    return path, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """With a sign, as zigzag."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 28:
            raise ValueError("It does not say which message it is")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at


def _chosen(file: Any, path: Sequence[int]) -> Any:
    found = list(file.message_types_by_name.values())
    message = None
    for place in path:
        if not 0 <= place < len(found):
            raise ValueError("It names a message that its writer's schema does not have")
        message = found[place]
        found = list(message.nested_types)
    return message


def _struct(fields: Sequence[StructField]) -> Convert:
    converts = [(field.name, _value(field.type, field.name)) for field in fields]

    def convert(message: Any, _field: Any) -> dict[str, Any]:
        descriptor = getattr(message, "DESCRIPTOR", None)
        if not hasattr(descriptor, "fields_by_name"):
            raise ValueError(f"{message!r} is no message")
        row: dict[str, Any] = {}
        for name, inner in converts:
            field = _field_of(descriptor, name)
            absent = field is None or (field.has_presence and not message.HasField(field.name))
            row[name] = None if absent else inner(getattr(message, field.name), field)
        return row

    return convert


@lru_cache(maxsize=10_000)
def _field_of(descriptor: Any, column: str) -> Any:
    exact = descriptor.fields_by_name.get(column)
    same = [one for one in descriptor.fields if one.name.lower() == column.lower()]
    if exact is None and len(same) > 1:
        raise ValueError(f"{descriptor.full_name} has several fields {column!r}, which differ in case")
    return exact or next(iter(same), None)


def _value(kind: DataType, name: str) -> Convert:
    if isinstance(kind, StructType):
        return _struct(kind.fields)
    if isinstance(kind, ArrayType):
        element = _value(kind.element, name)
        return lambda value, field: [element(one, field) for one in _many(value, name)]
    if isinstance(kind, MapType):
        keys, values = _value(kind.key, name), _value(kind.value, name)

        def pairs(value: Any, field: Any) -> list[tuple[Any, Any]]:
            if not hasattr(value, "keys"):
                raise ValueError(f"{name} is no map")
            of = field.message_type.fields_by_name
            return [(keys(key, of["key"]), values(value[key], of["value"])) for key in value]

        return pairs
    if kind not in (*_WHOLE, types.STRING, types.BINARY, types.BOOLEAN, types.FLOAT, types.DOUBLE, types.TIMESTAMP):
        raise UnsupportedType(f"No field of Protobuf is a {kind}", column=name, hint="Read another type, and cast it")
    return lambda value, field: _plain(value, field, kind, name)


def _many(value: Any, name: str) -> Any:
    if isinstance(value, str | bytes) or not hasattr(value, "__len__") or hasattr(value, "keys"):
        raise ValueError(f"{name} is not repeated")
    return value


def _plain(value: Any, field: Any, kind: DataType, name: str) -> Any:
    descriptor = getattr(value, "DESCRIPTOR", None)
    if descriptor is not None and descriptor.full_name == f"{_WRAPPERS}Timestamp":
        if kind == types.TIMESTAMP:
            return value.seconds * 1_000_000 + value.nanos // 1000
    elif descriptor is not None and descriptor.full_name.startswith(_WRAPPERS) and hasattr(value, "value"):
        return _plain(value.value, descriptor.fields_by_name["value"], kind, name)
    elif field.enum_type is not None and kind == types.STRING:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    elif isinstance(value, bool):
        if kind == types.BOOLEAN:
            return value
    elif isinstance(value, int):
        if kind in _WHOLE or (kind == types.DOUBLE and abs(value) <= _EXACT):
            return value
    elif isinstance(value, float):
        if kind == types.DOUBLE or (kind == types.FLOAT and field.type == field.TYPE_FLOAT):
            return value
    elif (isinstance(value, str) and kind == types.STRING) or (isinstance(value, bytes) and kind == types.BINARY):
        return value
    raise ValueError(f"{name} is no {kind}: {value!r}"[:200])
