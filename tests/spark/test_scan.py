"""DataFrames of tables have the rows that `to_arrow` has, whoever reads the files."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote, unquote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame

import lakeseal
from lakeseal import LakesealError, Table
from lakeseal.errors import DataFileMissing, InvalidArgument, InvalidExpression
from lakeseal.log.scan import Scan, read_spec
from lakeseal.protocol.actions import AddFile
from lakeseal.protocol.partitions import NULL_DIRECTORY
from lakeseal.protocol.schema import StructType
from lakeseal.spark.failures import recovered
from lakeseal.spark.parquet_scan import ParquetScan
from lakeseal.spark.predicates import Settings, understood
from lakeseal.spark.read_task import ScanTask, file_splits, runs
from lakeseal.spark.scan import to_spark
from lakeseal.storage import StoreSpec, open_store
from lakeseal.testing.s3 import s3_server
from oracles.sessions import with_settings
from support.rows import rows

UTC = datetime.UTC
ALL_TYPES = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "b": pa.array([-128, None, 127], pa.int8()),
        "h": pa.array([-(2**15), None, 2**15 - 1], pa.int16()),
        "i": pa.array([-(2**31), None, 2**31 - 1], pa.int32()),
        "f": pa.array([math.nan, None, -0.0], pa.float32()),
        "d": pa.array([math.inf, None, 1e-300], pa.float64()),
        "flag": pa.array([True, None, False]),
        "s": pa.array(["", None, "é 日本 \0"]),
        "x": pa.array([b"", None, b"\xff\0"], pa.binary()),
        "c": pa.array([Decimal("1.50"), None, Decimal("-99999999.99")], pa.decimal128(10, 2)),
        "e": pa.array([Decimal(10) ** 37, None, Decimal(-1)], pa.decimal128(38, 0)),
        "day": pa.array([datetime.date(1582, 10, 4), None, datetime.date(9999, 12, 31)]),
        "ts": pa.array(
            [datetime.datetime(1500, 1, 1, tzinfo=UTC), None, datetime.datetime(2024, 3, 31, 2, 30, tzinfo=UTC)],
            pa.timestamp("us", "UTC"),
        ),
        "tn": pa.array([datetime.datetime(1, 1, 1), None, datetime.datetime(2024, 3, 31, 2, 30)], pa.timestamp("us")),
        "st": pa.array([{"a": 1, "b": {"c": "x"}}, None, {"a": None, "b": None}],
                       pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.string())]))])),
        "ar": pa.array([[1, None], None, []], pa.list_(pa.int64())),
        "m": pa.array([[("k", 1.5)], None, [("j", None)]], pa.map_(pa.string(), pa.float64())),
        "deep": pa.array([[{"l": [[datetime.date(1, 1, 1)]]}], None, [None]],
                         pa.list_(pa.struct([("l", pa.list_(pa.list_(pa.date32())))]))),
    }
)  # fmt: skip

pytestmark = pytest.mark.spark


def write(path: Path, *tables: pa.Table, **options: Any) -> Table:
    table = Table(path / "table")
    for data in tables:
        table.write(data, **options)
    return table


def frame(spark: Any, table: Table, *, in_tasks: bool | None = None, **asked: Any) -> DataFrame:
    return to_spark(spark, table.snapshot(), StoreSpec(uri=table.uri), in_tasks=in_tasks, **asked)


def is_sparks(df: DataFrame) -> bool:
    """Whether Spark's own reader reads the files."""
    return bool(df.inputFiles())


def minds_case(spark: Any) -> bool:
    """Then tasks read all files, since Spark would not find columns in files that spell them otherwise."""
    return str(spark.conf.get("spark.sql.caseSensitive")) == "true"


def check_both_ways(
    spark: Any, table: Table, where: str | None = None, columns: Sequence[str] | None = None, sparks: bool = True
) -> None:
    wanted = table.to_arrow(where=where, columns=columns)
    for in_tasks in (None, True):
        found = frame(spark, table, in_tasks=in_tasks, where=where, columns=columns)
        assert is_sparks(found) == (sparks and not in_tasks and not minds_case(spark))
        check(found, wanted)


def check(found: DataFrame, wanted: pa.Table) -> None:
    got = found.toArrow()
    assert got.column_names == wanted.column_names
    assert got.schema.types == wanted.schema.types
    assert rows(got) == rows(wanted)


