"""Spark's own Parquet reader for a table's files, where it gives the same rows as ours.

It reads only the columns that a query needs, and rows never leave the JVM; but it knows nothing of the log. So it is
used only where the log says nothing that the files do not say themselves:

- local files, below the table, by names that Spark takes as they are: it expands `{}[]*?`, stumbles over `:`, and
  leaves out hidden files;
- no deletion vectors, column mapping, widened types, void or variant columns;
- partition values that stand in every file's directory in the one spelling that Spark reads as the log does;
- no dates or timestamps from before 1900 in files that count them by the calendar of before (`log/old_calendar.py`),
  which Spark reads in its own zone if they do not say theirs: statistics tell that there are none, and where they do
  not, the files' footers say who wrote them;
- a session that takes column names without regard to case, as a table does.

Nor does it skip by what files say of floats. It takes a footer's bounds to be those of all values, NaN included, and a
dictionary that has one zero to lack the other; of files that Arrow, deltalake or polars wrote neither is so, and of
Spark's own the second is not. A column in `nanvl` with itself has the same values, and Spark pushes no condition
through it; conditions on other columns still skip. Floats inside structs are not worth taking apart and putting
together for each row: a table that has them is read without skipping.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from lakeseal.errors import DataFileMissing
from lakeseal.expr.render import quote_name
from lakeseal.log.old_calendar import OldCalendar
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol.char_varchar import char_limits
from lakeseal.protocol.partitions import (
    NULL_DIRECTORY,
    escape_path_name,
    format_partition_values,
    parse_partition_values,
)
from lakeseal.protocol.schema import (
    DATE,
    DOUBLE,
    FLOAT,
    TIMESTAMP,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)
from lakeseal.spark.lent_settings import LentSettings
from lakeseal.spark.predicates import Settings
from lakeseal.spark.rows import rows_schema
from lakeseal.storage.location import parse

# Spark looks at every path before it reads anything, so that thousands take longer than reading them in tasks would.
_MAX_FILES = 4_000
_MAX_FOOTERS = 1_000
_ABSOLUTE = r"^/|^[A-Za-z][A-Za-z0-9+.\-]*:"
_NOT_PLAIN = r"[{}\[\]*?\\:]|^/|//|(?:^|/)\.{1,2}(?:/|$)|(?:^|/)[._][^/]*$|\._COPYING_$"
_TYPE_CHANGES = "delta.typeChanges"
_DIRECTORY_TYPES = frozenset({"string", "byte", "short", "integer", "long", "boolean", "date"})
_1900 = {DATE: pa.scalar(-25_567, pa.int32()), TIMESTAMP: pa.scalar(-25_567 * 86_400_000_000, pa.int64())}
_FLOATS = (FLOAT, DOUBLE)
_NO_SKIPPING = {f"parquet.filter.{by}.enabled": "false" for by in ("stats", "dictionary", "columnindex", "bloom")}
# For more than a few dozen paths Spark would start a job to look at them; that takes ten times as long.
_LISTED_HERE = LentSettings({"spark.sql.sources.parallelPartitionDiscovery.threshold": str(_MAX_FILES + 1)})


class ParquetScan(Struct, frozen=True, kw_only=True):
    """Files that Spark may read by itself, and the columns to read of them."""

    table: str
    root: str
    names: list[str]
    """As the log has them."""
    paths: list[str]
    fields: tuple[StructField, ...]
    is_partitioned: bool

    @classmethod
    def of(
        cls, snapshot: Snapshot, files: pa.Table, columns: Sequence[StructField], settings: Settings
    ) -> ParquetScan | None:
        """None where only our own reader is sure to give the table's rows."""
        partitions = {name.lower() for name in snapshot.partition_columns}
        stored = [f for f in columns if f.name.lower() not in partitions]
        is_partitioned = len(stored) < len(columns)
        if (
            settings.case_sensitive
            or not snapshot.table.startswith("file:")
            or not 0 < files.num_rows <= _MAX_FILES
            or files["deletionVector"].null_count < files.num_rows
            or snapshot.properties.column_mapping_mode != "none"
            or not all(_is_plain(f) for f in stored)
        ):
            return None
        root = parse(snapshot.table).path
        keys = _keys(files)
        if keys is None or _matches([root.strip("/")], r"[{}\[\]*?\\]"):
            return None
        if is_partitioned and not _in_own_directories(snapshot, files, keys):
            return None
        scan = cls(
            table=snapshot.table,
            root=root,
            names=files["path"].to_pylist(),
            paths=[f"file://{root.rstrip('/')}/{key}" for key in keys.to_pylist()],
            fields=tuple(snapshot.schema.fields if is_partitioned else columns),
            is_partitioned=is_partitioned,
        )
        return scan if scan._has_our_calendar(snapshot, files, stored) else None

    def frame(self, spark: SparkSession) -> DataFrame:
        reader = spark.read.schema(rows_schema(self.fields)).options(
            ignoreMissingFiles=False,
            ignoreCorruptFiles=False,
            mergeSchema=False,
            datetimeRebaseMode="CORRECTED",
            int96RebaseMode="CORRECTED",
        )
        if any(not _every(f.type, lambda t: t not in _FLOATS) for f in self.fields if isinstance(f.type, StructType)):
            reader = reader.options(**_NO_SKIPPING)
        if self.is_partitioned:
            reader = reader.option("basePath", f"file://{self.root}")
        else:
            reader = reader.option("recursiveFileLookup", True)
        self._check_present()
        try:
            with _LISTED_HERE.lent(spark):
                frame = reader.parquet(*self.paths)
                # Over Spark Connect nothing has happened so far.
                _ = frame.schema
        except AnalysisException:
            self._check_present()
            raise
        if all(f.type not in _FLOATS for f in self.fields):
            return frame
        return frame.select(*(_unskipped(f, frame) for f in self.fields))

    def _check_present(self) -> None:
        for name, path in zip(self.names, self.paths, strict=True):
            if not os.path.exists(path.removeprefix("file://")):
                raise DataFileMissing("A data file is not there", table=self.table, file=name)

    def _has_our_calendar(self, snapshot: Snapshot, files: pa.Table, stored: Sequence[StructField]) -> bool:
        leaves = [leaf for f in stored for leaf in _moments(f.type, (f.name,))]
        if not leaves:
            return True
        unproven = _unproven(snapshot, files, leaves)
        doubtful = [path for path, doubt in zip(self.paths, unproven, strict=True) if doubt]
        if len(doubtful) > _MAX_FOOTERS:
            return False
        with ThreadPoolExecutor(8) as pool:
            return all(pool.map(_is_of_our_calendar, doubtful))


