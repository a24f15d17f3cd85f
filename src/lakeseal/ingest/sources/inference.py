"""Columns that files have where nobody says so, and how they change as files come.

The first run learns them from all of its files, as Spark does; what is known then is kept with the watermarks, and each
run learns from its own new files:

- A column that is new comes behind the others, a nested one behind those of its struct.
- A wider type of the same kind (`type_widening.is_growth`) takes the place of a narrower one, if `widen` says so.
- Everything else stays as it is known. Values that do not fit are rescued (`rescue`), never lost and never a failure.

JSON and CSV files are read once more for it; of Parquet only what they say of themselves. A record that can't be read
teaches nothing: when rows are read, it is a bad record as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from lakeseal.errors import BadRecord, InvalidArgument, located
from lakeseal.files.csv_records import CsvRecords
from lakeseal.files.inference import ColumnTexts, merged_kinds, type_of_kind
from lakeseal.files.json_lines import lines
from lakeseal.files.json_records import Kind, kind_of
from lakeseal.ingest.sources.file_rows import CsvOptions
from lakeseal.protocol.arrow import from_arrow
from lakeseal.protocol.schema import STRING, ArrayType, DataType, MapType, StructField, StructType, duplicate_name
from lakeseal.protocol.type_widening import is_growth
from lakeseal.trust import Trust

Open = Callable[[], Any]


class Inference(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    rescued: str = "_rescued"
    """The column for what does not fit, as JSON by column; null where all of a row fits."""
    new_columns: Literal["add", "rescue"] = "add"
    """Whether a column that comes up later is added, or its values go to the rescued column."""
    widen: bool = False
    """For a target with type widening on (`delta.enableTypeWidening`) and `merge_schema`."""

    def with_rescued(self, known: StructType) -> StructType:
        if known.field(self.rescued) is not None:
            raise InvalidArgument(
                f"Files have a column {self.rescued} of their own", column=self.rescued, hint="Name another: rescued"
            )
        return StructType((*known.fields, StructField(self.rescued, STRING)))


def learned(
    form: str, files: Iterable[tuple[str, Open]], known: StructType | None, how: Inference, csv: CsvOptions
) -> StructType:
    """What is known once these files, by name and how to open each, are read too."""
    match form:
        case "json":
            found = _json(files, known)
        case "csv":
            found = _csv(files, csv, known)
        case _:
            found = _parquet(files)
    if (twice := duplicate_name(found.names)) is not None:
        raise InvalidArgument(f"Files have several columns called {twice!r}", column=twice, hint="Give a schema")
    return found if known is None else evolved(known, found, how)


def evolved(known: StructType, found: StructType, how: Inference) -> StructType:
    """`known`, with what `found` has more as far as it may."""
    fields = []
    for field in known.fields:
        other = found.field(field.name)
        kind = field.type if other is None else _evolved(field.type, other.type, how)
        fields.append(StructField(field.name, kind, field.nullable, field.metadata))
    if how.new_columns == "add":
        fields += [StructField(one.name, one.type) for one in found.fields if known.field(one.name) is None]
    return StructType(tuple(fields))


def _evolved(known: DataType, found: DataType, how: Inference) -> DataType:
    match known, found:
        case StructType(), StructType():
            return evolved(known, found, how)
        case ArrayType(), ArrayType():
            return ArrayType(_evolved(known.element, found.element, how), known.contains_null)
        case MapType(), MapType():
            return MapType(known.key, _evolved(known.value, found.value, how), known.value_contains_null)
    return found if how.widen and is_growth(known, found) else known


def _json(files: Iterable[tuple[str, Open]], known: StructType | None) -> StructType:
    found: Kind = {}
    for name, opened in files:
        with located(file=name):
            for block in lines(opened(), Trust().max_decoded_bytes):
                for text in block.texts:
                    try:
                        found = merged_kinds(found, _fitting(kind_of(text), known))
                    except (ValueError, RecursionError):
                        continue
    assert isinstance(found, dict)
    if known is not None:  # only nulls say nothing new of a column
        found = {name: kind for name, kind in found.items() if kind is not None or known.field(name) is None}
    made = type_of_kind(found)
    assert isinstance(made, StructType)
    return made


def _fitting(kind: Kind, known: DataType | None) -> Kind:
    """What a record teaches: where an object or an array is known, another kind of value is rescued, and says nothing
    of the fields that objects have there."""
    match known, kind:
        case StructType(), dict():
            fields = {field.name: field.type for field in known.fields}
            return {name: _fitting(one, fields.get(name)) for name, one in kind.items()}
        case ArrayType(), list():
            return [_fitting(one, known.element) for one in kind]
        case ((StructType() | ArrayType()), _):
            return None
    return kind


def _csv(files: Iterable[tuple[str, Open]], csv: CsvOptions, known: StructType | None) -> StructType:
    found: dict[str, ColumnTexts] = {}
    for file, opened in files:
        with located(file=file):
            names = csv_names(opened, csv)
            if (twice := duplicate_name(tuple(names))) is not None:
                raise BadRecord(f"The file has several columns called {twice!r}", column=twice, hint="Rename one")
            if not names:
                continue
            for name in names:
                found.setdefault(name, ColumnTexts())
            for block in CsvRecords(opened(), csv.dialect, None if csv.header else names).blocks():
                for name, texts in zip(names, block.columns, strict=True):
                    found[name].look_at(texts)
    taught = {name: one for name, one in found.items() if not one.is_empty or known is None or not known.field(name)}
    return StructType(tuple(StructField(name, one.type) for name, one in taught.items()))


def csv_names(opened: Open, csv: CsvOptions) -> list[str]:
    """Of a file: those of its header, or `_c0`, `_c1` and so on, as many as its first record has."""
    first = CsvRecords(opened(), csv.dialect).names
    return first if csv.header else [f"_c{n}" for n in range(len(first))]


def _parquet(files: Iterable[tuple[str, Open]]) -> StructType:
    found = StructType(())
    for file, opened in files:
        with located(file=file), opened() as source:
            try:
                own = from_arrow(pq.read_schema(source))
            except (pa.ArrowException, OSError) as error:
                raise BadRecord(f"The file is not whole Parquet: {error}", hint="Mend or remove it") from error
        found = evolved(found, own, Inference(widen=True))
    return found
