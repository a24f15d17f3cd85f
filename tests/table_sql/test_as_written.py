"""A statement means to `lakeseal.sql` what its text means to Spark, which the same text over the bare rows says."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeseal
from oracles.rows import same_rows

pytestmark = pytest.mark.spark

LEAST = -(2**63)
ROWS = pa.table(
    {
        "v": ["its", "it's", "it''s", None, r"a\b", "ä"],
        "x": [100.0, 10.0, 1.0, None, 1000.0, 2.718281828459045],
        "d": pa.array([dt.date(2024, 1, day) for day in (1, 2, 3, 4, 5)] + [None], pa.date32()),
        "n": pa.array([12, 2, 345, None, 1, -7], pa.int32()),
        "l": pa.array([LEAST, LEAST + 1, 0, None, 2**63 - 1, 1], pa.int64()),
        "j": ['{"a": 1}', '{"a": 2}', '{"b": 1}', None, '{"a": 1.5}', "[1]"],
        "s": pa.array(
            [{"a": 1, "b": 2}, {"a": 2, "b": 1}, {"a": None, "b": 3}, None, {"a": 5, "b": 5}, {"a": 0, "b": 0}],
            pa.struct([("a", pa.int32()), ("b", pa.int32())]),
        ),
    }
)
CONDITIONS = (
    "v = 'it''s'",
    "v <> 'it''s' AND v <> 'its'",
    "v IN ('it''s', 'no') OR v = \"it\\'s\"",
    "v = r'a\\b' OR v = '\\u00e4' -- and v = 'its'",
    "log10(x) = 2",
    "log(x) >= 1 AND log(10, x) < 3",
    "datediff(d, DATE'2024-01-01') = 1",
    "datediff(DAY, DATE'2024-01-01', d) = 2",
    "to_char(n, '999') = ' 12'",
    "try_variant_get(parse_json(j), '$.a', 'int') = 1",
    "named_struct('b', n, 'a', x).b = 12",
    "s = named_struct('b', 1, 'a', 2)",
    "l = -9223372036854775808",
    "l = -9223372036854775808L OR l > 9223372036854775806",
)
VALUES = {
    "v": "concat('it''s', to_char(n, '999'), /* it's */ r'\\n')",
    "x": "log10(x) + log(2, 8)",
    "d": "date_add(d, datediff(d, DATE'2024-01-01'))",
    "n": "CAST(log10(x) AS INT)",
    "l": "-9223372036854775808",
    "j": "to_json(parse_json('{\"it''s\": [1]}'))",
    "s": "named_struct('a', n, 'b', 20)",
}


@pytest.fixture
def table(spark: Any, tmp_path: Path) -> Any:
    """And its rows as the view `bare`, which nothing of ours has touched."""
    made = lakeseal.Table(tmp_path / "t")
    made.write(ROWS)
    spark.createDataFrame(ROWS).createOrReplaceTempView("bare")
    yield made
    spark.catalog.dropTempView("bare")


@pytest.mark.parametrize("where", CONDITIONS)
def test_a_delete_takes_the_rows_that_spark_finds(spark: Any, table: Any, where: str) -> None:
    stay = spark.sql(f"SELECT * FROM bare WHERE NOT coalesce(({where}\n), false)").collect()
    assert 0 < len(stay) < ROWS.num_rows
    lakeseal.sql(f"DELETE FROM delta.`{table.uri}` WHERE {where}", spark)
    same_rows(table.to_spark(spark).collect(), stay, where)


def test_an_update_sets_what_spark_evaluates(spark: Any, table: Any) -> None:
    where = "v <> 'it''s' AND l <> -9223372036854775808"
    shown = ", ".join(f"IF({where}, {text}, {name}) AS {name}" for name, text in VALUES.items())
    wanted = spark.sql(f"SELECT {shown} FROM bare").collect()
    values = ", ".join(f"{name} = {text}" for name, text in VALUES.items())
    lakeseal.sql(f"UPDATE delta.`{table.uri}` SET {values} WHERE {where}", spark)
    same_rows(table.to_spark(spark).collect(), wanted)


def test_a_merge_says_in_each_part_what_spark_says(spark: Any, table: Any) -> None:
    on = "t.v = concat(q.w, '''s') AND datediff(t.d, DATE'2024-01-01') = log10(10)"
    left = "LEFT JOIN (SELECT 'it' AS w) q"
    wanted = spark.sql(
        f"SELECT IF(q.w IS NULL, t.v, to_char(t.n, '999')) AS v, t.x, t.d, t.n,"
        f" IF(q.w IS NULL, t.l, -9223372036854775808) AS l, t.j,"
        f" IF(q.w IS NULL, t.s, named_struct('a', 10, 'b', 20)) AS s FROM bare t {left} ON {on}"
        " UNION ALL SELECT 'isn''t', log10(1000), NULL, NULL, -9223372036854775808, NULL, named_struct('a', 1, 'b', 2)"
    ).collect()
    lakeseal.sql(
        f"MERGE INTO delta.`{table.uri}` t USING (SELECT 'it' AS w UNION ALL SELECT 'isn''t') AS q ON {on} "
        "WHEN MATCHED AND t.v = 'it''s' THEN UPDATE SET v = to_char(t.n, '999'), l = -9223372036854775808,"
        " s = named_struct('b', 20, 'a', 10) "
        "WHEN NOT MATCHED AND q.w <> 'it''s' THEN INSERT (v, x, l, s)"
        " VALUES ('isn''t', log10(1000), -9223372036854775808, named_struct('b', 2, 'a', 1))",
        spark,
    )
    same_rows(table.to_spark(spark).collect(), wanted)


def test_rows_are_inserted_and_replaced_as_they_are_written(spark: Any, table: Any) -> None:
    row = (
        "'it''s', log10(100), DATE'2024-01-09', CAST(to_char(7, '9') AS INT), -9223372036854775808,"
        " to_json(parse_json('{\"it''s\": 1}')), named_struct('a', 1, 'b', 2)"
    )
    wanted = spark.sql(f"SELECT * FROM bare WHERE v <> 'it''s' OR v IS NULL UNION ALL SELECT {row}").collect()
    lakeseal.sql(f"INSERT INTO delta.`{table.uri}` REPLACE WHERE v = 'it''s' SELECT {row}", spark)
    same_rows(table.to_spark(spark).collect(), wanted)
    lakeseal.sql(f"INSERT INTO delta.`{table.uri}` VALUES ({row})", spark)
    once_more = spark.sql(f"SELECT * FROM bare WHERE false UNION ALL SELECT {row}").collect()
    same_rows(table.to_spark(spark).collect(), [*wanted, *once_more])
