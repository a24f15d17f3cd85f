"""`lakeseal demo`: the main job on embedded defaults, told step by step."""

from __future__ import annotations

import datetime as dt
import importlib.util
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer

from lakeseal.cli.java import OLDEST, find_java
from lakeseal.cli.options import AsJson
from lakeseal.cli.output import Output
from lakeseal.errors import SchemaMismatch
from lakeseal.table import Table, create
from lakeseal.transactions import snapshots, transaction

commands = typer.Typer()

_DAYS = 3
_ORDERS = 10_000
_WRITERS = 4
_APPENDS = 5
_SPARK_ORDERS = 200_000
_SALES = pa.schema({"item": pa.string(), "sold": pa.int64()})
_STOCK = pa.schema({"item": pa.string(), "left": pa.int64()})


@commands.command()
def demo(
    ctx: typer.Context,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the table there when the story is over.")] = False,
    json: AsJson = False,
) -> None:
    """Write and read a table in a temporary folder, and say what happens."""
    out: Output = ctx.obj
    folder = Path(tempfile.mkdtemp(prefix="lakeseal-demo-"))
    try:
        uri = str(folder / "orders")
        for number, (title, step) in enumerate(_STORY, start=1):
            out.say(f"\n{number}. {title}", style="bold")
            told = step(uri)
            out.record({"step": number, "title": title, **told} if out.json else told)
    finally:
        if keep:
            out.say(f"\nThe table is in {folder / 'orders'}; try: lakeseal history {folder / 'orders'}")
        else:
            shutil.rmtree(folder)
            out.say("\nThe table is gone again; with --keep it stays.", style="dim")


def _orders(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "day": pa.array([dt.date(2026, 3, 1 + n % _DAYS) for n in numbers]),
            "item": pa.array([f"item {n % 97}" for n in numbers]),
            "cents": pa.array([100 + n * 37 % 9_000 for n in numbers], pa.int64()),
        }
    )


def _write(uri: str) -> dict[str, Any]:
    table = Table(uri)
    table.write(_orders(0, _ORDERS), partition_by=["day"])
    return {"version": table.version(), "rows written": _ORDERS, "files": len(table.files())}


def _refuse(uri: str) -> dict[str, Any]:
    table = Table(uri)
    before = table.version()
    wrong = pa.table({"id": pa.array(["not a number"]), "colour": pa.array(["red"])})
    try:
        table.write(wrong)
    except SchemaMismatch as error:
        return {"version before and after": f"{before} and {table.version()}", "why": str(error)}
    raise AssertionError("a table took rows that do not fit it")


def _race(uri: str) -> dict[str, Any]:
    table = Table(uri)
    start = table.version()

    def writer(number: int) -> None:
        own = Table(uri)
        for batch in range(_APPENDS):
            own.write(_orders(_ORDERS + (number * _APPENDS + batch) * 10, 10))

    with ThreadPoolExecutor(_WRITERS) as pool:
        list(pool.map(writer, range(_WRITERS)))
    rows = table.to_arrow(columns=["id"])
    return {
        "commits": table.version() - start,
        "rows there": rows.num_rows,
        "rows expected": _ORDERS + _WRITERS * _APPENDS * 10,
        "different ids": len(set(rows.column("id").to_pylist())),
    }


def _query(uri: str) -> dict[str, Any]:
    table = Table(uri)
    where = "day = DATE'2026-03-02' AND cents > 9000"
    found = table.to_arrow(where=where, columns=["id", "item", "cents"])
    return {
        "where": where,
        "rows found": found.num_rows,
        "first rows": found.slice(0, 2).to_pylist(),
    }


def _travel(uri: str) -> dict[str, Any]:
    table = Table(uri)
    return {
        "rows in version 0": table.to_arrow(version=0).num_rows,
        f"rows in version {table.version()}": table.to_arrow().num_rows,
    }


def _change(uri: str) -> dict[str, Any]:
    table = Table(uri)
    table.set_properties({"delta.enableChangeDataFeed": "true"})
    since = table.version() + 1
    table.delete("cents > 9000")
    table.update({"item": "upper(item)"}, "day = DATE'2026-03-03' AND id < 30")
    merged = (
        table.merge(_orders(0, 5), "t.id = s.id")
        .when_matched_update({"cents": "s.cents + 1"})
        .when_not_matched_insert("*")
        .execute()
    )
    kinds = Counter(table.changes(since).column("_change_type").to_pylist())
    return {"rows merged": merged.metrics["numTargetRowsUpdated"], "changes": dict(sorted(kinds.items()))}


def _together(uri: str) -> dict[str, Any]:
    folder = Path(uri).parent
    owner = f"sqlite:///{folder}/ledger.db"
    sales, stock = folder / "sales", folder / "stock"
    for place, schema in ((sales, _SALES), (stock, _STOCK)):
        create(place, schema, owner=owner)
    with transaction(owner) as both:
        both.table(sales).write(pa.table({"item": ["lamp"], "sold": [2]}, schema=_SALES))
        both.table(stock).write(pa.table({"item": ["lamp"], "left": [40]}, schema=_STOCK))
    try:
        with transaction(owner) as both:
            both.table(sales).write(pa.table({"item": ["lamp"], "sold": [50]}, schema=_SALES))
            both.table(stock).write(pa.table({"article": ["lamp"]}))
    except SchemaMismatch as error:
        seen = snapshots(owner, [sales, stock])
        return {"versions": [each.version for each in seen], "why": str(error)}
    raise AssertionError("a transaction took half of its tables")


def _spark(uri: str) -> dict[str, Any]:
    java = find_java()
    if java is None or importlib.util.find_spec("pyspark") is None:
        return {"left out": f"Spark needs Java {OLDEST} or newer and pip install 'lakeseal[spark]'"}
    os.environ["JAVA_HOME"] = str(java.home)
    from lakeseal.spark.local_session import local_session  # pyspark is an extra

    table = Table(uri)
    before = table.version()
    spark = local_session("lakeseal demo", log=Path(uri).parent / "spark.log")
    try:
        orders = spark.range(_SPARK_ORDERS).selectExpr(
            f"id + {10 * _ORDERS} AS id",
            f"date_add(DATE'2026-03-01', CAST(id % {_DAYS} AS INT)) AS day",
            "concat('item ', id % 97) AS item",
            "100 + id * 37 % 9000 AS cents",
        )
        table.write(orders)
        sums = table.to_spark(spark).groupBy("day").count().orderBy("day").collect()
    finally:
        spark.stop()
    return {
        "commits": table.version() - before,
        "rows written": _SPARK_ORDERS,
        "Spark counts": {str(row["day"]): row["count"] for row in sums},
    }


_STORY: tuple[tuple[str, Callable[[str], dict[str, Any]]], ...] = (
    (f"Write {_ORDERS:,} orders, partitioned by day: one commit, all of it or nothing", _write),
    ("Write rows that do not fit: refused, and nothing of them is visible", _refuse),
    (f"{_WRITERS} writers append {_APPENDS} times each, all at once: every commit counts, once", _race),
    ("Read with a condition: only the partition and the files that can match are opened", _query),
    ("Read an older version: what was committed stays as it was", _travel),
    ("Delete, update, merge: the change feed tells row by row what happened", _change),
    ("Two tables in one commit, by an owner in a SQLite file; what fits only one of them changes neither", _together),
    (f"Spark writes {_SPARK_ORDERS:,} orders: executors write files, one commit makes them count", _spark),
)
