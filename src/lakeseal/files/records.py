"""Records that are rows, and records that are none: what every reader of records answers.

A record is judged alone, by the same rules whoever its neighbours are.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from lakeseal.errors import BrokenDataFile, InvalidInput

_ALL_DIGITS = decimal.Context(prec=80)


class Misfit(Struct, frozen=True, kw_only=True):
    """A record that is no row of the schema."""

    at: int
    """Which record it is, counted from 0."""
    reason: str


class Parsed(Struct, frozen=True, kw_only=True):
    rows: pa.RecordBatch
    misfits: tuple[Misfit, ...] = ()
    record_numbers: Sequence[int] | None = None
    """Of which records the rows are, counted from 0; None for all."""


def judged(count: int, parse: Callable[[int, int], pa.RecordBatch], unfit: tuple[type[Exception], ...]) -> Parsed:
    """`parse(start, end)` makes one row of each record, or raises one of `unfit`. Where it does, the records are halved
    until those that are no rows stand alone."""
    parts: list[pa.RecordBatch] = []
    misfits: list[Misfit] = []
    numbers: list[int] = []
    ranges = [(0, count)]
    while ranges:
        start, end = ranges.pop()
        try:
            rows = parse(start, end)
        except unfit as error:
            if end - start == 1:
                misfits.append(Misfit(at=start, reason=str(error) or type(error).__name__))
            else:
                middle = (start + end) // 2
                ranges += [(middle, end), (start, middle)]
            continue
        parts.append(rows)
        numbers += range(start, end)
    together = pa.concat_batches(parts) if parts else parse(0, 0)
    return Parsed(rows=together, misfits=tuple(misfits), record_numbers=numbers if misfits else None)


def check_texts(rows: pa.RecordBatch) -> None:
    """`InvalidInput` names the column in which a text is not UTF-8. Formats that say what their columns are do not look
    at that, nor does Arrow, until somebody reads the text; then all rows around it fail too."""
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        for texts in _leaves(column, _is_text):
            if _is_ascii(texts):
                continue
            try:
                texts.validate(full=True)
            except pa.ArrowInvalid as error:
                raise InvalidInput(
                    f"A text is not UTF-8: {error}", column=name, hint="Decode it, or keep it as binary"
                ) from error


def check_decimals(rows: pa.RecordBatch) -> None:
    """`InvalidInput` names the column in which a decimal has more digits than its type. Arrow holds them, and does not
    look at what others hand over (DuckDB's largest integers have 39); who reads the file gets null, or an error."""
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        for decimals in _leaves(column, pa.types.is_decimal):
            ends = pc.min_max(decimals).as_py()
            limit = 10**decimals.type.precision
            for value in ends.values():
                if value is not None and abs(int(value.scaleb(decimals.type.scale, _ALL_DIGITS))) >= limit:
                    raise InvalidInput(
                        f"{value} has more digits than {decimals.type.precision}",
                        column=name,
                        hint="Cast the column to a decimal that holds it, or to a text",
                    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_ascii(texts: pa.Array) -> bool:
    """Nearly free, and most texts are nothing else."""
    _, places, data = texts.buffers()
    if not len(texts) or data is None or not data.size:
        return True
    kind = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    bounds = np.frombuffer(places, kind, len(texts) + 1, texts.offset * np.dtype(kind).itemsize)
    characters = np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]
    return not characters.size or int(characters.max()) < 128


def _leaves(array: pa.Array, wanted: Callable[[pa.DataType], bool]) -> Iterator[pa.Array]:
    """Arrays of such types, in the array or what it consists of."""
    kind = array.type
    if not len(array):
        return
    if wanted(kind):
        yield array
    elif pa.types.is_struct(kind):
        for part in array.flatten():
            yield from _leaves(part, wanted)
    elif pa.types.is_map(kind):
        start, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
        yield from _leaves(array.keys.slice(start, end - start), wanted)
        yield from _leaves(array.items.slice(start, end - start), wanted)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _leaves(array.flatten(), wanted)
    elif pa.types.is_dictionary(kind):
        yield from _leaves(array.dictionary, wanted)


def joined(parts: Sequence[tuple[int, Parsed]], schema: pa.Schema) -> Parsed:
    """Answers about runs of records as one; each with the number of its first record."""
    if len(parts) == 1 and parts[0][0] == 0:
        return parts[0][1]
    rows = [part.rows for _, part in parts if part.rows.num_rows]
    together = pa.concat_batches(rows) if rows else pa.RecordBatch.from_pylist([], schema=schema)
    misfits = tuple(Misfit(at=first + one.at, reason=one.reason) for first, part in parts for one in part.misfits)
    if not misfits:
        return Parsed(rows=together)
    numbers: list[int] = []
    for first, part in parts:
        own = range(part.rows.num_rows) if part.record_numbers is None else part.record_numbers
        numbers += (first + n for n in own)
    return Parsed(rows=together, misfits=misfits, record_numbers=numbers)


def unreadable(place: str, reason: str) -> BrokenDataFile:
    """For readers whose files must be whole."""
    return BrokenDataFile(
        f"The file does not hold rows of these columns, {place}: {reason}",
        hint="Mend the file, or read the column as a string with schema=",
    )
