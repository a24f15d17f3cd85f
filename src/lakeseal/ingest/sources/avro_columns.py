"""Values of Avro as columns: compared by the types that their writer has, once per file or writer, and converted by the
rules for columns of Parquet. The schema of messages says what reader and writer make of it together
(`avro_resolution`).

Values come without the meaning of their type: a moment is the number that is stored, a decimal its bytes. Besides what
Parquet may have, whole numbers are floating-point ones where these are the same numbers. Fields are found in any case;
one that is spelt as the column goes first. A value of another kind than its column makes its record a bad one, a null
does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from lakeseal.errors import BrokenDataFile, InvalidArgument, InvalidInput, SchemaMismatch
from lakeseal.ingest.sources.avro_resolution import CONSTANT, KNOWN, REFUSED, STORED_AS
from lakeseal.log.physical import convert_simple, plain_field
from lakeseal.protocol.arrow import to_arrow
from lakeseal.protocol.schema import (
    DOUBLE,
    FLOAT,
    LONG,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    dotted,
)

Build = Callable[[Sequence[Any]], pa.Array]
Named = Mapping[str, Mapping[str, Any]]
Path = tuple[str, ...]

_STORED = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}
_MOMENTS = {
    f"{local}timestamp-{name}": pa.timestamp(unit, zone)
    for name, unit in _UNITS.items()
    for local, zone in (("", "UTC"), ("local-", None))
}
_IN_PYTHON = {
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "bytes": bytes,
    "fixed": bytes,
    "string": str,
    "enum": str,
    "array": list,
    "map": dict,
    "record": dict,
}
_WIDER = {"long": (pa.int32(), pa.int64()), "double": (pa.float32(), pa.float64())}
_MOST_DIGITS = 38
_ALL_DIGITS = Context(prec=10_000)


def rows_builder(schema: Any, wanted: StructType) -> Callable[[Sequence[Any]], pa.RecordBatch]:
    """Makes rows of records of a writer's schema. `InvalidInput` says that one of them is none."""
    if not isinstance(schema, Mapping) or schema.get("type") != "record":
        raise InvalidArgument("An Avro schema of rows is a record", hint="Write records, or read the file as binary")
    parts = _parts(schema, wanted, dict(_named(schema)), ())
    arrow = to_arrow(wanted)

    def build(records: Sequence[Any]) -> pa.RecordBatch:
        columns = []
        for part, field in zip(parts, arrow, strict=True):
            try:
                columns.append(part(records).cast(field.type))
            except (pa.ArrowException, OverflowError) as error:
                raise InvalidInput(
                    f"A value does not fit the type {field.type}: {error}",
                    column=field.name,
                    hint="Mend the record, or the source's schema",
                ) from error
        return pa.RecordBatch.from_arrays(columns, schema=arrow)

    return build


