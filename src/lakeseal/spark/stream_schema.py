"""Whether a stream may go on when its table's metadata changes. Pure.

A stream has one schema from start to stop: that of the table when it started. A later change of columns, of their
types, of the partitioning or of column mapping stops it, and when it is started again it goes on in the new schema. A
DataFrame keeps the schema that it was made with, so it takes a new one; the old one is refused, where the user has not
named columns, as it would pass over what is new for good. A stream that goes on in a new schema
also meets versions older than its schema; these it reads if every column that they have is one of its own, of the
same type or of one that has been widened since.
"""

from __future__ import annotations

import pyspark.sql.types as spark

from lakeseal.errors import SourceChanged
from lakeseal.protocol.actions import Metadata
from lakeseal.protocol.properties import TableProperties
from lakeseal.protocol.schema import (
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    TIMESTAMP_NTZ,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
    dotted,
)

_DIGITS: dict[DataType, int] = {BYTE: 3, SHORT: 5, INTEGER: 10, LONG: 20}
_WIDER: dict[DataType, tuple[DataType, ...]] = {
    BYTE: (SHORT, INTEGER, LONG, DOUBLE),
    SHORT: (INTEGER, LONG, DOUBLE),
    INTEGER: (LONG, DOUBLE),
    FLOAT: (DOUBLE,),
    DATE: (TIMESTAMP_NTZ,),
}
Path = tuple[str, ...]


def check_metadata(seen: Metadata, version: int, *, own: Metadata, own_version: int, latest: Metadata) -> None:
    """`seen` is in force from `version` on, the stream has `own` since `own_version`, the table now has `latest`."""
    if seen.id != own.id:
        raise SourceChanged("The table was dropped and made anew", version=version)
    reason = _difference(seen, own) if version > own_version else _unreadable(seen, own)
    if reason is None:
        return
    resumable = _unreadable(seen, latest) is None
    again = "Load the table anew, and start the query again: it goes on here, in the new schema"
    raise SourceChanged(f"The table's schema changed: {reason}", version=version, hint=again if resumable else None)


def check_inferred(made_with: spark.StructType, now: spark.StructType, *, table: str) -> None:
    """A stream of all columns of a table, whose DataFrame was made with some, may start if it has these now."""
    before, after = _columns(made_with), _columns(now)
    if before != after:
        new, gone = (", ".join(c for c in a if c not in b) for a, b in ((after, before), (before, after)))
        change = "; ".join(f"{what} {names}" for what, names in (("new is", new), ("gone is", gone)) if names)
        raise SourceChanged(
            f"The table's schema changed since this DataFrame was made: {change or 'its columns are in another order'}",
            table=table,
            hint="Load the table anew, and start the query from that; or name the columns that you want by .schema()",
        )


def _columns(schema: spark.StructType) -> list[str]:
    return [f"{field.name} {field.dataType.simpleString()}" for field in schema.fields]


def _difference(seen: Metadata, own: Metadata) -> str | None:
    mine, theirs = _schema(own), _schema(seen)
    mapping = _mapping(seen)
    return _layout(seen, own) or _foreign(theirs, mine, (), mapping, exact=True) or _gone(mine, theirs, (), mapping)


def _unreadable(seen: Metadata, own: Metadata) -> str | None:
    return _layout(seen, own) or _foreign(_schema(seen), _schema(own), (), _mapping(own), exact=False)


def _layout(seen: Metadata, own: Metadata) -> str | None:
    if seen.partition_columns != own.partition_columns:
        return f"it is partitioned by {list(seen.partition_columns)}, not by {list(own.partition_columns)}"
    if _mapping(seen) != _mapping(own):
        return f"its columns are mapped by {_mapping(seen)!r}, not by {_mapping(own)!r}"
    return None


def _schema(metadata: Metadata) -> StructType:
    return metadata.schema if metadata.schema_string else StructType()


def _mapping(metadata: Metadata) -> str:
    return TableProperties.of(metadata).column_mapping_mode


def _foreign(theirs: StructType, mine: StructType, path: Path, mapping: str, *, exact: bool) -> str | None:
    """What `theirs` has and a reader of `mine` would not read, or not as it is."""
    own = {_key(field, mapping): field for field in mine.fields}
    for field in theirs.fields:
        place = (*path, field.name)
        found = own.get(_key(field, mapping))
        if found is None:
            return f"it has a column {dotted(place)}"
        if exact and found.name != field.name:
            return f"column {dotted((*path, found.name))} is called {field.name}"
        reason = _other_type(field.type, found.type, place, mapping, exact=exact)
        if reason is not None:
            return reason
    return None


def _other_type(theirs: DataType, mine: DataType, path: Path, mapping: str, *, exact: bool) -> str | None:
    match theirs, mine:
        case StructType(), StructType():
            gone = _gone(mine, theirs, path, mapping) if exact else None
            return gone or _foreign(theirs, mine, path, mapping, exact=exact)
        case ArrayType(), ArrayType():
            return _other_type(theirs.element, mine.element, (*path, "element"), mapping, exact=exact)
        case MapType(), MapType():
            key = _other_type(theirs.key, mine.key, (*path, "key"), mapping, exact=exact)
            return key or _other_type(theirs.value, mine.value, (*path, "value"), mapping, exact=exact)
        case _ if theirs == mine or (not exact and _widens(theirs, mine)):
            return None
        case _:
            return f"column {dotted(path)} is of type {theirs}, not {mine}"


def _gone(mine: StructType, theirs: StructType, path: Path, mapping: str) -> str | None:
    left = {_key(field, mapping) for field in theirs.fields}
    gone = next((f for f in mine.fields if _key(f, mapping) not in left), None)
    return None if gone is None else f"it no longer has a column {dotted((*path, gone.name))}"


def _key(field: StructField, mapping: str) -> str:
    return field.name.lower() if mapping == "none" else field.physical_name


def _widens(old: DataType, new: DataType) -> bool:
    if old == VOID or new in _WIDER.get(old, ()):
        return True
    if not isinstance(new, DecimalType):
        return False
    if isinstance(old, DecimalType):
        return new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale
    return old in _DIGITS and new.precision - new.scale >= _DIGITS[old]
