"""Which columns files of text have, where nobody says so: learnt from every record of all of them, as Spark does.

CSV columns are the narrowest of long, decimal(38,0), double, boolean, date and timestamp that takes all of a column's
texts, else string; their names are the header's, which all files must share, or `_c0`, `_c1` and so on. JSON columns
are all fields of all objects: numbers long, decimal(38,0) or double, texts string, objects struct, arrays array; a
field that is of several kinds is a string, as is one that is always null. Spark passes over a field whose name is
empty; here it is one as well.

Files in which a record cannot be read are refused: what it holds would be missing from the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa

from lakeseal.errors import LakesealError, SchemaMismatch
from lakeseal.files import cells
from lakeseal.files.csv_records import SPARK, CsvRecords
from lakeseal.files.json_lines import lines
from lakeseal.files.json_records import Kind, kind_of
from lakeseal.files.records import unreadable
from lakeseal.protocol.schema import (
    BOOLEAN,
    DATE,
    DOUBLE,
    LONG,
    STRING,
    TIMESTAMP,
    ArrayType,
    DataType,
    DecimalType,
    StructField,
    StructType,
    duplicate_name,
)
from lakeseal.trust import Trust

Open = Callable[[], Any]

WIDE = DecimalType(38, 0)
_CANDIDATES: tuple[DataType, ...] = (LONG, WIDE, DOUBLE, BOOLEAN, DATE, TIMESTAMP)


def csv_columns(files: Iterable[tuple[str, Open]], *, header: bool) -> StructType:
    """`files` are names, and how to open each."""
    names: list[str] | None = None
    found: dict[str, ColumnTexts] = {}
    for file, opened in files:
        try:
            first = CsvRecords(opened(), SPARK).names
            own = first if header else [f"_c{n}" for n in range(len(first))]
            if not own:
                continue
            if names is None:
                names = _unambiguous(own)
                found = {name: ColumnTexts() for name in names}
            elif sorted(own) != sorted(names):
                raise SchemaMismatch(
                    f"Files of the directory have other columns: {', '.join(names)} and {', '.join(own)}",
                    hint="Say which columns to read with schema=, or read a narrower path",
                )
            records = CsvRecords(opened(), SPARK, None if header else own)
            for block in records.blocks():
                for torn in block.torn:
                    raise unreadable(f"row {torn.row}", torn.reason)
                for name, texts in zip(own, block.columns, strict=True):
                    found[name].look_at(texts)
        except LakesealError as error:
            error.file = file
            raise
    return StructType(tuple(StructField(name, texts.type) for name, texts in found.items()))


class ColumnTexts:
    """What a column's texts may all be."""

    def __init__(self) -> None:
        self._possible: Sequence[DataType] = _CANDIDATES
        self.is_empty = True

    def look_at(self, texts: pa.Array) -> None:
        present = texts.drop_null().unique()
        if not len(present):
            return
        self.is_empty = False
        self._possible = [kind for kind in self._possible if not cells.parse(present, kind).null_count]

    @property
    def type(self) -> DataType:
        return STRING if self.is_empty or not self._possible else self._possible[0]


def json_columns(files: Iterable[tuple[str, Open]]) -> StructType:
    found: Kind = {}
    for file, opened in files:
        for block in lines(opened(), Trust().max_decoded_bytes):
            for number, text in zip(block.numbers, block.texts, strict=True):
                try:
                    found = merged_kinds(found, kind_of(text))
                except ValueError as error:
                    broken = unreadable(f"line {number}", str(error))
                    broken.file = file
                    raise broken from error
    made = type_of_kind(found)
    assert isinstance(made, StructType)
    return made


def merged_kinds(a: Kind, b: Kind) -> Kind:
    """What holds values of either kind."""
    if a is None or a == b:
        return b
    if b is None:
        return a
    if isinstance(a, dict) and isinstance(b, dict):
        return {**a, **{name: merged_kinds(a.get(name), kind) for name, kind in b.items()}}
    if isinstance(a, list) and isinstance(b, list):
        return [reduce(merged_kinds, (*a, *b))]
    numbers = (LONG, WIDE, DOUBLE)
    if a in numbers and b in numbers:
        return max(a, b, key=numbers.index)
    return STRING


def type_of_kind(kind: Kind) -> DataType:
    match kind:
        case None:
            return STRING
        case dict():
            if not kind:
                return StructType(())
            _unambiguous(list(kind))
            # An object that never has a field can't be a column of structs; it is what it says.
            fields = ((name, type_of_kind(one) if one != {} else STRING) for name, one in kind.items())
            return StructType(tuple(StructField(name, made) for name, made in fields))
        case list():
            element = reduce(merged_kinds, kind)
            return ArrayType(type_of_kind(element) if element != {} else STRING)
        case _:
            leaf: DataType = kind
            return leaf


def _unambiguous(names: list[str]) -> list[str]:
    if (twice := duplicate_name(tuple(names))) is not None:
        raise SchemaMismatch(
            f"Files have several columns called {twice!r}",
            column=twice,
            hint="Say which columns to read with schema=",
        )
    return names