# The same rows either way


def test_every_type_is_read_the_same_either_way(spark: Any, tmp_path: Path) -> None:
    check_both_ways(spark, write(tmp_path, ALL_TYPES, ALL_TYPES.slice(1)))


def test_another_session_time_zone_changes_no_value(spark: Any, tmp_path: Path) -> None:
    table = write(tmp_path, ALL_TYPES.select(["id", "ts", "tn", "day"]))
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/Los_Angeles")
    try:
        for in_tasks in (None, True):
            assert rows(frame(spark, table, in_tasks=in_tasks).toArrow()) == rows(table.to_arrow())
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_columns_and_conditions_are_the_same_either_way(spark: Any, tmp_path: Path) -> None:
    table = write(tmp_path, ALL_TYPES, ALL_TYPES)
    check_both_ways(spark, table, columns=["s", "id"])
    check_both_ways(spark, table, columns=["S", "ID"])
    for where in ("id > 1", "i IS NULL AND id < 3", "st.b.c = 'x'", "ts < '1900-01-01 00:00:00'", "flag"):
        check_both_ways(spark, table, where=where, columns=["d"])
    for where in ("1 = 0", "id = 1 AND CAST(NULL AS BOOLEAN)"):
        check_both_ways(spark, table, where=where, sparks=False)


def test_a_condition_that_means_nothing_is_an_error_of_ours_that_names_the_table(spark: Any, tmp_path: Path) -> None:
    table = write(tmp_path, pa.table({"id": [1]}))
    for where in ("nothing > 1", "id > (SELECT nothing FROM VALUES (1) AS y(x))", "id >"):
        for in_tasks in (True, False):
            with pytest.raises(InvalidExpression) as found:
                frame(spark, table, in_tasks=in_tasks, where=where)
            assert found.value.table is not None


def test_counting_reads_rows_without_columns(spark: Any, tmp_path: Path) -> None:
    table = write(tmp_path, ALL_TYPES, ALL_TYPES)
    for in_tasks in (None, True):
        assert frame(spark, table, in_tasks=in_tasks).count() == 6
        none = frame(spark, table, in_tasks=in_tasks, columns=[])
        assert (none.columns, none.count()) == ([], 6)
        assert frame(spark, table, in_tasks=in_tasks, columns=[], where="id = 1").count() == 2


def test_a_table_without_files_has_its_schema_and_no_rows(spark: Any, tmp_path: Path) -> None:
    table = write(tmp_path, ALL_TYPES.slice(0, 0))
    check_both_ways(spark, table, sparks=False)
    assert frame(spark, table, where="id = 1", columns=["s"]).collect() == []
    assert frame(spark, table, columns=[]).count() == 0


SPECIAL = ["a", "A/A", "a?", "é", "%3A", "x=y", "a:b", "#", "a b", " ", "01", "1e3", "null", "{x}", "[y]*", "back\\",
           "quo'te", '"', "^", "+&", "日本", "\t", ".", "..", "_x", "A" * 100, None]  # fmt: skip


def test_special_partition_values_are_read_the_same_either_way(spark: Any, tmp_path: Path) -> None:
    data = pa.table({"id": range(len(SPECIAL)), "p": pa.array(SPECIAL), "q": ["same"] * len(SPECIAL)})
    table = write(tmp_path, data, partition_by=["p", "q"])
    # Braces make a name a pattern to Spark; all other characters it takes as they are.
    check_both_ways(spark, table, sparks=False)
    check_both_ways(spark, table, where="p NOT LIKE '{%' OR p IS NULL")
    check_both_ways(spark, table, where="p NOT LIKE '{%' OR p IS NULL", columns=["q", "id"])
    for value in SPECIAL[:-1]:
        assert value is not None
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        assert [row.id for row in frame(spark, table, where=f"p = '{escaped}'").collect()] == [SPECIAL.index(value)]


