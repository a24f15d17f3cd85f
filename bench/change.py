"""change: delete, update, merge, optimize, z-order and clustering, beside deltalake and Delta Spark.

One table of 5M rows (LAKESEAL_BENCH_ROWS for another number) in 20 files, and a tenth of these rows in 1,000 small
files. Each measurement changes a copy of its own (data files are linked, so copying costs nothing that is timed):

- `delete 1%` and `update 1%`: one row in a hundred, spread over all files, so every file is rewritten by both;
- `delete 1%, in one place`: a range of ids, which statistics place in a file or two;
- `merge 1%, half matched`: an upsert by id from an Arrow table in memory, half of it new rows;
- `optimize 1,000 files`: bin-packing to the default target size;
- `z-order by two columns` of the whole table; `cluster by two columns`: the columns are named, and all rows put in
  place (`OPTIMIZE … FULL`), which deltalake cannot do.

What is timed is the command alone, on a table that is open and whose files are known, as they are to deltalake once it
has opened one. Facts are the rows that are there afterwards, and the sum of one column. `make bench-peers` adds Delta
Spark, and our own commands with their tasks on Spark: both on all cores, after the same command on a small table, three
times, and with the merge's source in Spark's memory.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_spark import DeltaSpark
from harness import Subject, Timer, data_folder, delta_spark_is_wanted

if TYPE_CHECKING:
    import pyarrow as pa
    from harness import Report
    from pyspark.sql import SparkSession

    import lakeseal

ROWS = int(os.environ.get("LAKESEAL_BENCH_ROWS", 5_000_000))
FILES = 20
SMALL_FILES = 1000
WARM_UPS = 3
ORDERED = ["kind", "amount"]
SPREAD = "id % 100 = 7"
# Not where a file ends, so that files are rewritten and not just dropped.
ONE_PLACE = f"id >= {ROWS // 2 - ROWS // 300} AND id < {ROWS // 2 - ROWS // 300 + ROWS // 100}"


def main(report: Report) -> None:
    large = str(data_folder(f"change-{ROWS}", build, rows=ROWS, files=FILES))
    small = str(data_folder(f"change-small-{ROWS // 10}", build, rows=ROWS // 10, files=SMALL_FILES))
    warm = str(data_folder("change-warm", build, rows=20_000, files=4))
    for case, command, uri in (
        ("delete 1%", "delete", large),
        ("delete 1%, in one place", "delete_range", large),
        ("update 1%", "update", large),
        ("merge 1%, half matched", "merge", large),
        (f"optimize {SMALL_FILES:,} files", "optimize", small),
        ("z-order by two columns", "zorder", large),
        ("cluster by two columns", "cluster", large),
    ):
        arguments = {"uri": uri, "command": command}
        subjects = [Subject(name="lakeseal", function=by_lakeseal, arguments=arguments)]
        if command != "cluster":
            subjects.append(Subject(name="deltalake", function=by_deltalake, arguments=arguments))
        if delta_spark_is_wanted():
            warmed = arguments | {"warm": warm}
            subjects += [
                Subject(name="Delta Spark", function=by_delta_spark, arguments=warmed),
                Subject(name="lakeseal on Spark", function=by_lakeseal_on_spark, arguments=warmed),
            ]
        report.compare(case, subjects, targets={"deltalake": 1.0, "Delta Spark": 2.0})


def rows_between(first: int, last: int) -> pa.Table:
    import numpy as np
    import pyarrow as pa

    ids = np.arange(first, last)
    scattered = (ids * 2_654_435_761) % 2**32
    return pa.table(
        {
            "id": ids,
            "amount": (scattered % 10_000) / 100,
            "kind": pa.array(scattered % 50, pa.int32()),
            "name": pa.DictionaryArray.from_arrays(
                pa.array(scattered % 1000, pa.int32()), pa.array([f"customer number {n}" for n in range(1000)])
            ).cast(pa.string()),
            "at": pa.array(1_700_000_000_000_000 + ids * 1000, pa.timestamp("us", "UTC")),
            "code": pa.array(np.char.mod("%08x", scattered)),
        }
    )


def build(folder: Path, rows: int, files: int) -> None:
    import lakeseal

    table = lakeseal.Table(folder)
    for number in range(files):
        table.write(rows_between(rows * number // files, rows * (number + 1) // files))
    table.checkpoint()


@contextlib.contextmanager
def copied(uri: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir=Path(uri).parent, prefix="change-copy-") as folder:
        copy = f"{folder}/table"
        shutil.copytree(uri, copy, copy_function=_linked)
        yield copy


def _linked(source: str, target: str) -> None:
    # Logs are written to; data files never change.
    if "_delta_log" in source:
        shutil.copy2(source, target)
    else:
        os.link(source, target)


def merge_source() -> pa.Table:
    """One percent of the table's rows: half of them there, spread over all files, half of them new."""
    import pyarrow as pa

    half = ROWS // 200
    new = rows_between(ROWS, ROWS + half)
    there = rows_between(0, half)
    return pa.concat_tables([there.set_column(0, "id", pa.array(range(0, half * 200, 200), pa.int64())), new])


