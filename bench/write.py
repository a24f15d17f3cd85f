"""write: a DataFrame becomes files that count, beside Spark's own Parquet writer; and the price of one small commit.

The frame has 5,000,000 rows (LAKESEAL_BENCH_ROWS for more) of 8 columns (numbers, a decimal, a timestamp, a repeating
and a random string), read from Parquet by four tasks on two cores. What is timed is one call: `Table.write(frame)` of
ours, `frame.write.parquet(path)` of Spark's. Both read the same files with the same settings, have written a
twentieth of it once before (classes loaded, code compiled, workers started), and write Snappy. Ours also computes
statistics, commits, and does not return before all of it is on disk; Spark's leaves its files in the system's cache.
Without partitions, by 30 and by 2,000.

The CPU seconds are those of the JVM and of all Python workers.

`one-row commit`: 20 appends of one row each, one after the other, to a table at version 10 and to one at version
10,000. deltalake appends with `write_deltalake`, and does not call fsync; ours does.

With Delta Spark set up (`make bench-peers`), it stands beside the other two: its own Spark (4.2), its own session.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from delta_spark import DeltaSpark
from harness import Subject, Timer, cpu_of_children, data_folder, delta_spark_is_wanted, scratch

if TYPE_CHECKING:
    from harness import Report
    from pyspark.sql import DataFrame, SparkSession

ROWS = int(os.environ.get("LAKESEAL_BENCH_ROWS", "5000000"))
COMMITS = 20
PARTITIONS = {"unpartitioned": None, "30 partitions": "region", "2,000 partitions": "shop"}
TARGETS = {"unpartitioned": 0.95, "30 partitions": 1.3, "2,000 partitions": 3.0}
"""Beside Spark's Parquet writer."""


def main(report: Report) -> None:
    source = str(data_folder(f"write-{ROWS}", build_rows, rows=ROWS))
    for case, column in PARTITIONS.items():
        arguments = {"source": source, "column": column}
        subjects = [
            Subject(name="lakeseal", function=frame_lakeseal, arguments=arguments),
            Subject(name="spark parquet", function=frame_parquet, arguments=arguments),
        ]
        if delta_spark_is_wanted():
            subjects.append(Subject(name="Delta Spark", function=frame_delta_spark, arguments=arguments))
        targets = {"spark parquet": TARGETS[case], "Delta Spark": 1.5}
        # Each has written some of the rows before.
        report.compare(f"{ROWS:,} rows, {case}", subjects, targets=targets, warm_up=False)
    for version in (10, 10_000):
        table = str(data_folder(f"write-version-{version}", build_versions, version=version))
        report.compare(
            f"{COMMITS} one-row commits at version {version:,}",
            [
                Subject(name="lakeseal", function=commit_lakeseal, arguments={"table": table}),
                Subject(name="deltalake", function=commit_deltalake, arguments={"table": table}),
            ],
            targets={"deltalake": 4.0},
        )


def frame_lakeseal(timer: Timer, source: str, column: str | None) -> dict[str, int]:
    from lakeseal import Table

    with _spark() as spark, scratch() as folder:
        frame = _frame(spark, source, column)
        Table(folder / "warm").write(frame.where(_FEW), partition_by=column)
        table = Table(folder / "t")
        with timer, cpu_of_children(timer):
            table.write(frame, partition_by=column)
        return {"rows": _rows_in(folder / "t")}


def frame_parquet(timer: Timer, source: str, column: str | None) -> dict[str, int]:
    with _spark() as spark, scratch() as folder:
        frame = _frame(spark, source, column)
        by = [column] if column else []
        frame.where(_FEW).write.partitionBy(*by).parquet(str(folder / "warm"))
        with timer, cpu_of_children(timer):
            frame.write.partitionBy(*by).parquet(str(folder / "t"))
        return {"rows": _rows_in(folder / "t")}