PARTITIONS = {
    "int": (pa.array([0, -5, None], pa.int32()), True),
    "long": (pa.array([2**62, -1, None], pa.int64()), True),
    "byte": (pa.array([-128, 1, None], pa.int8()), True),
    "bool": (pa.array([True, False, None]), True),
    "date": (pa.array([datetime.date(1500, 1, 1), datetime.date(2024, 2, 29), None]), True),
    "decimal": (pa.array([Decimal("1.50"), Decimal("-0.05"), None], pa.decimal128(10, 2)), True),
    "double": (pa.array([1.5, math.nan, None]), False),
    "timestamp": (pa.array([datetime.datetime(2024, 1, 1, tzinfo=UTC)] * 2 + [None], pa.timestamp("us", "UTC")), False),
    "ntz": (pa.array([datetime.datetime(2024, 1, 1)] * 2 + [None], pa.timestamp("us")), False),
    "binary": (pa.array([b"a", b"\xff", None], pa.binary()), False),
}


@pytest.mark.parametrize("kind", PARTITIONS)
def test_partition_values_of_every_type_are_read_the_same_either_way(spark: Any, tmp_path: Path, kind: str) -> None:
    values, sparks = PARTITIONS[kind]
    check_both_ways(spark, write(tmp_path, pa.table({"id": [1, 2, 3], "p": values}), partition_by=["p"]), sparks=sparks)


def with_file(table: Table, name: str, add: dict[str, Any], data: pa.Table, log_name: str | None = None) -> None:
    """A file and a commit that adds it, as another client would."""
    root = Path(table.uri.removeprefix("file://"))
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(data, root / name)
    action = AddFile(path=log_name or name, size=(root / name).stat().st_size, modification_time=0, data_change=True,
                     **{"partition_values": {}, **add})  # fmt: skip
    line = msgspec.json.encode({"add": action}) + b"\n"
    assert open_store(table.uri).put_if_absent(f"_delta_log/{table.version() + 1:020d}.json", line)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("elsewhere/f.parquet", {"p": "1"}),
        ("p=2/f.parquet", {"p": "1"}),
        ("p=01/f.parquet", {"p": "01"}),
        ("P=1/f.parquet", {"p": "1"}),
        ("p=1/p=1/f.parquet", {"p": "1"}),
    ],
)
def test_a_directory_that_does_not_say_the_partition_is_not_believed(
    spark: Any, tmp_path: Path, name: str, values: dict[str, str]
) -> None:
    table = write(tmp_path, pa.table({"id": [0], "p": pa.array([7], pa.int32())}), partition_by=["p"])
    with_file(table, name, {"partition_values": values}, pa.table({"id": [1]}))
    check_both_ways(spark, table, sparks=False)
    # Without the partition column it does not matter where a file is.
    check_both_ways(spark, table, columns=["id"], sparks=True)


def test_a_value_that_is_called_as_the_null_directory_is_not_null(spark: Any, tmp_path: Path) -> None:
    table = write(tmp_path, pa.table({"id": [0], "p": ["x"]}), partition_by=["p"])
    values = {"partition_values": {"p": NULL_DIRECTORY}}
    with_file(table, f"p={NULL_DIRECTORY}/f.parquet", values, pa.table({"id": [1]}))
    check_both_ways(spark, table, sparks=False)


@pytest.mark.parametrize(
    "name",
    [
        "_f.parquet",
        ".f.parquet",
        "a{b}.parquet",
        "a[b].parquet",
        "a*.parquet",
        "a?.parquet",
        "a\\b.parquet",
        "a:b.parquet",
    ],
)
def test_files_that_spark_would_leave_out_or_mistake_are_read(spark: Any, tmp_path: Path, name: str) -> None:
    table = write(tmp_path, pa.table({"id": [0]}))
    with_file(table, name, {}, pa.table({"id": [1]}), quote(name))
    check_both_ways(spark, table, sparks=False)


@pytest.mark.parametrize("name", ["a b.parquet", "a%20b.parquet", "p=1/é.parquet", "a#b.parquet"])
def test_files_with_odd_names_are_read_by_spark(spark: Any, tmp_path: Path, name: str) -> None:
    table = write(tmp_path, pa.table({"id": [0]}))
    with_file(table, name, {}, pa.table({"id": [1]}), quote(name))
    check_both_ways(spark, table)


def test_a_table_may_lie_in_a_directory_of_any_name(spark: Any, tmp_path: Path) -> None:
    for name, sparks in {"a b": True, "a%20b": True, "é": True, "x:y": True, "x{y}": False, "x*": False}.items():
        check_both_ways(
            spark, write(tmp_path / name, pa.table({"id": [1], "p": ["é"]}), partition_by="p"), sparks=sparks
        )


