"""Delta Spark over our files finds every row, and says how it reads `char(n)`, which we follow."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeseal
from oracles.extremes import extremes
from oracles.seeds import case, cases

pytestmark = pytest.mark.peers

COUNTS = """
from concurrent.futures import ThreadPoolExecutor
from pyspark.sql import functions as F

# Compiling a query takes longer than running it over a few rows, and a small log has no use for fifty partitions.
small = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
}

def counts(one):
    uri, asked = one
    session = spark.newSession()
    for name, value in small.items():
        session.conf.set(name, value)
    df = session.read.format("delta").load(uri)
    looking = df.select(*(F.count(F.when(F.expr(text), 1)) for text in asked)).first()
    whole = None
    for place, text in enumerate(asked):
        one = df.where(text).selectExpr("count(*) AS n", f"{place} AS place")
        whole = one if whole is None else whole.union(one)
    skipping = {row["place"]: row["n"] for row in whole.coalesce(1).collect()}
    return [[skipping[n], looking[n]] for n in range(len(asked))]

# Small jobs wait for one another more than for a processor.
with ThreadPoolExecutor(3) as pool:
    result = list(pool.map(counts, tables))
"""
_TOGETHER = 6


def test_delta_spark_skips_no_row_of_our_files(delta_spark: Any, tmp_path: Path) -> None:
    every = list(cases(2, 300))
    for start in range(0, len(every), _TOGETHER):
        asked: dict[int, list[str]] = {}
        for seed in every[start : start + _TOGETHER]:
            with case(seed) as chance:
                found = extremes(chance, tmp_path / str(seed), writers=("lakeseal",), conditions=4)
                asked[seed] = [condition.sql() for condition in found.conditions]
        told = delta_spark.run(COUNTS, tables=[(str(tmp_path / str(seed)), texts) for seed, texts in asked.items()])
        for (seed, texts), counts in zip(asked.items(), told, strict=True):
            with case(seed):
                assert not [
                    f"{text}: {skipping} rows where {looking} are right"
                    for text, (skipping, looking) in zip(texts, counts, strict=True)
                    if skipping != looking
                ]


def test_delta_spark_finds_nan_and_negative_zeros_in_our_files(delta_spark: Any, tmp_path: Path) -> None:
    values = pa.array([math.nan, 1.5, -1.0, -0.0])
    lakeseal.Table(tmp_path / "table").write(pa.table({"f": values, "s": pa.StructArray.from_arrays([values], ["f"])}))
    asked = ["f > 2", "f = 'NaN'", "NOT (f < 2)", "f = 0", "f >= 0", "s.f > 2", "s.f = 0"]
    (counts,) = delta_spark.run(COUNTS, tables=[(str(tmp_path / "table"), asked)])
    assert counts == [[1, 1], [1, 1], [1, 1], [1, 1], [3, 3], [1, 1], [1, 1]]


def test_char_columns_of_delta_spark_are_read_as_it_reads_them(delta_spark: Any, tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    found = delta_spark.run(
        """
        spark.sql(f"CREATE TABLE delta.`{uri}` (id LONG, c CHAR(3), v VARCHAR(3), s STRUCT<c: CHAR(3)>) USING delta")
        spark.sql(f'''INSERT INTO delta.`{uri}` VALUES
            (1, 'q', 'q', struct('q')), (2, 'q  ', 'q  ', null), (3, 'qqq', 'qqq', null), (4, '', '', null)''')
        df = spark.read.format("delta").load(uri)
        asked = ["c = 'q'", "c = 'q '", "c IN ('q', 'z')", "c < 'qa'", "c = ''", "c LIKE 'q'", "length(c) = 3",
                 "v = 'q'", "s.c = 'q'", "upper(c) = 'Q'", "c = v"]
        result = {"asked": {}, "rows": [list(row) for row in df.orderBy("id").collect()]}
        for text in asked:
            result["asked"][text] = sorted(row["id"] for row in df.where(text).select("id").collect())
        spark.conf.set("spark.sql.readSideCharPadding", "false")
        result["stored"] = [row["c"] for row in spark.read.format("delta").load(uri).orderBy("id").collect()]
        spark.conf.unset("spark.sql.readSideCharPadding")
        """,
        uri=uri,
    )
    assert found["stored"] == ["q", "q  ", "qqq", ""]
    assert found["asked"] == {
        "c = 'q'": [1, 2], "c = 'q '": [1, 2], "c IN ('q', 'z')": [1, 2], "c < 'qa'": [1, 2, 4], "c = ''": [4],
        "c LIKE 'q'": [], "length(c) = 3": [1, 2, 3, 4], "v = 'q'": [1], "s.c = 'q'": [], "upper(c) = 'Q'": [],
        "c = v": [2, 3],
    }  # fmt: skip
    ours = lakeseal.Table(uri).to_arrow().sort_by("id").to_pylist()
    assert [[row["id"], row["c"], row["v"], row["s"] and [row["s"]["c"]]] for row in ours] == found["rows"]


def test_char_columns_that_we_wrote_are_found_by_delta_spark(delta_spark: Any, tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    delta_spark.run("spark.sql(f'CREATE TABLE delta.`{uri}` (id LONG, c CHAR(3)) USING delta')", uri=uri)
    lakeseal.Table(uri).write(pa.table({"id": [1, 2], "c": ["q", "rr"]}))
    found = delta_spark.run(
        """
        df = spark.read.format("delta").load(uri)
        result = [sorted(row["id"] for row in df.where(text).collect()) for text in ("c = 'q'", "c > 'q'", "c = 'rr '")]
        """,
        uri=uri,
    )
    assert found == [[1], [2], [2]]
