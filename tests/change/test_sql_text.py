"""SQL statements as values."""

from __future__ import annotations

from typing import Any

import pytest

from lakeseal.spark.sql import Delete, History, Merge, Optimize, Restore, Source, Update, Vacuum, parse
from lakeseal.write.merge_clauses import Clause


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DELETE FROM delta.`/a b`", Delete(path="/a b")),
        ("delete from lakeseal.`/a` x where x.id = 1 AND y > 2;", Delete(path="/a", where="id = 1 AND y > 2")),
        (
            "UPDATE delta.`/a` SET a = a + 1, s.b = 'x' WHERE id IN (1, 2)",
            Update(path="/a", values={"a": "a + 1", "s.b": "'x'"}, where="id IN (1, 2)"),
        ),
        ("UPDATE delta.`/a` AS t SET t.a = t.b", Update(path="/a", values={"a": "b"})),
        ("UPDATE\tdelta.`/a`\n SET a = 1", Update(path="/a", values={"a": "1"})),
        ("OPTIMIZE delta.`/a`", Optimize(path="/a")),
        (
            "OPTIMIZE delta.`/a` WHERE d = 1 ZORDER BY (a, `b c`)",
            Optimize(path="/a", where="d = 1", zorder_by=("a", "b c")),
        ),
        ("OPTIMIZE delta.`/a` ZORDER BY a", Optimize(path="/a", zorder_by=("a",))),
        ("VACUUM delta.`/a`", Vacuum(path="/a")),
        ("vacuum delta.`/a` RETAIN 200 HOURS DRY RUN", Vacuum(path="/a", hours=200.0, dry_run=True)),
        ("DESCRIBE HISTORY delta.`/a` LIMIT 3", History(path="/a", limit=3)),
        ("DESC HISTORY delta.`s3://b/a`", History(path="s3://b/a")),
        ("RESTORE TABLE delta.`/a` TO VERSION AS OF 3", Restore(path="/a", version=3)),
        ("RESTORE delta.`/a` TO TIMESTAMP AS OF '2024-01-01'", Restore(path="/a", timestamp="2024-01-01")),
        (
            "MERGE INTO delta.`/a` USING news ON id = news.nid WHEN MATCHED THEN UPDATE SET * "
            "WHEN NOT MATCHED THEN INSERT *",
            Merge(
                path="/a",
                source=Source(name="news"),
                on="id = news.nid",
                source_alias="news",
                clauses=(
                    Clause(kind="matched", action="update"),
                    Clause(kind="not_matched", action="insert"),
                ),
            ),
        ),
        (
            "MERGE INTO delta.`/a` AS t USING (SELECT 1 AS id) AS s ON t.id = s.id "
            "WHEN MATCHED AND s.x > 1 THEN DELETE WHEN MATCHED THEN UPDATE SET t.a = s.b, c = 3 "
            "WHEN NOT MATCHED AND s.id > 2 THEN INSERT (id, a) VALUES (s.id, 5) "
            "WHEN NOT MATCHED BY SOURCE AND t.id > 4 THEN UPDATE SET a = 1 WHEN NOT MATCHED BY SOURCE THEN DELETE",
            Merge(
                path="/a",
                source=Source(query="SELECT 1 AS id"),
                on="t.id = s.id",
                source_alias="s",
                target_alias="t",
                clauses=(
                    Clause(kind="matched", action="delete", condition="s.x > 1"),
                    Clause(kind="matched", action="update", values={"t.a": "s.b", "c": "3"}),
                    Clause(kind="not_matched", action="insert", condition="s.id > 2", values={"id": "s.id", "a": "5"}),
                    Clause(kind="not_matched_by_source", action="update", condition="t.id > 4", values={"a": "1"}),
                    Clause(kind="not_matched_by_source", action="delete"),
                ),
            ),
        ),
    ],
)
def test_a_statement_is_understood(text: str, expected: Any) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM delta.`/a`",
        "DELETE FROM people WHERE id = 1",
        "MERGE INTO people USING news ON true WHEN MATCHED THEN DELETE",
        "DESCRIBE TABLE people",
        "VACUUM people",
        "DELETE FROM delta.`/a` WHERE WHERE",
        "",
        "CREATE TABLE x (a INT)",
    ],
)
def test_everything_else_is_for_spark(text: str) -> None:
    assert parse(text) is None
