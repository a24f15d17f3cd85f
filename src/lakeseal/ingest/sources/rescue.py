"""Rows of files whose columns were learnt: what does not fit goes to the rescued column, as JSON by column.

A value that is not of its column's type leaves the column null, and is in the rescued column as it stands in the file;
so is a column that is not known. The rest of the row is as it would be. What is no record at all is a bad record.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Raw

from lakeseal.errors import BadRecord, BrokenDataFile, InvalidInput
from lakeseal.files import cells
from lakeseal.files.csv_records import CsvBlock, CsvRecords
from lakeseal.files.json_lines import lines
from lakeseal.files.json_records import JsonRecords, Kind, kind_of
from lakeseal.files.records import check_texts, judged
from lakeseal.ingest.sources.file_rows import BATCH_ROWS, CsvOptions, shown_values
from lakeseal.ingest.sources.inference import Inference, Open, csv_names
from lakeseal.ingest.sources.source import Chunk, RejectedRecord
from lakeseal.log.decoded_size import fitting_batches
from lakeseal.log.physical import Projection
from lakeseal.protocol.arrow import to_arrow
from lakeseal.protocol.schema import STRING, ArrayType, DataType, MapType, StructField, StructType
from lakeseal.trust import Trust

Rescued = dict[str, Any]


class _Rows:
    """Rows of the known columns, and what was rescued of each, as a chunk."""

    def __init__(self, known: StructType, how: Inference) -> None:
        self.known, self.how = known, how
        self._schema = to_arrow(how.with_rescued(known))

    def chunk(
        self, rows: pa.RecordBatch, rescued: Sequence[Rescued | None], bad: Sequence[RejectedRecord], size: int
    ) -> Chunk:
        texts = [msgspec.json.encode(_said(one), enc_hook=str).decode() if one else None for one in rescued]
        together = [*rows.columns, pa.array(texts, pa.string())]
        return Chunk(rows=pa.RecordBatch.from_arrays(together, schema=self._schema), bad=tuple(bad), bytes=size)


def _said(value: Any) -> Any:
    """JSON has no number for NaN and the infinities: they are texts, which no null is."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _said(one) for name, one in value.items()}
    return [_said(one) for one in value] if isinstance(value, list | tuple) else value


class JsonRescue(_Rows):
    def read(self, stream: Any) -> Iterator[Chunk]:
        records = JsonRecords(self.known)
        for block in lines(stream, Trust().max_decoded_bytes):
            texts = list(block.texts)
            rescued: dict[int, Rescued] = {}
            torn: dict[int, str] = {}
            for at, text in enumerate(texts):
                try:
                    # Also where new columns are added: one that differs from another in case only is not.
                    rescued[at] = self._unknown(text)
                except (ValueError, RecursionError, msgspec.MsgspecError) as error:
                    torn[at] = str(error)
            parsed = records.parse(texts)
            for misfit in parsed.misfits:
                mended = self._mended(texts[misfit.at])
                if mended is not None:
                    texts[misfit.at], found = mended
                    rescued.setdefault(misfit.at, {}).update(found)
            if parsed.misfits:
                parsed = records.parse(texts)
            numbers = range(len(texts)) if parsed.record_numbers is None else parsed.record_numbers
            torn |= {one.at: one.reason for one in parsed.misfits}
            # Of a record that is none, a column that is known may be all right.
            rows = parsed.rows.filter(pa.array([at not in torn for at in numbers], pa.bool_()))
            numbers = [at for at in numbers if at not in torn]
            bad = [
                RejectedRecord.of(reason, block.texts[at], f"line {block.numbers[at]}")
                for at, reason in sorted(torn.items())
            ]
            yield self.chunk(rows, [rescued.get(at) for at in numbers], bad, block.size)

    @cached_property
    def _alone(self) -> dict[str, JsonRecords]:
        return {field.name: JsonRecords(StructType((field,))) for field in self.known.fields}

    def _unknown(self, text: bytes) -> Rescued:
        """Fields that are not known, and those that have such in them; raises where the record is none."""
        kinds = kind_of(text)
        fields = msgspec.json.decode(text, type=dict[str, Raw])
        assert isinstance(kinds, dict)
        known = {field.name: field.type for field in self.known.fields}
        return {
            name: raw
            for name, raw in fields.items()
            if kinds[name] is not None and (name not in known or _has_more(kinds[name], known[name]))
        }

    def _mended(self, text: bytes) -> tuple[bytes, Rescued] | None:
        """The record without the fields that do not fit, and these; None if it is no record."""
        try:
            kind_of(text)
            fields = msgspec.json.decode(text, type=dict[str, Raw])
        except (ValueError, RecursionError, msgspec.MsgspecError):
            return None
        rescued = {
            name: fields[name]
            for name, alone in self._alone.items()
            if name in fields and alone.parse([msgspec.json.encode({name: fields[name]})]).misfits
        }
        left = {name: raw for name, raw in fields.items() if name not in rescued}
        return msgspec.json.encode(left), rescued


