"""SQL statements as values."""

from __future__ import annotations

from typing import Any

import pytest

from lakeseal.commands.merge.clauses import Clause
from lakeseal.errors import InvalidExpression
from lakeseal.protocol.schema import LONG, StructField, StructType
from lakeseal.spark.sql import Delete, History, Merge, MergeSource, Optimize, Restore, Update, Vacuum, parse
from lakeseal.spark.sql_qualifiers import unqualified


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DELETE FROM delta.`/a b`", Delete(path="/a b")),
        (
            "delete from lakeseal.`/a` x where x.id = 1 AND y > 2;",
            Delete(path="/a", where="x.id = 1 AND y > 2", alias="x"),
        ),
        (
            "UPDATE delta.`/a` SET a = a + 1, s.b = 'x' WHERE id IN (1, 2)",
            Update(path="/a", values={"a": "a + 1", "s.b": "'x'"}, where="id IN (1, 2)"),
        ),
        ("UPDATE delta.`/a` AS t SET t.a = t.b", Update(path="/a", values={"t.a": "t.b"}, alias="t")),
        ("UPDATE\tdelta.`/a`\n SET a = 1", Update(path="/a", values={"a": "1"})),
        ("OPTIMIZE delta.`/a`", Optimize(path="/a")),
        (
            "OPTIMIZE delta.`/a` WHERE d = 1 ZORDER BY (a, `b c`)",
            Optimize(path="/a", where="d = 1", zorder_by=("a", "b c")),
        ),
        ("OPTIMIZE delta.`/a` ZORDER BY a", Optimize(path="/a", zorder_by=("a",))),
        ("OPTIMIZE delta.`/a` ZORDER BY (`a,b`, c)", Optimize(path="/a", zorder_by=("a,b", "c"))),
        (
            "OPTIMIZE delta.`/a` WHERE k = 'x ZORDER BY y'",
            Optimize(path="/a", where="k = 'x ZORDER BY y'"),
        ),
        ("  OPTIMIZE /* it */ delta . `/a``b` -- and\n where d=1", Optimize(path="/a`b", where="d=1")),
        ("-- now\nVACUUM delta.`/a`\n;", Vacuum(path="/a")),
        ("VACUUM delta.`/a` DRY  RUN\nRETAIN 0.5 HOUR", Vacuum(path="/a", hours=0.5, dry_run=True)),
        ("/* why */ DESC\nHISTORY lakeseal.`/a`", History(path="/a")),
        ('RESTORE delta.`/a` TO\tTIMESTAMP AS OF "2024-01-01"', Restore(path="/a", timestamp="2024-01-01")),
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
                source=MergeSource(name="news"),
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
                source=MergeSource(query="SELECT 1 AS id"),
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
        "DESCRIBE delta.`/a`",
        "DESCRIBE HISTORY people",
        "WITH x AS (SELECT 1) SELECT * FROM x",
        "SELECT 'DELETE FROM delta.`/a`",
        "",
        "CREATE TABLE x (a INT)",
    ],
)
def test_everything_else_is_for_spark(text: str) -> None:
    assert parse(text) is None


NASTY = """v = 'it''s' AND log10(x) > datediff(a, b) AND w <> "THEN; WHEN -- /*" -- WHERE
 AND to_char(x, '9') = r'\\WHEN' AND y > -9223372036854775808 /* ; THEN */ AND
 CASE WHEN matched THEN (CASE WHEN then_ THEN true END) ELSE `WHEN MATCHED`.`a``b` END
 AND named_struct('when', 1).when = 1"""


@pytest.mark.parametrize("end", ["", ";", " ; ", " -- that was all", " /* that was all */ ;"])
def test_a_condition_is_cut_as_it_was_written(end: str) -> None:
    assert parse(f"delete from delta.`/a` wHeRe {NASTY}{end}") == Delete(path="/a", where=NASTY)
    assert parse(f"UPDATE delta.`/a` SET x = {NASTY}, `y z` = f({NASTY}\n, 1) WHERE {NASTY}{end}") == Update(
        path="/a", values={"x": NASTY, "`y z`": f"f({NASTY}\n, 1)"}, where=NASTY
    )


def test_every_part_of_a_merge_is_cut_as_it_was_written() -> None:
    text = f"""
        WITH one AS (SELECT 'MERGE INTO' AS id), two AS (SELECT * FROM one)
        MERGE WITH SCHEMA EVOLUTION INTO lakeseal.`/a``b` AS `T t` USING (
            SELECT * FROM two WHERE {NASTY} -- a comment
        ) `s` ON {NASTY} WHEN MATCHED AND {NASTY} THEN UPDATE SET a = {NASTY}, `T t`.b.c = (SELECT 1, 2)
        WHEN matched THEN DELETE
        WHEN NOT MATCHED BY TARGET AND {NASTY} THEN INSERT (a, `b c`) VALUES ({NASTY}
        , DEFAULT) WHEN NOT MATCHED BY SOURCE AND {NASTY} THEN UPDATE SET a == {NASTY}"""
    assert parse(text) == Merge(
        path="/a`b",
        source=MergeSource(
            query="WITH one AS (SELECT 'MERGE INTO' AS id), two AS (SELECT * FROM one)\n"
            f"SELECT * FROM (SELECT * FROM two WHERE {NASTY}\n)"
        ),
        on=NASTY,
        source_alias="s",
        target_alias="T t",
        merge_schema=True,
        clauses=(
            Clause(kind="matched", action="update", condition=NASTY, values={"a": NASTY, "`T t`.b.c": "(SELECT 1, 2)"}),
            Clause(kind="matched", action="delete"),
            Clause(kind="not_matched", action="insert", condition=NASTY, values={"a": NASTY, "`b c`": "DEFAULT"}),
            Clause(kind="not_matched_by_source", action="update", condition=NASTY, values={"a": NASTY}),
        ),
    )


