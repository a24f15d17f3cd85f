"""What may become of a column that is there, or of a field at any depth: name, type, nulls, default, comment. Pure.

A column is named by its name alone, or by its path as SQL has it: `a.b` for a field of a struct, `a.element` for
what arrays hold, `a.key` and `a.value` for maps. What a constraint or a generated column uses stays as it is, since it
would mean something else afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct

from lakeseal import expr
from lakeseal.commit.alter import new_field, stated, with_new_fields
from lakeseal.errors import InvalidArgument
from lakeseal.expr.syntax import Column
from lakeseal.protocol.actions import Metadata
from lakeseal.protocol.char_varchar import Limit, Limits, limits
from lakeseal.protocol.identity import identity_of
from lakeseal.protocol.properties import TableProperties
from lakeseal.protocol.schema import CHAR_VARCHAR, ArrayType, DataType, MapType, StructField, StructType, dotted
from lakeseal.protocol.type_widening import is_widening, with_change

CURRENT_DEFAULT = "CURRENT_DEFAULT"
GENERATION_EXPRESSION = "delta.generationExpression"

Path = tuple[str, ...]


def column_path(name: str) -> Path:
    """Of a name as SQL has it."""
    root = expr.parse(name).root
    if not isinstance(root, Column):
        raise InvalidArgument(f"{name!r} names no column", hint="Names that are no plain words go in backticks")
    return root.parts


def without_columns(metadata: Metadata, names: Sequence[str]) -> Metadata:
    """All of them go, or an error says which cannot."""
    for name in names:
        metadata = without_column(metadata, name)
    return metadata


def without_column(metadata: Metadata, name: str) -> Metadata:
    path, _ = found(metadata.schema, name)
    _refuse_unmapped(metadata, "dropped", path)
    if path[0] in metadata.partition_columns:
        raise InvalidArgument("A partition column cannot be dropped", column=dotted(path))
    refuse_used(metadata, path, "dropped")
    return _with_schema(metadata, _edited(metadata.schema, path, lambda _: None))


class ColumnPlace(Struct, frozen=True, kw_only=True):
    """Where a column or a field stands among those beside it; behind all of them where neither is said."""

    first: bool = False
    after: str | None = None


class NewColumn(Struct, frozen=True, kw_only=True):
    field: StructField
    parents: Path = ()
    """The struct that it is a field of; `element`, `key` and `value` lead into arrays and maps."""
    place: ColumnPlace = ColumnPlace()


def with_new_columns(metadata: Metadata, columns: Sequence[NewColumn]) -> Metadata:
    """One after the other. Rows that are there have no value in them, so they must be nullable."""
    schema = metadata.schema
    for column in columns:
        field = new_field(column.field)
        siblings, parents = _struct_at(schema, column.parents)
        if siblings.field(field.name) is not None:
            raise InvalidArgument("The table has this column already", column=dotted((*parents, field.name)))
        schema = _with_struct(schema, parents, _placed(siblings, field, column.place, parents))
    return with_new_fields(metadata, schema)


def with_moved_column(metadata: Metadata, name: str, place: ColumnPlace) -> Metadata:
    path, field = found(metadata.schema, name)
    siblings, parents = _struct_at(metadata.schema, path[:-1])
    others = StructType(tuple(other for other in siblings.fields if other is not field))
    return _with_schema(metadata, _with_struct(metadata.schema, parents, _placed(others, field, place, parents)))


def _struct_at(schema: StructType, path: Path) -> tuple[StructType, Path]:
    if not path:
        return schema, ()
    own, _ = found(schema, path, through=True)
    inner = type_at(schema, own)
    if not isinstance(inner, StructType):
        raise InvalidArgument(f"A {inner} has no fields", column=dotted(path))
    return inner, own


def _placed(siblings: StructType, field: StructField, place: ColumnPlace, parents: Path) -> StructType:
    fields = list(siblings.fields)
    if place.first:
        return StructType((field, *fields))
    if place.after is None:
        return StructType((*fields, field))
    other = siblings.field(place.after)
    if other is None:
        raise InvalidArgument(
            "There is no such column to stand behind",
            column=dotted((*parents, place.after)),
            hint=f"There are {', '.join(siblings.names[:20])}",
        )
    fields.insert(fields.index(other) + 1, field)
    return StructType(tuple(fields))


def _with_struct(schema: StructType, path: Path, struct: StructType) -> StructType:
    """The schema with other fields in the struct at a path, which is found in it."""
    if not path:
        return struct
    depth = _struct_depth(schema, path)

    def change(field: StructField) -> StructField:
        return StructField(field.name, _replaced(field.type, path[depth:], struct), field.nullable, field.metadata)

    return _edited(schema, path[:depth], change)


def with_renamed_column(metadata: Metadata, name: str, new_name: str) -> Metadata:
    """`new_name` is the last part of the path."""
    path, field = found(metadata.schema, name)
    _refuse_unmapped(metadata, "renamed", path)
    refuse_used(metadata, path, "renamed")
    if not new_name:
        raise InvalidArgument("A column needs a name", column=dotted(path))
    siblings = type_at(metadata.schema, path[:-1])
    other = siblings.field(new_name) if isinstance(siblings, StructType) else None
    if other is not None and other is not field:
        raise InvalidArgument("The table has this column already", column=dotted((*path[:-1], new_name)))
    changed = _with_schema(
        metadata,
        _edited(metadata.schema, path, lambda f: StructField(new_name, f.type, f.nullable, f.metadata)),
    )
    if len(path) > 1:
        return changed
    partitions = tuple(new_name if n == path[0] else n for n in metadata.partition_columns)
    return msgspec.structs.replace(changed, partition_columns=partitions)


def with_comment(metadata: Metadata, name: str, comment: str | None) -> Metadata:
    return _with_note(metadata, name, "comment", comment)


def with_default(metadata: Metadata, name: str, sql: str | None) -> Metadata:
    """For rows to come that do not say a value; None for no default."""
    path, field = found(metadata.schema, name)
    if len(path) > 1:
        raise InvalidArgument("Only whole columns have defaults, not fields", column=dotted(path))
    if sql is not None and (GENERATION_EXPRESSION in field.metadata or identity_of(field) is not None):
        raise InvalidArgument("A generated column or an identity has no default", column=field.name)
    return _with_note(metadata, name, CURRENT_DEFAULT, sql)


def with_nulls(metadata: Metadata, name: str, *, allowed: bool) -> Metadata:
    """Where nulls are to be refused, the caller makes sure that there are none."""
    path, _ = found(metadata.schema, name)
    return _with_schema(
        metadata, _edited(metadata.schema, path, lambda f: StructField(f.name, f.type, allowed, f.metadata))
    )


def with_type(metadata: Metadata, name: str, new: StructField) -> Metadata:
    """A wider type, of which the values in all files that are there are values, too; `new` is a column of it."""
    path, _ = found(metadata.schema, name, through=True)
    if has_type(metadata.schema, path, new):
        return metadata
    old, data_type = type_at(metadata.schema, path), new.type
    if stated(old) == data_type:
        return _with_lengths(metadata, path, new)
    if not is_widening(old, data_type):
        raise InvalidArgument(
            f"A column of type {old} cannot become one of type {data_type}",
            column=dotted(path),
            hint="Only wider types can be had without writing all files anew: overwrite the table with "
            "overwrite_schema=True",
        )
    if not TableProperties.of(metadata).type_widening:
        raise InvalidArgument(
            "Types change only where the table has type widening on",
            column=dotted(path),
            hint="Set the property delta.enableTypeWidening=true first. Readers must know it from then on",
        )
    if identity_of(found(metadata.schema, path[:1])[1]) is not None:
        raise InvalidArgument("An identity column stays a bigint", column=dotted(path))
    refuse_used(metadata, path, "changed")
    return _with_schema(metadata, widened(metadata.schema, path, data_type))


def has_type(schema: StructType, name: str | Path, new: StructField) -> bool:
    """Whether the column that is there has the type and the lengths of a new one."""
    path, _ = found(schema, name, through=True)
    return stated(type_at(schema, path)) == new.type and _limits_at(schema, path) == limits(new)


def _limits_at(schema: StructType, path: Path) -> Limits:
    had = limits(found(schema, path[:1])[1])
    for part in path[1:]:
        had = had.get(part) if isinstance(had, dict) else None
    return had


def _with_lengths(metadata: Metadata, path: Path, new: StructField) -> Metadata:
    """The same type under another CHAR(n) or VARCHAR(n). Values that are there have to keep to it."""
    _, column = found(metadata.schema, path[:1])
    had, has = _limits_at(metadata.schema, path), limits(new)
    # Values of a CHAR(n) are filled up in some files and not in others.
    is_longer = (
        isinstance(had, Limit)
        and not had.is_char
        and (has is None or (isinstance(has, Limit) and not has.is_char and has.length >= had.length))
    )
    if len(path) > 1 or not is_longer:
        raise InvalidArgument(
            f"A {column.char_varchar or column.type} cannot become a {new.char_varchar or new.type}",
            column=dotted(path),
            hint="A whole column of VARCHAR(n) can become a longer one, or a STRING",
        )
    return _with_note(metadata, path, CHAR_VARCHAR, new.char_varchar)


def widened(schema: StructType, path: Path, data_type: DataType) -> StructType:
    """The schema with another type at a path, and the note that readers need of it."""
    depth = _struct_depth(schema, path)
    inner = path[depth:]

    def change(field: StructField) -> StructField:
        old = type_at(StructType((field,)), (field.name, *inner))
        new = data_type if not inner else _replaced(field.type, inner, data_type)
        notes = with_change(field.metadata, old, data_type, inner)
        return StructField(field.name, new, field.nullable, notes)

    return _edited(schema, path[:depth], change)


def found(schema: StructType, name: str | Path, *, through: bool = False) -> tuple[Path, StructField]:
    """The column's own path and the field; with `through` the field that holds an array's element or a map's parts."""
    if isinstance(name, str):
        name = (name,) if schema.field(name) is not None else column_path(name)
    path = name
    names: list[str] = []
    current: DataType = schema
    field: StructField | None = None
    for part in path:
        match current:
            case StructType():
                field = current.field(part)
                if field is None:
                    known = ", ".join(current.names[:20])
                    raise InvalidArgument(
                        f"The table has no column {dotted(path)}", column=dotted(path), hint=f"There are {known}"
                    )
                names.append(field.name)
                current = field.type
            case ArrayType() if part.lower() == "element":
                names.append("element")
                current = current.element
            case MapType() if part.lower() in ("key", "value"):
                names.append(part.lower())
                current = current.key if part.lower() == "key" else current.value
            case _:
                raise InvalidArgument(f"There is nothing called {part!r} in a {current}", column=dotted(path))
    assert field is not None, "a path has a part"
    if not through and _struct_depth(schema, tuple(names)) < len(names):
        raise InvalidArgument("This is what a column holds, and no column or field by itself", column=dotted(path))
    return tuple(names), field


