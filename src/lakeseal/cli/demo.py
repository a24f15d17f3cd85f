"""`lakeseal demo`: the main job on embedded defaults, told step by step."""

from __future__ import annotations

import datetime as dt
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import pyarrow as pa
import typer

from lakeseal.cli.java import OLDEST
from lakeseal.cli.options import AsJson
from lakeseal.cli.output import Output
from lakeseal.cli.spark_session import spark_session
from lakeseal.errors import SchemaMismatch, Unsupported
from lakeseal.ingest.pipeline import Pipeline
from lakeseal.repository import Repository
from lakeseal.table import Table, create
from lakeseal.transactions import snapshots, transaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
        with _Stage(folder) as stage:
            for number, (title, step) in enumerate(_STORY, start=1):
                out.say(f"\n{number}. {title}", style="bold")
                told = step(stage)
                out.record({"step": number, "title": title, **told} if out.json else told)
    finally:
        if keep:
            out.say(f"\nThe table is in {folder / 'orders'}; try: lakeseal history {folder / 'orders'}")
        else:
            shutil.rmtree(folder)
            out.say("\nThe table is gone again; with --keep it stays.", style="dim")


class _Stage:
    """What the steps of the story share; Spark starts with the first step that needs it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.uri = str(folder / "orders")
        self._spark: SparkSession | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._spark is not None:
            self._spark.stop()

    @property
    def spark(self) -> SparkSession | None:
        """None where Spark can't be had."""
        if self._spark is None:
            with suppress(Unsupported):
                self._spark = spark_session("lakeseal demo", log=self.folder / "spark.log")
        return self._spark


_WITHOUT_SPARK = {"left out": f"Spark needs Java {OLDEST} or newer and pip install 'lakeseal[spark]'"}


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


def _write(stage: _Stage) -> dict[str, Any]:
    table = Table(stage.uri)
    table.write(_orders(0, _ORDERS), partition_by=["day"])
    return {"version": table.version(), "rows written": _ORDERS, "files": len(table.files())}


def _refuse(stage: _Stage) -> dict[str, Any]:
    table = Table(stage.uri)
    before = table.version()
    wrong = pa.table({"id": pa.array(["not a number"]), "colour": pa.array(["red"])})
    try:
        table.write(wrong)
    except SchemaMismatch as error:
        return {"version before and after": f"{before} and {table.version()}", "why": str(error)}
    raise AssertionError("a table took rows that do not fit it")


def _race(stage: _Stage) -> dict[str, Any]:
    table = Table(stage.uri)
    start = table.version()

    def writer(number: int) -> None:
        own = Table(stage.uri)
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


def _query(stage: _Stage) -> dict[str, Any]:
    table = Table(stage.uri)
    where = "day = DATE'2026-03-02' AND cents > 9000"
    found = table.to_arrow(where=where, columns=["id", "item", "cents"])
    return {
        "where": where,
        "rows found": found.num_rows,
        "first rows": found.slice(0, 2).to_pylist(),
    }


def _travel(stage: _Stage) -> dict[str, Any]:
    table = Table(stage.uri)
    return {
        "rows in version 0": table.to_arrow(version=0).num_rows,
        f"rows in version {table.version()}": table.to_arrow().num_rows,
    }


def _change(stage: _Stage) -> dict[str, Any]:
    table = Table(stage.uri)
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


def _together(stage: _Stage) -> dict[str, Any]:
    folder = stage.folder
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


def _branches(stage: _Stage) -> dict[str, Any]:
    repo = Repository.create(stage.folder / "repo")
    repo.write(_orders(0, 1_000), "main", "shop/orders", partition_by=["day"])
    repo.create_branch("audit", "main")
    repo.write(_orders(0, 10), "audit", "shop/orders", mode="overwrite", format="parquet")
    merged_before = repo.to_arrow("main", "shop/orders").num_rows
    repo.merge("audit", "main")
    return {
        "rows on main before and after": f"{merged_before} and {repo.to_arrow('main', 'shop/orders').num_rows}",
        "commits": len(list(repo.log("main"))),
    }


def _on_spark(stage: _Stage) -> dict[str, Any]:
    spark = stage.spark
    if spark is None:
        return _WITHOUT_SPARK
    table = Table(stage.uri)
    before = table.version()
    orders = spark.range(_SPARK_ORDERS).selectExpr(
        f"id + {10 * _ORDERS} AS id",
        f"date_add(DATE'2026-03-01', CAST(id % {_DAYS} AS INT)) AS day",
        "concat('item ', id % 97) AS item",
        "100 + id * 37 % 9000 AS cents",
    )
    table.write(orders)
    sums = table.to_spark(spark).groupBy("day").count().orderBy("day").collect()
    return {
        "commits": table.version() - before,
        "rows written": _SPARK_ORDERS,
        "Spark counts": {str(row["day"]): row["count"] for row in sums},
    }


def _ingest(stage: _Stage) -> dict[str, Any]:
    spark = stage.spark
    if spark is None:
        return _WITHOUT_SPARK
    landing = stage.folder / "landing"
    landing.mkdir()
    (stage.folder / "clicks.yaml").write_text(
        f"""
name: clicks
ledger: sqlite:///{stage.folder}/ledger.db
datasets:
  - name: events
    source: {{type: files, path: {landing}, format: json, schema: "id long, page string"}}
    quality: [{{rule: "id IS NOT NULL", on_fail: error_table}}]
    target: {{type: table, uri: {stage.folder}/events}}
""",
        encoding="utf-8",
    )
    pipeline = Pipeline.from_yaml(stage.folder / "clicks.yaml")
    published = []
    for run in range(2):
        lines = [f'{{"id": {run * 100 + n}, "page": "home"}}' for n in range(100)]
        (landing / f"{run}.json").write_text("\n".join([*lines, '{"page": "no id"}']), encoding="utf-8")
        published.append(pipeline.run(spark).datasets[0].rows)
    owner = f"sqlite:///{stage.folder}/ledger.db"
    return {
        "rows published by each run": published,
        "rows there": Table(stage.folder / "events", owner=owner).to_arrow().num_rows,
        "rows set aside": Table(stage.folder / "events_errors", owner=owner).to_arrow().num_rows,
    }


_STORY: tuple[tuple[str, Callable[[_Stage], dict[str, Any]]], ...] = (
    (f"Write {_ORDERS:,} orders, partitioned by day: one commit, all of it or nothing", _write),
    ("Write rows that do not fit: refused, and nothing of them is visible", _refuse),
    (f"{_WRITERS} writers append {_APPENDS} times each, all at once: every commit counts, once", _race),
    ("Read with a condition: only the partition and the files that can match are opened", _query),
    ("Read an older version: what was committed stays as it was", _travel),
    ("Delete, update, merge: the change feed tells row by row what happened", _change),
    ("Two tables in one commit, by an owner in a SQLite file; what fits only one of them changes neither", _together),
    ("Plain files on a branch: written, looked at, then merged into main in one step", _branches),
    (f"Spark writes {_SPARK_ORDERS:,} orders: executors write files, one commit makes them count", _on_spark),
    ("Ingest files as they land: each row once, bad ones aside, rows and watermarks in one commit", _ingest),
)
