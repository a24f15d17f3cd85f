"""What is in a landed file: CSV, JSON lines or Parquet, as chunks of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc_csv
import pyarrow.parquet as pq
from msgspec import Struct

from lakeseal.errors import BadRecord as BadRecordError
from lakeseal.errors import SchemaMismatch
from lakeseal.ingest.records import JsonRecords, cast, parsed, shown
from lakeseal.ingest.source import BadRecord, Chunk
from lakeseal.log.decoded_size import fitting_batches, whole_lines
from lakeseal.protocol.arrow import to_arrow
from lakeseal.protocol.schema import StructType
from lakeseal.trust import Trust

_BLOCK = 8 * 2**20
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
_BATCH_ROWS = 65_536


class CsvOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    header: bool = True
    """Whether the first line names the columns; else they are the schema's, in its order."""
    delimiter: str = ","
    quote: str = '"'
    null: str = ""
    """The text that stands for no value."""


def opened(file: pa.NativeFile, key: str) -> Any:
    compression = _COMPRESSIONS.get(PurePosixPath(key).suffix.lower())
    return file if compression is None else pa.CompressedInputStream(file, compression)


def json_lines(stream: Any, schema: StructType) -> Iterator[Chunk]:
    records = JsonRecords(schema)
    line = 1
    for whole in whole_lines(stream, Trust().max_decoded_bytes, _BLOCK):
        lines = whole.split(b"\n")
        numbered = [(line + n, text) for n, text in enumerate(lines) if text.strip()]
        if numbered:
            places = [f"line {number}" for number, _ in numbered]
            done = records.parse([text for _, text in numbered], places.__getitem__)
            yield Chunk(rows=done.rows, bad=done.bad, bytes=len(whole))
        line += len(lines)


def csv_rows(reopen: Callable[[], Any], schema: StructType, options: CsvOptions) -> Iterator[Chunk]:
    wanted = to_arrow(schema)
    torn: list[BadRecord] = []

    def refuse(row: Any) -> str:
        reason = f"It has {row.actual_columns} columns instead of {row.expected_columns}"
        torn.append(BadRecord(reason=reason, record=shown(row.text), position=f"row {row.number}"))
        return "skip"

    texts_of = _csv_texts(reopen, None if options.header else list(wanted.names), options, refuse)
    if texts_of is None:
        return
    missing = [name for name in wanted.names if name not in texts_of.schema.names]
    if missing:
        raise SchemaMismatch(
            f"A CSV file lacks the column {missing[0]!r}",
            column=missing[0],
            hint=f"It has {', '.join(texts_of.schema.names)}",
        )
    row = 1
    for texts in texts_of:

        def part(start: int, end: int, of: pa.RecordBatch = texts) -> pa.RecordBatch:
            piece = of.slice(start, end - start)
            columns = [cast(piece[f.name], f.type, base64_text=True) for f in wanted]
            return pa.RecordBatch.from_arrays(columns, schema=wanted)

        def bad(at: int, error: Exception, of: pa.RecordBatch = texts, first: int = row) -> BadRecord:
            line = options.delimiter.join("" if v is None else v for v in of.slice(at, 1).to_pylist()[0].values())
            return BadRecord(reason=str(error), record=shown(line), position=f"row {first + at}")

        done = parsed(texts.num_rows, part, bad)
        yield Chunk(rows=done.rows, bad=(*done.bad, *torn), bytes=texts.nbytes)
        torn.clear()
        row += texts.num_rows
    if torn:
        yield Chunk(rows=pa.RecordBatch.from_pylist([], schema=wanted), bad=tuple(torn))


def _csv_texts(reopen: Callable[[], Any], names: list[str] | None, options: CsvOptions, refuse: Any) -> Any:
    """All columns as texts: which of them fit their types is found out row by row. None for an empty file."""
    parse = pc_csv.ParseOptions(
        delimiter=options.delimiter, quote_char=options.quote, newlines_in_values=True, invalid_row_handler=refuse
    )
    read = pc_csv.ReadOptions(column_names=names, use_threads=False, block_size=_BLOCK)
    try:
        # Texts can be asked for only by name, so the names are read first.
        head = names or pc_csv.open_csv(reopen(), parse_options=_lenient(options), read_options=read).schema.names
        convert = pc_csv.ConvertOptions(
            column_types={name: pa.string() for name in head},
            null_values=[options.null],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        return pc_csv.open_csv(reopen(), parse_options=parse, read_options=read, convert_options=convert)
    except pa.ArrowInvalid as error:
        if "Empty CSV" in str(error):
            return None
        raise BadRecordError(f"The file is not CSV: {error}", hint="Mend or remove it") from error


def _lenient(options: CsvOptions) -> pc_csv.ParseOptions:
    return pc_csv.ParseOptions(
        delimiter=options.delimiter,
        quote_char=options.quote,
        newlines_in_values=True,
        invalid_row_handler=lambda row: "skip",
    )


def parquet_rows(file: pa.NativeFile, schema: StructType) -> Iterator[Chunk]:
    wanted = to_arrow(schema)
    try:
        parquet = pq.ParquetFile(file)
        places = {name.lower(): name for name in parquet.schema_arrow.names}
        names = [places[f.name.lower()] for f in wanted if f.name.lower() in places]
        for batch in fitting_batches(parquet, file, names, rows=_BATCH_ROWS, limit=Trust().max_decoded_bytes):
            columns = []
            for field in wanted:
                place = places.get(field.name.lower())
                try:
                    columns.append(
                        pa.nulls(batch.num_rows, field.type) if place is None else cast(batch[place], field.type)
                    )
                except (pa.ArrowException, ValueError) as error:
                    raise SchemaMismatch(
                        f"A column cannot be read as {field.type}: {error}",
                        column=field.name,
                        hint="Mend the file, or the source's schema",
                    ) from error
            yield Chunk(rows=pa.RecordBatch.from_arrays(columns, schema=wanted), bytes=batch.nbytes)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise BadRecordError(f"The file is not whole Parquet: {error}", hint="Mend or remove it") from error
