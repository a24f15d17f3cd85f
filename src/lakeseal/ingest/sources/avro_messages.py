"""Messages in Avro as rows: by the schema of who wrote each, into the one that rows have (`avro_resolution`).

Values are decoded as they are stored and become columns by the rules for files (`avro_columns`): what fastavro makes of
moments and decimals has fewer values, and rounds. A message that is no row is a misfit with its reason, its neighbours
are rows all the same.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, BinaryIO

import msgspec
import numpy as np
import pyarrow as pa

from lakeseal.errors import InvalidArgument, InvalidInput, Unsupported
from lakeseal.files.records import Misfit, Parsed, judged
from lakeseal.ingest.sources.avro_columns import rows_builder
from lakeseal.ingest.sources.avro_resolution import REFUSED, resolved
from lakeseal.ingest.sources.avro_schema import as_stored
from lakeseal.ingest.sources.avro_stored import stored_reader
from lakeseal.ingest.sources.schema_registry import Registry, framed, no_schema
from lakeseal.protocol.arrow import to_arrow
from lakeseal.protocol.schema import StructType

Build = Callable[[Sequence[Any]], pa.RecordBatch]
_WRONG = (EOFError, IndexError, KeyError, TypeError, OverflowError, RecursionError)


class _Writer:
    """How the values of one schema are read."""

    def __init__(self, read: Callable[[BinaryIO], Any], build: Build) -> None:
        self._read, self.build = read, build

    def decode(self, data: bytes) -> Any:
        stream = io.BytesIO(data)
        try:
            record = self._read(stream)
        except _WRONG as error:
            raise ValueError(f"It is not Avro of this schema: {error or type(error).__name__}") from None
        if stream.read(1):
            raise ValueError("It is longer than its Avro schema says")
        return record


def avro_messages(
    reader_schema: Mapping[str, Any], own: StructType, registry: Registry | None
) -> Callable[[Sequence[bytes]], Parsed]:
    """With a registry, messages begin with the number of their writer's schema; without, all are of the reader's."""
    fastavro = _fastavro()
    wrong = (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType, KeyError, TypeError)
    try:
        reader = fastavro.schema.expand_schema(reader_schema)
        stored_alone = fastavro.parse_schema(as_stored(reader_schema, ()))
        alone = _Writer(stored_reader(stored_alone, {}), rows_builder(reader, own))
    except wrong as error:
        raise InvalidArgument(f"This is no Avro schema: {error}") from None

    @lru_cache(maxsize=100)
    def written_by(number: int) -> _Writer:
        assert registry is not None
        written = registry.schema(number)
        if written.schemaType != "AVRO":
            raise no_schema("Avro schema", written.schemaType)
        try:
            texts = [written.schema, *(one.schema for one in registry.referred(written).values())]
            meant, *others = map(msgspec.json.decode, texts)
            stored, stored_others = _parsed(as_stored(meant, ()), [as_stored(one, ()) for one in others])
            meant, named = _parsed(meant, others)
            read_stored, shape = stored_reader(stored, stored_others), resolved(meant, reader, named)
        except (*wrong, msgspec.MsgspecError, RecursionError) as error:
            raise no_schema("Avro schema", error) from None
        if not isinstance(shape, dict) or "fields" not in shape:
            raise no_schema("Avro schema of such rows", shape.get(REFUSED) if isinstance(shape, dict) else "a union")
        return _Writer(read_stored, rows_builder(shape, own))

    def one(value: bytes) -> tuple[_Writer, Any]:
        if registry is None:
            return alone, alone.decode(value)
        number, rest = framed(value)
        writer = written_by(number)
        return writer, writer.decode(rest)

    def read(values: Sequence[bytes]) -> Parsed:
        records: list[tuple[_Writer, Any]] = []
        whole: list[int] = []
        misfits: list[Misfit] = []
        for at, value in enumerate(values):
            try:
                records.append(one(value))
                whole.append(at)
            except ValueError as error:
                misfits.append(Misfit(at=at, reason=str(error)))
        done = judged(len(records), lambda start, end: _rows(records[start:end], own), (InvalidInput,))
        misfits += (Misfit(at=whole[one.at], reason=one.reason) for one in done.misfits)
        rows = whole if done.record_numbers is None else [whole[n] for n in done.record_numbers]
        misfits.sort(key=lambda one: one.at)
        return Parsed(rows=done.rows, misfits=tuple(misfits), record_numbers=rows if misfits else None)

    return read


def _parsed(schema: Any, others: Sequence[Any]) -> tuple[Any, dict[str, Any]]:
    """A schema that refers to types of others, which may do so too; and all types by their names."""
    fastavro = _fastavro()
    named: dict[str, Any] = {}
    left = list(others)
    while left:
        waiting = []
        for one in left:
            known = dict(named)
            try:
                fastavro.parse_schema(one, known)
                named = known
            except fastavro.schema.UnknownType:
                waiting.append(one)
        if len(waiting) == len(left):
            break  # what they refer to is missing, which is told if the schema needs it
        left = waiting
    return fastavro.parse_schema(schema, named), named


def _rows(records: Sequence[tuple[_Writer, Any]], own: StructType) -> pa.RecordBatch:
    """In their order, whoever wrote them."""
    places: dict[_Writer, list[int]] = {}
    for at, (writer, _) in enumerate(records):
        places.setdefault(writer, []).append(at)
    if not places:
        return pa.RecordBatch.from_pylist([], schema=to_arrow(own))
    parts = [writer.build([records[at][1] for at in some]) for writer, some in places.items()]
    if len(parts) == 1:
        return parts[0]
    order = np.argsort(np.concatenate([np.array(some) for some in places.values()]))
    return pa.concat_batches(parts).take(pa.array(order))


def _fastavro() -> Any:
    try:
        import fastavro  # an extra
    except ModuleNotFoundError as error:
        raise Unsupported(
            "fastavro is not installed", hint="pip install 'lakeseal[kafka]', on executors too"
        ) from error
    return fastavro
