"""How functions of JSON texts bind: paths and schemas are constants."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from lakeseal.errors import InvalidArgument
from lakeseal.expr import row_json
from lakeseal.expr.bound import Bound
from lakeseal.expr.bound_call import BoundCall, Function
from lakeseal.expr.coercion import without_notes
from lakeseal.expr.schema_text import parse_column_type, parse_schema
from lakeseal.protocol.schema import INTEGER, STRING, VOID, ArrayType, DataType, MapType, StructField, StructType

_CORRUPT = "_corrupt_record"
"""A field of that name is Spark's place for what is no JSON."""


def _of_text(compute: Callable[[str], Any], gives: DataType) -> Callable[[BoundCall], Bound]:
    return lambda call: call.row(gives, compute, call.exact(0, STRING), raises=True)


def _get(call: BoundCall) -> Bound:
    text, _ = call.exact(0, STRING), call.exact(1, STRING)
    path = call.constant(1, STRING)
    found = None if path is None else row_json.steps(path)
    if found is None:
        return call.null(STRING)
    return call.row(STRING, partial(row_json.get_json_object, found), text, raises=True)


def _to_json(call: BoundCall) -> Bound:
    value = call.args[0]
    if value.type == VOID:
        call.unsupported("to_json of NULL")
    if not isinstance(value.type, StructType | MapType | ArrayType):
        call.binder.mismatch(f"to_json needs a struct, a map or an array, not {value.type}", call.position)
    refused = row_json.refused_type(value.type)
    if refused is not None:
        call.unsupported(f"to_json of {refused}")
    return call.row(STRING, partial(row_json.to_json, value.type), value, raises=True)


def _from_json(call: BoundCall) -> Bound:
    text = call.constant(1, STRING)
    if text is None:
        call.unsupported("from_json by a schema that is null")
    target = _schema(call, text)
    refused = row_json.refused_reading(target)
    if refused is not None:
        call.unsupported(f"from_json of {refused}")
    return call.row(target, partial(row_json.from_json, target), call.exact(0, STRING), raises=True)


def _schema(call: BoundCall, text: str) -> DataType:
    try:
        found: DataType = parse_schema(text)
    except InvalidArgument:
        # The schema may be a type by itself.
        found = parse_column_type("value", text).type
    if not isinstance(found, StructType | MapType | ArrayType) or _CORRUPT in text.lower():
        call.unsupported(f"from_json of {text[:50]!r}")
    return _nullable(without_notes(found))


def _nullable(data_type: DataType) -> DataType:
    match data_type:
        case StructType(fields=fields):
            return StructType(tuple(StructField(field.name, _nullable(field.type)) for field in fields))
        case ArrayType(element=element):
            return ArrayType(_nullable(element))
        case MapType(key=key, value=value):
            return MapType(key, _nullable(value))
    return data_type


JSON_FUNCTIONS: dict[str, Function] = Function.table(
    ("get_json_object", _get, 2, 2),
    ("json_array_length", _of_text(row_json.json_array_length, INTEGER), 1, 1),
    ("json_object_keys", _of_text(row_json.json_object_keys, ArrayType(STRING)), 1, 1),
    ("to_json", _to_json, 1, 1),
    ("from_json", _from_json, 2, 2),
)
