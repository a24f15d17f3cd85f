"""Partition values: text in the log, typed in Arrow, escaped in directory names.

`parse_partition_values` and `format_partition_values` are inverse for every value of every type that can partition a
table, save that the empty string and empty bytes are null: the format has no text for them. What other clients wrote
is read generously; text that stands for no value of its type raises `InvalidMetadata` with column and value.
Timestamps without a zone are taken as UTC.

`partition_directory` gives the directory that Hive and Spark would, `parse_partition_directory` reads it. Directories
are only a convention: the log alone says which values a file has.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from lakeseal.errors import InvalidMetadata, UnsupportedType
from lakeseal.protocol.schema import DataType, DecimalType, PrimitiveType
from lakeseal.protocol.text_values import format_text, parse_text

NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"

_HIVE_ESCAPED = re.compile("[\x01-\x1f\"#%'*/:=?\\\\\x7f{\\[\\]^]")
_ESCAPE = re.compile("%([0-9a-fA-F]{2})")


def can_partition(data_type: DataType) -> bool:
    return isinstance(data_type, DecimalType) or (isinstance(data_type, PrimitiveType) and data_type.name != "void")


def parse_partition_values(
    texts: pa.Array | pa.ChunkedArray, data_type: DataType, *, column: str | None = None
) -> pa.Array:
    """The values of one partition column, one per text; null and the empty text are null."""
    _check_type(data_type, column)
    texts = (texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts).cast(pa.string())
    # A table has far fewer partitions than files, so each text is looked at once.
    encoded = pc.if_else(pc.equal(texts, ""), None, texts).dictionary_encode()
    distinct = parse_text(encoded.dictionary, data_type)
    if distinct.null_count:
        bad = encoded.dictionary.filter(pc.is_null(distinct))[0].as_py()
        shown = bad if len(bad) <= 100 else bad[:100] + "…"
        raise InvalidMetadata(
            f"The partition value {shown!r} is not a value of type {data_type}",
            hint="The log holds a partition value that does not fit its column: restore the commit that wrote it",
            column=column,
        )
    return distinct.take(encoded.indices)


def format_partition_values(values: pa.Array | pa.ChunkedArray, data_type: DataType) -> pa.Array:
    """The texts for `partitionValues`, one per value; null where the value is null, empty text or empty bytes."""
    _check_type(data_type, None)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    texts = format_text(values, data_type)
    return pc.if_else(pc.equal(texts, ""), None, texts)


def escape_path_name(text: str) -> str:
    """A column name or partition value as part of a directory name, escaped as Hive does."""
    return _HIVE_ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def unescape_path_name(text: str) -> str:
    """The way back. An escape stands for one character by its number, never for a byte of UTF-8."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)


def partition_directory(column: str, text: str | None) -> str:
    """The directory of rows with this text in a partition column; one of several columns lies in that of the column
    before it."""
    # Hive leaves NUL as it is, and no store takes it.
    name = escape_path_name(column).replace("\0", "%00")
    if text is None:
        return f"{name}={NULL_DIRECTORY}"
    if text == NULL_DIRECTORY:
        # A value that happens to read like the name for null; escaped, it is read back as what it is.
        return f"{name}=%5F{text[1:]}"
    return f"{name}={escape_path_name(text)}".replace("\0", "%00")


def parse_partition_directory(directory: str) -> dict[str, str | None]:
    """The partition texts in a directory's name; parts of another form are not partitions and left out."""
    values: dict[str, str | None] = {}
    for part in directory.split("/"):
        name, equals, value = part.partition("=")
        if name and equals:
            values[unescape_path_name(name)] = None if value in ("", NULL_DIRECTORY) else unescape_path_name(value)
    return values


def _check_type(data_type: DataType, column: str | None) -> None:
    if not can_partition(data_type):
        raise UnsupportedType(
            f"A column of type {data_type} cannot partition a table",
            hint="Partition by columns of simple types",
            column=column,
        )
