"""`Shape`: what the files of a directory do not say themselves: their format, columns, types, partition columns.

A job that writes to a branch puts it beside its files, at `_lakeseal/shape-<id>.json`, which Spark and its kin pass
over; each file's metadata names the shape that it was written in. Shapes are named by their content, so that jobs
which write alike share one and never conflict over it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cached_property

import msgspec
from msgspec import Struct

from lakeseal import typed_json
from lakeseal.errors import BrokenDataFile, SchemaMismatch
from lakeseal.files.file_format import FileFormat
from lakeseal.protocol.schema import VOID, StructField, StructType

DIRECTORY = "_lakeseal"
_IN_FLIGHT = "._COPYING_"
"""Ends the names of files that `hdfs dfs -put` has not finished."""


class Shape(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", dict=True):
    format: str
    header: bool = False
    schema: str
    """Of all columns, partition columns included, as Spark's JSON."""
    partition_columns: tuple[str, ...] = ()

    @classmethod
    def of(cls, format: FileFormat, schema: StructType, partition_columns: Iterable[str] = ()) -> Shape:
        kept = StructType(tuple(field for field in schema.fields if field.type != VOID))
        return cls(
            format=format.name,
            header=format.header,
            schema=kept.to_json(),
            partition_columns=tuple(partition_columns),
        )

    @classmethod
    def from_json(cls, data: bytes, *, file: str) -> Shape:
        try:
            return typed_json.decode(data, cls)
        except msgspec.MsgspecError as error:
            raise BrokenDataFile(f"The description of a directory's files is malformed: {error}", file=file) from error

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    @property
    def id(self) -> str:
        return hashlib.sha256(self.to_json()).hexdigest()[:16]

    @property
    def path(self) -> str:
        """Below the directory that it describes."""
        return shape_path(self.id)

    @cached_property
    def columns(self) -> StructType:
        return StructType.from_json(self.schema)


def shape_path(shape_id: str) -> str:
    return f"{DIRECTORY}/shape-{shape_id}.json"


def is_hidden(path: str) -> bool:
    """Whether Spark would pass over a file of this name below the directory that it is asked to read."""
    return any(
        part.startswith(".") or (part.startswith("_") and "=" not in part) or part.endswith(_IN_FLIGHT)
        for part in path.split("/")
    )


def united(shapes: Iterable[Shape]) -> StructType:
    """All columns that files of these shapes have, by name; each must have the same type wherever it is."""
    fields: dict[str, StructField] = {}
    for shape in shapes:
        for field in shape.columns.fields:
            known = fields.setdefault(field.name.lower(), field)
            if known.type != field.type:
                raise SchemaMismatch(
                    f"Files of the directory disagree on a column: it is {known.type} and {field.type}",
                    column=field.name,
                    hint="Say which columns to read with schema=, or write the directory anew with mode 'overwrite'",
                )
    return StructType(tuple(fields.values()))
