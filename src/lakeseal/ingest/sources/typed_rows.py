"""Rows of files that say what their columns are, besides Parquet: ORC and Avro.

Columns are found by name; one that a file lacks is null. A row with a value that its column can't have is a bad record.
In ORC, a column that is of another kind makes the file a bad one.
"""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import islice
from typing import Any

import pyarrow as pa

from lakeseal.errors import BadRecord, BrokenDataFile, InvalidArgument, InvalidInput, LakesealError, Unsupported
from lakeseal.files import orc_stripes
from lakeseal.files.records import check_texts, judged
from lakeseal.ingest.sources.avro_columns import rows_builder
from lakeseal.ingest.sources.avro_schema import as_stored, avro_schema_of
from lakeseal.ingest.sources.avro_stored import stored_reader
from lakeseal.ingest.sources.file_rows import shown_values
from lakeseal.ingest.sources.source import Chunk, RejectedRecord
from lakeseal.log.physical import Projection
from lakeseal.protocol.arrow import from_arrow, to_arrow
from lakeseal.protocol.schema import StructType

_BATCH = 10_000
_DAMAGED = (
    EOFError,
    ValueError,
    IndexError,
    KeyError,
    TypeError,
    OverflowError,
    SystemError,
    RecursionError,
    zlib.error,
    lzma.LZMAError,
)


def columns_of(form: str, file: Any) -> StructType:
    """What a file says of itself."""
    if form == "avro":
        with _told("The file's schema is not Avro's"):
            return avro_schema_of(as_stored(_blocks(file).writer_schema))
    try:
        return from_arrow(orc_stripes.file_schema(file))
    except (pa.ArrowException, OSError) as error:
        raise InvalidArgument(f"The file is not ORC: {error}", hint="Give a schema") from error


def orc_rows(file: Any, schema: StructType) -> Iterator[Chunk]:
    wanted = to_arrow(schema)
    row = 1
    try:
        for batch, projection in orc_stripes.stored(file, schema.fields):

            def part(start: int, end: int, of: pa.RecordBatch = batch, to: Projection = projection) -> pa.RecordBatch:
                columns = to.apply(of.slice(start, end - start))
                casted = [column.cast(field.type) for column, field in zip(columns, wanted, strict=True)]
                piece = pa.RecordBatch.from_arrays(casted, schema=wanted)
                check_texts(piece)
                return piece

            parsed = judged(batch.num_rows, part, (BrokenDataFile, InvalidInput, pa.ArrowInvalid))
            bad = tuple(
                RejectedRecord.of(one.reason, str(shown_values(batch, one.at)), f"row {row + one.at}")
                for one in parsed.misfits
            )
            yield Chunk(rows=parsed.rows, bad=bad, bytes=batch.nbytes)
            row += batch.num_rows
    except OSError as error:
        if error.errno is not None:
            raise
        raise BadRecord(f"The file is not whole ORC: {error}", hint="Mend or remove it") from error


def avro_rows(file: Any, schema: StructType) -> Iterator[Chunk]:
    blocks = _blocks(file)
    build = rows_builder(blocks.writer_schema, schema)
    every, shown = _records(blocks), _shown_by(blocks.writer_schema)
    row = 1
    while records := tuple(islice(every, _BATCH)):

        def part(start: int, end: int, of: tuple[Any, ...] = records) -> pa.RecordBatch:
            return build(of[start:end])

        parsed = judged(len(records), part, (InvalidInput,))
        bad = tuple(
            RejectedRecord.of(one.reason, shown(records[one.at]), f"row {row + one.at}") for one in parsed.misfits
        )
        yield Chunk(rows=parsed.rows, bad=bad, bytes=parsed.rows.nbytes)
        row += len(records)


def _records(blocks: Any) -> Iterator[Any]:
    """As they are stored: what fastavro makes of moments and decimals has fewer values, and rounds."""
    import fastavro  # an extra

    with _told("The file is not whole Avro"):
        read = stored_reader(fastavro.parse_schema(as_stored(blocks.writer_schema, ())), {})
        for block in blocks:
            for _ in range(block.num_records):
                yield read(block.bytes_)


def _shown_by(schema: Any) -> Callable[[Any], str]:
    """Shows records with the meanings of their values, if columns have them."""

    @cache
    def build() -> Callable[[Sequence[Any]], pa.RecordBatch]:
        return rows_builder(schema, avro_schema_of(schema))

    def shown(record: Any) -> str:
        try:
            return str(shown_values(build()([record]), 0))
        except (LakesealError, KeyError, TypeError):
            return str(record)

    return shown


def _blocks(stream: Any) -> Any:
    try:
        import fastavro  # an extra
    except ModuleNotFoundError as error:
        raise Unsupported("fastavro is not installed", hint="pip install 'lakeseal[kafka]'") from error
    with _told("The file is not Avro"):
        return fastavro.block_reader(stream)


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Turns what fastavro, and what it decompresses with, raise for damaged bytes into a `BadRecord`."""
    from fastavro.schema import SchemaParseException, UnknownType  # an extra

    try:
        yield
    except (*_DAMAGED, OSError, SchemaParseException, UnknownType) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise BadRecord(f"{what}: {error or type(error).__name__}", hint="Mend or remove it") from error
