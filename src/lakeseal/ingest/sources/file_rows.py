"""Rows of one file, by its format: what `FilesSource` reads. A record that is no row is told with its place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from lakeseal.errors import BadRecord, BrokenDataFile, InvalidInput, SchemaMismatch
from lakeseal.files.csv_records import CsvDialect, CsvRows, line
from lakeseal.files.json_lines import lines
from lakeseal.files.json_records import JsonRecords
from lakeseal.files.records import check_texts, judged
from lakeseal.files.xml_records import XmlRows
from lakeseal.ingest.sources.source import Chunk, RejectedRecord
from lakeseal.log.decoded_size import fitting_batches
from lakeseal.log.physical import Projection
from lakeseal.protocol.arrow import to_arrow
from lakeseal.protocol.schema import BINARY, LONG, STRING, TIMESTAMP, StructField, StructType
from lakeseal.trust import Trust

BATCH_ROWS = 65_536
_LARGEST_CONTENT = 2**30
OWN_COLUMNS = {
    "text": StructType((StructField("value", STRING),)),
    "binary": StructType(
        (
            StructField("path", STRING),
            StructField("modificationTime", TIMESTAMP),
            StructField("length", LONG),
            StructField("content", BINARY),
        )
    ),
}
"""Columns of formats that say what they are."""


class CsvOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    header: bool = True
    """Whether the first line names the columns; else they are the schema's, in its order."""
    delimiter: str = ","
    """Between values."""
    quote: str = '"'
    """Around values that have delimiters or ends of lines in them."""
    escape: str = '"'
    """Makes a quote plain inside of quotes: the quote itself, or a backslash as Spark writes."""
    null: str = ""
    """The text that stands for no value; so does nothing at all."""

    def __post_init__(self) -> None:
        assert self.dialect

    @property
    def dialect(self) -> CsvDialect:
        return CsvDialect(delimiter=self.delimiter, quote=self.quote, escape=self.escape, null=self.null)


def json_rows(stream: Any, schema: StructType) -> Iterator[Chunk]:
    records = JsonRecords(schema)
    for block in lines(stream, Trust().max_decoded_bytes):
        parsed = records.parse(block.texts)
        bad = tuple(
            RejectedRecord.of(one.reason, block.texts[one.at], f"line {block.numbers[one.at]}")
            for one in parsed.misfits
        )
        yield Chunk(rows=parsed.rows, bad=bad, bytes=block.size)


def text_rows(stream: Any) -> Iterator[Chunk]:
    for block in lines(stream, Trust().max_decoded_bytes, blank=True):
        good, bad = [], []
        for at, text in enumerate(block.texts):
            try:
                good.append(text.decode())
            except UnicodeDecodeError:
                bad.append(RejectedRecord.of("It is not UTF-8", text, f"line {block.numbers[at]}"))
        rows = pa.RecordBatch.from_arrays([pa.array(good, pa.string())], schema=to_arrow(OWN_COLUMNS["text"]))
        yield Chunk(rows=rows, bad=tuple(bad), bytes=block.size)


def binary_rows(file: Any, uri: str, size: int, modified_ms: int) -> Iterator[Chunk]:
    if size > _LARGEST_CONTENT:
        raise BadRecord(
            f"The file has {size} bytes, and a row holds {_LARGEST_CONTENT}", hint="Leave it out by pattern"
        )
    with file:
        content = file.read()
    stamp = pa.array([modified_ms * 1000], pa.int64()).cast(pa.timestamp("us", "UTC"))
    columns = [pa.array([uri]), stamp, pa.array([len(content)], pa.int64()), pa.array([content], pa.binary())]
    rows = pa.RecordBatch.from_arrays(columns, schema=to_arrow(OWN_COLUMNS["binary"]))
    yield Chunk(rows=rows, bytes=len(content))


def xml_rows(stream: Any, schema: StructType, row_tag: str) -> Iterator[Chunk]:
    for block in XmlRows(schema, row_tag).read(stream):
        bad = tuple(
            RejectedRecord.of(one.reason, one.text, f"record {one.record}, line {one.line}") for one in block.misfits
        )
        yield Chunk(rows=block.rows, bad=bad, bytes=block.size)


def csv_rows(stream: Any, schema: StructType, options: CsvOptions) -> Iterator[Chunk]:
    for block, parsed in CsvRows(stream, schema.fields, options.dialect, header=options.header).read():
        bad = [
            RejectedRecord.of(misfit.reason, line(block, misfit.at, options.delimiter), f"row {block.rows[misfit.at]}")
            for misfit in parsed.misfits
        ]
        bad += (RejectedRecord.of(torn.reason, torn.text, f"row {torn.row}") for torn in block.torn)
        yield Chunk(rows=parsed.rows, bad=tuple(bad), bytes=block.size)


def parquet_rows(file: pa.NativeFile, schema: StructType) -> Iterator[Chunk]:
    wanted = to_arrow(schema)
    try:
        parquet = pq.ParquetFile(file)
        projection = _projection(parquet.schema_arrow, schema)
        row = 1
        limit = Trust().max_decoded_bytes
        for batch in fitting_batches(parquet, file, projection.columns, rows=BATCH_ROWS, limit=limit):

            def part(start: int, end: int, of: pa.RecordBatch = batch) -> pa.RecordBatch:
                piece = pa.RecordBatch.from_arrays(projection.apply(of.slice(start, end - start)), schema=wanted)
                check_texts(piece)
                return piece

            parsed = judged(batch.num_rows, part, (BrokenDataFile, InvalidInput))
            bad = tuple(
                RejectedRecord.of(one.reason, str(shown_values(batch, one.at)), f"row {row + one.at}")
                for one in parsed.misfits
            )
            yield Chunk(rows=parsed.rows, bad=bad, bytes=batch.nbytes)
            row += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise BadRecord(f"The file is not whole Parquet: {error}", hint="Mend or remove it") from error


def _projection(file: pa.Schema, schema: StructType) -> Projection:
    names = [name.lower() for name in file.names]
    for field in schema.fields:
        if names.count(field.name.lower()) > 1:
            raise SchemaMismatch(
                f"A Parquet file has several columns {field.name!r}", column=field.name, hint="Rename one of them"
            )
    try:
        return Projection.of(schema.fields, file, "none")
    except BrokenDataFile as error:
        raise SchemaMismatch(
            f"A column of a Parquet file is not what the schema says: {error.message}",
            column=error.column,
            hint="Mend the file, or the source's schema",
        ) from error


def shown_values(batch: pa.RecordBatch, at: int) -> dict[str, Any]:
    """What can be shown of a row."""
    values = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            values[name] = column[at].as_py()
        except UnicodeDecodeError:
            values[name] = column[at].cast(pa.binary()).as_py() if not pa.types.is_nested(column.type) else "?"
        except (ValueError, OverflowError):
            values[name] = str(column[at])
    return values
