"""Commands that change rows: the same by Delta Spark on a twin table, which reads what ours did, and the other way."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeseal import Table

pytestmark = pytest.mark.peers

DELETE = "id % 10 = 3"
UPDATE = "id BETWEEN 40 AND 59"
FEED = """
    rows = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0).load(uri).collect()
    result = [[row._commit_version, row._change_type, row.id, row.name] for row in rows]
"""
ROWS = "result = [[row.id, row.name] for row in spark.read.format('delta').load(uri).collect()]"
ROW_IDS = """
    frame = spark.read.format("delta").load(uri).selectExpr("_metadata.row_id AS number")
    result = [row.number for row in frame.collect()]
"""
THEIRS = """
    spark.sql(f'''
        CREATE TABLE delta.`{uri}` (id BIGINT, name STRING) USING delta TBLPROPERTIES (
            'delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = '{vectors}',
            'delta.enableRowTracking' = '{tracked}')
    ''')
    for first in (0, 50):
        frame = spark.range(first, first + 50).selectExpr("id", "concat('n', id) AS name")
        frame.coalesce(1).write.format("delta").mode("append").save(uri)
    spark.sql(f"DELETE FROM delta.`{uri}` WHERE {delete}")
    spark.sql(f"UPDATE delta.`{uri}` SET name = upper(name) WHERE {update}")
    spark.createDataFrame([(1, 'one'), (2, None), (200, 'new')], "id long, name string").createOrReplaceTempView("news")
    spark.sql(f'''
        MERGE INTO delta.`{uri}` t USING news s ON t.id = s.id
        WHEN MATCHED AND s.name IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
        WHEN NOT MATCHED BY SOURCE AND t.id > 95 THEN UPDATE SET name = 'alone'
    ''')
    spark.sql(f"OPTIMIZE delta.`{uri}`")
    spark.sql(f"RESTORE delta.`{uri}` TO VERSION AS OF 3")
    result = [[row.operation, sorted(row.operationMetrics)] for row in
              spark.sql(f"DESCRIBE HISTORY delta.`{uri}`").select("operation", "operationMetrics").collect()]
"""
# Metrics of how Delta Spark works, which we do not.
_OWN = {
    "numBatches",
    "totalClusterParallelism",
    "totalScheduledTasks",
    "autoCompactParallelismStats",
    "numDeduplicatedFilesAdded",
    "materializeSourceTimeMs",
    "numTableColumnsWithStats",
}


def ours(uri: str, vectors: str, tracked: str) -> Table:
    table = Table(uri)
    properties = {"delta.enableDeletionVectors": vectors, "delta.enableRowTracking": tracked}
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    table.write(schema.empty_table(), properties=properties | {"delta.enableChangeDataFeed": "true"})
    for first in (0, 50):
        ids = range(first, first + 50)
        table.write(pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{i}" for i in ids]}))
    table.delete(DELETE)
    table.update({"name": "upper(name)"}, UPDATE)
    news = pa.table({"id": [1, 2, 200], "name": ["one", None, "new"]})
    (
        table.merge(news, "t.id = s.id")
        .when_matched_delete("s.name IS NULL")
        .when_matched_update()
        .when_not_matched_insert()
        .when_not_matched_by_source_update({"name": "'alone'"}, "t.id > 95")
        .execute()
    )
    table.optimize()
    table.restore(3)
    return table


def feed_of(table: Table) -> Counter[Any]:
    found = table.changes(0).to_pylist()
    return Counter((row["_commit_version"], row["_change_type"], row["id"], row["name"]) for row in found)


def rows_of(table: Table) -> Counter[Any]:
    return Counter((row["id"], row["name"]) for row in table.to_arrow().to_pylist())


@pytest.mark.parametrize(("vectors", "tracked"), [("false", "false"), ("true", "false"), ("true", "true")])
def test_the_same_commands_give_the_same_rows_the_same_feed_and_the_same_metrics(
    delta_spark: Any, tmp_path: Path, vectors: str, tracked: str
) -> None:
    theirs_at, ours_at = str(tmp_path / "theirs"), str(tmp_path / "ours")
    history = delta_spark.run(THEIRS, uri=theirs_at, vectors=vectors, tracked=tracked, delete=DELETE, update=UPDATE)
    table, twin = ours(ours_at, vectors, tracked), Table(theirs_at)
    assert rows_of(table) == rows_of(twin)
    assert Counter(map(tuple, delta_spark.run(ROWS, uri=ours_at))) == rows_of(table)
    assert feed_of(table) == feed_of(twin)
    assert Counter(map(tuple, delta_spark.run(FEED, uri=ours_at))) == feed_of(table)
    told = {entry["operation"]: set(entry["operationMetrics"]) for entry in table.history()}
    for operation, names in history:
        if operation in told:
            assert set(names) - _OWN <= told[operation], operation
    # Each goes on where the other stopped.
    delta_spark.run("spark.sql(f'DELETE FROM delta.`{uri}` WHERE id < 20')", uri=ours_at)
    twin.delete("id < 20")
    assert rows_of(Table(ours_at)) == rows_of(twin)
    if tracked == "true":
        for uri in (ours_at, theirs_at):
            found = delta_spark.run(ROW_IDS, uri=uri)
            assert None not in found
            assert len(set(found)) == len(found)
