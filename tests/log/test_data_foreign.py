"""Data files that other clients wrote, read by the simplest replay there is: every JSON commit in turn."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeseal.errors import DataFileMissing, UnsafePath
from lakeseal.log.data import DataFile, DataReader, ReadSpec
from lakeseal.protocol.data_paths import canonical_path
from lakeseal.protocol.schema import StructType
from lakeseal.storage import open_store

GOLDEN = [
    "124-decimal-decode-bug", "125-iterator-bug", "basic-decimal-table", "basic-decimal-table-legacy",
    "basic-with-inserts-merge", "basic-with-inserts-overwrite-restore", "basic-with-vacuum-protocol-check-feature",
    "data-reader-array-complex-objects", "data-reader-array-primitives", "data-reader-date-types-Jst",
    "data-reader-date-types-utc", "data-reader-escaped-chars", "data-reader-nested-struct",
    "data-reader-timestamp_ntz", "data-reader-timestamp_ntz-id-mode", "data-skipping-basic-stats-all-types-checkpoint",
    "data-skipping-basic-stats-all-types-columnmapping-name", "data-skipping-partition-and-data-column",
    "dv-partitioned-with-checkpoint", "dv-with-columnmapping", "kernel-timestamp-timestamp_millis",
    "parquet-all-types", "parquet-decimal-type", "snapshot-data3", "snapshot-repartitioned",
    "table-with-columnmapping-mode-id", "table-with-columnmapping-mode-name", "time-travel-schema-changes-a",
]  # fmt: skip
DAT = [
    "all_primitive_types", "basic_append", "basic_partitioned", "multi_partitioned", "multi_partitioned_2",
    "nested_types", "no_stats", "stats_as_struct", "with_schema_change",
]  # fmt: skip
ORACLE = [
    "delta-rs-data/cdf-table", "delta-rs-data/delta-0.8.0-special-partition", "delta-rs-data/simple_commit",
    "delta-rs-data/table_with_null_stats_in_notnull_struct", "kernel-rs-data/cdf-table-with-cdc-and-dvs",
    "kernel-rs-data/external-table-different-nullability",
]  # fmt: skip


def replayed(table: Path) -> tuple[ReadSpec, list[DataFile]]:
    live: dict[tuple[str, str | None], DataFile] = {}
    metadata: dict[str, Any] = {}
    for commit in sorted((table / "_delta_log").glob("[0-9]*.json")):
        for line in commit.read_bytes().splitlines():
            action = msgspec.json.decode(line) if line.strip() else {}
            metadata = action.get("metaData") or metadata
            for kind in ("remove", "add"):
                if not action.get(kind):
                    continue
                file = msgspec.convert(
                    {k: v for k, v in action[kind].items() if k in ("path", "partitionValues", "deletionVector") and v},
                    DataFile,
                )
                key = canonical_path(file.path), file.deletion_vector and file.deletion_vector.unique_id
                live.pop(key, None)
                if kind == "add":
                    live[key] = file
    spec = ReadSpec(
        schema=StructType.from_json(metadata["schemaString"]),
        partition_columns=tuple(metadata["partitionColumns"]),
        mapping=metadata["configuration"].get("delta.columnMapping.mode", "none"),
    )
    return spec, list(live.values())


def rows(table: pa.Table) -> Counter[Any]:
    names = sorted(table.column_names)
    return Counter(comparable([row[name] for name in names]) for row in table.to_pylist())


def comparable(value: Any) -> Any:
    match value:
        case dict():
            return tuple(sorted((k, comparable(v)) for k, v in value.items()))
        case list() | tuple():
            return tuple(comparable(v) for v in value)
        case datetime():
            # What is expected is at times stored without the zone that the table has.
            return (value.astimezone(UTC) if value.tzinfo else value).replace(tzinfo=None)
        case float() if math.isnan(value):
            return "NaN"
        case Decimal():
            return value.normalize()
        case _:
            return value


def expected(folder: Path) -> pa.Table:
    # Hidden files aside, a folder is one table.
    files = [f for f in sorted(folder.rglob("*.parquet")) if not f.name.startswith((".", "_"))]
    return pa.concat_tables([pq.ParquetFile(f).read() for f in files], promote_options="permissive")


def check(table: Path, wanted: pa.Table) -> None:
    spec, files = replayed(table)
    reader = DataReader(open_store(table), spec)
    found = pa.Table.from_batches(reader.read(files), reader.schema)
    found.validate(full=True)
    assert sorted(found.column_names) == sorted(wanted.column_names)
    assert rows(found) == rows(wanted)


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_tables_read_as_expected(shared_tables: Path, name: str) -> None:
    check(shared_tables / "golden" / name / "delta", expected(shared_tables / "golden" / name / "expected"))


@pytest.mark.parametrize("name", DAT)
def test_acceptance_tables_read_as_expected(shared_tables: Path, name: str) -> None:
    folder = shared_tables / "dat" / name
    check(folder / "delta", expected(folder / "expected" / "latest" / "table_content"))


@pytest.mark.parametrize("name", ORACLE)
def test_tables_read_as_an_independent_reader_does(shared_tables: Path, name: str) -> None:
    oracle = shared_tables / "oracle" / f"{name.replace('/', '__')}.parquet"
    check(shared_tables / name, pq.ParquetFile(oracle).read())


def read(table: Path) -> pa.Table:
    spec, files = replayed(table)
    reader = DataReader(open_store(table), spec)
    return pa.Table.from_batches(reader.read(files), reader.schema)


@pytest.mark.parametrize(
    "name", ["kernel-rs-data/unshredded-variant", "delta-rs-data/spark-shredded-variant-preview-delta"]
)
def test_variants_are_read_as_their_bytes_at_every_depth(shared_tables: Path, name: str) -> None:
    found = read(shared_tables / name)
    found.validate(full=True)
    variant = found["v"].type
    assert [f.name for f in variant] == ["metadata", "value"]
    assert found["array_of_variants"].type.value_type == variant
    assert found["map_of_variants"].type.item_type == variant
    assert found["array_of_struct_of_variants"].type.value_type.field("v").type == variant
    first = found["v"].drop_null()[0].as_py()
    assert first["metadata"][0] & 0x0F == 1  # the version of the encoding
    assert found.num_rows == 102


def test_int96_timestamps_beyond_the_range_of_nanoseconds_are_read(shared_tables: Path) -> None:
    # The independent reader that the other expectations come from wraps these around to 1816.
    found = read(shared_tables / "delta-rs-data" / "table_with_edge_timestamps")
    assert sorted(t.year for t in found["BIG_DATE"].to_pylist()) == [9999, 9999]


def test_a_log_that_climbs_out_of_its_table_is_refused(shared_tables: Path) -> None:
    table = shared_tables / "golden" / "data-reader-absolute-paths-escaped-chars" / "delta"
    path = "..//Users/scott.sandre/connectors/golden-tables/src/test/resources/golden/x/foo.snappy.parquet"
    with pytest.raises(UnsafePath, match="leaves the table"):
        list(DataReader(open_store(table), ReadSpec(schema=StructType())).read([DataFile(path=path)]))


def test_a_log_that_names_files_that_are_gone_says_which(shared_tables: Path) -> None:
    table = shared_tables / "golden" / "log-replay-special-characters-b" / "delta"
    spec, files = replayed(table)
    with pytest.raises(DataFileMissing) as caught:
        list(DataReader(open_store(table), spec).read(files))
    assert (caught.value.table, caught.value.file) == (open_store(table).uri, files[0].path)
