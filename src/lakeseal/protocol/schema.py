"""Delta's schema as frozen values.

`StructType.from_json` reads a `schemaString`, `to_json` writes it the way Spark does; field order and all metadata are
kept. A type that this module does not know raises `UnsupportedType`, anything malformed raises `InvalidMetadata`, and
both name the column by its dotted path (`a.b.element.c`). Column names match without regard to case; a struct whose
names differ by case only is malformed. Nesting is limited to `MAX_DEPTH` types, so no input exhausts the stack.

The functions here trust their values: build types by `from_json`, `arrow.from_arrow` or from the constants below.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct, field

from lakeseal.errors import InvalidMetadata, UnsupportedType

MAX_DEPTH = 64
MAX_PRECISION = 38

COLUMN_ID = "delta.columnMapping.id"
PHYSICAL_NAME = "delta.columnMapping.physicalName"
NESTED_IDS = "delta.columnMapping.nested.ids"
CHAR_VARCHAR = "__CHAR_VARCHAR_TYPE_STRING"

_SQL_NAMES = {
    "string": "string",
    "long": "bigint",
    "integer": "int",
    "short": "smallint",
    "byte": "tinyint",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "void": "void",
}
# Names that older Spark versions wrote for the same types.
_ALIASES = {"null": "void", "timestamp_ltz": "timestamp"}

_DECIMAL = re.compile(r"decimal\(\s*(\d{1,9})\s*,\s*(-?\d{1,9})\s*\)")
_CHAR = re.compile(r"(?:var)?char\(\d{1,9}\)")


class PrimitiveType(Struct, frozen=True):
    name: str

    def __post_init__(self) -> None:
        if self.name not in _SQL_NAMES:
            raise UnsupportedType(f"The type {self.name!r} is not supported")

    def __str__(self) -> str:
        return _SQL_NAMES[self.name]


class DecimalType(Struct, frozen=True):
    precision: int = 10
    scale: int = 0

    def __post_init__(self) -> None:
        if not (1 <= self.precision <= MAX_PRECISION and 0 <= self.scale <= self.precision):
            raise UnsupportedType(
                f"The type {self} is not supported",
                hint=f"A decimal has 1 to {MAX_PRECISION} digits, of which none or some are behind the point",
            )

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


class VariantType(Struct, frozen=True):
    def __str__(self) -> str:
        return "variant"


class ArrayType(Struct, frozen=True):
    element: DataType
    contains_null: bool = True

    def __str__(self) -> str:
        return f"array<{self.element}>"


class MapType(Struct, frozen=True):
    key: DataType
    value: DataType
    value_contains_null: bool = True

    def __str__(self) -> str:
        return f"map<{self.key},{self.value}>"


class StructField(Struct, frozen=True):
    name: str
    type: DataType
    nullable: bool = True
    metadata: dict[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.name, self.type, self.nullable))

    @property
    def physical_name(self) -> str:
        """The column's name in data files and in partition values; its name, where columns are not mapped."""
        name = self.metadata.get(PHYSICAL_NAME, self.name)
        if not isinstance(name, str) or not name:
            raise InvalidMetadata(f"The metadata {PHYSICAL_NAME} must be a name, not {name!r}", column=self.name)
        return name

    @property
    def field_id(self) -> int | None:
        """The column's id in data files, where columns are mapped."""
        return _column_id(self.metadata.get(COLUMN_ID), COLUMN_ID, self.name)

    @property
    def char_varchar(self) -> str | None:
        """The `char(n)` or `varchar(n)` behind a string, as Spark wrote it."""
        text = self.metadata.get(CHAR_VARCHAR)
        return text if isinstance(text, str) else None