def frame_delta_spark(timer: Timer, source: str, column: str | None) -> dict[str, int]:
    code = """
        spark.conf.set("spark.sql.files.maxPartitionBytes", split_bytes)
        frame = spark.read.parquet(source).drop(*unwanted).where(where)
        frame.write.format("delta").partitionBy(*by).save(target)
    """
    with scratch() as folder, DeltaSpark(memory="4g") as peer:
        arguments = {
            "split_bytes": _split_bytes(source),
            "source": f"{source}/rows",
            "unwanted": _unwanted(column),
            "by": [column] if column else [],
        }
        peer.run(code, where=_FEW, target=str(folder / "warm"), **arguments)
        peer.run(code, timer, where="true", target=str(folder / "t"), **arguments)
        return {"rows": _rows_in(folder / "t")}


def commit_lakeseal(timer: Timer, table: str) -> dict[str, int]:
    import pyarrow as pa

    from lakeseal import Table
    from lakeseal.commit.post_commit import flush

    with scratch() as folder:
        shutil.copytree(table, folder / "t")
        ours = Table(folder / "t")
        before = ours.version()
        with timer:
            for n in range(COMMITS):
                ours.write(pa.table({"id": [n]}))
        flush()  # checkpoints come after the commit, and this table is about to go
        return {"commits": Table(folder / "t").version() - before}


def commit_deltalake(timer: Timer, table: str) -> dict[str, int]:
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake

    with scratch() as folder:
        shutil.copytree(table, folder / "t")
        theirs = DeltaTable(folder / "t")
        before = theirs.version()
        with timer:
            for n in range(COMMITS):
                write_deltalake(theirs, pa.table({"id": [n]}), mode="append")
        return {"commits": DeltaTable(folder / "t").version() - before}


def build_rows(folder: Path, rows: int) -> None:
    with _spark() as spark:
        spark.range(0, rows, 1, 4).selectExpr(
            "id",
            "CAST(pmod(xxhash64(id), 1000000) AS INT) AS customer",
            "CAST(pmod(xxhash64(id), 30) AS INT) AS region",
            "CAST(pmod(xxhash64(id, 1), 2000) AS INT) AS shop",
            "xxhash64(id) / 1e12 AS amount",
            "CAST(pmod(xxhash64(id), 100000000) / 100BD AS DECIMAL(12,2)) AS price",
            "timestamp_micros(1700000000000000 + id * 1000) AS at",
            "concat('user-', pmod(xxhash64(id), 5000)) AS name",
            "hex(xxhash64(id)) AS token",
        ).write.parquet(str(folder / "rows"))


def build_versions(folder: Path, version: int) -> None:
    import pyarrow as pa

    from lakeseal import Table

    table = Table(folder)
    for n in range(version + 1):
        table.write(pa.table({"id": [n]}))


_FEW = "id % 20 = 0"


def _unwanted(column: str | None) -> list[str]:
    """Eight columns are left, with the one to partition by among them."""
    return ["shop" if column in (None, "region") else "region"]


def _frame(spark: SparkSession, source: str, column: str | None) -> DataFrame:
    spark.conf.set("spark.sql.files.maxPartitionBytes", _split_bytes(source))
    return spark.read.parquet(f"{source}/rows").drop(*_unwanted(column))


def _split_bytes(source: str) -> int:
    """As large as one file, so that there is one task per file."""
    return max(path.stat().st_size for path in Path(source).rglob("*.parquet"))


@contextlib.contextmanager
def _spark() -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]")
    for name, value in {
        "spark.driver.memory": "4g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.python.unix.domain.socket.enabled": "true",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    yield spark
    spark.stop()


def _rows_in(folder: Path) -> int:
    """By the footers of all data files."""
    import pyarrow.parquet as pq

    files = (path for path in folder.rglob("*.parquet") if "_delta_log" not in path.parts)
    return sum(pq.read_metadata(path).num_rows for path in files)
