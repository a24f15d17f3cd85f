"""Columns whose values the directories of a file state (`day=2026-03-01/1.json`), as Spark and Hive write them.

As for Spark, a column of the schema that a directory names has its value for all rows of the file, whatever the file
itself says; the file is read for the others. A column that no schema names is not made up: a run notes it. Directories
state something only if nothing but such directories is between them: of `a=1/x/b=2/1.json` it is `b`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import pyarrow as pa
from msgspec import Struct

from lakeseal.errors import BadRecord, InvalidArgument, InvalidMetadata, located
from lakeseal.ingest.sources.source import Chunk
from lakeseal.protocol.arrow import to_arrow
from lakeseal.protocol.partitions import can_partition, parse_partition_directory, parse_partition_values
from lakeseal.protocol.schema import StructType


class Stated(Struct, frozen=True, kw_only=True):
    """Of one file."""

    values: dict[str, pa.Scalar]
    left: StructType
    """Columns to be read from the file."""

    @classmethod
    def of(cls, key: str, schema: StructType) -> Stated:
        values = {}
        for name, text in _directories(key).items():
            field = schema.field(name)
            if field is None or not can_partition(field.type):
                continue
            try:
                parsed = parse_partition_values(pa.array([text], pa.string()), field.type, column=field.name)
            except InvalidMetadata:
                raise BadRecord(
                    f"Its directory says {name}={text}, which is no {field.type}",
                    column=field.name,
                    hint="Give the column another type, or move the file",
                ) from None
            values[field.name] = parsed[0]
        left = StructType(tuple(field for field in schema.fields if field.name not in values))
        if values and not left.fields:
            raise InvalidArgument("All columns of the schema are directories", hint="Name one that files have")
        return cls(values=values, left=left)

    def beside(self, chunks: Iterator[Chunk], schema: StructType) -> Iterator[Chunk]:
        """With these values, in the schema's order."""
        if not self.values:
            yield from chunks
            return
        arrow = to_arrow(schema)
        for chunk in chunks:
            arrays = [
                pa.repeat(self.values[name], chunk.rows.num_rows) if name in self.values else chunk.rows[name]
                for name in arrow.names
            ]
            yield msgspec.structs.replace(chunk, rows=pa.RecordBatch.from_arrays(arrays, schema=arrow))


def named_columns(keys: Iterable[str]) -> set[str]:
    """What directories of these files state."""
    named = set[str]()
    for key in keys:
        with located(file=key):
            named.update(_directories(key))
    return named


def _directories(key: str) -> dict[str, str | None]:
    """Of the innermost that state something, and those around it up to one that does not."""
    chain: dict[str, str | None] = {}
    for directory in reversed(key.split("/")[:-1]):
        found = parse_partition_directory(directory)
        if chain and not found:
            break
        for name in found:
            if any(name.lower() == other.lower() for other in chain):
                raise BadRecord(
                    f"Its directories state {name!r} twice", column=name, hint="Rename one of them, or move the file"
                )
        chain = {**found, **chain}
    return chain
