"""Rows of files that say what their columns are, besides Parquet: ORC and Avro.

Columns are found by name; one that a file lacks is null. A row with a value that its column can't have is a bad record.
In ORC, a column that is of another kind makes the file a bad one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa

from lakeseal.errors import BadRecord, BrokenDataFile, InvalidArgument, InvalidInput, Unsupported
from lakeseal.files import orc_stripes
from lakeseal.files.records import check_texts, judged
from lakeseal.ingest.sources.avro_schema import as_stored, avro_schema_of
from lakeseal.ingest.sources.file_rows import shown_values
from lakeseal.ingest.sources.source import Chunk, RejectedRecord
from lakeseal.log.physical import Projection
from lakeseal.protocol.arrow import from_arrow, to_arrow
from lakeseal.protocol.schema import StructType

_BATCH = 10_000


def columns_of(form: str, file: Any) -> StructType:
    """What a file says of itself."""
    if form == "avro":
        found: StructType = avro_schema_of(as_stored(_reader(file).writer_schema))
        return found
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


def avro_rows(opened: Callable[[], Any], schema: StructType) -> Iterator[Chunk]:
    wanted = to_arrow(schema)
    every = _records(_reader(opened(), as_stored(_reader(opened()).writer_schema)))
    row = 1
    while records := tuple(islice(every, _BATCH)):

        def part(start: int, end: int, of: tuple[Any, ...] = records) -> pa.RecordBatch:
            return pa.RecordBatch.from_pylist(list(of[start:end]), schema=wanted)

        unfit = (pa.ArrowException, ValueError, TypeError, OverflowError, AttributeError)
        parsed = judged(len(records), part, unfit)
        bad = tuple(
            RejectedRecord.of(one.reason, str(records[one.at]), f"row {row + one.at}") for one in parsed.misfits
        )
        yield Chunk(rows=parsed.rows, bad=bad, bytes=parsed.rows.nbytes)
        row += len(records)


def _records(reader: Any) -> Iterator[Any]:
    try:
        yield from reader
    except (EOFError, ValueError, IndexError, KeyError, TypeError) as error:
        raise BadRecord(
            f"The file is not whole Avro: {error or type(error).__name__}", hint="Mend or remove it"
        ) from error


def _reader(stream: Any, schema: Any = None) -> Any:
    try:
        import fastavro  # an extra
    except ModuleNotFoundError as error:
        raise Unsupported("fastavro is not installed", hint="pip install 'lakeseal[kafka]'") from error
    try:
        return fastavro.reader(stream, reader_schema=schema)
    except (EOFError, ValueError, IndexError, KeyError, TypeError) as error:
        raise BadRecord(f"The file is not Avro: {error or type(error).__name__}", hint="Mend or remove it") from error
