"""The same commands with their tasks on Spark: rows, metrics and the change feed are those of this process."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeseal import Table, errors
from support.rows import rows

pytestmark = pytest.mark.spark

FEED = {"delta.enableChangeDataFeed": "true"}
VECTORS = {"delta.enableDeletionVectors": "true"}
COUNTS = ("Rows", "numSourceRows")


def counts(result: Any) -> dict[str, Any]:
    return {name: value for name, value in result.metrics.items() if name.endswith(COUNTS) or "Rows" in name}


@pytest.mark.parametrize("properties", [{}, FEED, VECTORS, FEED | VECTORS], ids=["plain", "feed", "vectors", "both"])
def test_commands_on_spark_do_what_they_do_here(spark: Any, tables: Any, properties: Any) -> None:
    files = (range(10), range(10, 20), range(20, 30))
    here = tables(*files, properties=properties, partition_by=["part"], name="here")
    there = tables(*files, properties=properties, partition_by=["part"], name="there")
    source = tables.people(1, 2, 3, 4, 15, 50, 51, 52)

    def merged(table: Any, data: Any) -> Any:
        return (
            table.merge(data, "t.id = s.id")
            .when_matched_delete("t.id = 1")
            .when_matched_update(
                {"name": "concat(coalesce(t.name, '-'), '+', s.id)", "score": "s.score + 1"}, "s.id < 15"
            )
            .when_not_matched_insert({"id": "s.id", "name": "'a'"}, "s.id = 50")
            .when_not_matched_insert("*", "s.id > 51")
            .when_not_matched_by_source_delete("t.id > 25")
            .when_not_matched_by_source_update({"name": "upper(name)"}, "t.id = 7")
            .execute()
        )

    for command in (
        lambda table, on: table.delete("id % 4 = 1 AND id > 5", spark=on),
        lambda table, on: table.update({"name": "concat('u', id)"}, "id BETWEEN 8 AND 22", spark=on),
        lambda table, on: merged(table, source if on is None else on.createDataFrame(source)),
        lambda table, on: table.optimize(spark=on),
    ):
        assert counts(command(here, None)) == counts(command(there, spark))
        assert rows(here.to_arrow()) == rows(there.to_arrow())
    if properties.get("delta.enableChangeDataFeed"):
        assert tables.feed(here, 3) == tables.feed(there, 3)
    tables.check(there)


def test_merges_on_spark_refuse_what_is_ambiguous_and_say_why(spark: Any, tables: Any) -> None:
    table = tables(range(5))
    twice = spark.createDataFrame(pa.concat_tables([tables.people(3), tables.people(3, 4)]))
    with pytest.raises(errors.AmbiguousMerge, match="id: 3"):
        table.merge(twice, "t.id = s.id").when_matched_update().execute()
    with pytest.raises(errors.SchemaMismatch):
        table.merge(twice, "t.id = s.id").when_matched_update({"id": "s.name"}).execute()
    assert table.version() == 0
    table.merge(twice, "t.id = s.id").when_matched_delete().execute()
    assert tables.ids(table) == [0, 1, 2]


@pytest.mark.parametrize("condition", ["s.x > 5", "s.x <=> 'NaN'", "s.x = s.x AND NOT s.x <= 5"])
def test_rows_of_a_source_with_nan_match_and_are_inserted(spark: Any, tmp_path: Path, condition: str) -> None:
    """Of frames that it keeps, Spark knows a greatest value that leaves NaN out, and passes over the rows by it."""
    table = Table(tmp_path)
    table.write(pa.table({"id": [0, 9], "x": [1.0, 2.0]}))
    source = spark.range(4).selectExpr("id", "IF(id % 2 = 0, double('NaN'), double(1)) AS x")
    merge = table.merge(source, f"t.id = s.id AND ({condition})")
    merge.when_matched_update("*").when_not_matched_insert("*", condition=condition).execute()
    found = sorted((row["id"], math.isnan(row["x"])) for row in table.to_arrow().to_pylist())
    assert found == [(0, True), (2, True), (9, False)]
    assert spark.conf.get("spark.sql.inMemoryColumnarStorage.partitionPruning") == "true"


def test_what_only_spark_can_evaluate_goes_through_its_plan(spark: Any, tables: Any) -> None:
    table = tables(range(5), properties=VECTORS)
    source = spark.createDataFrame(tables.people(3, 9)).withColumnRenamed("score", "extra")
    merge = table.merge(source, "sha2(CAST(t.id AS STRING), 256) = sha2(CAST(s.id AS STRING), 256)", merge_schema=True)
    merge.when_matched_update({"name": "md5(s.part)"}).when_not_matched_insert("*").execute()
    assert tables.ids(table) == [0, 1, 2, 3, 4, 9]
    assert table.to_arrow(where="id = 9")["extra"].to_pylist() == [4.5]
    assert len(tables.names(table)[3] or "") == 32


@pytest.mark.parametrize("properties", [{}, FEED | VECTORS], ids=["plain", "both"])
def test_deletes_and_updates_that_only_spark_can_evaluate(spark: Any, tables: Any, properties: Any) -> None:
    table = tables(range(6), range(6, 12), properties=properties)
    before = tables.paths(table)
    deleted = table.delete("substr(md5(CAST(id AS STRING)), 1, 1) = 'c' AND id < 6", spark=spark)
    assert tables.ids(table) == list(range(3, 12))
    assert (deleted.metrics["numDeletedRows"], table.history(1)[0]["operation"]) == (3, "DELETE")
    updated = table.update({"name": "md5(name)"}, "id = 7", spark=spark)
    assert updated.metrics["numUpdatedRows"] == 1
    assert len(tables.names(table)[7] or "") == 32
    assert tables.ids(table, version=1) == list(range(12))
    assert len(before & tables.paths(table)) == (2 if properties else 0)
    if properties:
        assert sorted(kind for kind, _, _ in tables.feed(table, 2).elements()) == [
            "delete", "delete", "delete", "update_postimage", "update_preimage"
        ]  # fmt: skip


def test_sql_on_paths_is_done_here_and_all_else_by_spark(spark: Any, tables: Any) -> None:
    import lakeseal

    table = tables(range(6))
    at = f"delta.`{tables.root / 'table'}`"
    spark.createDataFrame(tables.people(3, 9)).createOrReplaceTempView("news")
    assert lakeseal.sql(f"DELETE FROM {at} WHERE id = 1", spark).collect()[0].numDeletedRows == 1
    lakeseal.sql(f"UPDATE {at} SET name = 'x' WHERE id = 2", spark)
    lakeseal.sql(
        f"MERGE INTO {at} AS t USING (SELECT * FROM news) AS n ON t.id = n.id "
        "WHEN MATCHED THEN UPDATE SET name = concat('u', n.id) WHEN NOT MATCHED THEN INSERT *",
        spark,
    )
    assert tables.names(table) == {0: None, 2: "x", 3: "u3", 4: "n4", 5: None, 9: "n9"}
    history = lakeseal.sql(f"DESCRIBE HISTORY {at} LIMIT 2", spark).collect()
    assert [row.operation for row in history] == ["MERGE", "UPDATE"]
    for ids in ((20, 21), (22, 23)):
        table.write(tables.people(*ids))
    (optimized,) = lakeseal.sql(f"OPTIMIZE {at} WHERE id >= 0 ZORDER BY (id, part)", spark).collect()
    assert (optimized.numAddedFiles, table.files().num_rows) == (1, 1)
    assert table.history(1)[0]["operationParameters"]["zOrderBy"] == '["id","part"]'
    lakeseal.sql(
        f"""
        MERGE INTO {at} t USING (SELECT id + 20 AS nid, name AS called FROM news UNION ALL SELECT 2, 'gone') AS n
        ON t.id = n.nid
        WHEN MATCHED AND n.called = 'gone' THEN DELETE
        WHEN MATCHED THEN UPDATE SET t.name = n.called, score = -1
        WHEN NOT MATCHED AND n.nid > 100 THEN INSERT (id) VALUES (0)
        WHEN NOT MATCHED THEN INSERT (id, name) VALUES (n.nid, md5(n.called))
        WHEN NOT MATCHED BY SOURCE AND t.id = 3 THEN UPDATE SET name = 'alone'
        WHEN NOT MATCHED BY SOURCE AND t.id < 9 THEN DELETE
        """,
        spark,
    )
    found = tables.names(table)
    assert {key: name for key, name in found.items() if key != 29} == {
        3: "alone", 9: "n9", 20: None, 21: "n21", 22: "n22", 23: "n3"
    }  # fmt: skip
    assert len(found[29] or "") == 32
    lakeseal.sql(f"RESTORE {at} TO VERSION AS OF 0", spark)
    assert tables.ids(table) == [0, 1, 2, 3, 4, 5]
    assert lakeseal.sql(f"VACUUM {at} DRY RUN", spark).collect() == []
    assert lakeseal.sql("SELECT count(*) AS n FROM news", spark).collect()[0].n == 2


@pytest.mark.parametrize("properties", [{}, FEED, VECTORS, FEED | VECTORS], ids=["plain", "feed", "vectors", "both"])
def test_rows_that_spark_writes_again_keep_their_ids(spark: Any, tables: Any, properties: Any) -> None:
    table = tables(range(10), range(10, 20), properties=properties | {"delta.enableRowTracking": "true"})

    def tracked() -> dict[int, tuple[int, int]]:
        frame = table.to_spark(spark, row_ids=True, columns=["id"])
        found = {row.id: (row._row_id, row._row_commit_version) for row in frame.collect()}
        assert found == {
            row["id"]: (row["_row_id"], row["_row_commit_version"]) for row in table.to_arrow(row_ids=True).to_pylist()
        }
        return found

    before = tracked()
    table.delete("id = 3", spark=spark)
    table.update({"name": "soundex(name)"}, "id = 4", spark=spark)
    updated = table.version()
    source = spark.createDataFrame(tables.people(5, 6, 50))
    merge = table.merge(source, "t.id = s.id").when_matched_delete("t.id = 6").when_matched_update()
    merge.when_not_matched_insert().execute()
    merged = table.version()
    table.optimize(spark=spark)

    after = tracked()
    new, since = after.pop(50)
    assert (new in {row_id for row_id, _ in before.values()}, since) == (False, merged)
    expected = {number: place for number, place in before.items() if number not in (3, 6)}
    assert after == {**expected, 4: (before[4][0], updated), 5: (before[5][0], merged)}
    assert table.to_spark(spark, row_ids=True, where="id = 4").collect()[0]._row_id == before[4][0]
    tables.check(table)
