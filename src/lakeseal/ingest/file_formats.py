"""What is in a landed file: CSV, JSON lines or Parquet, as chunks of rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from lakeseal.errors import BadRecord as BadRecordError
from lakeseal.errors import BrokenDataFile, InvalidInput, SchemaMismatch
from lakeseal.formats.csv_records import CsvDialect, CsvRows, line
from lakeseal.formats.json_lines import lines
from lakeseal.formats.json_records import JsonRecords
from lakeseal.formats.records import check_texts, judged
from lakeseal.ingest.records import bad_records, shown
from lakeseal.ingest.source import BadRecord, Chunk
from lakeseal.log.decoded_size import fitting_batches
from lakeseal.log.physical import Projection
from lakeseal.protocol.arrow import to_arrow
from lakeseal.protocol.schema import StructType
from lakeseal.trust import Trust

_BATCH_ROWS = 65_536


class CsvOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    header: bool = True
    """Whether the first line names the columns; else they are the schema's, in its order."""
    delimiter: str = ","
    quote: str = '"'
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
        bad = bad_records(parsed, block.texts, lambda at, of=block: f"line {of.numbers[at]}")  # type: ignore[misc]
        yield Chunk(rows=parsed.rows, bad=bad, bytes=block.size)


def csv_rows(stream: Any, schema: StructType, options: CsvOptions) -> Iterator[Chunk]:
    for block, parsed in CsvRows(stream, schema.fields, options.dialect, header=options.header).read():
        bad = [
            BadRecord(
                reason=misfit.reason,
                record=shown(line(block, misfit.at, options.delimiter)),
                position=f"row {block.rows[misfit.at]}",
            )
            for misfit in parsed.misfits
        ]
        bad += (
            BadRecord(reason=torn.reason, record=shown(torn.text), position=f"row {torn.row}") for torn in block.torn
        )
        yield Chunk(rows=parsed.rows, bad=tuple(bad), bytes=block.size)


def parquet_rows(file: pa.NativeFile, schema: StructType) -> Iterator[Chunk]:
    wanted = to_arrow(schema)
    try:
        parquet = pq.ParquetFile(file)
        projection = _projection(parquet.schema_arrow, schema)
        row = 1
        limit = Trust().max_decoded_bytes
        for batch in fitting_batches(parquet, file, projection.columns, rows=_BATCH_ROWS, limit=limit):

            def part(start: int, end: int, of: pa.RecordBatch = batch) -> pa.RecordBatch:
                piece = pa.RecordBatch.from_arrays(projection.apply(of.slice(start, end - start)), schema=wanted)
                check_texts(piece)
                return piece

            parsed = judged(batch.num_rows, part, (BrokenDataFile, InvalidInput))
            bad = tuple(
                BadRecord(reason=one.reason, record=shown(str(_values(batch, one.at))), position=f"row {row + one.at}")
                for one in parsed.misfits
            )
            yield Chunk(rows=parsed.rows, bad=bad, bytes=batch.nbytes)
            row += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise BadRecordError(f"The file is not whole Parquet: {error}", hint="Mend or remove it") from error


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


def _values(batch: pa.RecordBatch, at: int) -> dict[str, Any]:
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