def _has_more(kind: Kind, known: DataType) -> bool:
    """Whether an object in it has fields that are not known."""
    match kind, known:
        case dict(), StructType():
            # A name is one in its own case only, as where records are read.
            fields = {field.name: field.type for field in known.fields}
            return any(
                one is not None and (name not in fields or _has_more(one, fields[name])) for name, one in kind.items()
            )
        case dict(), MapType():
            return any(_has_more(one, known.value) for one in kind.values())
        case list(), ArrayType():
            return any(_has_more(one, known.element) for one in kind)
    return False


class CsvRescue(_Rows):
    def read(self, opened: Open, options: CsvOptions) -> Iterator[Chunk]:
        names = csv_names(opened, options)
        if not names:
            return
        for block in CsvRecords(opened(), options.dialect, None if options.header else names).blocks():
            bad = [RejectedRecord.of(torn.reason, torn.text, f"row {torn.row}") for torn in block.torn]
            rescued: list[Rescued] = [{} for _ in block.rows]
            rows = self._parsed(block, names, rescued)
            yield self.chunk(rows, rescued, bad, block.size)

    def _parsed(self, block: CsvBlock, names: list[str], rescued: list[Rescued]) -> pa.RecordBatch:
        columns = []
        for field in self.known.fields:
            kind = to_arrow(StructType((field,))).field(0).type
            if field.name not in names:
                columns.append(pa.nulls(len(block.rows), kind))
                continue
            texts = block.columns[names.index(field.name)]
            if field.type != STRING:
                texts = pc.if_else(pc.equal(texts, ""), None, texts)
            values = cells.parse(texts, field.type)
            columns.append(values)
            if values.null_count > texts.null_count:
                _note(rescued, field.name, pc.if_else(values.is_valid(), None, texts))
        for name, texts in zip(names, block.columns, strict=True):
            if name not in self.known.names:
                _note(rescued, name, texts)
        return pa.RecordBatch.from_arrays(columns, schema=to_arrow(self.known))


def _note(rescued: list[Rescued], name: str, values: pa.Array) -> None:
    for at, value in enumerate(values.to_pylist()):
        if value is not None:
            rescued[at][name] = value


class ParquetRescue(_Rows):
    def read(self, file: pa.NativeFile) -> Iterator[Chunk]:
        try:
            parquet = pq.ParquetFile(file)
            fitting = tuple(field for field in self.known.fields if _fits(field, parquet.schema_arrow))
            projection = Projection.of(fitting, parquet.schema_arrow, "none")
            odd = [name for name in parquet.schema_arrow.names if name not in projection.columns]
            wanted = to_arrow(self.known)
            row = 1
            for batch in fitting_batches(
                parquet, file, [*projection.columns, *odd], rows=BATCH_ROWS, limit=Trust().max_decoded_bytes
            ):

                def part(start: int, end: int, of: pa.RecordBatch = batch) -> pa.RecordBatch:
                    made = dict(
                        zip((f.name for f in fitting), projection.apply(of.slice(start, end - start)), strict=True)
                    )
                    columns = [made.get(f.name, pa.nulls(end - start, f.type)) for f in wanted]
                    piece = pa.RecordBatch.from_arrays(columns, schema=wanted)
                    check_texts(piece)
                    return piece

                parsed = judged(batch.num_rows, part, (BrokenDataFile, InvalidInput))
                numbers = range(batch.num_rows) if parsed.record_numbers is None else parsed.record_numbers
                rescued = [
                    {name: batch[name][at].as_py() for name in odd if batch[name][at].is_valid} or None
                    for at in numbers
                ]
                bad = [
                    RejectedRecord.of(one.reason, str(shown_values(batch, one.at)), f"row {row + one.at}")
                    for one in parsed.misfits
                ]
                yield self.chunk(parsed.rows, rescued if odd else [None] * len(numbers), bad, batch.nbytes)
                row += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise BadRecord(f"The file is not whole Parquet: {error}", hint="Mend or remove it") from error


def _fits(field: StructField, file: pa.Schema) -> bool:
    if sum(name.lower() == field.name.lower() for name in file.names) > 1:
        return False
    try:
        Projection.of((field,), file, "none")
    except BrokenDataFile:
        return False
    return True