def test_a_schema_that_grew_is_read_with_nulls(spark: Any, tmp_path: Path) -> None:
    old = pa.table({"id": [1], "st": pa.array([{"a": 1}], pa.struct([("a", pa.int32())]))})
    new = pa.table(
        {
            "id": [2],
            "st": pa.array([{"a": 2, "b": "x"}], pa.struct([("a", pa.int32()), ("b", pa.string())])),
            "n": [0.5],
        }
    )
    table = write(tmp_path, old, new, merge_schema=True)
    check_both_ways(spark, table)
    check_both_ways(spark, table, where="n IS NULL")
    check_both_ways(spark, table, where="st.b IS NULL", columns=["id"])
    check_both_ways(spark, table, where="st IS NOT NULL AND st.b IS NULL", columns=["id"])


@pytest.mark.parametrize("seed", range(8))
def test_tables_with_any_history_are_read_the_same_either_way(spark: Any, tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    names = random.sample(ALL_TYPES.column_names[1:], 6)
    partition_by = [
        n for n in names if random.random() < 0.3 and not pa.types.is_nested(ALL_TYPES.schema.field(n).type)
    ]
    if len(partition_by) == len(names) or random.random() < 0.3:
        partition_by = []
    properties = random.choice([{}, {"delta.enableDeletionVectors": "true"}, {"delta.columnMapping.mode": "name"}])
    table = Table(tmp_path / "table")
    known = names[:3] + partition_by
    for _ in range(random.randint(2, 5)):
        rows_of = [random.randrange(3) for _ in range(random.randint(1, 20))]
        columns = ["id", *dict.fromkeys(known)]
        table.write(
            ALL_TYPES.take(rows_of).select(columns), partition_by=partition_by, properties=properties, merge_schema=True
        )
        known = random.choice([known, names])
        if random.random() < 0.4:
            table.delete(f"id = {random.randint(1, 3)}")
    for where in (None, "id >= 2", f"{names[0]} IS NULL", f"{names[1]} IS NOT NULL AND id < 3"):
        wanted = table.to_arrow(where=where)
        for in_tasks in (None, True):
            check(frame(spark, table, in_tasks=in_tasks, where=where), wanted)


def test_other_files_in_the_table_are_no_rows_of_it(spark: Any, tmp_path: Path) -> None:
    table = write(tmp_path, ALL_TYPES.select(["id"]), ALL_TYPES.select(["id"]))
    table.write(pa.table({"id": [9]}), mode="overwrite")
    check_both_ways(spark, table)


def test_rows_that_deletion_vectors_hide_are_not_read(spark: Any, tmp_path: Path) -> None:
    data = pa.table({"id": range(100), "k": [n % 3 for n in range(100)]})
    table = write(tmp_path, data, properties={"delta.enableDeletionVectors": "true"})
    table.delete("id % 2 = 0")
    assert table.files()["deletionVector"].null_count == 0
    check_both_ways(spark, table, sparks=False)
    check_both_ways(spark, table, where="k = 1", columns=["id"], sparks=False)


def test_mapped_columns_are_read_by_their_physical_names(spark: Any, tmp_path: Path) -> None:
    data = pa.table({"id": [1, 2], "old name": ["a", "b"], "p": ["x", "y"]})
    table = write(tmp_path, data, properties={"delta.columnMapping.mode": "name"}, partition_by=["p"])
    table.rename_column("old name", "new,name")
    table.rename_column("p", "q")
    table.write(pa.table({"id": [3], "new,name": ["c"], "q": ["x"]}))
    check_both_ways(spark, table, sparks=False)
    check_both_ways(spark, table, where="`new,name` > 'a' AND q = 'x'", columns=["new,name"], sparks=False)


def test_columns_with_any_name_can_be_selected(spark: Any, tmp_path: Path) -> None:
    table = write(tmp_path, pa.table({"a.b": [1], "c`d": [2], "e f": [3], "select": [4], "é": [5]}))
    check_both_ways(spark, table)
    check_both_ways(spark, table, columns=["é", "c`d", "a.b"], where="`e f` = 3")


def test_a_session_that_minds_case_finds_columns_all_the_same(spark: Any, tmp_path: Path) -> None:
    table = write(tmp_path, pa.table({"id": [0]}))
    with_file(table, "f.parquet", {}, pa.table({"ID": [1]}))
    for minds in ("false", "true"):
        with with_settings(spark, {"spark.sql.caseSensitive": minds}):
            check_both_ways(spark, table, sparks=minds == "false")


def test_void_and_variant_columns_reach_spark(spark: Any, shared_tables: Path, tmp_path: Path) -> None:
    folder = shared_tables / "kernel-rs-data" / "unshredded-variant"
    table = Table(folder)
    found = frame(spark, table)
    assert dict(found.dtypes)["v"] == "variant"
    names = ["v", "array_of_variants", "map_of_variants", "struct_of_variants"]
    wanted = table.to_arrow(columns=names)
    got = found.select(*names).collect()
    assert len(got) == wanted.num_rows
    variants = [None if row.v is None else (bytes(row.v.value), bytes(row.v.metadata)) for row in got]
    assert variants == [None if v is None else (v["value"], v["metadata"]) for v in wanted["v"].to_pylist()]
    lists = [None if row[1] is None else [v and bytes(v.value) for v in row[1]] for row in got]
    assert lists == [v and [x and x["value"] for x in v] for v in wanted["array_of_variants"].to_pylist()]

    empty = write(tmp_path, pa.table({"id": [1], "n": pa.nulls(1)}))
    assert frame(spark, empty).collect() == [(1, None)]


# Dates of another calendar


def test_old_dates_of_spark_2_are_what_the_file_says_either_way(spark: Any, tmp_path: Path) -> None:
    table = write(tmp_path, pa.table({"id": [0], "day": [datetime.date(2024, 1, 1)]}))
    data = pa.table({"id": [1], "day": [datetime.date(1200, 1, 1)]})
    by_spark_2 = data.replace_schema_metadata({"org.apache.spark.version": "2.4.8"})
    with_file(table, "old.parquet", {}, by_spark_2)
    check_both_ways(spark, table, sparks=False)
    check_both_ways(spark, table, columns=["id"])


@pytest.mark.parametrize(
    ("notes", "stats", "sparks"),
    [
        ({}, None, True),
        ({"org.apache.spark.version": "3.5.1"}, None, True),
        ({"org.apache.spark.version": "3.5.1", "org.apache.spark.legacyDateTime": ""}, None, False),
        ({"org.apache.spark.version": "2.4.8"}, '{"numRecords":1,"minValues":{"day":"1950-01-01"}}', True),
        ({"org.apache.spark.version": "2.4.8"}, '{"numRecords":1,"nullCount":{"day":1}}', True),
        ({"org.apache.spark.version": "2.4.8"}, '{"numRecords":1,"minValues":{"day":"1850-01-01"}}', False),
        ({"org.apache.spark.version": "3.0.3"}, None, False),
    ],
)
def test_who_wrote_a_file_matters_only_where_statistics_do_not_tell(
    spark: Any, tmp_path: Path, notes: dict[str, str], stats: str | None, sparks: bool
) -> None:
    table = write(tmp_path, pa.table({"id": [0], "day": [datetime.date(2024, 1, 1)]}))
    data = pa.table({"id": [1], "day": [datetime.date(1950, 1, 1)]}).replace_schema_metadata(notes)
    with_file(table, "old.parquet", {"stats": stats}, data)
    scan = ParquetScan.of(table.snapshot(), table.files(), table.snapshot().schema.fields, Settings())
    assert (scan is not None) == sparks


# Conditions


def days(count: int) -> pa.Table:
    start = datetime.datetime(2024, 1, 1, tzinfo=UTC)
    return pa.table(
        {
            "id": range(count),
            "p": [f"p{n // 10}" for n in range(count)],
            "ts": pa.array([start + datetime.timedelta(hours=n) for n in range(count)], pa.timestamp("us", "UTC")),
        }
    )


@pytest.mark.parametrize("in_tasks", [None, True])
@pytest.mark.parametrize(
    ("where", "left"),
    [
        ("p = 'p1'", 1),
        ("id BETWEEN 12 AND 15", 1),
        ("p IN ('p0', 'p2') AND id > 15", 1),
        ("ts >= '2024-01-01 20:00:00'", 1),
        ("cos(length(p)) >= -1 AND p = 'p1'", 1),
        ("upper(p) = 'P1'", None),
    ],
)
def test_files_that_cannot_match_are_not_opened(
    spark: Any, tmp_path: Path, where: str, left: int | None, in_tasks: bool | None
) -> None:
    table = write(tmp_path, days(30), partition_by=["p"])
    wanted = frame(spark, table, in_tasks=True).where(where).toArrow()
    if left is not None:
        early = understood(where, table.snapshot().schema, Settings())
        may = table.snapshot().match(early).may
        assert sum(may.to_pylist()) == left
        for path in table.files().filter(pa.compute.invert(may))["path"].to_pylist():
            (Path(table.uri.removeprefix("file://")) / path).unlink()
    assert rows(frame(spark, table, in_tasks=in_tasks, where=where).toArrow()) == rows(wanted)


def test_a_condition_means_what_the_session_means_by_it(spark: Any, tmp_path: Path) -> None:
    table = write(tmp_path, *(days(30).slice(n, 5) for n in range(0, 30, 5)))
    zone = spark.conf.get("spark.sql.session.timeZone")
    conditions = [
        "ts >= '2024-01-01 12:00:00'",
        "ts BETWEEN timestamp'2023-12-31 20:00:00' AND '2024-01-01T01:00:00'",
        "ts IN ('2024-01-01 03:00:00', timestamp'2024-01-01 04:00:00Z')",
        "hour(ts) = 3",
        "CAST(ts AS DATE) = '2023-12-31'",
        "ts > date'2024-01-01'",
        "date_trunc('DAY', ts) = '2024-01-01'",
        "NOT (ts < '2024-01-01') AND id < 20",
    ]
    try:
        for name in ("America/Los_Angeles", "Asia/Kolkata", "+03:00"):
            spark.conf.set("spark.sql.session.timeZone", name)
            for where in conditions:
                wanted = frame(spark, table).where(where).toArrow()
                assert rows(frame(spark, table, where=where).toArrow()) == rows(wanted), (name, where)
                assert rows(frame(spark, table, where=where, in_tasks=True).toArrow()) == rows(wanted), (name, where)
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


@pytest.mark.parametrize(
    ("where", "settings", "part"),
    [
        ("id > 5", Settings(), "id > 5"),
        ("id > 5 AND cos(length(p)) = 1", Settings(), "id > 5"),
        ("id > 5 OR cos(length(p)) = 1", Settings(), None),
        ("this is no condition", Settings(), None),
        ("CAST(p AS INT) = 1", Settings(), None),
        ("ts > current_timestamp()", Settings(), None),
        ('p = "id"', Settings(), "p = 'id'"),
        ('p = "id"', Settings(other_quotes=True), None),
        ("ts > '2024-06-01'", Settings(), "ts > '2024-06-01'"),
        ("ts > '2024-06-01'", Settings(zone="Europe/Berlin"), "ts > TIMESTAMP '2024-05-31 22:00:00.000000Z'"),
        ("ts > '2024-06-01 00:00:00Z'", Settings(zone="Europe/Berlin"), "ts > '2024-06-01 00:00:00Z'"),
        ("ts > '2024-06-01'", Settings(zone="Nowhere/At All"), None),
        ("ts IS NOT NULL AND id = 1", Settings(zone="Europe/Berlin"), "NOT ts IS NULL AND id = 1"),
        ("hour(ts) = 1", Settings(zone="Europe/Berlin"), None),
        ("ts > date'2024-06-01'", Settings(zone="Europe/Berlin"), None),
    ],
)
def test_only_what_is_judged_alike_is_judged_early(where: str, settings: Settings, part: str | None) -> None:
    schema = StructType.from_json(
        {"type": "struct", "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in (("id", "long"), ("p", "string"), ("ts", "timestamp"))
        ]}
    )  # fmt: skip
    assert understood(where, schema, settings) == part


