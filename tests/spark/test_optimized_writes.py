"""What a table asks of its writers, where `format("lakeseal")` writes: few files, and small ones put together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeseal

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.int64())])
OPTIMIZED = {"delta.autoOptimize.optimizeWrite": "true"}


@pytest.fixture
def rows(spark: Any) -> Any:
    lakeseal.register(spark)
    return spark.range(0, 600, numPartitions=6).selectExpr("id", "id % 2 AS part")


@pytest.mark.parametrize(("asked", "files"), [("true", 1), ("false", 6)])
def test_a_table_that_asks_for_it_gets_few_files(rows: Any, tmp_path: Path, asked: str, files: int) -> None:
    properties = {"delta.autoOptimize.optimizeWrite": asked}
    table = lakeseal.create(tmp_path / "t", SCHEMA, properties=properties)
    rows.write.format("lakeseal").option("userMetadata", "mine").mode("append").save(table.uri)
    assert (table.files().num_rows, table.to_arrow(columns=[]).num_rows) == (files, 600)
    assert table.history(1)[0]["userMetadata"] == "mine"
    rows.write.save(table.uri, format="lakeseal", mode="overwrite", userMetadata="again")
    assert (table.files().num_rows, table.to_arrow(columns=[]).num_rows) == (files, 600)
    assert table.history(1)[0]["userMetadata"] == "again"


def test_rows_of_a_partition_are_brought_together(rows: Any, tmp_path: Path) -> None:
    table = lakeseal.create(tmp_path / "t", SCHEMA, partition_by="part", properties=OPTIMIZED)
    rows.write.format("lakeseal").mode("append").save(table.uri)
    assert sorted(values[0][1] for values in table.files()["partitionValues"].to_pylist()) == ["0", "1"]
    assert table.to_arrow(columns=[]).num_rows == 600


def test_what_spark_would_refuse_is_refused(rows: Any, tmp_path: Path) -> None:
    table = lakeseal.create(tmp_path / "t", SCHEMA, properties=OPTIMIZED)
    with pytest.raises(Exception, match=r"(?i)bucket"):
        rows.write.format("lakeseal").bucketBy(2, "id").mode("append").save(table.uri)
    with pytest.raises(Exception, match=r"(?i)exist|mode"):
        rows.write.format("lakeseal").save(table.uri)
    assert table.version() == 0


def test_small_files_are_put_together_behind_a_write(rows: Any, tmp_path: Path) -> None:
    table = lakeseal.create(tmp_path / "t", SCHEMA)
    table.write(pa.table({"id": list(range(48)), "part": [0] * 48}), max_records_per_file=1)
    table.set_properties({"delta.autoOptimize.autoCompact": "true"})
    rows.write.format("lakeseal").mode("append").save(table.uri)
    newest = table.history(1)[0]
    assert (newest["operation"], newest["operationParameters"]["auto"]) == ("OPTIMIZE", "true")
    assert (table.files().num_rows, table.to_arrow(columns=[]).num_rows) == (1, 648)