def _named(schema: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """All types that others may refer to."""
    if isinstance(schema, list):
        for one in schema:
            yield from _named(one)
    elif isinstance(schema, Mapping):
        if "name" in schema and schema.get("type") in ("record", "enum", "fixed"):
            yield str(schema["name"]), schema
        for part in ("type", "items", "values", "fields"):
            yield from _named(schema.get(part))


def _parts(record: Mapping[str, Any], wanted: StructType, named: Named, path: Path) -> list[Build]:
    return [_part(record, column, named, (*path, column.name)) for column in wanted.fields]


def _part(record: Mapping[str, Any], column: StructField, named: Named, path: Path) -> Build:
    found = _field(record["fields"], path)
    if found is None:
        return _nulls(column.type)
    name, inner = found.get(STORED_AS, found["name"]), _plan(found["type"], column.type, named, path)
    if CONSTANT in found:
        return lambda records: inner([None if one is None else found[CONSTANT] for one in records])
    return lambda records: inner([None if one is None else one[name] for one in records])


def _field(fields: Sequence[Any], path: Path) -> Any:
    column = path[-1]
    same = [one for one in fields if one["name"].lower() == column.lower()]
    exact = [one for one in same if one["name"] == column]
    if len(same) > 1 and not exact:
        raise SchemaMismatch(
            f"An Avro file has several fields {column!r}, which differ in case",
            column=dotted(path),
            hint="Spell the column as the field that is meant",
        )
    return next(iter(exact or same), None)


def _plan(schema: Any, target: DataType, named: Named, path: Path) -> Build:
    """A function from values of a writer's type to arrays of the column's."""
    if isinstance(schema, str):
        schema = named.get(schema, {"type": schema})
    if isinstance(schema, list):
        return _plan_union([one for one in schema if one != "null"], target, named, path)
    kind = schema["type"]
    if REFUSED in schema:
        return _refused(schema[REFUSED], target, path)
    if isinstance(kind, list | dict):
        return _plan(kind, target, named, path)
    match kind, target:
        case "null", _:
            return _nulls(target)
        case "record", StructType():
            return _plan_struct(schema, target, named, path)
        case "array", ArrayType():
            return _plan_list(schema, target, named, path)
        case "map", MapType():
            return _plan_map(schema, target, named, path)
        case _ if kind in _STORED and not isinstance(target, StructType | ArrayType | MapType):
            return _plan_simple(schema, target, path)
        case _ if kind in named:
            return _plan(named[kind], target, named, path)
        case _:
            return _unlike(str(kind), target, path)


def _plan_struct(schema: Mapping[str, Any], target: StructType, named: Named, path: Path) -> Build:
    parts = _parts(schema, target, named, path)
    arrow = _arrow(target)

    def build(values: Sequence[Any]) -> pa.Array:
        return pa.StructArray.from_arrays([part(values) for part in parts], fields=list(arrow), mask=_absent(values))

    return build


def _plan_list(schema: Mapping[str, Any], target: ArrayType, named: Named, path: Path) -> Build:
    element = _plan(schema["items"], target.element, named, (*path, "element"))
    arrow = _arrow(target)

    def build(values: Sequence[Any]) -> pa.Array:
        flat = element([one for value in values for one in value or ()])
        return pa.ListArray.from_arrays(_offsets(values), flat, type=arrow, mask=_absent(values))

    return build


def _plan_map(schema: Mapping[str, Any], target: MapType, named: Named, path: Path) -> Build:
    key = _plan("string", target.key, named, (*path, "key"))
    item = _plan(schema["values"], target.value, named, (*path, "value"))
    arrow = _arrow(target)

    def build(values: Sequence[Any]) -> pa.Array:
        keys = key([one for value in values for one in value or ()])
        items = item([one for value in values for one in (value or {}).values()])
        return pa.MapArray.from_arrays(_offsets(values), keys, items, type=arrow, mask=_absent(values))

    return build


def _plan_union(members: Sequence[Any], target: DataType, named: Named, path: Path) -> Build:
    """Of several types: a value is of the one that Python has it in."""
    if len(members) == 1:
        return _plan(members[0], target, named, path)
    kinds: dict[type, list[Any]] = {}
    for one in members:
        kinds.setdefault(_IN_PYTHON.get(_kind(one, named), type(None)), []).append(one)
    plans: dict[type, Build] = {}
    for kind, same in kinds.items():
        one = _wider(same)
        is_told = one is not None
        plans[kind] = _plan(one, target, named, path) if is_told else _unlike("one of several types", target, path)

    def build(values: Sequence[Any]) -> pa.Array:
        arrays, places = [_nulls(target)(values)], [*range(len(values))]
        for kind, plan in plans.items():
            arrays.append(plan([one if type(one) is kind else None for one in values]))
            for at, one in enumerate(values):
                if type(one) is kind:
                    places[at] += len(values) * (len(arrays) - 1)
        return pa.concat_arrays(arrays).take(pa.array(places, pa.int64()))

    return build


def _kind(schema: Any, named: Named) -> str:
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    return str(schema["type"] if isinstance(schema, Mapping) else schema)


def _wider(members: Sequence[Any]) -> Any:
    """The one that has the values of all of them, if that is told."""
    if all(one == members[0] for one in members):
        return members[0]
    plain = {_STORED.get(one) if isinstance(one, str) else None for one in members}
    return {frozenset(kinds): kind for kind, kinds in _WIDER.items()}.get(frozenset(plain))


def _plan_simple(schema: Mapping[str, Any], target: DataType, path: Path) -> Build:
    kind, logical = schema["type"], str(schema.get("logicalType"))
    stored = _STORED[kind]
    if logical == "decimal" and stored == pa.binary():
        return _plan_decimal(schema, target, path)
    source = stored
    if logical == "date" and kind == "int":
        source = pa.date32()
    elif logical in _MOMENTS and kind == "long" and not (logical.endswith("nanos") and target == LONG):
        source = _MOMENTS[logical]
    if pa.types.is_integer(source) and target in (FLOAT, DOUBLE):
        arrow = _arrow(target)
        return lambda values: pa.array(values, stored).cast(arrow)  # refuses what would be another number
    try:
        convert = convert_simple(source, target, path)
    except BrokenDataFile:
        return _unlike(f"{kind}" if source is stored else f"{kind} ({logical})", target, path)
    if KNOWN in schema:
        symbols, otherwise = schema[KNOWN]
        symbol = _symbol(symbols, otherwise, path)
        return lambda values: convert(pa.array([symbol(one) for one in values], stored))
    return lambda values: convert(pa.array(values, stored).cast(source))


def _symbol(symbols: Sequence[str], otherwise: str | None, path: Path) -> Callable[[Any], Any]:
    def symbol(value: str | None) -> str | None:
        if value is None or value in symbols:
            return value
        if otherwise is None:
            raise InvalidInput(
                f"The reader's schema does not know the symbol {value}",
                column=dotted(path),
                hint="Add it to the source's schema, or a default",
            )
        return otherwise

    return symbol


def _plan_decimal(schema: Mapping[str, Any], target: DataType, path: Path) -> Build:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    shown = f"decimal({precision},{scale})"
    if not isinstance(precision, int) or not isinstance(scale, int):
        return _unlike(shown, target, path)
    if not 0 <= scale <= precision <= _MOST_DIGITS or precision == 0:
        return _unlike(shown, target, path)
    source = pa.decimal128(precision, scale)
    try:
        convert = convert_simple(source, target, path)
    except BrokenDataFile:
        return _unlike(shown, target, path)

    def number(value: bytes | None) -> Decimal | None:
        return None if value is None else Decimal(int.from_bytes(value, signed=True)).scaleb(-scale, _ALL_DIGITS)

    return lambda values: convert(pa.array([number(one) for one in values], source))


def _unlike(stored: str, target: DataType, path: Path) -> Build:
    return _refused(f"It has {stored}, which cannot be read as {target}", target, path)


def _refused(reason: str, target: DataType, path: Path) -> Build:
    empty = _nulls(target)

    def build(values: Sequence[Any]) -> pa.Array:
        if any(value is not None for value in values):
            raise InvalidInput(reason, column=dotted(path), hint="Mend the record, or the source's schema")
        return empty(values)

    return build


def _nulls(target: DataType) -> Build:
    arrow = _arrow(target)
    return lambda values: pa.nulls(len(values), arrow)


def _arrow(target: DataType) -> pa.DataType:
    return plain_field(StructField("", target)).type


def _absent(values: Sequence[Any]) -> pa.Array:
    return pa.array([value is None for value in values], pa.bool_())


def _offsets(values: Sequence[Any]) -> pa.Array:
    ends = [0]
    for value in values:
        ends.append(ends[-1] + len(value or ()))
    return pa.array(ends, pa.int32())
