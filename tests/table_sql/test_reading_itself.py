"""Statements that read the very table that they change: what they read of it counts as read, at one version.

Another writer lands after the statement has read and before its transaction begins, or right before it commits. Then
the statement fails, or the table is as if one of both had gone first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeseal
from lakeseal import Table
from lakeseal import table as tables
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.errors import ConcurrentModification

Row = tuple[str, int, int]

ROWS: list[Row] = [("a", 1, 1), ("a", 2, 2), ("b", 1, 10), ("b", 2, 20)]
READ_ITSELF = (
    "INSERT INTO {t} SELECT 'c', id, v FROM {t} WHERE part = 'b'",
    "INSERT INTO {t} REPLACE WHERE part = 'a' SELECT 'a', id, v FROM {t} WHERE part = 'b'",
    "INSERT OVERWRITE {t} PARTITION (part = 'a') SELECT id, v FROM {t} WHERE part = 'b'",
    "INSERT OVERWRITE {t} SELECT * FROM {t} WHERE v > 1",
    "CREATE OR REPLACE TABLE {t} PARTITIONED BY (part) AS SELECT * FROM {t} WHERE v > 1",
    "MERGE INTO {t} t USING (SELECT id, v FROM {t} WHERE part = 'b') s ON t.part = 'a' AND t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET v = s.v",
    "MERGE INTO {t} t USING {t} s ON t.part = 'c' AND t.id = s.id WHEN NOT MATCHED THEN INSERT (part, id, v) "
    "VALUES ('c', s.id, s.v)",
)
SUBQUERIES = (
    "DELETE FROM {t} WHERE part = 'a' AND id * 10 IN (SELECT v FROM {t} WHERE part = 'b')",
    "DELETE FROM {t} WHERE part = 'a' AND EXISTS (SELECT 1 FROM {t} WHERE v = 20)",
    "UPDATE {t} SET v = (SELECT max(v) FROM {t}) WHERE part = 'a'",
    "MERGE INTO {t} t USING (SELECT 1 AS id) s ON t.part = 'a' AND t.id = s.id "
    "WHEN MATCHED AND EXISTS (SELECT 1 FROM {t} WHERE v = 10) THEN DELETE",
)
CASES = [
    *(pytest.param("duckdb", text, id=f"duckdb-{number}") for number, text in enumerate(READ_ITSELF)),
    *(
        pytest.param("spark", text, id=f"spark-{number}", marks=pytest.mark.spark)
        for number, text in enumerate((*READ_ITSELF, *SUBQUERIES))
    ),
]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table(tmp_path / "t")
    made.write(arrow(ROWS), partition_by=["part"])
    return made


def arrow(rows: list[Row]) -> pa.Table:
    parts, ids, values = zip(*rows, strict=True)
    return pa.table({"part": parts, "id": pa.array(ids, pa.int64()), "v": pa.array(values, pa.int64())})


def rows_of(table: Table) -> list[Row]:
    return sorted((row["part"], row["id"], row["v"]) for row in table.to_arrow().to_pylist())


@contextmanager
def landing(act: Callable[[], object], at: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`act` runs once: before the next transaction begins, or before it commits."""
    place: Any = tables if at == "begin" else OptimisticTransaction
    name = "_begin" if at == "begin" else "commit"
    plain = getattr(place, name)
    landed: list[object] = []

    def interrupted(*given: Any, **named: Any) -> Any:
        if not landed:
            landed.append(True)
            act()
        return plain(*given, **named)

    with monkeypatch.context() as patched:
        patched.setattr(place, name, interrupted)
        yield
    assert landed


def session_of(engine: str, request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue("spark") if engine == "spark" else None


@pytest.mark.parametrize("at", ["begin", "commit"])
@pytest.mark.parametrize(("engine", "text"), CASES)
def test_a_change_of_what_it_has_read_is_a_conflict(
    table: Table, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, engine: str, text: str, at: str
) -> None:
    session, place = session_of(engine, request), f"delta.`{table.uri}`"
    with (
        landing(lambda: Table(table.uri).update({"v": "v + 100"}, "part = 'b'"), at, monkeypatch),
        pytest.raises(ConcurrentModification),
    ):
        lakeseal.sql(text.format(t=place), session)
    assert rows_of(table) == [("a", 1, 1), ("a", 2, 2), ("b", 1, 110), ("b", 2, 120)]


@pytest.mark.parametrize("at", ["begin", "commit"])
@pytest.mark.parametrize(("engine", "text"), CASES)
def test_what_is_appended_meanwhile_comes_behind_it(
    table: Table, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, engine: str, text: str, at: str
) -> None:
    """Every statement is one of the version that it has read, so the new row is neither read nor replaced."""
    session = session_of(engine, request)
    alone = Table(f"{table.uri}_alone")
    alone.write(arrow(ROWS), partition_by=["part"])
    lakeseal.sql(text.format(t=f"delta.`{alone.uri}`"), session)
    new: Row = ("a", 1, 20)
    with landing(lambda: Table(table.uri).write(arrow([new])), at, monkeypatch):
        if "CREATE" in text:  # another schema may be that of what came meanwhile, or not
            with pytest.raises(ConcurrentModification):
                lakeseal.sql(text.format(t=f"delta.`{table.uri}`"), session)
            assert rows_of(table) == sorted([*ROWS, new])
            return
        lakeseal.sql(text.format(t=f"delta.`{table.uri}`"), session)
    assert rows_of(table) == sorted([*rows_of(alone), new])


@pytest.mark.parametrize("engine", ["duckdb", pytest.param("spark", marks=pytest.mark.spark)])
@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO {t} VALUES ('c', 5, 5)",
        "INSERT INTO {t} SELECT 'c', id, v FROM {o}",
        "INSERT INTO {t} SELECT 'c', id, v FROM {t} VERSION AS OF 0 WHERE id = 2 AND part = 'b'",
    ],
)
def test_what_does_not_read_the_table_as_it_is_goes_beside_all_changes(
    table: Table, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, engine: str, text: str
) -> None:
    session = session_of(engine, request)
    other = Table(f"{table.uri}_other")
    other.write(arrow([("c", 5, 5)]))
    places = {"t": f"delta.`{table.uri}`", "o": f"delta.`{other.uri}`"}
    with landing(lambda: Table(table.uri).update({"v": "0"}), "commit", monkeypatch):
        lakeseal.sql(text.format(**places), session)
    assert table.history(1)[0]["isBlindAppend"] is True
    assert len(rows_of(table)) == 5


@pytest.mark.parametrize("engine", ["duckdb", pytest.param("spark", marks=pytest.mark.spark)])
def test_a_table_that_is_named_twice_is_read_at_one_version(
    table: Table, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    session = session_of(engine, request)
    read = "to_arrow" if session is None else "to_spark"
    plain = getattr(Table, read)
    landed: list[object] = []

    def interrupted(self: Table, *given: Any, **named: Any) -> Any:
        found = plain(self, *given, **named)
        if not landed:
            landed.append(True)
            Table(table.uri).delete("part = 'a'")
        return found

    monkeypatch.setattr(Table, read, interrupted)
    place = f"delta.`{table.uri}`"
    query = f"SELECT count(*) AS n FROM {place} a JOIN {place} b ON a.part = b.part AND a.id = b.id"
    answer = lakeseal.sql(query, session)
    assert (answer.toArrow() if session is not None else answer).to_pylist() == [{"n": 4}]
    assert landed
