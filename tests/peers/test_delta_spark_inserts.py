"""INSERT by position, with a list of columns and by name: where fields of structs go, on Delta Spark and on ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakeseal

pytestmark = [pytest.mark.peers, pytest.mark.spark]

COLUMNS = "id INT, s STRUCT<a: INT, b: INT>, l ARRAY<STRUCT<a: INT, b: INT>>, m MAP<STRING, STRUCT<a: INT, b: INT>>"
TURNED = "named_struct('b', 20, 'a', 10)"
INSERTS = (
    f"INSERT INTO {{t}} SELECT 1, {TURNED}, array({TURNED}), map('k', {TURNED})",
    f"INSERT INTO {{t}} VALUES (2, {TURNED}, array({TURNED}), map('k', {TURNED}))",
    "INSERT INTO {t} SELECT 3, struct(20, 10), array(struct(20, 10)), map('k', struct(20, 10))",
    f"INSERT INTO {{t}} (s, id, m, l) SELECT {TURNED}, 4, map('k', struct(20, 10)), array(struct(20, 10))",
    f"INSERT INTO {{t}} (id, s, l, m) SELECT 6, {TURNED}, array(struct(20, 10)), map('k', struct(20, 10))",
    f"INSERT INTO {{t}} BY NAME SELECT array({TURNED}) AS l, {TURNED} AS s, map('k', {TURNED}) AS m, 5 AS id",
)
DELTA = """
    spark.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta")
    for text in inserts:
        spark.sql(text.format(t=f"delta.`{path}`"))
    found = spark.sql(f"SELECT id, s.a, s.b, l[0].a, l[0].b, m['k'].a, m['k'].b FROM delta.`{path}` ORDER BY id")
    result = [list(row) for row in found.collect()]
"""


def test_fields_of_inserted_structs_go_where_delta_spark_puts_them(
    spark: Any, delta_spark: Any, tmp_path: Path
) -> None:
    there = delta_spark.run(DELTA, path=str(tmp_path / "there"), columns=COLUMNS, inserts=INSERTS)
    ours = f"delta.`{tmp_path / 'ours'}`"
    lakeseal.sql(f"CREATE TABLE {ours} ({COLUMNS})", spark)
    for text in INSERTS:
        lakeseal.sql(text.format(t=ours), spark)
    here = [
        [row["id"], *(one[name] for one in (row["s"], row["l"][0], row["m"]["k"]) for name in ("a", "b"))]
        for row in lakeseal.Table(tmp_path / "ours").to_arrow().sort_by("id").to_pylist(maps_as_pydicts="strict")
    ]
    assert here == there
