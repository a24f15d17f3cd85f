"""How functions of arrays, maps and structs bind: their types, and what computes them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from lakeseal.expr import coercion
from lakeseal.expr import row_collections as rows
from lakeseal.expr.bound import Bound
from lakeseal.expr.bound_call import BoundCall, Function
from lakeseal.protocol.schema import (
    BINARY,
    BOOLEAN,
    INTEGER,
    LONG,
    STRING,
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)


def _array(call: BoundCall, index: int = 0) -> ArrayType:
    found = call.args[index].type
    if found == VOID:
        call.unsupported(f"{call.name} of NULL")
    if not isinstance(found, ArrayType):
        call.binder.mismatch(f"{call.name} needs an array, not {found}", call.position)
    return found


def _comparable(call: BoundCall, element: DataType) -> None:
    if not coercion.is_atomic(element):
        call.unsupported(f"{call.name} of elements of type {element}")


def _item(call: BoundCall, element: DataType, index: int = 1) -> Bound:
    """An argument as an element of the array, where it is one without changing the array."""
    item = call.args[index]
    if item.type != element and (item.type == VOID or coercion.tightest(element, item.type) != element):
        call.unsupported(f"{call.name} of array<{element}> and {item.type}")
    return call.binder.cast(item, element)


def _of_array(
    compute: Callable[..., Any], gives: Callable[[ArrayType], DataType], *, atomic: bool = True, raises: bool = False
) -> Callable[[BoundCall], Bound]:
    def bind(call: BoundCall) -> Bound:
        array = _array(call)
        if atomic:
            _comparable(call, array.element)
        return call.row(gives(array), compute, call.args[0], raises=raises)

    return bind


def _with_item(
    compute: Callable[..., Any],
    gives: Callable[[ArrayType], DataType],
    *,
    with_nulls: bool = False,
    comparable: bool = True,
) -> Callable[[BoundCall], Bound]:
    def bind(call: BoundCall) -> Bound:
        array = _array(call)
        if comparable:
            _comparable(call, array.element)
        return call.row(gives(array), compute, call.args[0], _item(call, array.element), with_nulls=with_nulls)

    return bind


def _of_two(compute: Callable[..., Any], gives: Callable[[ArrayType], DataType]) -> Callable[[BoundCall], Bound]:
    def bind(call: BoundCall) -> Bound:
        left, right = _array(call), _array(call, 1)
        _comparable(call, left.element)
        if left.element != right.element:
            call.unsupported(f"{call.name} of {left} and {right}")
        return call.row(gives(left), compute, *call.args)

    return bind


def _same(array: ArrayType) -> DataType:
    return ArrayType(array.element)


def _element(array: ArrayType) -> DataType:
    return array.element


def _make_array(call: BoundCall) -> Bound:
    items = call.binder.common(call.args, call.position)
    if items[0].type == VOID:
        call.unsupported("An array of nulls only")
    return call.row(ArrayType(items[0].type), rows.make_array, *items, with_nulls=True)


def _make_map(call: BoundCall) -> Bound:
    if len(call.args) % 2:
        call.binder.mismatch("map needs a value for each key", call.position)
    keys = call.binder.common(call.args[::2], call.position)
    values = call.binder.common(call.args[1::2], call.position)
    if VOID in (keys[0].type, values[0].type) or not coercion.is_atomic(keys[0].type):
        call.unsupported(f"A map of {keys[0].type} and {values[0].type}")
    parts = [part for pair in zip(keys, values, strict=True) for part in pair]
    return call.row(MapType(keys[0].type, values[0].type), rows.make_map, *parts, raises=True, with_nulls=True)


def _named_struct(call: BoundCall) -> Bound:
    if len(call.args) % 2:
        call.binder.mismatch("named_struct needs a value for each name", call.position)
    if any(name.type not in (STRING, VOID) for name in call.args[::2]):
        call.unsupported("A struct whose names are no texts")
    names = [call.constant(index, STRING) for index in range(0, len(call.args), 2)]
    values = call.args[1::2]
    if None in names or len({str(name).lower() for name in names}) < len(names):
        call.unsupported("A struct whose names are null or twice the same")
    if any(value.type == VOID for value in values):
        call.unsupported("A struct with a field of nulls only")
    fields = tuple(StructField(name, value.type) for name, value in zip(names, values, strict=True))
    return call.row(StructType(fields), partial(rows.named_struct, tuple(names)), *values, with_nulls=True)


def _element_at(call: BoundCall) -> Bound:
    base = call.args[0].type
    if isinstance(base, MapType):
        return _map_key(rows.map_item, lambda found: found.value)(call)
    array = _array(call)
    compute = rows.try_element_at if call.name == "try_element_at" else rows.element_at
    if call.args[1].type in (STRING, VOID):
        call.unsupported(f"{call.name} of an array and {call.args[1].type}")
    return call.row(array.element, compute, call.args[0], call.expect(1, INTEGER), raises=True)


def _get(call: BoundCall) -> Bound:
    return call.row(_array(call).element, rows.get, call.args[0], call.expect(1, INTEGER))


def _map(call: BoundCall, index: int = 0) -> MapType:
    found = call.args[index].type
    if found == VOID:
        call.unsupported(f"{call.name} of NULL")
    if not isinstance(found, MapType):
        call.binder.mismatch(f"{call.name} needs a map, not {found}", call.position)
    return found


def _map_key(compute: Callable[..., Any], gives: Callable[[MapType], DataType]) -> Callable[[BoundCall], Bound]:
    def bind(call: BoundCall) -> Bound:
        found = _map(call)
        _comparable(call, found.key)
        return call.row(gives(found), compute, call.args[0], _item(call, found.key))

    return bind


def _of_map(compute: Callable[..., Any], gives: Callable[[MapType], DataType]) -> Callable[[BoundCall], Bound]:
    return lambda call: call.row(gives(_map(call)), compute, call.args[0])


def _map_from_arrays(call: BoundCall) -> Bound:
    keys, values = _array(call), _array(call, 1)
    _comparable(call, keys.element)
    return call.row(MapType(keys.element, values.element), rows.map_from_arrays, *call.args, raises=True)


def _map_concat(call: BoundCall) -> Bound:
    found = _map(call)
    if any(_map(call, index) != found for index in range(len(call.args))):
        call.unsupported("map_concat of maps of different types")
    return call.row(found, rows.map_concat, *call.args, raises=True)


def _map_from_entries(call: BoundCall) -> Bound:
    entry = _array(call).element
    if not isinstance(entry, StructType) or len(entry.fields) != 2:
        call.binder.mismatch(f"map_from_entries needs an array of pairs, not array<{entry}>", call.position)
    key, value = entry.fields
    _comparable(call, key.type)
    return call.row(MapType(key.type, value.type), rows.map_from_entries, call.args[0], raises=True)


def _array_insert(call: BoundCall) -> Bound:
    array = _array(call)
    if call.args[1].type not in coercion.INTEGRAL:
        call.unsupported(f"{call.name} at a place of type {call.args[1].type}")
    place, item = call.expect(1, INTEGER), _item(call, array.element, 2)
    return call.row(_same(array), rows.array_insert, call.args[0], place, item, raises=True, with_nulls=True)


def _array_join(call: BoundCall) -> Bound:
    if _array(call).element not in (STRING, BOOLEAN, *coercion.INTEGRAL):
        call.unsupported(f"array_join of elements of type {_array(call).element}")
    marks = [call.exact(index, STRING) for index in range(1, len(call.args))]
    return call.row(STRING, rows.array_join, call.args[0], *marks, raises=True)


def _array_repeat(call: BoundCall) -> Bound:
    item = call.args[0]
    if item.type == VOID:
        call.unsupported("An array of nulls only")
    gives = ArrayType(item.type)
    return call.row(gives, rows.array_repeat, item, call.exact(1, INTEGER), raises=True, with_nulls=True)


def _slice(call: BoundCall) -> Bound:
    bounds = (call.expect(1, INTEGER), call.expect(2, INTEGER))
    return call.row(_same(_array(call)), rows.slice_of, call.args[0], *bounds, raises=True)


def _sort_array(call: BoundCall) -> Bound:
    array = _array(call)
    _comparable(call, array.element)
    if len(call.args) == 2 and call.args[1].type not in (BOOLEAN, VOID):
        call.binder.mismatch(f"Expected {BOOLEAN}, found {call.args[1].type}", call.position)
    if len(call.args) == 2:
        call.constant(1, BOOLEAN)
    order = [call.expect(1, BOOLEAN)] if len(call.args) == 2 else []
    return call.row(_same(array), rows.sort_array, call.args[0], *order)


def _reverse(call: BoundCall) -> Bound:
    found = call.args[0].type
    if isinstance(found, ArrayType):
        return call.row(found, rows.reverse, call.args[0])
    if found == BINARY:
        call.unsupported("reverse of a binary")
    return call.row(STRING, rows.reverse, call.string(0))


def _flatten(call: BoundCall) -> Bound:
    inner = _array(call).element
    if not isinstance(inner, ArrayType):
        call.binder.mismatch(f"flatten needs an array of arrays, not array<{inner}>", call.position)
    return call.row(_same(inner), rows.flatten, call.args[0])


def _sequence(call: BoundCall) -> Bound:
    if any(arg.type not in coercion.INTEGRAL for arg in call.args):
        call.unsupported("sequence of other than whole numbers")
    args = call.binder.common(call.args, call.position)
    return call.row(ArrayType(args[0].type), rows.sequence, *args, raises=True)


def concat_arrays(call: BoundCall) -> Bound:
    first = _array(call)
    if any(_array(call, index).element != first.element for index in range(len(call.args))):
        call.unsupported("concat of arrays of different types")
    return call.row(_same(first), rows.concat, *call.args)


def _str_to_map(call: BoundCall) -> Bound:
    for index in range(1, len(call.args)):
        mark = call.constant(index, STRING)
        if mark is None or len(mark) != 1 or mark in "\\^$.|?*+()[]{}":
            call.unsupported("str_to_map with other marks than one plain character")
    args = [call.exact(index, STRING) for index in range(len(call.args))]
    return call.row(MapType(STRING, STRING), rows.str_to_map, *args, raises=True)


def _array_size(call: BoundCall) -> Bound:
    if call.args[0].type == VOID:
        return call.null(INTEGER)
    _array(call)
    return call.make("size", INTEGER, call.args[0])


COLLECTION_FUNCTIONS: dict[str, Function] = Function.table(
    ("array", _make_array, 1, None),
    ("map", _make_map, 2, None),
    ("named_struct", _named_struct, 2, None),
    ("element_at try_element_at", _element_at, 2, 2),
    ("get", _get, 2, 2),
    ("map_keys", _of_map(rows.map_keys, lambda found: ArrayType(found.key)), 1, 1),
    ("map_values", _of_map(rows.map_values, lambda found: ArrayType(found.value)), 1, 1),
    (
        "map_entries",
        _of_map(
            rows.map_entries,
            lambda found: ArrayType(StructType((StructField("key", found.key), StructField("value", found.value)))),
        ),
        1,
        1,
    ),
    ("map_contains_key", _map_key(rows.map_contains_key, lambda found: BOOLEAN), 2, 2),
    ("map_from_arrays", _map_from_arrays, 2, 2),
    ("map_concat", _map_concat, 1, None),
    ("map_from_entries", _map_from_entries, 1, 1),
    ("array_insert", _array_insert, 3, 3),
    ("array_position", _with_item(rows.array_position, lambda array: LONG), 2, 2),
    ("array_remove", _with_item(rows.array_remove, _same), 2, 2),
    ("array_append", _with_item(rows.array_append, _same, with_nulls=True, comparable=False), 2, 2),
    ("array_prepend", _with_item(rows.array_prepend, _same, with_nulls=True, comparable=False), 2, 2),
    ("array_contains", _with_item(rows.array_contains, lambda array: BOOLEAN), 2, 2),
    ("array_max", _of_array(rows.array_max, _element), 1, 1),
    ("array_min", _of_array(rows.array_min, _element), 1, 1),
    ("array_distinct", _of_array(rows.array_distinct, _same), 1, 1),
    ("array_sort", _of_array(rows.array_sort, _same), 1, 1),
    ("array_compact", _of_array(rows.array_compact, _same, atomic=False), 1, 1),
    ("array_size", _array_size, 1, 1),
    ("array_join", _array_join, 2, 3),
    ("array_union", _of_two(rows.array_union, _same), 2, 2),
    ("array_intersect", _of_two(rows.array_intersect, _same), 2, 2),
    ("array_except", _of_two(rows.array_except, _same), 2, 2),
    ("arrays_overlap", _of_two(rows.arrays_overlap, lambda array: BOOLEAN), 2, 2),
    ("array_repeat", _array_repeat, 2, 2),
    ("slice", _slice, 3, 3),
    ("sort_array", _sort_array, 1, 2),
    ("reverse", _reverse, 1, 1),
    ("flatten", _flatten, 1, 1),
    ("sequence", _sequence, 2, 3),
    ("str_to_map", _str_to_map, 1, 3),
)
