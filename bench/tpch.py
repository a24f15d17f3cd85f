"""tpch: TPC-H at scale 1 (LAKESEAL_BENCH_SCALE for another), loaded, upserted, deleted from and queried.

DuckDB makes the rows as Parquet files, and says what is right. Each side has a Spark of its own on all cores, with as
much memory, and has done the same at a small scale before anything is timed.

- `load`: eight frames of Parquet become eight tables.
- `upsert 1.2% of lineitem`: a merge by key of a cached frame, half of it known lines in all parts of the table, half
  new ones. `delete 1.2% of lineitem`: by a condition on the order's key. Both on a table of the same files. Facts are
  the rows that are there afterwards and what they sum up to.
- `query 6 by format`, after all of that: one aggregate over four of the sixteen columns of `lineitem`, by `to_spark`,
  by `format("lakeseal")`, which reads all columns, and by the same with the options `columns` and `where`, in turns in
  one session; all three have the same sum.
- `22 queries`, after all of that: by views of `to_spark`, and by views of Spark's own reader over the very same Parquet
  files, in one session; beside Delta Spark in its own. They take turns query by query, each as often first as the
  other: Spark keeps what it compiles by its text, both ways have the same, and of 22 queries it does not keep all, so
  who comes first in a turn compiles for both. Before, each way's answer is compared with DuckDB's, which took the same
  steps on the same rows.

Beside Delta Spark with `make bench-peers`, alone otherwise.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import harness
from delta_spark import DeltaSpark
from harness import Subject, Timer, cpu_of_children, data_folder, delta_spark_is_wanted

if TYPE_CHECKING:
    from harness import Report
    from pyspark.sql import SparkSession

SCALE = os.environ.get("LAKESEAL_BENCH_SCALE", "1")
SMALL = "0.01"
TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")
NEW_KEYS = 100_000_000
CHANGES = f"""
    SELECT * REPLACE (l_quantity + 1 AS l_quantity, l_receiptdate + 40 AS l_receiptdate)
    FROM lineitem WHERE l_orderkey % 167 = 3
    UNION ALL SELECT * REPLACE (l_orderkey + {NEW_KEYS} AS l_orderkey) FROM lineitem WHERE l_orderkey % 167 = 5
"""
ON = "t.l_orderkey = s.l_orderkey AND t.l_linenumber = s.l_linenumber"
GONE = "l_orderkey % 83 = 11"
MEMORY = "3g"
CHANGED = {"upsert 1.2% of lineitem": "upsert", "delete 1.2% of lineitem": "delete"}
QUERIES = "22 queries"
FORMAT = "query 6 by format"
QUERY_6 = """
    SELECT sum(l_extendedprice * l_discount) AS revenue FROM lines
    WHERE l_shipdate >= date'1994-01-01' AND l_shipdate < date'1995-01-01'
    AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24