# Splits


def test_splits_have_about_the_same_size() -> None:
    sizes = pa.array([5, 5, 5, 1, 1, 1, 1, 1, 20, 5]).to_numpy()
    assert [(a, b) for a, b in runs(sizes, 10)] == [(0, 2), (2, 8), (8, 9), (9, 10)]
    assert list(runs(sizes[:0], 10)) == []


@pytest.mark.parametrize("stated", [1.0, 0.2, 3.0])
def test_a_large_file_is_cut_at_its_row_groups_and_no_row_is_lost_or_doubled(tmp_path: Path, stated: float) -> None:
    data = pa.table({"id": range(10_000), "s": [f"text {n * 7919 % 10_007}" for n in range(10_000)]})
    (tmp_path / "table").mkdir()
    table = write(tmp_path, data.slice(0, 0))
    path = Path(table.uri.removeprefix("file://")) / "big.parquet"
    pq.write_table(data, path, row_group_size=500)
    files = pa.Table.from_pylist(
        [{"path": "big.parquet", "size": int(path.stat().st_size * stated)}, {"path": "big.parquet", "size": 10}]
    )
    for name in ("partitionValues", "deletionVector"):
        files = files.append_column(name, pa.nulls(2, table.files().schema.field(name).type))
    splits = file_splits(files, max_bytes=path.stat().st_size // 7)
    assert len(splits) > 1
    task = ScanTask(store=StoreSpec(uri=table.uri), spec=read_spec(table.snapshot()))
    found = pa.concat_tables(pa.Table.from_batches([b]) for split in splits for b in task.read(split))
    assert sorted(found["id"].to_pylist()) == sorted([*range(10_000), *range(10_000)])


# Through Table


def test_time_travel_by_version_and_timestamp(spark: Any, tmp_path: Path) -> None:
    table = write(tmp_path, pa.table({"id": [1]}), pa.table({"id": [2]}))
    moment = table.history()[-1]["timestamp"]
    assert table.to_spark(spark).count() == 2
    assert table.to_spark(spark, version=0).collect() == [(1,)]
    assert table.to_spark(spark, timestamp=moment).collect() == [(1,)]
    assert table.to_spark(spark, where="id > 1", columns=["id"]).collect() == [(2,)]


def test_the_change_feed_is_the_same_in_spark(spark: Any, tmp_path: Path) -> None:
    on = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}
    table = write(tmp_path, pa.table({"id": range(10), "p": ["x", "y"] * 5}), properties=on, partition_by=["p"])
    table.write(pa.table({"id": [10], "p": ["x"]}))
    table.delete("id < 4")
    table.write(pa.table({"id": [11], "p": ["x"], "more": [True]}), merge_schema=True)
    for start, end in ((0, None), (1, 2), (2, 2)):
        check(table.changes_spark(spark, start, end), table.changes(start, end))


