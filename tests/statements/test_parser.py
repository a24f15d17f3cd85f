"""SQL statements as values."""

from __future__ import annotations

from typing import Any

import pytest

from lakeseal.commands.merge.clauses import Clause
from lakeseal.errors import InvalidArgument, InvalidExpression
from lakeseal.protocol.schema import (
    CHAR_VARCHAR,
    DATE,
    INTEGER,
    LONG,
    STRING,
    ArrayType,
    DecimalType,
    StructField,
    StructType,
)  # fmt: skip
from lakeseal.statements.parser import parse
from lakeseal.statements.qualifiers import unqualified
from lakeseal.statements.statement import (
    AddColumns,
    AddConstraint,
    AlterColumn,
    AlterTable,
    CloneTable,
    ClusterBy,
    ColumnDefinition,
    Convert,
    CreateLike,
    CreateTableStatement,
    Delete,
    Describe,
    DescribeColumn,
    Detail,
    DropColumns,
    DropConstraint,
    DropFeature,
    DropSchemaStatement,
    DropTableStatement,
    Generate,
    History,
    IdentityDefinition,
    Insert,
    Merge,
    Moment,
    Optimize,
    Purge,
    Query,
    RenameColumn,
    RenameTableStatement,
    Restore,
    SetComment,
    SetProperties,
    ShowColumns,
    ShowCreate,
    ShowProperties,
    ShowSchemas,
    ShowTables,
    StatedName,
    UnsetProperties,
    UpdateStatement,
    Vacuum,
    View,
)  # fmt: skip


def at(path: str) -> StatedName:
    return StatedName.at_path(path)


