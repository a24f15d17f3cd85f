"""What `lakeseal.create` takes: defaults, generated and identity columns, constraints, comments."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeseal
from lakeseal.errors import (
    ConstraintViolation,
    InvalidArgument,
    InvalidExpression,
    LakesealError,
    MetadataChangedException,
    SchemaMismatch,
    UnsupportedExpression,
)
from lakeseal.protocol.identity import identity_columns
from lakeseal.protocol.schema import StructType

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int32()), ("s", pa.string()), ("twice", pa.int64())])


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int32())})


def made(path: Path, **says: Any) -> lakeseal.Table:
    return lakeseal.create(path / "t", SCHEMA, **says)


def test_new_rows_get_what_they_do_not_say(tmp_path: Path) -> None:
    table = made(tmp_path, identity="id", defaults={"s": "upper('new')"}, generated={"twice": "CAST(n AS BIGINT) * 2"})

    table.write(numbers(7, 8))
    table.write(pa.table({"n": pa.array([9], pa.int32()), "s": pa.array([None], pa.string())}))

    assert table.to_arrow().sort_by("id").to_pylist() == [
        {"id": 1, "n": 7, "s": "NEW", "twice": 14},
        {"id": 2, "n": 8, "s": "NEW", "twice": 16},
        {"id": 3, "n": 9, "s": None, "twice": 18},
    ]
    assert {"identityColumns", "allowColumnDefaults", "generatedColumns"} <= set(
        table.snapshot().protocol.writer_features or ()
    )


def test_constraints_and_comments_are_there_from_the_first_row(tmp_path: Path) -> None:
    table = made(tmp_path, constraints={"positive": "n > 0"}, comments={"n": "how many"}, comment="numbers")

    with pytest.raises(ConstraintViolation, match="positive"):
        table.write(numbers(0))

    assert table.version() == 0
    assert table.snapshot().metadata.description == "numbers"
    assert table.snapshot().schema.fields[1].metadata == {"comment": "how many"}


@pytest.mark.parametrize(
    ("says", "error"),
    [
        ({"defaults": {"n": "'x'"}}, SchemaMismatch),
        ({"defaults": {"n": "s"}}, InvalidExpression),
        ({"defaults": {"none": "1"}}, InvalidArgument),
        ({"defaults": {"n": "percentile(1)"}}, InvalidExpression),
        ({"defaults": {"s": "CAST(cos(0) AS STRING)"}}, UnsupportedExpression),
        ({"generated": {"twice": "n * 2"}}, SchemaMismatch),
        ({"generated": {"twice": "CAST(twice AS BIGINT)"}}, InvalidExpression),
        ({"generated": {"twice": "CAST(n AS BIGINT)"}, "defaults": {"twice": 1}}, InvalidArgument),
        ({"identity": "n"}, InvalidArgument),
        ({"identity": {"id": lakeseal.Identity()}, "generated": {"twice": "id"}}, InvalidExpression),
        ({"constraints": {"c": "n + 1"}}, InvalidArgument),
        ({"comments": {"none": "x"}}, InvalidArgument),
    ],
)
def test_a_definition_that_no_row_could_keep_makes_no_table(tmp_path: Path, says: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        made(tmp_path, **says)

    assert not lakeseal.Table(tmp_path / "t").exists()


def test_a_step_of_zero_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="step"):
        lakeseal.Identity(step=0)


def test_identities_count_in_steps_and_go_on_where_they_stopped(tmp_path: Path) -> None:
    table = made(tmp_path, identity={"id": lakeseal.Identity(start=100, step=-10)})

    table.write(numbers(1, 2))
    table.write(numbers(3))
    table.write(pa.table({"n": pa.array([], pa.int32())}))

    assert sorted(table.to_arrow()["id"].to_pylist()) == [80, 90, 100]
    (column,) = identity_columns(table.snapshot().schema)
    assert (column.mark, column.next) == (80, 70)


@pytest.mark.parametrize("mapping", ["none", "name"])
def test_no_identity_is_given_twice_though_an_older_version_comes_back(tmp_path: Path, mapping: str) -> None:
    table = made(tmp_path / "t", identity="id", properties={"delta.columnMapping.mode": mapping})
    table.write(numbers(1, 2))
    table.write(numbers(3, 4))
    if mapping == "name":
        table.rename_column("id", "number")

    table.restore(1)
    table.write(numbers(5))

    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2, 5]


def test_a_clone_that_follows_its_source_gives_no_identity_twice(tmp_path: Path) -> None:
    table = made(tmp_path / "t", identity="id")
    table.write(numbers(1))
    table.clone(tmp_path / "deep", deep=True)
    clone = lakeseal.Table(tmp_path / "deep")
    clone.write(numbers(7, 8))
    table.write(numbers(2))
    table.clone(tmp_path / "deep", deep=True)
    clone.write(numbers(9))

    assert {row["n"]: row["id"] for row in clone.to_arrow().to_pylist()} == {1: 1, 2: 2, 9: 4}


def test_only_where_it_is_allowed_do_rows_bring_their_own_identity(tmp_path: Path) -> None:
    always = made(tmp_path / "always", identity="id")
    default = made(tmp_path / "default", identity={"id": lakeseal.Identity(always=False)})
    given = pa.table({"id": pa.array([50, None], pa.int64()), "n": pa.array([1, 2], pa.int32())})

    with pytest.raises(InvalidArgument, match="GENERATED ALWAYS"):
        always.write(given)
    default.write(given)
    default.write(numbers(3))

    assert sorted(default.to_arrow()["id"].to_pylist()) == [1, 2, 50]


def test_an_identity_stays_with_its_row_through_every_change(tmp_path: Path) -> None:
    for vectors in ("true", "false"):
        table = made(
            tmp_path / vectors,
            identity="id",
            properties={"delta.enableDeletionVectors": vectors, "delta.enableChangeDataFeed": "true"},
        )
        table.write(numbers(1, 2, 3, 4))
        before = {row["n"]: row["id"] for row in table.to_arrow().to_pylist()}

        table.update({"s": "'u'"}, "n = 2")
        table.delete("n = 3")
        merge = table.merge(numbers(4, 5), "t.n = s.n").when_matched_update({"s": "'m'"})
        merge.when_not_matched_insert({"n": "s.n"}).execute()
        table.optimize()

        after = {row["n"]: row["id"] for row in table.to_arrow().to_pylist()}
        assert after == {1: before[1], 2: before[2], 4: before[4], 5: 5}
        inserted = [row for row in table.changes(1).to_pylist() if row["_change_type"] == "insert" and row["n"] == 5]
        assert [row["id"] for row in inserted] == [5]
        with pytest.raises(InvalidArgument, match="cannot be updated"):
            table.update({"id": "1"})
        with pytest.raises(InvalidArgument, match="GENERATED ALWAYS"):
            table.merge(pa.table({"id": [1]}), "false").when_not_matched_insert({"id": "s.id"}).execute()


def test_writers_at_the_same_time_never_get_the_same_identity(tmp_path: Path) -> None:
    made(tmp_path, identity="id")
    failed: list[BaseException] = []

    def write(first: int) -> None:
        try:
            table = lakeseal.Table(tmp_path / "t")
            for number in range(first, first + 5):
                table.write(numbers(number, -number - 1))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(n * 5,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not failed
    ids = lakeseal.Table(tmp_path / "t").to_arrow()["id"].to_pylist()
    assert len(ids) == len(set(ids)) == 40


def test_data_that_can_be_read_only_once_says_that_another_was_faster(tmp_path: Path) -> None:
    table = made(tmp_path, identity="id")
    other = lakeseal.Table(tmp_path / "t")

    def rows() -> Any:
        other.write(numbers(1))
        yield from numbers(2).to_batches()

    reader = pa.RecordBatchReader.from_batches(numbers().schema, rows())
    with pytest.raises(MetadataChangedException):
        table.write(reader)

    assert table.to_arrow().num_rows == 1


def test_who_gives_out_no_identities_does_not_conflict_with_who_does(tmp_path: Path) -> None:
    table = made(tmp_path, identity="id")
    table.write(numbers(1, 2))
    other = lakeseal.Table(tmp_path / "t")

    def rows() -> Any:
        other.write(numbers(3))
        yield from pa.table({"n": pa.array([1], pa.int32())}).to_batches()

    source = pa.RecordBatchReader.from_batches(numbers().schema, rows())
    table.merge(source, "t.n = s.n", isolation_level="WriteSerializable").when_matched_delete().execute()

    assert sorted(table.to_arrow()["n"].to_pylist()) == [2, 3]


@pytest.mark.spark
def test_spark_numbers_rows_too(spark: Any, tmp_path: Path) -> None:
    table = made(tmp_path, identity="id", properties={"delta.enableChangeDataFeed": "true"})

    table.write(spark.range(100).selectExpr("CAST(id AS INT) AS n").repartition(7))
    table.write(spark.range(100, 150).selectExpr("CAST(id AS INT) AS n").repartition(3))
    source = spark.range(140, 160).selectExpr("CAST(id AS INT) AS n")
    table.merge(source, "t.n = s.n").when_matched_update({"s": "'m'"}).when_not_matched_insert({"n": "s.n"}).execute()

    rows = table.to_arrow()
    assert sorted(rows["n"].to_pylist()) == list(range(160))
    assert len(set(rows["id"].to_pylist())) == 160
    (column,) = identity_columns(table.snapshot().schema)
    assert column.mark == max(rows["id"].to_pylist())
    feed = [row for row in table.changes(3, 3).to_pylist() if row["_change_type"] == "insert"]
    ids = {row["n"]: row["id"] for row in rows.to_pylist()}
    assert {row["n"]: row["id"] for row in feed} == {n: ids[n] for n in range(150, 160)}


@pytest.mark.spark
def test_spark_judges_what_only_spark_knows(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedExpression, match="Spark"):
        made(tmp_path, defaults={"s": "CAST(cos(0) AS STRING)"})
    for wrong in ("max('x')", "soundex(s)", "no_such_function(1)"):
        with pytest.raises(InvalidExpression):
            made(tmp_path, defaults={"s": wrong}, spark=spark)
    table = made(tmp_path, defaults={"s": "CAST(cos(0) AS STRING)"}, spark=spark)

    table.write(spark.sql("SELECT 1 AS n"))

    assert table.to_arrow()["s"].to_pylist() == ["1.0"]


def test_an_identity_that_says_half_of_it_is_refused(tmp_path: Path) -> None:
    schema = StructType.from_json(
        '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{"delta.identity.start":1}}]}'
    )
    with pytest.raises(LakesealError, match="step"):
        identity_columns(schema)
