"""Writing through `Table` without Spark: modes, schemas, properties, constraints, conversion."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from lakeseal import Table, convert, create, errors
from lakeseal.commands.command import NothingToDo
from lakeseal.commit.transaction import CommitResult
from lakeseal.log.snapshot import Snapshot
from support.rows import rows


def numbers(*values: int, day: str | None = None) -> pa.Table:
    days = [day or f"d{v % 3}" for v in values]
    return pa.table({"id": pa.array(values, pa.int64()), "day": pa.array(days, pa.string())})


def ids(table: Table) -> list[int]:
    return sorted(table.to_arrow()["id"].to_pylist())


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table(tmp_path / "table")
    table.write(numbers(1, 2, 3, 4), partition_by="day")
    return table


def seen_by_deltalake(table: Table) -> Any:
    return rows(pa.table(DeltaTable(table.uri.removeprefix("file://")).to_pyarrow_table()))


def test_a_first_write_creates_the_table(tmp_path: Path) -> None:
    table = Table(tmp_path / "new")
    assert not table.exists()
    result = table.write(numbers(1, 2), partition_by=["day"], properties={"delta.appendOnly": "true"})
    assert isinstance(result, CommitResult)
    assert result.version == 0
    assert table.snapshot().partition_columns == ("day",)
    assert table.snapshot().properties.append_only
    assert ids(table) == [1, 2]


def test_a_frame_of_pandas_is_written_without_the_numbers_of_its_rows(tmp_path: Path) -> None:
    table = Table(tmp_path / "frame")
    frame = pd.DataFrame({"id": [1, 2, 3], "name": ["a", None, "c"]})
    table.write(frame)
    table.write(frame[frame["id"] > 1])
    table.merge(frame[frame["id"] == 3], "t.id = s.id").when_matched_delete().execute()
    table.write(frame[:1].set_index("name"))
    assert table.schema().names == ["id", "name"]
    assert ids(table) == [1, 1, 2, 2]


FRAMES = {
    "counted": pd.DataFrame({"v": [1.5, 2.5]}, index=pd.RangeIndex(10, 14, 2, name="n")),
    "backwards": pd.DataFrame({"v": [1.5, 2.5]}, index=pd.RangeIndex(1, -1, -1, name="n")),
    "counted, cut": pd.DataFrame({"v": range(9)}, index=pd.RangeIndex(9, name="n"))[3:8:2],
    "nothing else": pd.DataFrame(index=pd.RangeIndex(3, name="n")),
    "without rows": pd.DataFrame({"v": pd.Series([], dtype="int64")}, index=pd.RangeIndex(0, name="n")),
    "texts": pd.DataFrame({"v": [1, 2]}, index=pd.Index(["a", None], name="k")),
    "moments": pd.DataFrame({"v": [1, 2]}, index=pd.date_range("2024-03-31", periods=2, tz="Europe/Paris", name="at")),
    "several": pd.DataFrame({"v": range(4)}, index=pd.MultiIndex.from_product([["a", "b"], [1, 2]], names=["k", "n"])),
    "named like Arrow's": pd.DataFrame({"v": [1]}, index=pd.Index([7], name="__index_n")),
}


@pytest.mark.parametrize("name", FRAMES)
def test_an_index_with_a_name_is_a_column(tmp_path: Path, name: str) -> None:
    frame, table = FRAMES[name], Table(tmp_path / "frame")
    table.write(frame)
    wanted = pa.Table.from_pandas(frame.reset_index(), preserve_index=False).select(table.schema().names)
    assert table.schema().names == [*frame.columns, *frame.index.names]
    assert rows(table.to_arrow()) == rows(wanted)
    same = " AND ".join(f"t.`{one}` = s.`{one}`" for one in frame.index.names)
    table.merge(frame, same).when_matched_delete().execute()
    assert table.to_arrow().num_rows == sum(frame.index.to_frame().isna().any(axis=1))


def test_a_level_of_an_index_without_a_name_is_no_column(tmp_path: Path) -> None:
    table = Table(tmp_path / "frame")
    table.write(pd.DataFrame({"v": [1, 2]}, index=pd.MultiIndex.from_tuples([(1, "a"), (2, "b")], names=[None, "k"])))
    assert table.to_arrow().to_pylist() == [{"v": 1, "k": "a"}, {"v": 2, "k": "b"}]


def test_an_index_with_the_name_of_a_column_is_that_column_or_refused(tmp_path: Path) -> None:
    frame, table = pd.DataFrame({"k": ["a", "b"], "v": [1, 2]}), Table(tmp_path / "frame")
    table.write(frame.set_index("k", drop=False))
    assert table.to_arrow().to_pylist() == [{"k": "a", "v": 1}, {"k": "b", "v": 2}]
    for index in (pd.Index(["x", "y"], name="k"), pd.RangeIndex(2, name="v")):
        with pytest.raises(errors.InvalidArgument, match="name of a column, and other values") as refused:
            table.write(frame.set_index(index))
        assert refused.value.column == index.name
    assert table.version() == 0


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"a": ["x", 1]}),
        pd.DataFrame([[1, 2]], columns=["a", "a"]),
        pd.DataFrame({"a": [1j]}),
        pd.DataFrame({"a": [2**70]}),
    ],
)
def test_a_frame_that_arrow_cannot_hold_is_refused(tmp_path: Path, frame: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match="cannot be read as Arrow"):
        Table(tmp_path / "frame").write(frame)


def test_a_period_of_pandas_is_no_number(tmp_path: Path) -> None:
    with pytest.raises(errors.LakesealError, match="period"):
        Table(tmp_path / "frame").write(pd.DataFrame({"a": pd.period_range("2024", periods=2, freq="D")}))


def test_batches_in_a_list_are_a_table(tmp_path: Path) -> None:
    batches = pa.table({"id": [1, 2, 3]}).to_batches(max_chunksize=2)
    made = Table(tmp_path / "made")
    made.write(batches)
    made.merge(batches[:1], "t.id = s.id").when_matched_delete().execute()
    assert made.to_arrow()["id"].to_pylist() == [3]
    with pytest.raises(errors.InvalidArgument, match="in common"):
        made.write([*batches, pa.record_batch({"other": [1]})])
    with pytest.raises(errors.InvalidArgument, match="list"):
        made.write([])


def test_numbers_that_only_duckdb_can_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.UnsupportedType, match="opaque") as refused:
        Table(tmp_path / "made").write(duckdb.sql("SELECT 123::BIGNUM AS n"))
    assert refused.value.column == "n"


@pytest.mark.parametrize("kind", ["string", "binary"])
def test_rows_whose_partition_was_generated_empty_can_be_changed(tmp_path: Path, kind: str) -> None:
    schema = pa.schema({"id": pa.int64(), "code": pa.string(), "p": pa.string() if kind == "string" else pa.binary()})
    made = create(
        tmp_path / "made", schema, partition_by="p", generated={"p": f"CAST(substring(code, 1, 1) AS {kind})"}
    )
    made.write(pa.table({"id": [1, 2, 3], "code": ["", None, "ab"]}))
    assert made.to_arrow(where="p IS NULL").num_rows == 2
    made.update({"id": "id + 10"}, "id = 2")  # the other row of the file is written again
    made.update({"id": "id + 10"}, "id = 1")
    made.merge(pa.table({"id": [4], "code": [""]}), "t.id = s.id").when_not_matched_insert(
        {"id": "s.id", "code": "s.code"}
    ).execute()
    made.write(made.to_arrow(), mode="overwrite")
    assert sorted(made.to_arrow()["id"].to_pylist()) == [3, 4, 11, 12]
    with pytest.raises(errors.ConstraintViolation, match="Generated column"):
        made.write(pa.table({"id": [5], "code": ["ab"], "p": pa.array([None], schema.field("p").type)}))


def test_vectors_of_a_fixed_length_are_read_again_beside_ones_that_are_missing(tmp_path: Path) -> None:
    rows: list[list[float] | None] = [[0.5, 1.0], None, None, [2.0, 4.0]]
    embeddings = pa.array(rows, pa.list_(pa.float32(), 2)).cast(pa.list_(pa.float16(), 2))
    made = Table(tmp_path / "made")
    made.write(pa.table({"e": embeddings}))
    made.write(pl.DataFrame({"e": rows}, schema={"e": pl.Array(pl.Float64, 2)}).cast(pl.Array(pl.Float32, 2)))
    assert made.to_arrow()["e"].to_pylist() == rows * 2
    write_deltalake(str(tmp_path / "others"), pa.table({"e": pa.array(rows, pa.list_(pa.float32(), 2))}))
    found = Table(tmp_path / "others").to_arrow(where="array_contains(e, CAST(2.0 AS FLOAT))")
    assert found["e"].to_pylist() == [[2.0, 4.0]]


def test_error_and_ignore_leave_a_table_alone(table: Table) -> None:
    with pytest.raises(errors.AlreadyExists):
        table.write(numbers(9), mode="error")
    assert isinstance(table.write(numbers(9), mode="ignore"), NothingToDo)
    assert table.version() == 0


def test_overwrite_replaces_everything_and_keeps_the_old_version(table: Table) -> None:
    table.write(numbers(9), mode="overwrite")
    assert ids(table) == [9]
    assert table.to_arrow(version=0).num_rows == 4


def test_replace_where_replaces_partitions_without_reading_them(table: Table, tmp_path: Path) -> None:
    for file in (tmp_path / "table").rglob("day=d1/*.parquet"):
        file.unlink()
    table.write(numbers(10, 13, day="d1"), mode="overwrite", replace_where="day = 'd1'")
    assert ids(table) == [2, 3, 10, 13]


def test_replace_where_on_data_rewrites_only_files_that_have_both_kinds_of_rows(table: Table) -> None:
    before = set(table.files()["path"].to_pylist())
    table.write(numbers(4, day="d1"), mode="overwrite", replace_where="id >= 4")
    after = set(table.files()["path"].to_pylist())
    assert ids(table) == [1, 2, 3, 4]
    assert len(before & after) == 2
    assert seen_by_deltalake(table) == rows(table.to_arrow())


def test_replace_where_refuses_rows_outside_of_it(table: Table) -> None:
    with pytest.raises(errors.ConstraintViolation, match="id: 7"):
        table.write(numbers(4, 7), mode="overwrite", replace_where="id = 4")
    assert table.version() == 0


def test_dynamic_overwrite_replaces_only_partitions_that_get_rows(table: Table) -> None:
    table.write(numbers(7, 10, day="d1"), mode="overwrite", partition_overwrite="dynamic")
    assert ids(table) == [2, 3, 7, 10]
    table.write(numbers().slice(0, 0), mode="overwrite", partition_overwrite="dynamic")
    assert ids(table) == [2, 3, 7, 10]


def test_dynamic_overwrite_knows_a_partition_by_its_value_however_its_text_is_written(tmp_path: Path) -> None:
    at = [datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC), datetime(2024, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)]
    kept = {"at": [None, *at], "share": [Decimal("1.50")] * 3, "id": [0, 1, 2]}
    types = pa.schema([("at", pa.timestamp("us", "UTC")), ("share", pa.decimal128(5, 2)), ("id", pa.int64())])
    write_deltalake(tmp_path / "other", pa.table(kept, types), partition_by=["at", "share"])
    table = Table(tmp_path / "other")
    log = tmp_path / "other" / "_delta_log" / f"{0:020}.json"
    for written, other in (("1.50", "1.5"), (r"2024-01-02[ T]03:04:05[.0]*Z?", "2024-01-02 03:04:05")):
        log.write_text(re.sub(rf':"{written}"', f':"{other}"', log.read_text()))
    table.write(pa.table({**kept, "id": [10, 11, 12]}, types), mode="overwrite", partition_overwrite="dynamic")
    assert ids(table) == [10, 11, 12]


def test_a_transaction_that_the_table_has_seen_does_nothing(table: Table) -> None:
    assert isinstance(table.write(numbers(5), txn=("job", 3)), CommitResult)
    for version in (3, 2):
        assert isinstance(table.write(numbers(5), txn=("job", version)), NothingToDo)
    assert isinstance(table.write(numbers(6), txn=("job", 4)), CommitResult)
    assert ids(table) == [1, 2, 3, 4, 5, 6]
    assert table.snapshot().txns["job"].version == 4


@pytest.mark.parametrize("txn", [("app", "1"), ("app", True), (1, 1), "ap", ("app",)])
def test_a_transaction_is_a_name_and_a_number(table: Table, txn: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match="txn"):
        table.write(pa.table({"id": [1]}), txn=txn)


def test_names_match_in_any_case_and_order(table: Table) -> None:
    table.write(pa.table({"DAY": ["d5"], "Id": pa.array([5], pa.int32())}))
    assert ids(table) == [1, 2, 3, 4, 5]
    assert table.schema().names == ["id", "day"]


def test_missing_columns_become_null(table: Table) -> None:
    table.write(pa.table({"id": [5]}))
    assert table.to_arrow(where="id = 5")["day"].to_pylist() == [None]


def test_new_columns_need_merge_schema(table: Table) -> None:
    wide = numbers(5).append_column("extra", pa.array([1.5]))
    with pytest.raises(errors.SchemaMismatch, match="extra"):
        table.write(wide)
    assert table.version() == 0
    table.write(wide, merge_schema=True)
    assert table.schema().names == ["id", "day", "extra"]
    assert table.to_arrow(where="id = 1")["extra"].to_pylist() == [None]
    assert seen_by_deltalake(table) == rows(table.to_arrow())


def test_overwrite_schema_replaces_columns_and_partitioning(table: Table) -> None:
    table.write(pa.table({"a": ["x"]}), mode="overwrite", overwrite_schema=True, partition_by=())
    assert table.schema().names == ["a"]
    assert table.snapshot().partition_columns == ()
    assert table.snapshot(0).schema.names == ("id", "day")
    assert table.to_arrow(version=0).num_rows == 4


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda t: t.write(numbers(1), mode="upsert"), errors.InvalidArgument),
        (lambda t: t.write(numbers(1), partition_by="id"), errors.InvalidArgument),
        (lambda t: t.write(numbers(1), replace_where="id = 1"), errors.InvalidArgument),
        (lambda t: t.write(numbers(1), overwrite_schema=True), errors.InvalidArgument),
        (lambda t: t.write([1, 2, 3]), errors.InvalidArgument),
        (lambda t: t.write(pa.table({"id": ["x"], "day": ["d"]})), errors.LakesealError),
        (lambda t: t.write(pa.table({"id": [[1]], "day": ["d"]})), errors.SchemaMismatch),
        (lambda t: t.set_properties({"delta.apendOnly": "true"}), errors.InvalidArgument),
        (lambda t: t.set_properties({"delta.checkpointInterval": "often"}), errors.InvalidArgument),
        (lambda t: t.drop_column("id"), errors.InvalidArgument),
        (lambda t: t.add_columns(pa.schema([("id", pa.int8())])), errors.InvalidArgument),
        (lambda t: t.add_constraint("few", "id < 3"), errors.ConstraintViolation),
        (lambda t: t.add_constraint("odd", "nope > 3"), errors.InvalidExpression),
        (lambda t: t.drop_constraint("none"), errors.InvalidArgument),
    ],
)
def test_what_is_refused_changes_nothing(
    table: Table, change: Callable[[Table], Any], error: type[errors.LakesealError]
) -> None:
    with pytest.raises(error):
        change(table)
    assert table.version() == 0
    assert ids(table) == [1, 2, 3, 4]


def test_constraints_are_kept_by_every_later_write(table: Table) -> None:
    table.add_constraint("positive", "id > 0")
    with pytest.raises(errors.ConstraintViolation, match="positive") as raised:
        table.write(numbers(5, -6))
    assert "-6" in str(raised.value)
    table.drop_constraint("positive")
    table.write(numbers(-6))
    assert -6 in ids(table)


def test_not_null_columns_refuse_nulls(tmp_path: Path) -> None:
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), pa.field("s", pa.struct([pa.field("x", pa.int32())]))]
    )
    table = create(tmp_path / "table", schema)
    with pytest.raises(errors.ConstraintViolation, match="id"):
        table.write(pa.table({"id": pa.array([1, None], pa.int64())}))
    assert table.version() == 0


def test_columns_can_be_renamed_and_dropped_under_column_mapping(table: Table) -> None:
    table.set_properties({"delta.columnMapping.mode": "name"})
    table.rename_column("id", "number")
    table.add_columns(pa.schema([("note", pa.string())]))
    table.write(pa.table({"number": [5], "day": ["d2"], "note": ["new"]}))
    assert sorted(table.to_arrow()["number"].to_pylist()) == [1, 2, 3, 4, 5]
    table.drop_column("note")
    assert table.schema().names == ["number", "day"]
    table.add_columns(pa.schema([("note", pa.int32())]))
    assert set(table.to_arrow()["note"].to_pylist()) == {None}
    assert table.to_arrow(version=0)["id"].to_pylist()


def test_every_type_round_trips_and_is_read_alike_by_deltalake(tmp_path: Path) -> None:
    data = pa.table(
        {
            "byte": pa.array([1, None], pa.int8()),
            "short": pa.array([1, None], pa.int16()),
            "int": pa.array([1, None], pa.int32()),
            "long": pa.array([2**62, None], pa.int64()),
            "float": pa.array([1.5, None], pa.float32()),
            "double": pa.array([float("inf"), None], pa.float64()),
            "bool": pa.array([True, None]),
            "string": pa.array(["é", None]),
            "binary": pa.array([b"\x00\xff", None]),
            "date": pa.array([date(1, 1, 1), None]),
            "decimal": pa.array([Decimal("123.45"), None], pa.decimal128(20, 2)),
            "ts": pa.array([1_700_000_000_123_456, None], pa.timestamp("us", "UTC")),
            "ntz": pa.array([1_700_000_000_123_456, None], pa.timestamp("us")),
            "list": pa.array([[1, None], None], pa.list_(pa.int32())),
            "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
            "struct": pa.array([{"x": 1, "y": "z"}, None], pa.struct([("x", pa.int32()), ("y", pa.string())])),
        }
    )
    table = Table(tmp_path / "table")
    table.write(data)
    assert rows(table.to_arrow()) == rows(data)
    assert seen_by_deltalake(table) == rows(data)
    stats = json.loads(table.files()["stats"][0].as_py())
    assert stats["numRecords"] == 2
    assert stats["nullCount"]["long"] == 1


def test_tables_written_by_deltalake_are_appended_to(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "theirs", numbers(1, 2), partition_by=["day"])
    table = Table(tmp_path / "theirs")
    table.write(numbers(3))
    write_deltalake(tmp_path / "theirs", numbers(4), mode="append")
    assert ids(table) == [1, 2, 3, 4]
    assert seen_by_deltalake(table) == rows(table.to_arrow())


def test_a_parquet_directory_becomes_a_table_in_place(tmp_path: Path) -> None:
    for year in (2023, 2024):
        folder = tmp_path / "files" / f"year={year}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"id": [year, year + 1]}), folder / "a b.parquet")
    (tmp_path / "files" / "_SUCCESS").touch()
    before = sorted((tmp_path / "files").rglob("*.parquet"))
    table = convert(tmp_path / "files", partition_by={"year": pa.int32()})
    assert sorted((tmp_path / "files").rglob("*.parquet")) == before
    assert sorted(table.to_arrow(where="year = 2024")["id"].to_pylist()) == [2024, 2025]
    assert table.to_arrow(where="id > 2024").num_rows == 1
    assert seen_by_deltalake(table) == rows(table.to_arrow())
    with pytest.raises(errors.AlreadyExists):
        convert(tmp_path / "files", partition_by=["year"])


def test_converting_without_naming_the_partition_columns_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p=1").mkdir()
    pq.write_table(numbers(1), tmp_path / "p=1" / "a.parquet")
    with pytest.raises(errors.InvalidArgument, match="partition_by"):
        convert(tmp_path)
    assert not Table(tmp_path).exists()


def test_create_makes_an_empty_table_once(tmp_path: Path) -> None:
    table = create(tmp_path / "table", numbers().schema, partition_by="day", properties={"delta.checkpointInterval": 5})
    assert isinstance(table.snapshot(), Snapshot)
    assert table.to_arrow().num_rows == 0
    assert table.snapshot().properties.checkpoint_interval == 5
    with pytest.raises(errors.AlreadyExists):
        create(tmp_path / "table", numbers().schema)


def test_small_files_come_from_the_limits_asked_for(tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    table.write(numbers(*range(100), day="d"), max_records_per_file=30)
    assert table.files().num_rows == 4
    assert ids(table) == list(range(100))


@pytest.mark.parametrize("shape", ["{}", "[{{'x': {}}}]", "map {{{}: 1}}"])
def test_a_decimal_with_more_digits_than_its_type_is_refused(tmp_path: Path, shape: str) -> None:
    table = Table(tmp_path / "t")
    table.write(duckdb.sql(f"SELECT 1 AS n, {shape.format('99::HUGEINT')} AS a"))
    largest = f"{2**127 - 1}::HUGEINT"
    for value in (largest, f"-{largest}"):
        with pytest.raises(errors.InvalidInput, match="has more digits than 38") as refused:
            table.write(duckdb.sql(f"SELECT 1 AS n, {shape.format(value)} AS a"))
        assert refused.value.column == "a"
    most = shape.format(f"-{'9' * 38}::HUGEINT")
    table.write(duckdb.sql(f"SELECT 1 AS n, {most} AS a"), mode="overwrite")
    assert str(table.to_arrow()["a"].to_pylist()[0]).count("9") == 38
    assert table.version() == 1


def test_addresses_of_pythons_objects_are_not_written(tmp_path: Path) -> None:
    frame = pl.DataFrame({"n": [1], "a": pl.Series([{1, 2}], dtype=pl.Object)})
    with pytest.raises(errors.InvalidArgument, match="objects cannot be written") as refused:
        Table(tmp_path / "t").write(frame)
    assert refused.value.column == "a"
    assert not Table(tmp_path / "t").exists()