def change(table: lakeseal.Table, command: str, source: Any, spark: SparkSession | None = None) -> None:
    match command:
        case "delete":
            table.delete(SPREAD, spark=spark)
        case "delete_range":
            table.delete(ONE_PLACE, spark=spark)
        case "update":
            table.update({"amount": "amount + 1"}, SPREAD, spark=spark)
        case "merge":
            table.merge(source, "t.id = s.id").when_matched_update("*").when_not_matched_insert("*").execute()
        case "zorder":
            table.optimize(zorder_by=ORDERED, spark=spark)
        case "cluster":
            table.cluster_by(ORDERED)
            table.optimize(full=True, spark=spark)
        case _:
            table.optimize(spark=spark)


def by_lakeseal(timer: Timer, uri: str, command: str) -> Any:
    import lakeseal
    from lakeseal.commit.post_commit import flush

    with copied(uri) as copy:
        table = lakeseal.Table(copy)
        table.files()  # also loads what Arrow loads once per process, pandas among it
        source = merge_source() if command == "merge" else None
        with timer:
            change(table, command, source)
        flush()  # checkpoints come after the commit, and this table is about to go
        return facts(copy)


def by_deltalake(timer: Timer, uri: str, command: str) -> Any:
    from deltalake import DeltaTable

    with copied(uri) as copy:
        table = DeltaTable(copy)
        source = merge_source() if command == "merge" else None
        with timer:
            match command:
                case "delete":
                    table.delete(SPREAD)
                case "delete_range":
                    table.delete(ONE_PLACE)
                case "update":
                    table.update(updates={"amount": "amount + 1"}, predicate=SPREAD)
                case "merge":
                    merge = table.merge(source, "t.id = s.id", source_alias="s", target_alias="t")
                    merge.when_matched_update_all().when_not_matched_insert_all().execute()
                case "zorder":
                    table.optimize.z_order(ORDERED, target_size=2**30)
                case _:
                    table.optimize.compact(target_size=2**30)
        return facts(copy)


_DELTA_SPARK = {
    "delete": f"spark.sql(f'DELETE FROM delta.`{{uri}}` WHERE {SPREAD}')",
    "delete_range": f"spark.sql(f'DELETE FROM delta.`{{uri}}` WHERE {ONE_PLACE}')",
    "update": f"spark.sql(f'UPDATE delta.`{{uri}}` SET amount = amount + 1 WHERE {SPREAD}')",
    "merge": """
        spark.sql(
            f"MERGE INTO delta.`{uri}` t USING news s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
    """,
    "optimize": "spark.sql(f'OPTIMIZE delta.`{uri}`')",
    "zorder": f"spark.sql(f'OPTIMIZE delta.`{{uri}}` ZORDER BY ({', '.join(ORDERED)})')",
    "cluster": f"""
        spark.sql(f'ALTER TABLE delta.`{{uri}}` CLUSTER BY ({", ".join(ORDERED)})')
        spark.sql(f'OPTIMIZE delta.`{{uri}}` FULL')
    """,
}
_NEWS = "spark.read.parquet(path).cache().createOrReplaceTempView('news'); result = spark.table('news').count()"


def by_delta_spark(timer: Timer, uri: str, command: str, warm: str) -> Any:
    with copied(uri) as copy, news(copy, command) as source, DeltaSpark() as peer:
        if source is not None:
            peer.run(_NEWS, path=source)
        for _ in range(WARM_UPS):
            with copied(warm) as small:
                peer.run(_DELTA_SPARK["delete" if command == "delete_range" else command], uri=small)
        peer.run(_DELTA_SPARK[command], timer, uri=copy)
        return facts(copy)


def by_lakeseal_on_spark(timer: Timer, uri: str, command: str, warm: str) -> Any:
    import lakeseal
    from lakeseal.commit.post_commit import flush
    from lakeseal.spark.local_session import local_session

    with copied(uri) as copy, news(copy, command) as path:
        settings = {"spark.driver.memory": "6g", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
        spark = local_session("change", settings=settings)
        source = None if path is None else spark.read.parquet(path).cache()
        if source is not None:
            source.count()
        for _ in range(WARM_UPS):
            with copied(warm) as small:
                change(lakeseal.Table(small), "delete" if command == "delete_range" else command, source, spark)
                flush()
        table = lakeseal.Table(copy)
        table.files()
        with timer:
            change(table, command, source, spark)
        flush()
        spark.stop()
        return facts(copy)


@contextlib.contextmanager
def news(beside: str, command: str) -> Iterator[str | None]:
    """The merge's source as a file."""
    if command != "merge":
        yield None
        return
    import pyarrow.parquet as pq

    path = f"{beside}-source.parquet"
    pq.write_table(merge_source(), path)
    yield path


def facts(uri: str) -> Any:
    import pyarrow.compute as pc

    import lakeseal

    rows, total = 0, 0.0
    for batch in lakeseal.Table(uri).to_batches(columns=["amount"]):
        rows += batch.num_rows
        total += pc.sum(batch["amount"]).as_py()
    return {"rows": rows, "amount": round(total, -3)}