def _unskipped(field: StructField, frame: DataFrame) -> Column:
    column = F.col(quote_name(field.name))
    if field.type not in _FLOATS:
        return column
    return F.nanvl(column, column).alias(field.name, metadata=frame.schema[field.name].metadata)


def _is_plain(field: StructField) -> bool:
    return _TYPE_CHANGES not in field.metadata and _every(field.type, lambda t: t not in (VOID, VARIANT))


def _every(data_type: DataType, holds: Callable[[DataType], bool]) -> bool:
    match data_type:
        case StructType(fields=fields):
            return all(_TYPE_CHANGES not in f.metadata and _every(f.type, holds) for f in fields)
        case ArrayType(element=element):
            return _every(element, holds)
        case MapType(key=key, value=value):
            return _every(key, holds) and _every(value, holds)
        case _:
            return holds(data_type)


def _keys(files: pa.Table) -> pa.Array | None:
    """Names of the files below the table, if all are such that Spark takes them as they are."""
    paths = files["path"].combine_chunks()
    escaped = pc.match_substring(paths, "%")
    if pc.any(escaped).as_py():
        decoded = pa.array([unquote(path) for path in paths.filter(escaped).to_pylist()], pa.string())
        keys = pc.replace_with_mask(paths, escaped, decoded)
    else:
        keys = paths
    return None if _matches(paths, _ABSOLUTE) or _matches(keys, _NOT_PLAIN) else keys


