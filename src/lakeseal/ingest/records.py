"""Texts to rows, where some of the texts may be no rows.

Everything is parsed by Arrow, many texts at once. Where that fails the texts are halved until the bad ones stand alone,
so a record is judged by the same rules whoever its neighbours are: it is a row, or a `BadRecord` with the reason.
Texts of a type that a format has no word for are read the way Spark reads them: timestamps without a zone are UTC,
binary values in JSON are base64.
"""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from lakeseal.errors import InvalidArgument
from lakeseal.ingest.source import BadRecord
from lakeseal.protocol.arrow import to_arrow
from lakeseal.protocol.schema import StructType

_SHOWN = 2000
_ZONE = r"(Z|[+-]\d{2}:?\d{2})$"
# What Arrow's parser says of one record, without the sentence that it wraps around it.
_PREFIX = "JSON parse error: "

Position = Callable[[int], str]


class Parsed:
    """Rows, and which of the texts they are of: all of them unless `kept` says otherwise."""

    def __init__(self, rows: pa.RecordBatch, bad: Sequence[BadRecord] = (), kept: Sequence[int] | None = None) -> None:
        self.rows, self.bad, self.kept = rows, tuple(bad), kept


def parsed(
    count: int, parse: Callable[[int, int], pa.RecordBatch], bad: Callable[[int, Exception], BadRecord]
) -> Parsed:
    """`parse(start, end)` makes one row of each text, or raises; `bad` describes a text that raises alone."""
    whole = _try(parse, 0, count)
    if isinstance(whole, pa.RecordBatch):
        return Parsed(whole)
    parts: list[pa.RecordBatch] = []
    refused: list[BadRecord] = []
    kept: list[int] = []
    ranges = [(0, count)]
    while ranges:
        start, end = ranges.pop()
        found = _try(parse, start, end)
        if isinstance(found, pa.RecordBatch):
            parts.append(found)
            kept += range(start, end)
        elif end - start == 1:
            refused.append(bad(start, found))
        else:
            middle = (start + end) // 2
            ranges += [(middle, end), (start, middle)]
    rows = pa.concat_batches(parts) if parts else parse(0, 0)
    return Parsed(rows, refused, kept)


def _try(parse: Callable[[int, int], pa.RecordBatch], start: int, end: int) -> pa.RecordBatch | Exception:
    try:
        return parse(start, end)
    except (pa.ArrowException, msgspec.MsgspecError, UnicodeError, ValueError) as error:
        return error


class JsonRecords:
    """JSON objects by a schema. Fields that the schema lacks are left out, missing ones are null."""

    def __init__(self, schema: StructType) -> None:
        self.schema = to_arrow(schema)
        self._has_maps = any(_contains(field.type, pa.types.is_map) for field in self.schema)
        nested = [f.name for f in self.schema if pa.types.is_nested(f.type) and _contains(f.type, pa.types.is_binary)]
        if nested:
            raise InvalidArgument(
                "JSON has no binary values inside of others", column=nested[0], hint="Read it as a string"
            )
        self._wire = pa.schema([pa.field(f.name, _wire(f.type, everything=self._has_maps)) for f in self.schema])

    def parse(self, texts: Sequence[bytes], position: Position) -> Parsed:
        def part(start: int, end: int) -> pa.RecordBatch:
            return self._part(texts[start:end])

        def bad(at: int, error: Exception) -> BadRecord:
            return BadRecord(reason=_reason(error), record=shown(texts[at]), position=position(at))

        return parsed(len(texts), part, bad)

    def _part(self, texts: Sequence[bytes]) -> pa.RecordBatch:
        if not texts:
            return pa.RecordBatch.from_pylist([], schema=self.schema)
        rows = self._by_python(texts) if self._has_maps else self._by_arrow(texts)
        columns = [cast(rows[f.name], f.type, base64_text=True) for f in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _by_arrow(self, texts: Sequence[bytes]) -> pa.RecordBatch:
        # The parser takes no notice of where one text ends. With a brace at either end of each, as many objects as
        # texts can only be one of each.
        if not all(text[:1] == b"{" and text[-1:] == b"}" for text in texts):
            texts = [text.strip() for text in texts]
            if not all(text[:1] == b"{" and text[-1:] == b"}" for text in texts):
                raise ValueError("It is not a JSON object")
        options = pj.ParseOptions(
            explicit_schema=self._wire, unexpected_field_behavior="ignore", newlines_in_values=True
        )
        joined = b"\n".join(texts)
        # One block: an object must not be cut in two.
        table = pj.read_json(
            io.BytesIO(joined),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(joined) + 1),
            parse_options=options,
        )
        if table.num_rows != len(texts):
            raise ValueError("There is more than one JSON value")
        return table.combine_chunks().to_batches()[0]

    def _by_python(self, texts: Sequence[bytes]) -> pa.RecordBatch:
        decode = msgspec.json.Decoder(dict[str, Any]).decode
        found = [decode(text) for text in texts]
        columns = [pa.array([_plain(row.get(f.name), f.type) for row in found], f.type) for f in self._wire]
        return pa.RecordBatch.from_arrays(columns, schema=self._wire)


