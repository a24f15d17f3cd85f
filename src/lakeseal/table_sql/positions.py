"""Fields of structs that an INSERT puts in by position, as it does with columns: names of the rows do not count.

Spark and Delta Spark do so at every depth, in arrays and maps too. Fields beyond those of the column keep their names:
the column may get them. `named` gives a type its column's names; rows of it are then written by name, as all rows are.

Rows with the names and types of all columns, up to the order of fields, Delta Spark stores by name as they are:
`fits_by_name` says so.
"""

from __future__ import annotations

from lakeseal.errors import SchemaMismatch
from lakeseal.protocol.schema import ArrayType, DataType, MapType, StructField, StructType, dotted, duplicate_name


def fits_by_name(given: DataType, wanted: DataType) -> bool:
    """Whether they are the same but for the order of fields, and for fields that are `given` beyond those `wanted`."""
    match given, wanted:
        case StructType(), StructType():
            there = {field.name: field.type for field in given.fields}
            return all(field.name in there and fits_by_name(there[field.name], field.type) for field in wanted.fields)
        case ArrayType(), ArrayType():
            return fits_by_name(given.element, wanted.element)
        case MapType(), MapType():
            return fits_by_name(given.key, wanted.key) and fits_by_name(given.value, wanted.value)
    return given == wanted


def named(given: DataType, wanted: DataType, path: tuple[str, ...]) -> DataType:
    """`given`, with the names of `wanted`."""
    match given, wanted:
        case StructType(), StructType():
            return _struct(given, wanted, path)
        case ArrayType(), ArrayType():
            return ArrayType(named(given.element, wanted.element, (*path, "element")), given.contains_null)
        case MapType(), MapType():
            return MapType(
                named(given.key, wanted.key, (*path, "key")),
                named(given.value, wanted.value, (*path, "value")),
                given.value_contains_null,
            )
    return given


def refuse_turned(given: DataType, wanted: DataType, path: tuple[str, ...], *, below: bool = False) -> None:
    """For an INSERT with a list of columns: below arrays and maps, Delta Spark then goes by name or by position, as
    other columns have it. Where the two say different things, nobody should have to know that."""
    match given, wanted:
        case StructType(), StructType():
            places = {name.lower(): place for place, name in enumerate(wanted.names)}
            if below and any(places.get(name.lower(), place) != place for place, name in enumerate(given.names)):
                raise SchemaMismatch(
                    f"The struct's fields are in another order than the column's: {', '.join(wanted.names[:20])}",
                    column=dotted(path),
                    hint="Give them in the column's order, or INSERT … BY NAME",
                )
            for one, other in zip(given.fields, wanted.fields, strict=False):
                refuse_turned(one.type, other.type, (*path, other.name), below=below)
        case ArrayType(), ArrayType():
            refuse_turned(given.element, wanted.element, (*path, "element"), below=True)
        case MapType(), MapType():
            refuse_turned(given.key, wanted.key, (*path, "key"), below=True)
            refuse_turned(given.value, wanted.value, (*path, "value"), below=True)


def _struct(given: StructType, wanted: StructType, path: tuple[str, ...]) -> StructType:
    if len(given.fields) < len(wanted.fields):
        raise SchemaMismatch(
            f"The struct has {len(given.fields)} fields, and its column {len(wanted.fields)}: "
            f"{', '.join(wanted.names[:20])}",
            column=dotted(path),
            hint="Fields go in by position: give all of them",
        )
    fields = [
        StructField(
            name=other.name,
            type=named(one.type, other.type, (*path, other.name)),
            nullable=one.nullable,
            metadata=one.metadata,
        )
        for one, other in zip(given.fields, wanted.fields, strict=False)
    ]
    found = StructType((*fields, *given.fields[len(fields) :]))
    twice = duplicate_name(found.names)
    if twice is not None:
        raise SchemaMismatch(
            f"The struct's field {twice!r} is beyond those of its column, which has one of this name",
            column=dotted(path),
            hint="Fields go in by position: give them in the column's order",
        )
    return found