@pytest.mark.parametrize(
    "text",
    [
        "DELETE FROM delta.`/a` WHERE",
        "DELETE FROM delta.`/a` WHERE v = 'x",
        "DELETE FROM delta.`/a` WHERE (a = 1",
        "DELETE FROM delta.`/a` WHERE a = 1)",
        "DELETE FROM delta.`/a` WHERE a = CASE WHEN b THEN 1",
        "DELETE FROM delta.`/a` WHERE a = 1; DELETE FROM delta.`/b`",
        "DELETE FROM delta.`/a` VERSION AS OF 1",
        "DELETE FROM delta.`/a` AS x(b) WHERE b = 1",
        "WITH x AS (SELECT 1) DELETE FROM delta.`/a` WHERE a IN (SELECT * FROM x)",
        "UPDATE delta.`/a` SET a = 1, a = 2",
        "UPDATE delta.`/a` SET a",
        "UPDATE delta.`/a` SET a = ,",
        "UPDATE delta.`/a` SET f(a) = 1",
        "UPDATE delta.`/a`",
        "MERGE INTO delta.`/a` USING s ON true",
        "MERGE INTO delta.`/a` USING f(1) ON true WHEN MATCHED THEN DELETE",
        "MERGE INTO delta.`/a` USING s ON true WHEN MATCHED THEN INSERT *",
        "MERGE INTO delta.`/a` USING s ON true WHEN NOT MATCHED THEN DELETE",
        "MERGE INTO delta.`/a` USING s ON true WHEN NOT MATCHED THEN INSERT (a, b) VALUES (1)",
        "MERGE INTO delta.`/a` USING s ON true WHEN NOT MATCHED THEN INSERT VALUES (1)",
        "MERGE INTO delta.`/a` USING s ON true WHEN MATCHED THEN UPDATE SET * EXCEPT (a)",
        "MERGE INTO delta.`/a` USING s ON true WHEN NOT MATCHED BY SOURCE THEN UPDATE SET *",
        "DELETE FROM delta.`/a` r''",
        "OPTIMIZE delta.`/a` WHERE",
        "OPTIMIZE delta.`/a` ZORDER BY (a",
        "OPTIMIZE delta.`/a` ZORDER BY s.a",
        "VACUUM delta.`/a` NOW",
        "VACUUM delta.`/a` RETAIN x HOURS",
        "VACUUM delta.`/a` RETAIN 1 HOURS RETAIN 2 HOURS",
        "DESCRIBE HISTORY delta.`/a` LIMIT 1.5",
        "RESTORE delta.`/a`",
        "RESTORE delta.`/a` TO TIMESTAMP AS OF 2024",
    ],
)
def test_what_cannot_be_cut_for_sure_is_refused(text: str) -> None:
    with pytest.raises(InvalidExpression):
        parse(text)


def test_a_name_in_double_quotes_is_one_where_the_session_says_so() -> None:
    text = 'DELETE FROM delta."/a" "x y" WHERE "x y".id = 1'
    assert parse(text, double_quoted_names=True) == Delete(path="/a", alias="x y", where='"x y".id = 1')
    assert parse(text) is None


def test_the_alias_of_the_only_table_is_cut_out_where_it_is_sure_what_it_means() -> None:
    schema = StructType((StructField("id", LONG), StructField("s", StructType((StructField("x", LONG),)))))
    how: dict[str, Any] = {"case_sensitive": False, "double_quoted_names": False}
    assert unqualified("X.id = 'x.id' AND s.x > `x`. id /* x.id */", "x", schema, **how) == (
        "id = 'x.id' AND s.x >  id /* x.id */"
    )
    assert unqualified("X.id = x.id", "x", schema, case_sensitive=True, double_quoted_names=False) == "X.id = id"
    assert unqualified("exists(a, x -> id > 1)", "x", schema, **how) == "exists(a, x -> id > 1)"
    assert unqualified("exists(x.a, (e, i) -> e > x.id)", "x", schema, **how) == "exists(a, (e, i) -> e > id)"
    assert unqualified("x.id IN (SELECT id FROM u) OR (x.id > 1)", "x", schema, **how) == (
        "id IN (SELECT id FROM u) OR (id > 1)"
    )
    for text in (
        "exists(a, x -> x.b) AND x.id = 1",
        "transform_values(m, (k, X) -> k) IS NULL AND x.id = 1",
        "x.id IN (SELECT id FROM u x WHERE x.a = 1)",
        "id IN (WITH v AS (VALUES (1)) SELECT f(x.id) FROM v)",
        "EXISTS (FROM u |> WHERE u.id = x.id)",
        "id IN ((SELECT id FROM u WHERE (u.a = (x.id))))",
    ):
        with pytest.raises(InvalidExpression, match="cannot be told"):
            unqualified(text, "x", schema, **how)
    with pytest.raises(InvalidExpression, match="cannot be told"):
        unqualified("s.x = 1", "s", schema, **how)