"""
SAID = {
    "columns": "l_extendedprice,l_discount",
    "where": "l_shipdate >= date'1994-01-01' AND l_shipdate < date'1995-01-01' "
    "AND l_discount BETWEEN 0.05BD AND 0.07BD AND l_quantity < 24BD",
}


def main(report: Report) -> None:
    source = str(data_folder(f"tpch-{SCALE}", build, scale=SCALE))
    small = str(data_folder(f"tpch-{SMALL}", build, scale=SMALL))
    beside = {"Delta Spark": 1.5}

    def sides(ours: Callable[..., Any], peer: Callable[..., Any], **arguments: str) -> list[Subject]:
        found = [Subject(name="lakeseal", function=ours, arguments=arguments)]
        if delta_spark_is_wanted():
            found.append(Subject(name="Delta Spark", function=peer, arguments=arguments))
        return found

    subjects = sides(load_lakeseal, load_delta_spark, source=source, small=small)
    report.compare("load", subjects, targets=beside, warm_up=False)
    loaded = str(data_folder(f"tpch-{SCALE}-loaded", build_loaded, source=source))
    small_loaded = str(data_folder(f"tpch-{SMALL}-loaded", build_loaded, source=small))
    for case, command in CHANGED.items():
        told = {"source": source, "loaded": loaded, "small": small, "small_loaded": small_loaded, "command": command}
        report.compare(case, sides(change_lakeseal, change_delta_spark, **told), targets=beside, warm_up=False)
    if report.wants(FORMAT):
        changed = str(data_folder(f"tpch-{SCALE}-changed", build_changed, source=source))
        with report.watched(FORMAT):
            asked = {"tables": changed, "rounds": report.repeats}
            took = harness.in_fresh_process(Subject(name=FORMAT, function=by_format, arguments=asked))["facts"]
        report.fact(FORMAT, **{f"{way}, s": seconds for way, seconds in took.items()})
    if report.wants(QUERIES):
        _compare_queries(report, source, str(data_folder(f"tpch-{SCALE}-changed", build_changed, source=source)))


def _compare_queries(report: Report, source: str, tables: str) -> None:
    rounds = report.repeats + report.repeats % 2
    asked = {"source": source, "tables": tables, "rounds": rounds, "peer": delta_spark_is_wanted()}
    with report.watched(QUERIES):
        took = harness.in_fresh_process(Subject(name=QUERIES, function=queries, arguments=asked))["facts"]
    whole = {way: sum(found) for way, found in took.items()}
    report.fact(QUERIES, **{f"{way}, s": seconds for way, seconds in whole.items()})
    ours = whole["to_spark"]
    report.target(QUERIES, f"{QUERIES}: to_spark beside plain Parquet", whole["plain Parquet"] / ours, 0.95)
    if "Delta Spark" in whole:
        report.target(QUERIES, f"{QUERIES}: to_spark beside Delta Spark", whole["Delta Spark"] / ours, 1.0)
    slowest = max(range(22), key=lambda n: took["to_spark"][n] / took["plain Parquet"][n])
    ratio = took["to_spark"][slowest] / took["plain Parquet"][slowest]
    report.fact(QUERIES, **{"slowest beside plain Parquet": f"query {slowest + 1}, {ratio:.2f}×"})


def build(folder: Path, scale: str) -> None:
    import duckdb

    from oracles.tpch import queries_of

    with duckdb.connect() as duck:
        queries_of(duck)
        duck.execute(f"CALL dbgen(sf = {scale})")
        for name in TABLES:
            duck.execute(f"COPY {name} TO '{folder}/{name}.parquet'")
        duck.execute(f"COPY ({CHANGES}) TO '{folder}/changes.parquet'")


def build_loaded(folder: Path, source: str) -> None:
    with _spark() as spark:
        _load(spark, source, folder)


def build_changed(folder: Path, source: str) -> None:
    import lakeseal

    with _spark() as spark:
        _load(spark, source, folder)
        lineitem = lakeseal.Table(folder / "lineitem")
        _change(spark, lineitem, "upsert", source)
        _change(spark, lineitem, "delete", source)


def load_lakeseal(timer: Timer, source: str, small: str) -> Any:
    with _spark() as spark, _room(source) as folder:
        _load(spark, small, folder / "small")
        with timer, cpu_of_children(timer):
            _load(spark, source, folder / "tables")
        return {name: _facts(folder / "tables" / name) for name in TABLES}


def load_delta_spark(timer: Timer, source: str, small: str) -> Any:
    code = """
        for name in tables:
            spark.read.parquet(f"{source}/{name}.parquet").write.format("delta").save(f"{target}/{name}")
    """
    with DeltaSpark(memory=MEMORY) as peer, _room(source) as folder:
        peer.run(code, tables=TABLES, source=small, target=str(folder / "small"))
        peer.run(code, timer, tables=TABLES, source=source, target=str(folder / "tables"))
        return {name: _facts(folder / "tables" / name) for name in TABLES}


def change_lakeseal(timer: Timer, source: str, loaded: str, small: str, small_loaded: str, command: str) -> Any:
    import lakeseal

    with _spark() as spark, _room(source) as folder:
        for number in range(2):
            _change(spark, lakeseal.Table(_copied(small_loaded, folder / f"small-{number}")), command, small)
        table = lakeseal.Table(_copied(loaded, folder / "lineitem"))
        news = _news(spark, source)
        with timer, cpu_of_children(timer):
            _change(spark, table, command, source, news)
        return _facts(folder / "lineitem")


def change_delta_spark(timer: Timer, source: str, loaded: str, small: str, small_loaded: str, command: str) -> Any:
    cached = "spark.read.parquet(path).cache().createOrReplaceTempView('news'); result = spark.table('news').count()"
    texts = {
        "upsert": f"MERGE INTO delta.`{{uri}}` t USING news s ON {ON} "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        "delete": f"DELETE FROM delta.`{{uri}}` WHERE {GONE}",
    }
    code = f"spark.sql(f'{texts[command]}')"
    with DeltaSpark(memory=MEMORY) as peer, _room(source) as folder:
        peer.run(cached, path=f"{small}/changes.parquet")
        for number in range(2):
            peer.run(code, uri=_copied(small_loaded, folder / f"small-{number}"))
        peer.run(cached, path=f"{source}/changes.parquet")
        peer.run(code, timer, uri=_copied(loaded, folder / "lineitem"))
        return _facts(folder / "lineitem")


def by_format(timer: Timer, tables: str, rounds: int) -> dict[str, float]:
    """Seconds of query 6, by way: medians of the rounds, after one that does not count."""
    import lakeseal

    with _spark() as spark:
        lakeseal.register(spark)
        lines = lakeseal.Table(f"{tables}/lineitem")
        reader = spark.read.format("lakeseal")
        ways = {
            "to_spark": (lines.to_spark(spark), QUERY_6),
            "format": (reader.load(lines.uri), QUERY_6),
            "format, columns and where": (
                spark.read.format("lakeseal").options(**SAID).load(lines.uri),
                QUERY_6.partition("WHERE")[0],
            ),
        }
        took: dict[str, list[float]] = {way: [] for way in ways}
        answers = set()
        for _ in range(rounds + 1):
            for way, (frame, text) in ways.items():
                frame.createOrReplaceTempView("lines")
                start = time.perf_counter()
                answers.add(spark.sql(text).collect()[0].revenue)
                took[way].append(time.perf_counter() - start)
        assert len(answers) == 1, answers
        return {way: statistics.median(found[1:]) for way, found in took.items()}


def queries(timer: Timer, source: str, tables: str, rounds: int, peer: bool) -> dict[str, list[float]]:
    """Seconds of each query, by way: medians of the rounds, after one that does not count."""
    import duckdb

    import lakeseal
    from oracles.tpch import compare, queries_of

    with duckdb.connect() as duck:
        texts = queries_of(duck)
        right = _right(duck, source, texts)
    with _spark() as spark, contextlib.ExitStack() as stack:
        theirs = stack.enter_context(DeltaSpark(memory=MEMORY)) if peer else None
        ours = {name: lakeseal.Table(f"{tables}/{name}") for name in TABLES}
        ways = {
            "to_spark": {name: table.to_spark(spark) for name, table in ours.items()},
            "plain Parquet": {
                name: spark.read.parquet(*(f"{tables}/{name}/{path}" for path in table.files()["path"].to_pylist()))
                for name, table in ours.items()
            },
        }
        for name in TABLES if theirs else ():
            theirs.run(
                "spark.read.format('delta').load(uri).createOrReplaceTempView(name)", uri=f"{tables}/{name}", name=name
            )
        took: dict[str, dict[int, list[float]]] = {way: {n: [] for n in texts} for way in (*ways, "Delta Spark")}
        for turn in range(rounds + 1):
            for number, text in texts.items():
                answers = {}
                # Whoever comes first in a turn comes last in the next: what one leaves behind is the other's load.
                for way in list(ways)[:: 1 if turn % 2 else -1]:
                    for name, view in ways[way].items():
                        view.createOrReplaceTempView(name)
                    start = time.perf_counter()
                    answers[way] = [tuple(row) for row in spark.sql(text).collect()]
                    took[way][number].append(time.perf_counter() - start)
                if theirs:
                    start = time.perf_counter()
                    told = theirs.run("result = [list(map(str, row)) for row in spark.sql(text).collect()]", text=text)
                    took["Delta Spark"][number].append(time.perf_counter() - start)
                if turn == 0:
                    for way, answer in answers.items():
                        compare(answer, right[number], f"query {number} by {way}")
                    if theirs:
                        texts_of = [sorted([*map(str, row)] for row in rows) for rows in (answers["to_spark"], told)]
                        assert texts_of[0] == texts_of[1], f"query {number}: Delta Spark has other rows"
        return {
            way: [statistics.median(found[number][1:]) for number in sorted(texts)]
            for way, found in took.items()
            if peer or way in ways
        }


def _right(duck: Any, source: str, texts: dict[int, str]) -> dict[int, list[tuple[Any, ...]]]:
    for name in TABLES:
        duck.execute(f"CREATE TABLE {name} AS FROM '{source}/{name}.parquet'")
    duck.execute(
        f"MERGE INTO lineitem t USING (FROM '{source}/changes.parquet') s ON ({ON}) WHEN MATCHED THEN UPDATE BY NAME "
        f"WHEN NOT MATCHED THEN INSERT BY NAME; DELETE FROM lineitem WHERE {GONE}"
    )
    return {number: duck.execute(text).fetchall() for number, text in texts.items()}


def _load(spark: SparkSession, source: str, folder: Path) -> None:
    import lakeseal

    for name in TABLES:
        lakeseal.Table(folder / name).write(spark.read.parquet(f"{source}/{name}.parquet"))


def _news(spark: SparkSession, source: str) -> Any:
    news = spark.read.parquet(f"{source}/changes.parquet").cache()
    news.count()
    return news


def _change(spark: SparkSession, table: Any, command: str, source: str, news: Any = None) -> None:
    if command == "delete":
        table.delete(GONE, spark=spark)
        return
    merge = table.merge(_news(spark, source) if news is None else news, ON)
    merge.when_matched_update("*").when_not_matched_insert("*").execute()


def _copied(tables: str, target: Path) -> str:
    """The table of lines with its data files linked: they never change."""

    def linked(one: str, other: str) -> None:
        (shutil.copy2 if "_delta_log" in one else os.link)(one, other)

    shutil.copytree(f"{tables}/lineitem", target, copy_function=linked)
    return str(target)


def _facts(uri: Path) -> dict[str, Any]:
    import duckdb

    import lakeseal

    if uri.name != "lineitem":
        return {"rows": lakeseal.Table(uri).to_arrow(columns=[]).num_rows}
    rows = lakeseal.Table(uri).to_arrow(columns=["l_orderkey", "l_quantity"])
    with duckdb.connect() as duck:
        count, keys, quantity = duck.execute(
            "SELECT count(*), sum(l_orderkey), sum(l_quantity) FROM rows"
        ).fetchone() or (0, 0, 0)
    assert count == rows.num_rows
    return {"rows": count, "keys": str(keys), "quantity": str(quantity)}


@contextlib.contextmanager
def _room(beside: str) -> Iterator[Path]:
    """On the disk that the data is on, so that files can be linked."""
    with tempfile.TemporaryDirectory(dir=Path(beside).parent, prefix="tpch-work-") as folder:
        yield Path(folder)


@contextlib.contextmanager
def _spark() -> Iterator[SparkSession]:
    from lakeseal.commit.post_commit import flush
    from lakeseal.spark.local_session import local_session

    cores = os.cpu_count() or 2
    spark = local_session("tpch", cores=cores, settings={"spark.driver.memory": MEMORY})
    spark.sparkContext.setLogLevel("ERROR")
    yield spark
    flush()
    spark.stop()
