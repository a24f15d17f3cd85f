"""The same rows, whether Delta Spark or Lakeseal reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakeseal

pytestmark = pytest.mark.peers


def test_a_table_that_delta_spark_wrote_reads_the_same_through_lakeseal(delta_spark: Any, tmp_path: Path) -> None:
    uri = str(tmp_path / "sales")
    expected = delta_spark.run(
        """
        spark.sql(f'''
            CREATE TABLE delta.`{uri}` (id BIGINT, shop STRING, price DECIMAL(10,2), sold DATE) USING delta
            PARTITIONED BY (shop)
            TBLPROPERTIES ('delta.enableDeletionVectors' = 'true', 'delta.checkpointInterval' = '3')
        ''')
        for batch in range(4):
            rows = spark.range(batch * 100, batch * 100 + 100).selectExpr(
                "id",
                "CASE WHEN id % 7 = 0 THEN NULL ELSE concat('shop ', id % 3, '/é') END AS shop",
                "CAST(id / 4 AS DECIMAL(10,2)) AS price",
                "date_add(DATE'2024-02-28', CAST(id % 5 AS INT)) AS sold",
            )
            rows.coalesce(1).write.format("delta").mode("append").save(uri)
        spark.sql(f"DELETE FROM delta.`{uri}` WHERE id % 10 = 3")
        rows = spark.read.format("delta").load(uri).orderBy("id").collect()
        result = [[row.id, row.shop, str(row.price), str(row.sold)] for row in rows]
        """,
        uri=uri,
    )

    table = lakeseal.Table(uri)
    read = table.to_arrow().sort_by("id").to_pylist()

    assert [[row["id"], row["shop"], str(row["price"]), str(row["sold"])] for row in read] == expected
    assert len(expected) == 360
    assert table.version() == 5
    assert table.to_arrow(version=1).num_rows == 100
    assert [row["id"] for row in table.to_arrow(where="id BETWEEN 200 AND 205").sort_by("id").to_pylist()] == [
        200, 201, 202, 204, 205,
    ]  # fmt: skip