def test_a_column_that_is_not_there_is_named(spark: Any, tmp_path: Path) -> None:
    table = write(tmp_path, pa.table({"id": [1]}))
    with pytest.raises(InvalidArgument, match="no column 'nope'") as caught:
        table.to_spark(spark, columns=["nope"])
    assert caught.value.table == table.uri


@pytest.mark.parametrize("columns", [["id"], None])
def test_a_table_that_lost_a_file_says_which(spark: Any, tmp_path: Path, columns: list[str] | None) -> None:
    table = write(tmp_path, pa.table({"id": [1], "p": ["a b"]}), pa.table({"id": [2], "p": ["c"]}), partition_by=["p"])
    name = table.files()["path"].to_pylist()[0]
    (tmp_path / "table" / unquote(name)).unlink()
    with pytest.raises(DataFileMissing) as caught, recovered():
        found = table.to_spark(spark, columns=columns)
        assert minds_case(spark), "it is said at once, where no task has to find out"
        found.collect()
    assert (caught.value.table, caught.value.file, caught.value.version) == (table.uri, name, 1)
    other = "p = 'c'" if "a%20b" in name or "a b" in name else "p = 'a b'"
    assert table.to_spark(spark, where=other).count() == 1


def test_a_task_that_misses_a_file_names_the_version_too(spark: Any, tmp_path: Path) -> None:
    table = write(tmp_path, pa.table({"id": [1]}), pa.table({"id": [2]}))
    lost = table.files()["path"].to_pylist()[0]
    (tmp_path / "table" / lost).unlink()
    lakeseal.register(spark)
    for df in (frame(spark, table, in_tasks=True), spark.read.format("lakeseal").load(table.uri)):
        with pytest.raises(DataFileMissing) as caught, recovered():
            df.collect()
        assert (caught.value.table, caught.value.file, caught.value.version) == (table.uri, lost, 1)


