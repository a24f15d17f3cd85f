"""`_metadata.row_id` in queries: a row is found again by its id, whatever was done to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeseal
from lakeseal.errors import LakesealError, UnsupportedExpression

TRACKED = {"delta.enableRowTracking": "true"}


@pytest.fixture
def at(tmp_path: Path) -> str:
    table = lakeseal.create(tmp_path / "t", pa.schema([("n", pa.int64()), ("s", pa.string())]), properties=TRACKED)
    table.write(pa.table({"n": [1, 2, 3], "s": ["a", "b", "c"]}))
    table.write(pa.table({"n": [4], "s": ["d"]}))
    table.delete("n = 2")
    table.update({"s": "upper(s)"}, "n = 3")
    table.optimize()
    return f"delta.`{tmp_path / 't'}`"


def asked(text: str, spark: Any = None) -> list[tuple[Any, ...]]:
    found = lakeseal.sql(text, spark)
    return [tuple(row) for row in found.collect()] if spark else [tuple(row.values()) for row in found.to_pylist()]


QUERIES = [
    ("SELECT n, _metadata.row_id FROM {t} ORDER BY n", [(1, 0), (3, 2), (4, 3)]),
    ("SELECT n, _metadata.row_commit_version AS v FROM {t} ORDER BY n", [(1, 1), (3, 4), (4, 2)]),
    ("SELECT t.n FROM {t} AS t WHERE t._metadata.row_id = 2", [(3,)]),
    ("SELECT count(*) AS c FROM {t} AS a JOIN {t} AS b ON a._metadata.row_id = b._metadata.row_id", [(3,)]),
    ("SELECT n, _METADATA.row_id FROM {t} VERSION AS OF 1 ORDER BY n", [(1, 0), (2, 1), (3, 2)]),
    ("SELECT n * 2 AS d, _metadata.row_id AS i FROM {t} WHERE n = 4", [(8, 3)]),
]


@pytest.mark.parametrize(("query", "rows"), QUERIES)
def test_rows_are_known_by_their_ids_without_spark(at: str, query: str, rows: list[Any]) -> None:
    assert asked(query.format(t=at)) == rows


@pytest.mark.spark
def test_rows_are_known_by_their_ids_with_spark(spark: Any, at: str, tmp_path: Path) -> None:
    for query, rows in QUERIES:
        assert asked(query.format(t=at), spark) == rows, query
    lakeseal.sql(f"CREATE TABLE delta.`{tmp_path / 'ids'}` AS SELECT n, _metadata.row_id AS id FROM {at}", spark)
    assert sorted(asked(f"SELECT n, id FROM delta.`{tmp_path / 'ids'}`")) == [(1, 0), (3, 2), (4, 3)]


@pytest.mark.parametrize("columns", ["*", "t.*", "n, *", "DISTINCT *"])
def test_all_columns_beside_ids_are_refused(at: str, columns: str) -> None:
    with pytest.raises(UnsupportedExpression, match="must name its columns"):
        lakeseal.sql(f"SELECT {columns}, _metadata.row_id FROM {at} AS t")


def test_a_table_that_tracks_no_rows_has_no_ids_and_keeps_a_column_of_that_name(tmp_path: Path) -> None:
    lakeseal.create(tmp_path / "t", pa.schema([("n", pa.int64())]))
    with pytest.raises(LakesealError, match="_metadata"):
        lakeseal.sql(f"SELECT _metadata.row_id FROM delta.`{tmp_path / 't'}`")
    own = pa.schema([("_metadata", pa.struct([("row_id", pa.int64())]))])
    lakeseal.create(tmp_path / "own", own, properties=TRACKED).write(pa.table({"_metadata": [{"row_id": 7}]}, own))
    assert asked(f"SELECT _metadata.row_id FROM delta.`{tmp_path / 'own'}`") == [(7,)]
