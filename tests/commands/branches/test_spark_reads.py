"""Exported files read by plain Spark, with no options, give the rows that were written."""

from __future__ import annotations

import datetime
import math
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeseal import Repository

pytestmark = pytest.mark.spark

UTC = datetime.UTC
LETTERS = ['"', "\\", ",", "\t", " ", "'", "a", "é", "🦭", "#", "|", "%", "=", "{", "}", "\x00", ";"]
TEXTS = [
    None,
    '"',
    "\\",
    "\\\\",
    "a\\",
    '\\"',
    '"\\',
    "null",
    "\\N",
    "#x",
    " lead",
    "trail ",
    "a,b",
    '""',
    '"a"',
    "NaN",
]


def cycled(values: list[Any], rows: int) -> list[Any]:
    return [values[n % len(values)] for n in range(rows)]


def plain_rows() -> pa.Table:
    dice = random.Random(5)
    texts = TEXTS + ["".join(dice.choices(LETTERS, k=dice.randint(1, 6))) for _ in range(500)]
    rows = len(texts)
    moments = [
        datetime.datetime(2020, 2, 29, 1, 2, 3, 456789, UTC),
        None,
        datetime.datetime(1999, 12, 31, 23, 59, 59, 999999, UTC),
        datetime.datetime(2021, 3, 28, 2, 30, tzinfo=UTC),
    ]
    columns: dict[str, tuple[list[Any], pa.DataType]] = {
        "i": ([1, None, -(2**31), 2**31 - 1], pa.int32()),
        "l": ([2**63 - 1, None, -(2**63)], pa.int64()),
        "b": ([1, -128, None], pa.int8()),
        "d": ([0.1, None, math.nan, math.inf, -math.inf, 1e300, 5e-324, -0.0], pa.float64()),
        "f": ([0.1, None, math.nan, 3.4e38, 1e-45], pa.float32()),
        "bo": ([True, False, None], pa.bool_()),
        "dt": ([datetime.date(2020, 2, 29), None, datetime.date(1600, 1, 1), datetime.date(9999, 12, 31)], pa.date32()),
        "ts": (moments, pa.timestamp("us", "UTC")),
        "tn": ([m and m.replace(tzinfo=None) for m in moments], pa.timestamp("us")),
        "de": ([Decimal("1.5"), None, Decimal("-9999.999999999"), Decimal("0.000000001")], pa.decimal128(20, 9)),
    }
    made = {name: pa.array(cycled(values, rows), kind) for name, (values, kind) in columns.items()}
    return pa.table({"n": list(range(rows)), "s": texts, **made})


def nested_rows() -> pa.Table:
    rows = plain_rows()
    columns: dict[str, tuple[list[Any], pa.DataType]] = {
        "st": ([{"a": 1, "b": None}, None, {"a": None, "b": "x"}], pa.struct({"a": pa.int32(), "b": pa.string()})),
        "ar": ([[1.5, math.nan], [], None, [None]], pa.list_(pa.float64())),
        "ma": (
            [[("k", datetime.datetime(2020, 1, 1, tzinfo=UTC)), ("z", None)], [], None],
            pa.map_(pa.string(), pa.timestamp("us", "UTC")),
        ),
        "bi": ([b"\x00\xff", b"", None], pa.binary()),
    }
    for name, (values, kind) in columns.items():
        rows = rows.append_column(name, pa.array(cycled(values, rows.num_rows), kind))
    return rows


def comparable(rows: pa.Table) -> list[str]:
    # repr tells -0.0 from 0.0 and takes NaN for NaN.
    return [repr(row) for row in rows.sort_by("n").to_pylist()]


@pytest.mark.parametrize("partition_by", [(), ("bo",)])
@pytest.mark.parametrize("format", ["parquet", "csv", "json", "orc"])
def test_plain_spark_reads_the_rows_that_were_written(
    spark: Any, repo: Repository, tmp_path: Path, format: str, partition_by: tuple[str, ...]
) -> None:
    rows = plain_rows() if format == "csv" else nested_rows()
    repo.write(rows, "main", "out", format=format, partition_by=partition_by)
    repo.export("main", "out", tmp_path / "plain")
    ours = repo.to_spark(spark, "main", "out")
    theirs = spark.read.schema(ours.schema).format(format).load(str(tmp_path / "plain"))
    expected = comparable(rows)
    assert comparable(ours.select(rows.column_names).toArrow()) == expected
    assert comparable(theirs.select(rows.column_names).toArrow()) == expected
    assert comparable(repo.to_arrow("main", "out").select(rows.column_names)) == expected


def test_line_breaks_in_csv_are_read_with_sparks_own_option_for_them(
    spark: Any, repo: Repository, tmp_path: Path
) -> None:
    rows = pa.table({"n": [1, 2], "s": ["a\nb", 'c"\r\nd\\']})
    repo.write(rows, "main", "out", format="csv", header=True)
    repo.export("main", "out", tmp_path / "plain")
    found = spark.read.csv(
        str(tmp_path / "plain"), header=True, multiLine=True, schema="n long, s string", lineSep="\n"
    )
    assert comparable(found.toArrow()) == comparable(repo.to_arrow("main", "out")) == comparable(rows)


def test_schemas_are_inferred_as_they_were_where_files_tell_them(spark: Any, repo: Repository, tmp_path: Path) -> None:
    for format in ("parquet", "orc"):
        repo.write(nested_rows(), "main", format, format=format)
        repo.export("main", format, tmp_path / format)
        ours = repo.to_spark(spark, "main", format)
        assert spark.read.format(format).load(str(tmp_path / format)).schema == ours.schema
