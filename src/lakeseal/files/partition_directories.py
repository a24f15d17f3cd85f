"""Directories of one partition, however they are spelt: `n=1`, `N=1` and `n=01`, `s=a b` and `s=a%20b`.

Others, and we at another time, may have put files where a job of ours would not; rows that they have are in the same
partition all the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pyarrow as pa

from lakeseal.protocol.partitions import parse_partition_directory
from lakeseal.protocol.schema import StructField
from lakeseal.protocol.text_values import format_text, parse_text

Key = tuple[str | None, ...]


def of_partitions(
    directories: Collection[str], wanted: Iterable[str], columns: Collection[StructField]
) -> frozenset[str]:
    """Those of the directories that state these columns with the values that one of the `wanted` states them with."""
    keys = _keys([*directories], columns)
    known = {key for key in _keys([*wanted], columns) if key is not None}
    return frozenset(directory for directory, key in zip(directories, keys, strict=True) if key in known)


def _keys(directories: list[str], columns: Collection[StructField]) -> list[Key | None]:
    """The values in one spelling each; None where a column is not stated, or not with a value of its type."""
    stated = [
        {name.lower(): text for name, text in parse_partition_directory(directory).items()} for directory in directories
    ]
    parts: list[list[str | None]] = []
    is_known = [all(column.name.lower() in values for column in columns) for values in stated]
    for column in columns:
        texts = [values.get(column.name.lower()) for values in stated]
        spelt = format_text(parse_text(pa.array(texts, pa.string()), column.type), column.type).to_pylist()
        is_known = [
            known and (text is None or one is not None) for known, text, one in zip(is_known, texts, spelt, strict=True)
        ]
        parts.append(spelt)
    return [key if known else None for known, key in zip(is_known, zip(*parts, strict=True), strict=True)]