class StructType(Struct, frozen=True, dict=True):
    fields: tuple[StructField, ...] = ()

    def __str__(self) -> str:
        return f"struct<{','.join(f'{f.name}:{f.type}' for f in self.fields)}>"

    @classmethod
    def from_json(cls, value: str | bytes | Mapping[str, Any]) -> StructType:
        if isinstance(value, str | bytes):
            return _parsed_text(value)
        parsed = type_from_json(value)
        if not isinstance(parsed, StructType):
            raise InvalidMetadata(f"The schema must be a struct, not {parsed}")
        return parsed

    def to_json(self) -> str:
        return msgspec.json.encode(type_to_json(self)).decode()

    @cached_property
    def _by_name(self) -> dict[str, StructField]:
        return {f.name.lower(): f for f in self.fields}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.fields)

    def field(self, name: str) -> StructField | None:
        """The field of that name, in any case."""
        return self._by_name.get(name.lower())

    def leaves(self) -> Iterator[tuple[tuple[str, ...], StructField]]:
        """The columns that statistics speak of, with their paths: structs are entered, arrays and maps are not."""
        for child in self.fields:
            if isinstance(child.type, StructType):
                for path, leaf in child.type.leaves():
                    yield (child.name, *path), leaf
            else:
                yield (child.name,), child

    def to_physical(self) -> StructType:
        """The same schema under the names that data files use."""
        physical = _physical(self)
        assert isinstance(physical, StructType)
        return physical

    def max_column_id(self) -> int:
        """The greatest column id anywhere in the schema, ids of elements, keys and values included; 0 if none."""
        return max(_column_ids(self), default=0)


DataType = PrimitiveType | DecimalType | VariantType | ArrayType | MapType | StructType

STRING = PrimitiveType("string")
LONG = PrimitiveType("long")
INTEGER = PrimitiveType("integer")
SHORT = PrimitiveType("short")
BYTE = PrimitiveType("byte")
FLOAT = PrimitiveType("float")
DOUBLE = PrimitiveType("double")
BOOLEAN = PrimitiveType("boolean")
BINARY = PrimitiveType("binary")
DATE = PrimitiveType("date")
TIMESTAMP = PrimitiveType("timestamp")
TIMESTAMP_NTZ = PrimitiveType("timestamp_ntz")
VOID = PrimitiveType("void")
VARIANT = VariantType()


def _parsed_text(text: str | bytes) -> StructType:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InvalidMetadata(f"The schema is not valid JSON: {error}") from error
    except RecursionError as error:
        raise _too_deep(()) from error
    if not isinstance(value, dict):
        raise InvalidMetadata("The schema is not a JSON object")
    return StructType.from_json(value)


def type_from_json(value: Any) -> DataType:
    """The type that a JSON value of a schema stands for."""
    return _parse(value, (), 1)


def type_to_json(data_type: DataType) -> Any:
    match data_type:
        case PrimitiveType(name=name):
            return name
        case DecimalType() | VariantType():
            return str(data_type)
        case ArrayType(element=element, contains_null=contains_null):
            return {"type": "array", "elementType": type_to_json(element), "containsNull": contains_null}
        case MapType(key=key, value=value, value_contains_null=contains_null):
            return {
                "type": "map",
                "keyType": type_to_json(key),
                "valueType": type_to_json(value),
                "valueContainsNull": contains_null,
            }
        case StructType(fields=fields):
            return {
                "type": "struct",
                "fields": [
                    {"name": f.name, "type": type_to_json(f.type), "nullable": f.nullable, "metadata": f.metadata}
                    for f in fields
                ],
            }


def duplicate_name(names: tuple[str, ...]) -> str | None:
    """The first name that an earlier one equals without regard to case."""
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            return name
        seen.add(name.lower())
    return None


def _parse(value: Any, path: tuple[str, ...], depth: int) -> DataType:
    if depth > MAX_DEPTH:
        raise _too_deep(path)
    if isinstance(value, str):
        return _parse_name(value, path)
    if not isinstance(value, Mapping):
        raise _malformed("A type must be a name or an object", path)
    match value.get("type"):
        case "struct":
            fields = value.get("fields")
            if not isinstance(fields, list | tuple):
                raise _malformed("A struct needs a list of fields", path)
            parsed = tuple(_parse_field(f, path, n, depth) for n, f in enumerate(fields))
            twice = duplicate_name(tuple(f.name for f in parsed))
            if twice is not None:
                raise _malformed(f"Two columns are called {twice!r} without regard to case", (*path, twice))
            return StructType(parsed)
        case "array":
            element = _parse(_member(value, "elementType", path), (*path, "element"), depth + 1)
            return ArrayType(element, _flag(value, "containsNull", path))
        case "map":
            key = _parse(_member(value, "keyType", path), (*path, "key"), depth + 1)
            content = _parse(_member(value, "valueType", path), (*path, "value"), depth + 1)
            return MapType(key, content, _flag(value, "valueContainsNull", path))
        case str(name):
            raise _unsupported(name, path)
        case _:
            raise _malformed("A type object needs a type", path)


