"""Delta Spark on logs that Lakeseal keeps: our checkpoints, compactions and checksums, and no commits below them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakeseal.log.checkpoint_writer import write_checkpoint
from lakeseal.log.checksum import write_checksum
from lakeseal.log.compaction import compact
from lakeseal.log.delta_log import DeltaLog
from lakeseal.protocol.paths import LOG_DIR, commit_path
from lakeseal.storage import open_store

pytestmark = pytest.mark.peers

CREATE = """
spark.conf.set("spark.databricks.delta.snapshotPartitions", "2")
spark.sql(f'''
    CREATE TABLE delta.`{uri}` (id BIGINT, shop STRING, price DECIMAL(10,2), sold DATE, at TIMESTAMP, flag BOOLEAN)
    USING delta PARTITIONED BY (shop)
    TBLPROPERTIES ('delta.enableDeletionVectors' = 'true', 'delta.checkpointInterval' = '1000', {properties})
''')
for batch in range(4):
    rows = spark.range(batch * 100, batch * 100 + 100).selectExpr(
        "id",
        "CASE WHEN id % 7 = 0 THEN NULL ELSE concat('shop ', id % 3, '/é') END AS shop",
        "CAST(id / 4 AS DECIMAL(10,2)) AS price",
        "date_add(DATE'2024-02-28', CAST(id % 5 AS INT)) AS sold",
        "timestamp_micros(1700000000123456 + id) AS at",
        "id % 2 = 0 AS flag",
    )
    rows.coalesce(1).write.format("delta").mode("append").save(uri)
spark.sql(f"DELETE FROM delta.`{uri}` WHERE id % 10 = 3")
result = None
"""
READ = """
spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
rows = spark.read.format("delta").load(uri).where(where).orderBy("id").collect()
result = [str(row) for row in rows]
"""
PROPERTIES = {
    "classic": "'delta.checkpointPolicy' = 'classic'",
    "struct only": "'delta.checkpoint.writeStatsAsJson' = 'false'",
    "v2 parquet": "'delta.checkpointPolicy' = 'v2'",
    "v2 json": "'delta.checkpointPolicy' = 'v2'",
    "mapped": "'delta.columnMapping.mode' = 'name'",
}


@pytest.mark.parametrize("name", PROPERTIES)
def test_delta_spark_reads_and_writes_on_top_of_our_checkpoint(delta_spark: Any, tmp_path: Path, name: str) -> None:
    uri = str(tmp_path / "sales")
    delta_spark.run(CREATE, uri=uri, properties=PROPERTIES[name])
    wheres = ("true", "id > 250", "price < 10 and at >= timestamp_micros(1700000000123460)", "shop is null")
    before = [delta_spark.run(READ, uri=uri, where=where) for where in wheres]
    log = DeltaLog(open_store(uri))
    latest = log.snapshot().version
    for path in (tmp_path / "sales" / LOG_DIR).glob("*.crc"):
        path.unlink()
    for path in (tmp_path / "sales" / LOG_DIR).glob(".*.crc"):  # of Hadoop's local file system, about the files below
        path.unlink()
    write_checkpoint(log, latest, now_ms=0, sidecar_rows=4, v2_format="json" if "json" in name else "parquet")
    write_checksum(log, log.snapshot())
    log.store.delete(commit_path(version) for version in range(latest))
    assert [delta_spark.run(READ, uri=uri, where=where) for where in wheres] == before

    written = """
    spark.sql(f"DELETE FROM delta.`{uri}` WHERE id < 50")
    spark.sql(f"INSERT INTO delta.`{uri}` VALUES (1000, 'new', 1.5, DATE'2024-01-01', TIMESTAMP'2024-01-01', true)")
    log = spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, uri)
    log.checkpoint()
    result = spark.read.format("delta").load(uri).count()
    """
    count = delta_spark.run(written, uri=uri)
    ours = DeltaLog(open_store(uri)).snapshot()
    assert ours.version == latest + 2
    assert count == len([row for row in before[0] if int(row.split("id=")[1].split(",")[0]) >= 50]) + 1


def test_delta_spark_reads_through_our_compactions(delta_spark: Any, tmp_path: Path) -> None:
    uri = str(tmp_path / "sales")
    delta_spark.run(CREATE, uri=uri, properties=PROPERTIES["classic"])
    before = delta_spark.run(READ, uri=uri, where="true")
    log = DeltaLog(open_store(uri))
    compact(log, 1, log.snapshot().version)
    assert delta_spark.run(READ, uri=uri, where="true") == before