def type_at(schema: StructType, path: Path) -> DataType:
    current: DataType = schema
    for part in path:
        match current:
            case StructType():
                field = current.field(part)
                assert field is not None
                current = field.type
            case ArrayType(element=element):
                current = element
            case MapType(key=key, value=value):
                current = key if part == "key" else value
    return current


def _struct_depth(schema: StructType, path: Path) -> int:
    """How much of a path leads to a field of a struct; the rest are parts of arrays and maps."""
    current: DataType = schema
    depth = 0
    for number, part in enumerate(path, 1):
        if isinstance(current, StructType):
            depth = number
        current = type_at(StructType((StructField("it", current),)), ("it", part))
    return depth


def _edited(schema: StructType, path: Path, change: Callable[[StructField], StructField | None]) -> StructType:
    edited = _edited_type(schema, path, change, ())
    assert isinstance(edited, StructType)
    return edited


def _edited_type(
    data_type: DataType, path: Path, change: Callable[[StructField], StructField | None], at: Path
) -> DataType:
    part, rest = path[0], path[1:]
    match data_type:
        case StructType(fields=fields):
            made: list[StructField] = []
            for f in fields:
                if f.name != part:
                    made.append(f)
                elif not rest:
                    changed = change(f)
                    made += [] if changed is None else [changed]
                else:
                    inner = _edited_type(f.type, rest, change, (*at, part))
                    made.append(StructField(f.name, inner, f.nullable, f.metadata))
            if not made:
                raise InvalidArgument(
                    "A struct needs a field" if at else "A table needs a column", column=dotted((*at, part))
                )
            return StructType(tuple(made))
        case ArrayType(element=element, contains_null=contains_null):
            return ArrayType(_edited_type(element, rest, change, (*at, part)), contains_null)
        case MapType(key=key, value=value, value_contains_null=contains_null) if part == "key":
            return MapType(_edited_type(key, rest, change, (*at, part)), value, contains_null)
        case MapType(key=key, value=value, value_contains_null=contains_null):
            return MapType(key, _edited_type(value, rest, change, (*at, part)), contains_null)
        case _:
            raise AssertionError("the path was found in the schema")