@pytest.mark.parametrize("in_tasks", [None, True])
def test_a_file_that_is_lost_after_planning_is_named_too(spark: Any, tmp_path: Path, in_tasks: bool | None) -> None:
    table = write(tmp_path, pa.table({"id": [1]}), pa.table({"id": [2]}))
    df = frame(spark, table, in_tasks=in_tasks)
    name = table.files()["path"].to_pylist()[0]
    (tmp_path / "table" / name).unlink()
    with pytest.raises(DataFileMissing) as caught, recovered():
        df.collect()
    assert (caught.value.table, caught.value.file) == (table.uri, name)


@pytest.mark.parametrize("in_tasks", [None, True])
def test_a_missing_file_is_an_error_whatever_the_session_ignores(
    spark: Any, tmp_path: Path, in_tasks: bool | None
) -> None:
    table = write(tmp_path, pa.table({"id": [1]}), pa.table({"id": [2]}))
    df = frame(spark, table, in_tasks=in_tasks)
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        (Path(table.uri.removeprefix("file://")) / table.files()["path"][0].as_py()).unlink()
        with pytest.raises(Exception, match=r"FILE_NOT_EXIST|FileNotFound|DataFileMissing|does not exist"):
            df.count()
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")


def test_a_scan_leaves_the_session_as_it_was(spark: Any, tmp_path: Path) -> None:
    name = "spark.sql.sources.parallelPartitionDiscovery.threshold"
    table = write(tmp_path, pa.table({"id": [1]}))
    before = spark.conf.get(name)
    assert is_sparks(frame(spark, table)) or minds_case(spark)
    assert spark.conf.get(name) == before
    spark.conf.set(name, "7")
    try:
        frame(spark, table)
        assert spark.conf.get(name) == "7"
    finally:
        spark.conf.unset(name)


