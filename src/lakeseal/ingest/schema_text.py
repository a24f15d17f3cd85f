"""A schema as people write it, `"id long, at timestamp, tags array<string>"`: Spark's DDL, read without Spark."""

from __future__ import annotations

from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakeseal.errors import InvalidArgument
from lakeseal.protocol import schema as types
from lakeseal.protocol.schema import ArrayType, DataType, DecimalType, MapType, StructField, StructType, duplicate_name

_HINT = 'Write it as Spark does: "id long, at timestamp, tags array<string>, who struct<name: string>"'
_KINDS = exp.DataType.Type
_PLAIN: dict[Any, DataType] = {
    _KINDS.BIGINT: types.LONG,
    _KINDS.INT: types.INTEGER,
    _KINDS.SMALLINT: types.SHORT,
    _KINDS.TINYINT: types.BYTE,
    _KINDS.FLOAT: types.FLOAT,
    _KINDS.DOUBLE: types.DOUBLE,
    _KINDS.BOOLEAN: types.BOOLEAN,
    _KINDS.TEXT: types.STRING,
    _KINDS.VARCHAR: types.STRING,
    _KINDS.CHAR: types.STRING,
    _KINDS.BINARY: types.BINARY,
    _KINDS.VARBINARY: types.BINARY,
    _KINDS.DATE: types.DATE,
    _KINDS.TIMESTAMP: types.TIMESTAMP,
    _KINDS.TIMESTAMPTZ: types.TIMESTAMP,
    _KINDS.TIMESTAMPLTZ: types.TIMESTAMP,
    _KINDS.TIMESTAMPNTZ: types.TIMESTAMP_NTZ,
}


def parse_schema(text: str) -> StructType:
    """`InvalidArgument` says what is wrong with it."""
    try:
        # sqlglot's own names are case-sensitive for its dialects; the text's names are kept as they are.
        found = sqlglot.parse_one(f"STRUCT<{text}>", into=exp.DataType, dialect="spark")
    except SqlglotError as error:
        raise InvalidArgument(f"{text!r} is not a schema: {str(error).splitlines()[0]}", hint=_HINT) from None
    parsed = _type(found, text) if isinstance(found, exp.DataType) else None
    if not isinstance(parsed, StructType):
        raise InvalidArgument(f"{text!r} is not a schema", hint=_HINT)
    return parsed


def _type(found: exp.DataType, text: str) -> DataType:
    kind, inner = found.this, found.expressions
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind == _KINDS.DECIMAL:
        return DecimalType(*(int(part.name) for part in inner))
    if kind == _KINDS.ARRAY and len(inner) == 1:
        return ArrayType(_type(inner[0], text))
    if kind == _KINDS.MAP and len(inner) == 2:
        return MapType(_type(inner[0], text), _type(inner[1], text))
    # A struct that sqlglot could not read comes back without fields.
    if kind == _KINDS.STRUCT and inner and all(isinstance(one, exp.ColumnDef) and one.kind for one in inner):
        fields = tuple(_field(one, text) for one in inner)
        if (twice := duplicate_name(tuple(field.name for field in fields))) is not None:
            raise InvalidArgument(f"{text!r} has two columns called {twice!r}", column=twice)
        return StructType(fields)
    raise InvalidArgument(f"{text!r} is not a schema: {found.sql('spark')!r} is no type of a column", hint=_HINT)


def _field(column: exp.ColumnDef, text: str) -> StructField:
    notes = {type(one.kind): one.kind for one in column.constraints}
    comment = notes.get(exp.CommentColumnConstraint)
    metadata = {} if comment is None else {"comment": comment.this.name}
    assert isinstance(column.kind, exp.DataType)
    return StructField(column.name, _type(column.kind, text), exp.NotNullColumnConstraint not in notes, metadata)