def _replaced(data_type: DataType, path: Path, new: DataType) -> DataType:
    """Another type in arrays and maps."""
    if not path:
        return new
    match data_type:
        case ArrayType(element=element, contains_null=contains_null):
            return ArrayType(_replaced(element, path[1:], new), contains_null)
        case MapType(key=key, value=value, value_contains_null=contains_null) if path[0] == "key":
            return MapType(_replaced(key, path[1:], new), value, contains_null)
        case MapType(key=key, value=value, value_contains_null=contains_null):
            return MapType(key, _replaced(value, path[1:], new), contains_null)
        case _:
            raise AssertionError("the path was found in the schema")


def _with_note(metadata: Metadata, name: str | Path, key: str, text: str | None) -> Metadata:
    path, _ = found(metadata.schema, name)

    def change(field: StructField) -> StructField:
        notes = {k: v for k, v in field.metadata.items() if k != key}
        return StructField(field.name, field.type, field.nullable, notes if text is None else {**notes, key: text})

    return _with_schema(metadata, _edited(metadata.schema, path, change))


def _with_schema(metadata: Metadata, schema: StructType) -> Metadata:
    return msgspec.structs.replace(metadata, schema_string=schema.to_json())


def _refuse_unmapped(metadata: Metadata, what: str, path: Path) -> None:
    if TableProperties.of(metadata).column_mapping_mode == "none":
        raise InvalidArgument(
            f"A column can be {what} only under column mapping",
            column=dotted(path),
            hint="Set the property delta.columnMapping.mode=name first",
        )


def refuse_used(metadata: Metadata, path: Path, what: str) -> None:
    """Raises where a constraint or another generated column is made of the column."""
    uses = dict(TableProperties.of(metadata).constraints)
    for field in metadata.schema.fields:
        generated = field.metadata.get(GENERATION_EXPRESSION)
        if isinstance(generated, str) and field.name != path[0]:
            uses[f"generated column {field.name}"] = generated
    mine = tuple(part.lower() for part in path)
    for user, sql in uses.items():
        for used in expr.parse(sql).columns:
            theirs = tuple(part.lower() for part in used)
            if mine[: len(theirs)] == theirs[: len(mine)]:
                raise InvalidArgument(
                    f"The column cannot be {what}: {user} uses it", column=dotted(path), hint="Drop what uses it first"
                )
