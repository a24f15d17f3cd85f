"""Which columns files of text have, where nobody says so: learnt from every record of all of them, as Spark does.

CSV columns are the narrowest of long, decimal(38,0), double, boolean, date and timestamp that takes all of a column's
texts, else string; their names are the header's, which all files must share, or `_c0`, `_c1` and so on. JSON columns
are all fields of all objects: numbers long, decimal(38,0) or double, texts string, objects struct, arrays array; a
field that is of several kinds is a string, as is one that is always null. Spark passes over a field whose name is
empty; here it is one as well.

Files in which a record cannot be read are refused: what it holds would be missing from the answer. So is a CSV column
of texts that Spark's inference takes for numbers or moments and our reader does not (`5d`, ` 7`, `1e400`, `2024-01`,
`10:00`): as texts they would be other values than Spark's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

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
from lakeseal.protocol.text_values import parse_day
from lakeseal.trust import Trust

Open = Callable[[], Any]

WIDE = DecimalType(38, 0)
_CANDIDATES: tuple[DataType, ...] = (LONG, WIDE, DOUBLE, BOOLEAN, DATE, TIMESTAMP)
_DECIMAL_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?"
_HEX_NUMBER = r"0[xX][0-9a-fA-F]*\.?[0-9a-fA-F]*[pP][+-]?\d+[fFdD]?"
_NAMES = "|".join(map(re.escape, cells.CSV_NAMES))
_JAVA_NUMBER = (
    rf"^(?:[\x00-\x20]*(?:[+-]?(?:{_DECIMAL_NUMBER}|{_HEX_NUMBER}|NaN|Infinity))[\x00-\x20]*|[+-]?\p{{Nd}}+|{_NAMES})$"
)
_BEGINS_AS_MOMENT = r"^\s*(?:[+-]?\d{4}|T?\d{1,2}:)"
_CLOCK = r"(\d{1,2})(?::(\d{1,2})(?::(\d{1,2}))?)?(?!\d).*"
_MOMENT = re.compile(
    rf"(?:([+-]?\d{{4,6}}(?:-\d{{1,2}}(?:-\d{{1,2}})?)?)(?:[ T]|$)|T?(?=\d+:))(?:{_CLOCK})?", re.ASCII | re.DOTALL
)


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
    for name, texts in found.items():
        if texts.is_doubtful:
            raise SchemaMismatch(
                f"Texts of column {name} look like numbers or moments that only Spark reads as such, {texts.example!r}",
                column=name,
                hint="Say which columns to read with schema=",
            )
    return StructType(tuple(StructField(name, texts.type) for name, texts in found.items()))


class ColumnTexts:
    """What a column's texts may all be."""

    def __init__(self) -> None:
        self._possible: Sequence[DataType] = _CANDIDATES
        self._looks: Sequence[Callable[[pa.Array], bool]] = (_looks_like_numbers, _looks_like_moments)
        self.is_empty = True
        self.example = ""

    def look_at(self, texts: pa.Array) -> None:
        present = texts.drop_null().unique()
        if not len(present):
            return
        self.is_empty = False
        self._possible = [kind for kind in self._possible if _holds(kind, present)]
        self._looks = [looks for looks in self._looks if looks(present)]
        self.example = self.example or present[0].as_py()

    @property
    def is_doubtful(self) -> bool:
        """Whether Spark would say a narrower type than `type`."""
        return not self.is_empty and not self._possible and bool(self._looks)

    @property
    def type(self) -> DataType:
        return STRING if self.is_empty or not self._possible else self._possible[0]


def _holds(kind: DataType, texts: pa.Array) -> bool:
    """Whether Spark would take all texts for that type; it is more particular than where the type is given."""
    if kind == DATE and not _all_match(texts, r"^(?:\d{4}|-\d{4,}|\+\d{5,})-\d{2}-\d{2}$"):
        return False
    if kind == WIDE and not _all_match(texts, r"^[+-]?\d+\.?$"):
        return False
    return not cells.parse(texts, kind).null_count


def _looks_like_numbers(texts: pa.Array) -> bool:
    """To Java, which Spark asks: with blanks around, suffixes, hexadecimal fractions, digits of any script."""
    return _all_match(texts, _JAVA_NUMBER)


def _looks_like_moments(texts: pa.Array) -> bool:
    """To Spark's cast. What stands behind the time is not looked at."""
    return _all_match(texts, _BEGINS_AS_MOMENT) and all(map(_looks_like_moment, texts.to_pylist()))


def _looks_like_moment(text: str) -> bool:
    found = _MOMENT.fullmatch(text.strip())
    if found is None:
        return False
    day, *times = found.groups()
    if day is not None and "-" in day.lstrip("+-") and parse_day(day) is None:
        return False
    return all(time is None or int(time) < limit for time, limit in zip(times, (24, 60, 60), strict=True))


def _all_match(texts: pa.Array, pattern: str) -> bool:
    return pc.all(pc.match_substring_regex(texts, pattern)).as_py() is not False


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
