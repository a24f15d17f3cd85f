"""A table that Spark wrote through Lakeseal, read by everybody else: the same rows."""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extensions
import polars
import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's users know

from lakeseal import Table
from oracles.chdb_process import Chdb

pytestmark = pytest.mark.spark

COLUMNS = ("id", "p", "day", "price", "ratio", "at", "text", "tags", "st", "late")
ODD = ("a/b", "a?b", "100%", "%3A", "10:30", "a=b", "#", "é", " ", "", None)
# Too long for the name of a directory, which is where polars looks for partition values; all others ask the log.
LONG = "z" * 256
ROWS = 600
UTC = datetime.UTC


def expected() -> Counter[Any]:
    rows: list[dict[str, Any]] = []
    for n in range(ROWS):
        rows.append(
            {
                "id": n,
                # The format has no empty partition values.
                "p": ODD[n % len(ODD)] or None,
                "day": datetime.date(1969, 12, 1) + datetime.timedelta(days=n),
                "price": Decimal(n) / 100 - 3,
                "ratio": n / 4 if n % 5 else None,
                "at": datetime.datetime(2024, 1, 1, tzinfo=UTC) + datetime.timedelta(seconds=n, microseconds=n),
                "text": "replaced" if 100 <= n < 120 else f"row {n}",
                "tags": [f"t{n % 3}", ""] if n % 2 else [],
                "st": {"a": n % 7, "b": "ß"},
                "late": n if 100 <= n < 120 else None,
            }
        )
    return counted(rows)


def counted(rows: Iterable[dict[str, Any]]) -> Counter[Any]:
    """Every reader has a name of its own for UTC, and a form of its own for decimals."""
    alike = ({**row, "at": row["at"].astimezone(UTC), "price": Decimal(row["price"]).normalize() + 0} for row in rows)
    return Counter(str([row[name] for name in COLUMNS]) for row in alike)


@pytest.fixture(scope="module")
def table(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Appended by four tasks, then partly replaced by rows with one more column."""
    odd = F.create_map(*(F.lit(x) for n, text in enumerate(ODD) for x in (n, text)))
    rows = spark.range(0, ROWS, 1, 4).select(
        "id",
        odd[(F.col("id") % len(ODD)).cast("int")].alias("p"),
        F.expr("date_add(DATE'1969-12-01', CAST(id AS INT)) AS day"),
        F.expr("CAST(id / 100BD - 3 AS DECIMAL(9,2)) AS price"),
        F.expr("CASE WHEN id % 5 <> 0 THEN id / 4 END AS ratio"),
        F.expr("timestamp_micros(unix_micros(TIMESTAMP'2024-01-01 00:00:00Z') + id * 1000001) AS at"),
        F.expr("concat('row ', id) AS text"),
        F.expr("CASE WHEN id % 2 = 1 THEN array(concat('t', id % 3), '') ELSE array() END AS tags"),
        F.expr("named_struct('a', CAST(id % 7 AS INT), 'b', 'ß') AS st"),
    )
    table = Table(tmp_path_factory.mktemp("readers") / "t")
    table.write(rows, partition_by=["p"])
    new = rows.where("id BETWEEN 100 AND 119").withColumns({"text": F.lit("replaced"), "late": F.col("id")})
    table.write(new, mode="overwrite", replace_where="id >= 100 AND id < 120", merge_schema=True)
    return table


@pytest.fixture
def path(table: Table) -> str:
    path = Path(table.uri.removeprefix("file://"))
    return str(path)


def by_deltalake(path: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(path).to_pyarrow_table().to_pylist()
    return rows


def by_polars(path: str) -> list[dict[str, Any]]:
    return polars.read_delta(path).to_dicts()


def by_duckdb(path: str) -> list[dict[str, Any]]:
    duckdb_extensions.import_extension("delta")
    with duckdb.connect() as connection:
        connection.execute("LOAD delta; SET TimeZone = 'UTC'")
        rows: list[dict[str, Any]] = (
            connection.execute(f"SELECT * FROM delta_scan('{path}')").to_arrow_table().to_pylist()
        )
    return rows


def by_chdb(path: str) -> list[dict[str, Any]]:
    """As JSON has no dates and one kind of numbers, these come in a form that can be made what they were."""
    exact = "* REPLACE (toString(price) AS price, toUnixTimestamp64Micro(at) AS at)"
    with Chdb(Path(path).parent) as chdb:
        answer = chdb.query(f"SELECT {exact} FROM deltaLakeLocal('{path}')", "JSONEachRow")
    rows = [json.loads(line) for line in answer.splitlines()]
    for row in rows:
        row["id"] = int(row["id"])
        row["late"] = None if row["late"] is None else int(row["late"])
        row["ratio"] = None if row["ratio"] is None else float(row["ratio"])
        row["day"] = datetime.date.fromisoformat(row["day"])
        row["at"] = datetime.datetime(1970, 1, 1, tzinfo=UTC) + datetime.timedelta(microseconds=int(row["at"]))
    return rows


@pytest.mark.parametrize("read", [by_deltalake, by_polars, by_duckdb, by_chdb])
def test_everybody_reads_the_same_rows(read: Callable[[str], list[dict[str, Any]]], path: str, table: Table) -> None:
    assert counted(table.to_arrow().to_pylist()) == expected()
    assert counted(read(path)) == expected()


@pytest.mark.parametrize("read", [by_deltalake, by_duckdb, by_chdb])
def test_a_partition_value_may_be_longer_than_a_file_name(
    read: Callable[[str], list[dict[str, Any]]], path: str, table: Table, spark: Any
) -> None:
    copy = Table(f"{path}-{read.__name__}")
    row = spark.createDataFrame(
        [(1, LONG, Decimal(1), datetime.datetime(2024, 1, 1))], "id long, p string, price decimal(9,2), at timestamp"
    )
    copy.write(row.selectExpr("*", "0D AS ratio", "DATE'2024-01-01' AS day", "id AS late"), partition_by=["p"])
    assert [found["p"] for found in read(copy.uri.removeprefix("file://"))] == [LONG]