def _wire(arrow: pa.DataType, *, everything: bool) -> pa.DataType:
    """What JSON has for a type."""
    t = pa.types
    if t.is_struct(arrow):
        return pa.struct([pa.field(f.name, _wire(f.type, everything=everything)) for f in arrow])
    if t.is_list(arrow):
        return pa.list_(_wire(arrow.value_type, everything=everything))
    if t.is_map(arrow):
        return pa.map_(pa.string(), _wire(arrow.item_type, everything=everything))
    as_text = t.is_date(arrow) or t.is_binary(arrow)
    return pa.string() if as_text or (everything and (t.is_temporal(arrow) or t.is_decimal(arrow))) else arrow


def _plain(value: Any, arrow: pa.DataType) -> Any:
    """A decoded value as Arrow takes it for a type."""
    if value is None:
        return None
    if pa.types.is_struct(arrow):
        return {f.name: _plain(value.get(f.name), f.type) for f in arrow} if isinstance(value, dict) else value
    if pa.types.is_list(arrow):
        return [_plain(one, arrow.value_type) for one in value] if isinstance(value, list) else value
    if pa.types.is_map(arrow):
        return [(k, _plain(v, arrow.item_type)) for k, v in value.items()] if isinstance(value, dict) else value
    return str(value) if pa.types.is_string(arrow) and isinstance(value, int | float) else value


def _contains(arrow: pa.DataType, is_it: Callable[[pa.DataType], bool]) -> bool:
    if is_it(arrow):
        return True
    return pa.types.is_nested(arrow) and any(_contains(arrow.field(n).type, is_it) for n in range(arrow.num_fields))


def cast(values: pa.Array, wanted: pa.DataType, *, base64_text: bool = False) -> pa.Array:
    """Texts, or values near to it, in the wanted type; `ArrowInvalid` where one does not fit."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if values.type == wanted:
        return values
    if pa.types.is_string(values.type):
        if pa.types.is_timestamp(wanted) and wanted.tz is not None:
            zoned = pc.match_substring_regex(values, _ZONE)
            values = pc.if_else(zoned, values, pc.binary_join_element_wise(values, "Z", ""))
        elif pa.types.is_binary(wanted) and base64_text:
            try:
                decoded = [None if v is None else base64.b64decode(v, validate=True) for v in values.to_pylist()]
            except binascii.Error as error:
                raise ValueError(f"A binary value is not base64: {error}") from None
            return pa.array(decoded, wanted)
    return values.cast(wanted)


def shown(record: bytes | str) -> str:
    text = record.decode(errors="replace") if isinstance(record, bytes) else record
    text = text.replace("\0", "�")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text):,} characters)"


def _reason(error: Exception) -> str:
    return str(error).removeprefix(_PREFIX).removesuffix(" in row 0").strip() or type(error).__name__