def named(*parts: str) -> StatedName:
    return StatedName(parts=parts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DELETE FROM delta.`/a b`", Delete(table=at("/a b"))),
        (
            "delete from lakeseal.`/a` x where x.id = 1 AND y > 2;",
            Delete(table=at("/a"), where="x.id = 1 AND y > 2", alias="x"),
        ),
        (
            "UPDATE delta.`/a` SET a = a + 1, s.b = 'x' WHERE id IN (1, 2)",
            UpdateStatement(table=at("/a"), values={"a": "a + 1", "s.b": "'x'"}, where="id IN (1, 2)"),
        ),
        ("UPDATE delta.`/a` AS t SET t.a = t.b", UpdateStatement(table=at("/a"), values={"t.a": "t.b"}, alias="t")),
        ("UPDATE\tdelta.`/a`\n SET a = 1", UpdateStatement(table=at("/a"), values={"a": "1"})),
        ("OPTIMIZE delta.`/a`", Optimize(table=at("/a"))),
        (
            "OPTIMIZE delta.`/a` WHERE d = 1 ZORDER BY (a, `b c`)",
            Optimize(table=at("/a"), where="d = 1", zorder_by=("a", "b c")),
        ),
        ("OPTIMIZE delta.`/a` ZORDER BY a", Optimize(table=at("/a"), zorder_by=("a",))),
        ("OPTIMIZE delta.`/a` ZORDER BY (`a,b`, c)", Optimize(table=at("/a"), zorder_by=("a,b", "c"))),
        (
            "OPTIMIZE delta.`/a` WHERE k = 'x ZORDER BY y'",
            Optimize(table=at("/a"), where="k = 'x ZORDER BY y'"),
        ),
        ("  OPTIMIZE /* it */ delta . `/a``b` -- and\n where d=1", Optimize(table=at("/a`b"), where="d=1")),
        ("-- now\nVACUUM delta.`/a`\n;", Vacuum(table=at("/a"))),
        ("VACUUM delta.`/a` DRY  RUN\nRETAIN 0.5 HOUR", Vacuum(table=at("/a"), hours=0.5, dry_run=True)),
        ("/* why */ DESC\nHISTORY lakeseal.`/a`", History(table=at("/a"))),
        (
            'RESTORE delta.`/a` TO\tTIMESTAMP AS OF "2024-01-01"',
            Restore(table=at("/a"), to=Moment(timestamp='"2024-01-01"')),
        ),
        ("VACUUM delta.`/a`", Vacuum(table=at("/a"))),
        ("vacuum delta.`/a` RETAIN 200 HOURS DRY RUN", Vacuum(table=at("/a"), hours=200.0, dry_run=True)),
        ("DESCRIBE HISTORY delta.`/a` LIMIT 3", History(table=at("/a"), limit=3)),
        ("DESC HISTORY delta.`s3://b/a`", History(table=at("s3://b/a"))),
        ("RESTORE TABLE delta.`/a` TO VERSION AS OF 3", Restore(table=at("/a"), to=Moment(version=3))),
        (
            "RESTORE delta.`/a` TO TIMESTAMP AS OF '2024-01-01'",
            Restore(table=at("/a"), to=Moment(timestamp="'2024-01-01'")),
        ),
        (
            "MERGE INTO delta.`/a` USING news ON id = news.nid WHEN MATCHED THEN UPDATE SET * "
            "WHEN NOT MATCHED THEN INSERT *",
            Merge(
                table=at("/a"),
                source=named("news"),
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
                table=at("/a"),
                source=Query(text="SELECT 1 AS id"),
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
        "WITH x AS (SELECT 1) SELECT * FROM x",
        "(SELECT 1)",
        "VALUES (1)",
        "FROM x SELECT a",
        "EXPLAIN SELECT 1",
        "SET x = 1",
        "DESCRIBE FUNCTION abs",
        "SHOW VIEWS",
        "CREATE VIEW x AS SELECT 1",
        "DROP VIEW x",
    ],
)
def test_what_others_plan_is_a_query(text: str) -> None:
    assert parse(text) == Query(text=text)
    assert parse(f"  {text} -- so\n;") == Query(text=text)


@pytest.mark.parametrize(
    "text", ["SELECT 'DELETE FROM delta.`/a`", "CREATE TABLE x LIKE y COMMENT 'c'", "", "DELETE FROM x WHERE ("]
)
def test_what_cannot_be_read_is_left_to_spark_if_it_names_no_path(text: str) -> None:
    assert parse(text, lenient=True) == Query(text=text)
    with pytest.raises(InvalidExpression):
        parse(text)


NASTY = """v = 'it''s' AND log10(x) > datediff(a, b) AND w <> "THEN; WHEN -- /*" -- WHERE
 AND to_char(x, '9') = r'\\WHEN' AND y > -9223372036854775808 /* ; THEN */ AND
 CASE WHEN matched THEN (CASE WHEN then_ THEN true END) ELSE `WHEN MATCHED`.`a``b` END
 AND named_struct('when', 1).when = 1"""


@pytest.mark.parametrize("end", ["", ";", " ; ", " -- that was all", " /* that was all */ ;"])
def test_a_condition_is_cut_as_it_was_written(end: str) -> None:
    assert parse(f"delete from delta.`/a` wHeRe {NASTY}{end}") == Delete(table=at("/a"), where=NASTY)
    assert parse(f"UPDATE delta.`/a` SET x = {NASTY}, `y z` = f({NASTY}\n, 1) WHERE {NASTY}{end}") == UpdateStatement(
        table=at("/a"), values={"x": NASTY, "`y z`": f"f({NASTY}\n, 1)"}, where=NASTY
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
        table=at("/a`b"),
        source=Query(
            text="WITH one AS (SELECT 'MERGE INTO' AS id), two AS (SELECT * FROM one)\n"
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
    assert parse(text, double_quoted_names=True) == Delete(table=at("/a"), alias="x y", where='"x y".id = 1')
    with pytest.raises(InvalidExpression):
        parse(text)
    assert parse(text, lenient=True) == Query(text=text)


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


def column(name: str, kind: Any, nullable: bool = True, metadata: Any = None, **rest: Any) -> ColumnDefinition:
    return ColumnDefinition(field=StructField(name, kind, nullable, metadata or {}), **rest)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("INSERT INTO delta.`/a` SELECT 1, 2", Insert(table=at("/a"), query="SELECT 1, 2")),
        ("INSERT INTO TABLE x.y TABLE z", Insert(table=named("x", "y"), query="TABLE z")),
        (
            "insert into delta.`/a` (`a b`, c) values (1, default), (f(2, 3), 'x), (');",
            Insert(
                table=at("/a"),
                columns=("a b", "c"),
                query="values (1, default), (f(2, 3), 'x), (')",
                rows=(("1", "default"), ("f(2, 3)", "'x), ('")),
            ),
        ),
        ("INSERT INTO x VALUES 1, 2", Insert(table=named("x"), query="VALUES 1, 2", rows=(("1",), ("2",)))),
        ("INSERT INTO x VALUES (1) AS t(a)", Insert(table=named("x"), query="VALUES (1) AS t(a)")),
        ("INSERT INTO x (SELECT 1)", Insert(table=named("x"), query="(SELECT 1)")),
        ("INSERT INTO x ((SELECT 1) UNION SELECT 2)", Insert(table=named("x"), query="((SELECT 1) UNION SELECT 2)")),
        (
            "WITH q AS (SELECT 1) INSERT OVERWRITE x PARTITION (d = 'a, b', e) BY NAME SELECT * FROM q",
            Insert(
                table=named("x"),
                query="WITH q AS (SELECT 1)\nSELECT * FROM q",
                partition={"d": "'a, b'", "e": None},
                by_name=True,
                overwrite=True,
            ),
        ),
        (
            "INSERT INTO x REPLACE WHERE a IS DISTINCT FROM 'SELECT' SELECT 1",
            Insert(table=named("x"), query="SELECT 1", replace_where="a IS DISTINCT FROM 'SELECT'"),
        ),
        (
            "INSERT WITH SCHEMA EVOLUTION INTO x SELECT 1 AS a",
            Insert(table=named("x"), query="SELECT 1 AS a", merge_schema=True),
        ),
        (
            "CREATE TABLE IF NOT EXISTS a.b.c (id BIGINT NOT NULL, s STRING COMMENT 'it''s') USING delta",
            CreateTableStatement(
                table=named("a", "b", "c"),
                columns=(column("id", LONG, False), column("s", STRING, metadata={"comment": "it's"})),
                provider="delta",
                if_not_exists=True,
            ),
        ),
        (
            "CREATE OR REPLACE TABLE delta.`/a` (a INT DEFAULT 1 + 1 NOT NULL COMMENT 'c', b INT DEFAULT x IS NOT NULL,"
            " c DATE GENERATED ALWAYS AS (CAST(t AS DATE)), d BIGINT GENERATED BY DEFAULT AS IDENTITY"
            " (START WITH -5 INCREMENT BY 2), e VARCHAR(5), f ARRAY<STRUCT<x: INT, y: CHAR(2)>>,"
            " CONSTRAINT pos CHECK (a > 0 AND (b < 1))) PARTITIONED BY (c) COMMENT 'k'"
            " TBLPROPERTIES ('a.b' = 'c', delta.x = true, n = 3) LOCATION '/x'",
            CreateTableStatement(
                table=at("/a"),
                or_replace=True,
                columns=(
                    column("a", INTEGER, False, {"comment": "c"}, default="1 + 1"),
                    column("b", INTEGER, default="x IS NOT NULL"),
                    column("c", DATE, generated="CAST(t AS DATE)"),
                    column("d", LONG, identity=IdentityDefinition(start=-5, step=2, by_default=True)),
                    column("e", STRING, metadata={CHAR_VARCHAR: "varchar(5)"}),
                    column(
                        "f",
                        ArrayType(StructType((StructField("x", INTEGER), StructField("y", STRING)))),
                        metadata={CHAR_VARCHAR: "array<struct<x:int,y:char(2)>>"},
                    ),
                ),
                constraints={"pos": "a > 0 AND (b < 1)"},
                partition_by=("c",),
                comment="k",
                properties={"a.b": "c", "delta.x": "true", "n": "3"},
                location="/x",
            ),
        ),
        (
            "CREATE TABLE x CLUSTER BY (a, b.c) AS WITH y AS (SELECT 1 AS a) SELECT * FROM y",
            CreateTableStatement(
                table=named("x"), cluster_by=("a", "b.c"), query="WITH y AS (SELECT 1 AS a) SELECT * FROM y"
            ),
        ),
        (
            "REPLACE TABLE x USING lakeseal SELECT 1 AS a",
            CreateTableStatement(
                table=named("x"), provider="lakeseal", query="SELECT 1 AS a", or_replace=True, must_exist=True
            ),
        ),
        (
            "CREATE TABLE delta.`/b` SHALLOW CLONE delta.`/a` VERSION AS OF 3 LOCATION '/b'",
            CloneTable(table=at("/b"), source=StatedName.at_path("/a", Moment(version=3)), location="/b"),
        ),
        (
            "CREATE OR REPLACE TABLE x CLONE y@v1 TBLPROPERTIES (a = 'b')",
            CloneTable(
                table=named("x"),
                source=StatedName(parts=("y",), at=Moment(version=1)),
                deep=True,
                or_replace=True,
                properties={"a": "b"},
            ),
        ),
        ("DROP TABLE IF EXISTS x PURGE", DropTableStatement(table=named("x"), if_exists=True, purge=True)),
        (
            "CONVERT TO DELTA parquet.`/p` PARTITIONED BY (d DATE)",
            Convert(path="/p", partition_by=(StructField("d", DATE),)),
        ),
        (
            "ALTER TABLE x ADD COLUMNS (a INT COMMENT 'c' AFTER b, s.z STRING FIRST)",
            AlterTable(
                table=named("x"),
                change=AddColumns(
                    columns=(
                        column("a", INTEGER, metadata={"comment": "c"}, after="b"),
                        column("z", STRING, parents=("s",), first=True),
                    )
                ),
            ),
        ),
        (
            "ALTER TABLE x DROP COLUMN IF EXISTS a.b, c",
            AlterTable(table=named("x"), change=DropColumns(columns=(("a", "b"), ("c",)), if_exists=True)),
        ),
        (
            "ALTER TABLE x RENAME COLUMN a.`b.c` TO d",
            AlterTable(table=named("x"), change=RenameColumn(column=("a", "b.c"), new_name="d")),
        ),
        (
            "ALTER TABLE x RENAME TO y.z",
            AlterTable(table=named("x"), change=RenameTableStatement(new_name=named("y", "z"))),
        ),
        (
            "ALTER TABLE x ALTER COLUMN a TYPE DECIMAL(10, 2)",
            AlterTable(table=named("x"), change=AlterColumn(column=("a",), type=StructField("a", DecimalType(10, 2)))),
        ),
        (
            "ALTER TABLE x ALTER a SET NOT NULL",
            AlterTable(table=named("x"), change=AlterColumn(column=("a",), nullable=False)),
        ),
        (
            "ALTER TABLE x CHANGE COLUMN a DROP NOT NULL",
            AlterTable(table=named("x"), change=AlterColumn(column=("a",), nullable=True)),
        ),
        (
            "ALTER TABLE x ALTER COLUMN a SET DEFAULT f(1, 2)",
            AlterTable(table=named("x"), change=AlterColumn(column=("a",), default="f(1, 2)")),
        ),
        (
            "ALTER TABLE x ALTER COLUMN a DROP DEFAULT",
            AlterTable(table=named("x"), change=AlterColumn(column=("a",), drops_default=True)),
        ),
        (
            "ALTER TABLE x ALTER COLUMN a COMMENT 'c'",
            AlterTable(table=named("x"), change=AlterColumn(column=("a",), comment="c")),
        ),
        (
            "ALTER TABLE x ALTER COLUMN a FIRST",
            AlterTable(table=named("x"), change=AlterColumn(column=("a",), first=True)),
        ),
        (
            "ALTER TABLE x ALTER COLUMN a AFTER b",
            AlterTable(table=named("x"), change=AlterColumn(column=("a",), after="b")),
        ),
        (
            "ALTER TABLE x SET TBLPROPERTIES (a = 'b')",
            AlterTable(table=named("x"), change=SetProperties(properties={"a": "b"})),
        ),
        (
            "ALTER TABLE x UNSET TBLPROPERTIES IF EXISTS ('a', b.c)",
            AlterTable(table=named("x"), change=UnsetProperties(keys=("a", "b.c"), if_exists=True)),
        ),
        (
            "ALTER TABLE x ADD CONSTRAINT c CHECK (a > 0 OR b = ')')",
            AlterTable(table=named("x"), change=AddConstraint(name="c", condition="a > 0 OR b = ')'")),
        ),
        (
            "ALTER TABLE x DROP CONSTRAINT IF EXISTS c",
            AlterTable(table=named("x"), change=DropConstraint(name="c", if_exists=True)),
        ),
        ("ALTER TABLE x CLUSTER BY (a, b)", AlterTable(table=named("x"), change=ClusterBy(columns=("a", "b")))),
        ("ALTER TABLE x CLUSTER BY NONE", AlterTable(table=named("x"), change=ClusterBy(columns=()))),
        (
            "ALTER TABLE x DROP FEATURE deletionVectors TRUNCATE HISTORY",
            AlterTable(table=named("x"), change=DropFeature(feature="deletionVectors", truncate_history=True)),
        ),
        ("COMMENT ON TABLE x IS 'y'", AlterTable(table=named("x"), change=SetComment(comment="y"))),
        ("COMMENT ON TABLE x IS NULL", AlterTable(table=named("x"), change=SetComment(comment=""))),
        ("OPTIMIZE x FULL", Optimize(table=named("x"), full=True)),
        ("VACUUM x LITE RETAIN 1 HOURS", Vacuum(table=named("x"), lite=True, hours=1.0)),
        ("VACUUM '/a' USING INVENTORY (SELECT 1)", Vacuum(table=at("/a"), inventory=Query(text="SELECT 1"))),
        ("VACUUM x USING INVENTORY a.b DRY RUN", Vacuum(table=named("x"), inventory=named("a", "b"), dry_run=True)),
        ("REORG TABLE x WHERE p = 1 APPLY (PURGE)", Purge(table=named("x"), where="p = 1")),
        ("GENERATE symlink_format_manifest FOR TABLE x", Generate(table=named("x"), mode="symlink_format_manifest")),
        ("CREATE TABLE x LIKE y LOCATION '/p'", CreateLike(table=named("x"), source=named("y"), location="/p")),
        ("TRUNCATE TABLE x", Delete(table=named("x"))),
        ("DESCRIBE x a.b", DescribeColumn(table=named("x"), column=("a", "b"))),
        ("DROP DATABASE IF EXISTS a.b RESTRICT", DropSchemaStatement(name=("a", "b"), if_exists=True)),
        ("SHOW SCHEMAS IN a LIKE 'x*'", ShowSchemas(catalog="a", like="x*")),
        ("CONVERT TO DELTA parquet.`/p` NO STATISTICS", Convert(path="/p")),
        ("VACUUM x FULL DRY RUN", Vacuum(table=named("x"), dry_run=True)),
        ("RESTORE x TO VERSION AS OF 1", Restore(table=named("x"), to=Moment(version=1))),
        (
            "RESTORE x TO TIMESTAMP AS OF current_timestamp() - INTERVAL 1 DAY",
            Restore(table=named("x"), to=Moment(timestamp="current_timestamp() - INTERVAL 1 DAY")),
        ),
        ("DESCRIBE x", Describe(table=named("x"))),
        ("DESC TABLE EXTENDED delta.`/a`", Describe(table=at("/a"), extended=True)),
        ("DESCRIBE DETAIL x", Detail(table=named("x"))),
        ("SHOW TABLES IN a.b LIKE 'x*'", ShowTables(schema=("a", "b"), like="x*")),
        ("SHOW COLUMNS IN x FROM s", ShowColumns(table=named("s", "x"))),
        ("SHOW TBLPROPERTIES x ('a.b')", ShowProperties(table=named("x"), key="a.b")),
        ("SHOW CREATE TABLE x", ShowCreate(table=named("x"))),
        (
            "CREATE OR REPLACE TEMP VIEW v (a, b) AS SELECT 1, 2;",
            View(name="v", query="SELECT 1, 2", or_replace=True, columns=("a", "b")),
        ),
    ],
)
def test_every_other_statement_is_understood(text: str, expected: Any) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1; SELECT 2",
        "DROP TABLE x; DROP TABLE y",
        "INSERT INTO x",
        "INSERT INTO x (a) DELETE",
        "INSERT OVERWRITE x REPLACE WHERE a SELECT 1",
        "INSERT OVERWRITE DIRECTORY '/a' SELECT 1",
        "CREATE TABLE x (a)",
        "CREATE TABLE x (a INT,)",
        "CREATE TABLE x (a INT PRIMARY KEY)",
        "CREATE TABLE x (a INT, PRIMARY KEY (a))",
        "CREATE TABLE x (a INT) AS SELECT 1",
        "CREATE TABLE x (a INT) LOCATION '/a' LOCATION '/b'",
        "CREATE TABLE x (a INT) TBLPROPERTIES (a = 'b', a = 'c')",
        "CREATE TABLE x (a INT) TBLPROPERTIES (a = b)",
        "CREATE TABLE x (a INT, CONSTRAINT c CHECK (a > 0), CONSTRAINT C CHECK (a > 1))",
        "CREATE OR REPLACE TABLE IF NOT EXISTS x (a INT)",
        "CREATE TABLE x (a INT GENERATED BY DEFAULT AS (b))",
        "CREATE TABLE a.b.c.d (a INT)",
        "ALTER TABLE x",
        "ALTER TABLE x ALTER COLUMN a",
        "ALTER TABLE x ADD CONSTRAINT c UNIQUE (a)",
        "ALTER TABLE x DROP COLUMNS (a",
        "CONVERT TO DELTA x",
        "CONVERT TO DELTA iceberg.`/p`",
        "CREATE TABLE x SHALLOW CLONE y PARTITIONED BY (a)",
        "VACUUM x USING INVENTORY (SELECT 1) USING INVENTORY y",
        "REORG TABLE x APPLY (UPGRADE UNIFORM (ICEBERG_COMPAT_VERSION = 2))",
        "GENERATE a FOR x",
        "RESTORE '/p' TO VERSION AS OF 1",
        "SHOW TBLPROPERTIES x (a",
    ],
)
def test_what_is_no_statement_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(InvalidExpression, match="line 1, column"):
        parse(text)


def test_a_type_that_is_none_names_its_column() -> None:
    with pytest.raises(InvalidArgument, match="no type of a column") as error:
        parse("CREATE TABLE x (a INT, b NUMBERS(3))")
    assert error.value.column == "b"
