r"""CSV as Spark writes and reads it when nobody tells it otherwise.

Fields are separated by commas, lines by `\n`. Strings stand in quotes, with `\"` for a quote and `\\` for a backslash
inside; so an empty string is `""`, and null is nothing at all. Moments are ISO 8601, in UTC. A string with a line break
is written as it is; plain Spark reads it with `multiLine`, as it does its own.

A line of nothing is no row to Spark, so a file of one column writes its nulls as `""`, which is null to every type but
string; a single string column with nulls is therefore refused.

Lines are put together column by column in Arrow, never row by row in Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeseal.errors import InvalidInput
from lakeseal.files.csv_records import SPARK, CsvRows
from lakeseal.files.records import unreadable
from lakeseal.protocol.schema import STRING, StructField
from lakeseal.protocol.text_values import format_text

_LINES = 65_536


def _text(text: str) -> pa.Scalar:
    return pa.scalar(text, pa.large_string())


def encoded(rows: pa.Table, fields: Sequence[StructField]) -> Iterator[pa.Buffer]:
    """The lines of the rows, which have these columns in this order."""
    for batch in rows.to_batches(max_chunksize=_LINES):
        texts = [_texts(array, field) for array, field in zip(batch.columns, fields, strict=True)]
        if len(texts) == 1:
            texts = [_never_nothing(texts[0], fields[0])]
        line = pc.binary_join_element_wise(*texts, _text(","), null_handling="replace", null_replacement="")
        yield _bytes(pc.binary_join_element_wise(line, _text(""), _text("\n")))


def header(fields: Sequence[StructField]) -> bytes:
    names = pa.array([field.name for field in fields], pa.large_string())
    return ",".join(_quoted(names).to_pylist()).encode() + b"\n"


def decoded(
    source: Any, fields: Sequence[StructField], *, has_header: bool, zone: str = "UTC"
) -> Iterator[pa.RecordBatch]:
    """The rows of a file in the types of the fields; `BrokenDataFile` names the first record that is no such row."""
    for block, parsed in CsvRows(source, fields, SPARK, header=has_header, zone=zone).read():
        for torn in block.torn:
            raise unreadable(f"row {torn.row}", torn.reason)
        for misfit in parsed.misfits:
            raise unreadable(f"row {block.rows[misfit.at]}", misfit.reason)
        yield parsed.rows


def _texts(array: pa.Array, field: StructField) -> pa.Array:
    if field.type == STRING:
        return _quoted(array.cast(pa.large_string()))
    return format_text(array, field.type).cast(pa.large_string())


def _quoted(texts: pa.Array) -> pa.Array:
    escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    return pc.binary_join_element_wise(_text('"'), escaped, _text('"'), _text(""))


def _never_nothing(texts: pa.Array, field: StructField) -> pa.Array:
    if texts.null_count and field.type == STRING:
        raise InvalidInput(
            "A CSV file with one string column cannot tell null from the empty string",
            column=field.name,
            hint="Leave null rows out, add a column, or write another format",
        )
    return pc.fill_null(texts, _text('""'))


def _bytes(lines: pa.Array) -> pa.Buffer:
    """A string array has its characters one behind the other, which is what a file of lines is."""
    _, offsets, data = lines.buffers()
    if data is None or not len(lines):
        return pa.py_buffer(b"")
    places = pa.Array.from_buffers(pa.int64(), len(lines) + 1, [None, offsets], offset=lines.offset)
    start, end = places[0].as_py(), places[-1].as_py()
    return data.slice(start, end - start)