def _parse_field(value: Any, path: tuple[str, ...], position: int, depth: int) -> StructField:
    if not isinstance(value, Mapping):
        raise _malformed(f"Field {position} of a struct must be an object", path)
    name = value.get("name")
    if not isinstance(name, str):
        raise _malformed(f"Field {position} of a struct needs a name", path)
    path = (*path, name)
    metadata = value.get("metadata")
    if metadata is None:
        metadata = {}
    if not isinstance(metadata, dict):
        raise _malformed("A field's metadata must be an object", path)
    nullable = _flag(value, "nullable", path)
    json_type = _member(value, "type", path)
    if isinstance(json_type, str) and _CHAR.fullmatch(json_type):
        return StructField(name, STRING, nullable, {CHAR_VARCHAR: json_type, **metadata})
    return StructField(name, _parse(json_type, path, depth + 1), nullable, metadata)


def _parse_name(name: str, path: tuple[str, ...]) -> DataType:
    name = _ALIASES.get(name, name)
    if name in _SQL_NAMES:
        return PrimitiveType(name)
    if name == "variant":
        return VARIANT
    if name == "decimal":
        return DecimalType()
    if decimal := _DECIMAL.fullmatch(name):
        try:
            return DecimalType(int(decimal[1]), int(decimal[2]))
        except UnsupportedType as error:
            raise error.at(column=dotted(path)) from None
    raise _unsupported(name, path)


def _member(value: Mapping[str, Any], key: str, path: tuple[str, ...]) -> Any:
    if key not in value:
        raise _malformed(f"{key} is missing", path)
    return value[key]


def _flag(value: Mapping[str, Any], key: str, path: tuple[str, ...]) -> bool:
    flag = value.get(key)
    if not isinstance(flag, bool):
        raise _malformed(f"{key} must be true or false", path)
    return flag


def dotted(path: tuple[str, ...]) -> str | None:
    """A path as people write it; names with dots are quoted. None for the whole schema."""
    return ".".join(f"`{name}`" if "." in name or not name else name for name in path) or None


def _malformed(message: str, path: tuple[str, ...]) -> InvalidMetadata:
    return InvalidMetadata(
        f"The schema is malformed: {message}",
        hint="The log holds a schema that is not Delta's: restore the commit that wrote it",
        column=dotted(path),
    )


def _too_deep(path: tuple[str, ...]) -> InvalidMetadata:
    return InvalidMetadata(
        f"The schema is nested deeper than {MAX_DEPTH} levels", hint="Flatten the schema", column=dotted(path[:3])
    )


def _unsupported(name: str, path: tuple[str, ...]) -> UnsupportedType:
    shown = name if len(name) <= 100 else name[:100] + "…"
    return UnsupportedType(
        f"The type {shown!r} is not supported",
        hint="Leave this column out of the table, or read the table with the client that wrote it",
        column=dotted(path),
    )


def _column_id(value: Any, key: str, column: str) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise InvalidMetadata(f"The metadata {key} must be a number, not {value!r}", column=column)


def _column_ids(data_type: DataType) -> Iterator[int]:
    match data_type:
        case ArrayType(element=element):
            yield from _column_ids(element)
        case MapType(key=key, value=value):
            yield from _column_ids(key)
            yield from _column_ids(value)
        case StructType(fields=fields):
            for child in fields:
                if child.field_id is not None:
                    yield child.field_id
                nested = child.metadata.get(NESTED_IDS)
                if isinstance(nested, dict):
                    for value in nested.values():
                        nested_id = _column_id(value, NESTED_IDS, child.name)
                        if nested_id is not None:
                            yield nested_id
                yield from _column_ids(child.type)
        case _:
            return


def _physical(data_type: DataType) -> DataType:
    match data_type:
        case ArrayType(element=element, contains_null=contains_null):
            return ArrayType(_physical(element), contains_null)
        case MapType(key=key, value=value, value_contains_null=contains_null):
            return MapType(_physical(key), _physical(value), contains_null)
        case StructType(fields=fields):
            return StructType(
                tuple(StructField(f.physical_name, _physical(f.type), f.nullable, f.metadata) for f in fields)
            )
        case _:
            return data_type
