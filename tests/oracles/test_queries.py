"""A query without Spark gives what Spark finds by the same words in ANSI mode and UTC, or is refused."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException

import lakeseal
from lakeseal.errors import LakesealError
from oracles.queries import Queries, some_rows
from oracles.seeds import case, cases
from oracles.sessions import INTERPRETED, with_settings

pytestmark = pytest.mark.spark

EACH = 25
ANSI = {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "true", "spark.sql.caseSensitive": "false"}


def test_a_query_without_spark_gives_what_spark_finds(spark: Any, tmp_path: Path) -> None:
    answered = asked = 0
    with with_settings(spark, {**ANSI, **INTERPRETED, "spark.sql.shuffle.partitions": "1"}):
        for seed in cases(1, 100):
            with case(seed) as chance:
                rows = some_rows(chance)
                table = lakeseal.Table(tmp_path / str(seed))
                table.write(rows)
                table.to_spark(spark).createOrReplaceTempView("queried")
                queries = Queries(chance)
                for number in range(EACH):
                    text = queries.query()
                    asked += 1
                    answered += _same(spark, text, str(table.uri), f"query {number}: {text}")
    assert answered >= asked / 10


def _same(spark: Any, text: str, uri: str, about: str) -> bool:
    """Whether there was an answer."""
    try:
        ours = lakeseal.sql(text.replace("@t", f"delta.`{uri}`"))
    except LakesealError:
        return False
    try:
        theirs = spark.sql(text.replace("@t", "queried")).toArrow()
    except AnalysisException:
        return False  # words of DuckDB's only
    except PySparkException as error:
        # Spark computes what is constant though no row needs it.
        assert not ours.num_rows, f"{about}\n{ours}\nfails in Spark: {error}"
        return True
    ordered = " ORDER BY " in text and " OVER " not in text
    found, right = ([[_plain(v) for v in row.values()] for row in one.to_pylist()] for one in (ours, theirs))
    if not ordered:
        found, right = sorted(found, key=repr), sorted(right, key=repr)
    assert len(found) == len(right), f"{about}\n{found}\n{right}"
    for one, other in zip(found, right, strict=True):
        assert len(one) == len(other)
        assert all(map(_alike, one, other)), f"{about}\n{one}\n{other}\n{ours.schema.types}\n{theirs.schema.types}"
    return True


def _plain(value: Any) -> Any:
    """Exact numbers are one kind, floats another; a moment is that of UTC."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | Decimal):
        return Decimal(value).normalize() + 0
    if isinstance(value, float):
        return float(f"{value:.11g}") + 0.0
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None)
    return value


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12) or (math.isnan(one) and math.isnan(other))
    return type(one) is type(other) and one == other