def test_a_table_on_s3_is_read_without_a_jar(spark: Any) -> None:
    with s3_server() as s3:
        table = Table(s3.uri("table"), storage_options=s3.storage_options)
        table.write(pa.table({"id": range(20), "p": ["a/b", "é"] * 10}), partition_by=["p"])
        table.write(pa.table({"id": [20], "p": [None]}))
        found = table.to_spark(spark, where="id >= 10")
        assert not is_sparks(found)
        check(found, table.to_arrow(where="id >= 10"))
        assert table.to_spark(spark).count() == 21


def test_frames_that_are_made_at_one_time_leave_the_session_as_it_was(spark: Any, tmp_path: Path) -> None:
    table = write(tmp_path, pa.table({"id": [1, 2, 3]}))
    name = "spark.sql.sources.parallelPartitionDiscovery.threshold"
    before = spark.conf.get(name, None)
    with ThreadPoolExecutor(8) as pool:
        frames = list(pool.map(lambda _: frame(spark, table), range(40)))
    assert all(is_sparks(df) for df in frames)
    assert spark.conf.get(name, None) == before


# Tables that others wrote


def test_tables_of_other_clients_have_the_same_rows_in_spark(spark: Any, shared_tables: Path) -> None:
    ways = {True: 0, False: 0}
    differ = []
    for folder in sorted({path.parent for path in shared_tables.rglob("_delta_log")}):
        table = Table(folder)
        try:
            snapshot = table.snapshot()
            wanted = Scan(snapshot, open_store(table.uri)).to_arrow()
        except LakesealError:
            continue  # what cannot be read is another test's business
        if any("variant" in str(field.type) for field in snapshot.schema.fields):
            continue  # Spark's way to Arrow fails on them; they have a test of their own
        scan = ParquetScan.of(snapshot, snapshot.files, snapshot.schema.fields, Settings())
        ways[scan is not None] += 1
        for in_tasks in (None, True) if scan is not None else (None,):
            found = frame(spark, table, in_tasks=in_tasks).toArrow()
            if found.column_names != wanted.column_names or rows(found) != rows(wanted):
                differ.append((str(folder.relative_to(shared_tables)), in_tasks))
    assert differ == []
    assert min(ways.values()) > 10, ways
