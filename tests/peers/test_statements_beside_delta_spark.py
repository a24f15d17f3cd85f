"""Random statements by the Table API, with DataFrames and as SQL, beside the same in Delta Spark on the same rows.

All must give the same rows, and the same feed where it is on, or all must refuse. Lakeseal goes further in one place:
several source rows match a row of the table, and at most one of them falls under a clause. That is not ambiguous, and
Delta Spark refuses it; then the ways of Lakeseal are held against each other.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import lakeseal
from lakeseal import errors
from oracles.rows import same_rows
from oracles.seeds import case, cases
from oracles.statements import Case, some_case

pytestmark = [pytest.mark.peers, pytest.mark.spark]

KINDS = ("delete", "update", "merge", "append", "overwrite", "replace")
_TOGETHER = 10
_DELTA = """
    spark.conf.set("spark.databricks.delta.snapshotPartitions", "1")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    result = []
    for one in todo:
        uri = one["uri"]
        told = {}
        try:
            for text in one["creation"]:
                spark.sql(text)
            spark.sql(one["source"]).createOrReplaceTempView("src")
            try:
                if one["sql"]:
                    spark.sql(one["sql"])
                else:
                    writer = spark.table("src").write.format("delta")
                    writer = writer.mode("append" if one["kind"] == "append" else "overwrite")
                    if one["evolves"]:
                        writer = writer.option("mergeSchema", "true")
                    if one["where"]:
                        writer = writer.option("replaceWhere", one["where"])
                    writer.save(uri)
            except Exception as error:
                try:
                    told["refused"] = f"{type(error).__name__}: {error}"[:400]
                except Exception:
                    told["refused"] = type(error).__name__
            frame = spark.read.format("delta").load(uri)
            told["rows"] = [row[0] for row in frame.selectExpr(
                "to_json(struct(*), map('ignoreNullFields', 'false'))").collect()]
            if one["feed"] and "refused" not in told:
                first = len(one["creation"])
                changes = spark.read.format("delta").option("readChangeFeed", "true")
                try:
                    found = changes.option("startingVersion", first).load(uri)
                    found = found.drop("_commit_timestamp", "_commit_version")
                    told["feed"] = [row[0] for row in found.selectExpr(
                        "to_json(struct(*), map('ignoreNullFields', 'false'))").collect()]
                except Exception:
                    told["feed"] = []
        except Exception as error:
            told = {"broken": f"{type(error).__name__}: {error}"[:600]}
        result.append(told)
"""


def test_statements_do_what_they_do_in_delta_spark(spark: Any, delta_spark: Any, tmp_path: Path) -> None:
    every = list(cases(4, 2000))
    for start in range(0, len(every), _TOGETHER):
        made: dict[int, Case] = {}
        for seed in every[start : start + _TOGETHER]:
            with case(seed) as chance:
                made[seed] = some_case(chance, kinds=KINDS, fails=0.1)
        answers = delta_spark.run(_DELTA, todo=todo(made, tmp_path))
        for (seed, one), told in zip(made.items(), answers, strict=True):
            with case(seed):
                assert "broken" not in told, (told, one)
                _beside(spark, one, told, tmp_path / str(seed))


def todo(made: dict[int, Case], root: Path) -> list[dict[str, Any]]:
    return [
        {
            "uri": str(root / f"{seed}-theirs"),
            "creation": one.creation(str(root / f"{seed}-theirs")),
            "source": one.source,
            "sql": one.statement.sql(str(root / f"{seed}-theirs")),
            "kind": one.statement.kind,
            "where": one.statement.where,
            "evolves": one.statement.evolves,
            "feed": one.feed,
        }
        for seed, one in made.items()
    ]


def _beside(spark: Any, one: Case, told: dict[str, Any], root: Path) -> None:
    refused = told.get("refused")
    goes_further = refused is not None and "MULTIPLE_SOURCE_ROW_MATCHING" in refused
    judge, judged_feed = [json.loads(row) for row in told["rows"]], [json.loads(row) for row in told.get("feed", [])]
    first: list[dict[str, Any]] | None = None
    for way in ("arrow", "frames", "sql"):
        about = f"{way}: {one.statement.sql('x') or one.statement}\nsource: {one.source}"
        table = one.table(f"{root}-{way}")
        version = table.version()
        try:
            done = _run(spark, one, table, way)
        except errors.UnsupportedExpression:
            assert way == "arrow", about
            continue
        except errors.LakesealError as error:
            assert refused is not None, f"{about}\nrefused: {error!r}"
            assert table.version() == version, about
            continue
        if not done:
            continue
        rows = table.to_arrow().to_pylist(maps_as_pydicts="strict")
        if goes_further:
            first = rows if first is None else first
            same_rows(rows, first, about)
            continue
        assert refused is None, f"{about}\nDelta Spark refuses it: {refused}"
        same_rows(rows, judge, about)
        if one.feed:
            found = table.changes(version + 1).to_pylist(maps_as_pydicts="strict") if table.version() > version else []
            for row in found:
                del row["_commit_version"], row["_commit_timestamp"]
            same_rows(found, judged_feed, f"feed of {about}")


def _run(spark: Any, one: Case, table: Any, way: str) -> bool:
    """Whether there is such a way."""
    source = spark.sql(one.source)
    if way == "sql":
        text = one.statement.sql(table.uri)
        if text is None:
            return False
        source.createOrReplaceTempView("src")
        lakeseal.sql(spark, text)
    elif way == "frames":
        one.statement.run(table, source, spark)
    else:
        one.statement.run(table, source.toArrow(), None)
    return True
