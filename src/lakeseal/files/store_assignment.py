"""Values into columns of another type where there is no session: Spark's store assignment with ANSI on, in UTC.

Allowed is what can lose a value only loudly: any number into any numeric column, anything simple into a string, dates
and timestamps into each other, null into everything; arrays, maps and structs part by part, structs by name. Strings
into anything else, and booleans and numbers into each other, are refused, as is a string of a floating-point number
outside Spark (its digits are Java's). A value that its column cannot hold raises `EvaluationError`.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from lakeseal.errors import LakesealError, SchemaMismatch, UnsupportedExpression
from lakeseal.expr import casts
from lakeseal.expr.coercion import MOMENTS, is_atomic, is_numeric
from lakeseal.protocol.arrow import from_arrow_type, to_arrow_type
from lakeseal.protocol.nested import children, list_like, map_like, nullable, struct_like, without_hidden
from lakeseal.protocol.schema import STRING, VOID, ArrayType, DataType, MapType, StructField, StructType, dotted

Path = tuple[str, ...]


def check_assignable(source: DataType, target: DataType, path: Path) -> None:
    """Raises `SchemaMismatch` if no value of `source` may go into the column at `path`, or not outside Spark."""

    def simple(given: DataType, wanted: DataType, at: Path) -> None:
        check_simple(given, wanted, at)
        why = casts.refusal(given, wanted)
        if why is not None:
            raise UnsupportedExpression(
                f"{given} as {wanted} is not done outside Spark: {why}",
                hint="Cast the column before writing, or write through Spark",
                column=dotted(at),
            )

    check_parts(source, target, path, simple)


def check_parts(
    source: DataType, target: DataType, path: Path, simple: Callable[[DataType, DataType, Path], None]
) -> None:
    """Asks `simple` of every pair of types that are no structs, arrays or maps both; names of structs must agree."""
    match source, target:
        case StructType(), StructType():
            _check_struct(source, target, path, simple)
        case ArrayType(), ArrayType():
            check_parts(source.element, target.element, (*path, "element"), simple)
        case MapType(), MapType():
            check_parts(source.key, target.key, (*path, "key"), simple)
            check_parts(source.value, target.value, (*path, "value"), simple)
        case _:
            simple(source, target, path)


def check_simple(source: DataType, target: DataType, path: Path) -> None:
    if not _simple_assignable(source, target):
        raise SchemaMismatch(
            f"A value of type {source} cannot go into a column of type {target}",
            hint="Cast the column explicitly before writing",
            column=dotted(path),
        )


def _simple_assignable(source: DataType, target: DataType) -> bool:
    if source in (target, VOID):
        return True
    if is_numeric(source) and is_numeric(target):
        return True
    return (target == STRING and is_atomic(source)) or (source in MOMENTS and target in MOMENTS)


def _check_struct(
    source: StructType, target: StructType, path: Path, simple: Callable[[DataType, DataType, Path], None]
) -> None:
    for extra in (f for f in source.fields if target.field(f.name) is None):
        raise SchemaMismatch(
            "The data has a column that the table does not have",
            hint="Leave it out, or add it to the table with merge_schema=True",
            column=dotted((*path, extra.name)),
        )
    for field in target.fields:
        given = source.field(field.name)
        if given is None:
            check_omittable(field, (*path, field.name))
        else:
            check_parts(given.type, field.type, (*path, field.name), simple)


def check_omittable(field: StructField, path: Path) -> None:
    if not field.nullable:
        raise SchemaMismatch(
            "The data lacks a column that must not be null", hint="Add the column to the data", column=dotted(path)
        )


def canonical(array: pa.Array) -> pa.Array:
    """The same values in the one Arrow form of their Delta type; nanoseconds are cut to microseconds, downwards as the
    readers of files cut them."""
    if isinstance(array, pa.ExtensionArray):
        return canonical(array.storage)
    if pa.types.is_run_end_encoded(array.type):
        return canonical(pc.run_end_decode(array))
    arrow = to_arrow_type(from_arrow_type(array.type))
    if array.type.equals(arrow):
        return without_hidden(array)
    if pa.types.is_timestamp(array.type) and array.type.unit == "ns":
        return _floor_divided(array, 1000).cast(arrow)
    if pa.types.is_date64(array.type):
        return _floor_divided(array, 86_400_000).cast(pa.int32()).cast(arrow)
    match array:
        case pa.StructArray():
            return struct_like(array, [canonical(child) for child in children(array)], arrow)
        case pa.MapArray():
            return map_like(array, canonical(array.keys), canonical(array.items), arrow)
        case pa.ListArray():
            return list_like(array, canonical(array.values), arrow)
        case pa.LargeListArray() | pa.FixedSizeListArray():
            return canonical(array.cast(pa.list_(array.type.value_field)))
        case pa.ListViewArray() | pa.LargeListViewArray():
            return canonical(_one_after_the_other(array))
        case pa.DictionaryArray():
            # Arrow takes no values out of a dictionary of views, which is what polars has for its categories.
            return canonical(array.dictionary).take(array.indices)
        case _:
            return pc.cast(array, options=pc.CastOptions(target_type=arrow, allow_time_truncate=True))


def _one_after_the_other(views: pa.Array) -> pa.ListArray:
    """Arrow's own cast leaves out the last offset."""
    lengths = pc.fill_null(pc.list_value_length(views), 0)
    offsets = pc.cumulative_sum(pa.concat_arrays([pa.array([0], lengths.type), lengths])).cast(pa.int32())
    arrow = pa.list_(views.type.value_field)
    return pa.ListArray.from_arrays(offsets, pc.list_flatten(views), type=arrow, mask=pc.is_null(views))


def _floor_divided(array: pa.Array, unit: int) -> pa.Array:
    """Arrow would cut towards 1970, which is up for what lies before it; and too large a date it would wrap around."""
    numbers = array.cast(pa.int64())
    whole = pc.divide(numbers, unit)
    return pc.subtract(whole, pc.less(numbers, pc.multiply(whole, unit)).cast(pa.int64()))


def stored_type(target: DataType) -> pa.DataType:
    return nullable(to_arrow_type(target))


def assign(array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    """Values of `source`, in its canonical form, as values of `target`; the two have passed `check_assignable`.

    The result says nothing of nulls: whether there may be any is a constraint, and checked as such.
    """
    arrow = stored_type(target)
    if array.type.equals(arrow):
        return array
    match source, target:
        case StructType(), StructType():
            return _assign_struct(array, source, target, arrow)
        case ArrayType(), ArrayType():
            values = assign(array.values, source.element, target.element)
            return list_like(array, values, arrow)
        case MapType(), MapType():
            keys = assign(array.keys, source.key, target.key)
            items = assign(array.items, source.value, target.value)
            return map_like(array, keys, items, arrow)
        case _ if source == target:
            # Only a variant, of which there is one form but for its flags.
            return array.view(arrow)
        case _ if source == VOID:
            return pa.nulls(len(array), arrow)
        case _:
            return casts.cast(array, source, target)


def _assign_struct(array: pa.Array, source: StructType, target: StructType, arrow: pa.DataType) -> pa.Array:
    by_name = dict(zip((f.name.lower() for f in source.fields), children(array), strict=True))
    parts = []
    for place, field in enumerate(target.fields):
        given = source.field(field.name)
        if given is None:
            parts.append(pa.nulls(len(array), arrow.field(place).type))
            continue
        try:
            parts.append(assign(by_name[field.name.lower()], given.type, field.type))
        except LakesealError as error:
            raise error.at(column=field.name) from None
    return struct_like(array, parts, arrow)