def _matches(texts: pa.Array | list[str], pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(pa.array(texts), pattern)).as_py())


def _in_own_directories(snapshot: Snapshot, files: pa.Table, keys: pa.Array) -> bool:
    """Whether every file is in the directory of its partition, and Spark reads the same values from its name."""
    expected: pa.Array = pa.repeat(pa.scalar("", pa.string()), files.num_rows)
    for field in snapshot.partition_schema.fields:
        if char_limits(field) is not None:
            return False  # Spark would look for directories by filled up names
        texts = pc.map_lookup(files["partitionValues"].combine_chunks(), pa.scalar(field.name), "first")
        encoded = pc.if_else(pc.equal(texts, ""), None, texts).dictionary_encode()
        if not _read_alike(encoded.dictionary, field.type):
            return False
        names = [escape_path_name(text) for text in encoded.dictionary.to_pylist()]
        directories = pc.fill_null(pa.array(names, pa.string()).take(encoded.indices), NULL_DIRECTORY)
        expected = pc.binary_join_element_wise(expected, escape_path_name(field.name), "=", directories, "/", "")
    actual = pc.replace_substring_regex(keys, r"[^/]*$", "")
    return bool(pc.all(pc.equal(actual, expected)).as_py())


def _read_alike(texts: pa.Array, data_type: DataType) -> bool:
    is_simple = isinstance(data_type, DecimalType) or (
        isinstance(data_type, PrimitiveType) and data_type.name in _DIRECTORY_TYPES
    )
    # A string that is called as the null directory is would be taken for null.
    if not is_simple or NULL_DIRECTORY in texts.to_pylist():
        return False
    return bool(texts.equals(format_partition_values(parse_partition_values(texts, data_type), data_type)))


def _moments(data_type: DataType, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Leaves with dates or timestamps; those in arrays and maps as well, of which there are no statistics."""
    match data_type:
        case StructType(fields=fields):
            for f in fields:
                yield from _moments(f.type, (*path, f.name))
        case ArrayType(element=element):
            yield from _moments(element, (*path, "element"))
        case MapType(key=key, value=value):
            yield from _moments(key, (*path, "key"))
            yield from _moments(value, (*path, "value"))
        case _ if data_type in _1900:
            yield path
        case _:
            return


def _unproven(snapshot: Snapshot, files: pa.Table, leaves: Sequence[tuple[str, ...]]) -> list[bool]:
    """Per file, whether it may hold moments from before 1900 for all that its statistics say."""
    stats = snapshot.stats_struct(files, leaves)
    proven = pa.repeat(pa.scalar(True), files.num_rows)
    for leaf in leaves:
        minimum = _leaf(stats, ("minValues", *leaf))
        if minimum is None:
            return [True] * files.num_rows
        late = pc.greater_equal(
            minimum.cast(pa.int32() if pa.types.is_date(minimum.type) else pa.int64()),
            _1900[DATE if pa.types.is_date(minimum.type) else TIMESTAMP],
        )
        nulls, rows = _leaf(stats, ("nullCount", *leaf)), _leaf(stats, ("numRecords",))
        if nulls is not None and rows is not None:
            late = pc.or_kleene(late, pc.equal(nulls, rows))
        proven = pc.and_(proven, pc.fill_null(late, False))
    unproven: list[bool] = pc.invert(proven).to_pylist()
    return unproven


def _leaf(stats: pa.StructArray, path: tuple[str, ...]) -> pa.Array | None:
    for name in path:
        place = stats.type.get_field_index(name) if pa.types.is_struct(stats.type) else -1
        if place < 0:
            return None
        stats = pc.struct_field(stats, [place])
    return stats


def _is_of_our_calendar(path: str) -> bool:
    try:
        notes = pq.read_metadata(path.removeprefix("file://")).metadata or {}
    except (OSError, pa.ArrowException):
        return False  # our reader will say what is wrong with it
    return not any(OldCalendar.of(notes, has_int96=has_int96) for has_int96 in (True, False))
