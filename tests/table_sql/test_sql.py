"""`lakeseal.sql` without Spark: every statement that needs no engine of its own, and queries by DuckDB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakeseal
from lakeseal import errors


@pytest.fixture
def at(tmp_path: Path) -> str:
    """A table of three rows, as statements name it."""
    name = f"delta.`{tmp_path / 'it'}`"
    lakeseal.sql(
        f"CREATE TABLE {name} (id BIGINT, name STRING, part INT) PARTITIONED BY (part)"
        " TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    lakeseal.sql(f"INSERT INTO {name} VALUES (1, 'a', 0), (2, NULL, 1), (3, 'c', 1)")
    return name


def rows(text: str) -> list[tuple[Any, ...]]:
    answer = lakeseal.sql(text)
    return sorted((tuple(row.values()) for row in answer.to_pylist()), key=repr)


def test_the_text_comes_first() -> None:
    with pytest.raises(errors.InvalidArgument, match="comes first") as error:
        lakeseal.sql(object(), "SELECT 1")  # type: ignore[arg-type]
    assert "lakeseal.sql(" in error.value.hint


def test_rows_are_changed_and_read(at: str) -> None:
    (done,) = lakeseal.sql(
        f"UPDATE {at} AS t SET t.name = concat(t.name, '!'), part = part WHERE t.id <> 2"
    ).to_pylist()
    assert (done["version"], done["committed"], done["numUpdatedRows"]) == (2, True, 2)
    (done,) = lakeseal.sql(f"DELETE FROM {at} t WHERE t.id = 2").to_pylist()
    assert (done["version"], done["numDeletedRows"]) == (3, 1)
    assert rows(f"SELECT id, name FROM {at}") == [(1, "a!"), (3, "c!")]
    assert lakeseal.sql(f"DELETE FROM {at} WHERE id = 99").to_pylist()[0]["committed"] is False


def test_a_query_names_versions_moments_and_changes(at: str, tmp_path: Path) -> None:
    lakeseal.sql(f"DELETE FROM {at} WHERE id = 1")
    assert rows(f"SELECT count(*) FROM {at}") == [(2,)]
    path = tmp_path / "it"
    assert rows(f"SELECT count(*) FROM {at} VERSION AS OF 1") == [(3,)]
    assert rows(f"SELECT count(*) FROM {at}@v1") == [(3,)]
    assert rows(f"SELECT count(*) FROM delta.`{path}@v1`") == [(3,)]
    newest = lakeseal.Table(path).history(1)[0]["timestamp"]
    assert rows(f"SELECT count(*) FROM {at} TIMESTAMP AS OF '{newest}'") == [(2,)]
    joined = f"SELECT new.id FROM {at} AS new JOIN {at} VERSION AS OF 1 AS old ON new.id = old.id WHERE old.part = 1"
    assert rows(joined) == [(2,), (3,)]
    assert rows(f"WITH x AS (SELECT max(id) AS m FROM {at}) SELECT m, '{{}}' FROM x") == [(3, "{}")]
    feed = f"SELECT id, _change_type, _commit_version FROM table_changes('{at}', 1, 2) ORDER BY 1"
    assert rows(feed)[0] == (1, "delete", 2)
    assert len(rows(feed)) == 4


def test_rows_are_inserted_by_position_by_name_and_with_defaults(tmp_path: Path) -> None:
    name = f"lakeseal.`{tmp_path / 'x'}`"
    lakeseal.sql(
        f"CREATE TABLE {name} (id BIGINT NOT NULL, twice BIGINT GENERATED ALWAYS AS (id * 2), n INT COMMENT 'c')"
        " USING lakeseal TBLPROPERTIES ('some.thing' = 'x')"
    )
    lakeseal.sql(f"INSERT INTO {name} (n, id) VALUES (1 + 1, 7), (NULL, 8)")
    lakeseal.sql(f"INSERT INTO {name} VALUES (9, DEFAULT, CAST('3' AS INT))")
    lakeseal.sql(f"INSERT INTO {name} BY NAME SELECT 10 AS id, 5 AS n")
    lakeseal.sql(f"INSERT INTO {name} SELECT id + 10, (id + 10) * 2, n FROM {name} WHERE id = 7")
    assert rows(f"SELECT * FROM {name}") == [(10, 20, 5), (17, 34, 2), (7, 14, 2), (8, 16, None), (9, 18, 3)]
    version = lakeseal.Table(tmp_path / "x").version()
    for wrong, why in (
        ("VALUES (1, 2)", "2 columns, and there are 3"),
        ("(id, nope) VALUES (1, 2)", "no such column"),
        ("(id, ID) VALUES (1, 2)", "named twice"),
        ("(id) VALUES (NULL)", "null"),
        ("(id) VALUES ('x')", "'?x'?"),
        ("(id) VALUES (id)", "id"),
        ("(n) VALUES (1)", "must not be null"),
        ("BY NAME SELECT 1 AS id, 2 AS other", "does not have"),
    ):
        with pytest.raises(errors.LakesealError, match=why):
            lakeseal.sql(f"INSERT INTO {name} {wrong}")
    assert lakeseal.Table(tmp_path / "x").version() == version


def test_rows_are_replaced(at: str) -> None:
    lakeseal.sql(f"INSERT OVERWRITE {at} PARTITION (part = 1) VALUES (4, 'd')")
    assert rows(f"SELECT * FROM {at}") == [(1, "a", 0), (4, "d", 1)]
    lakeseal.sql(f"INSERT INTO {at} REPLACE WHERE part = 0 SELECT 5, 'e', 0")
    assert rows(f"SELECT * FROM {at}") == [(4, "d", 1), (5, "e", 0)]
    with pytest.raises(errors.LakesealError, match="part = 0"):
        lakeseal.sql(f"INSERT INTO {at} REPLACE WHERE part = 0 SELECT 5, 'e', 1")
    lakeseal.sql(f"INSERT OVERWRITE TABLE {at} TABLE {at} VERSION AS OF 1")
    assert len(rows(f"SELECT * FROM {at}")) == 3


def test_rows_are_merged(at: str) -> None:
    lakeseal.sql(
        f"MERGE INTO {at} AS t USING (SELECT id + 2 AS id, 'm' AS name, part FROM {at}) AS s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET name = s.name WHEN NOT MATCHED THEN INSERT * "
        "WHEN NOT MATCHED BY SOURCE AND t.id = 1 THEN DELETE"
    )
    assert rows(f"SELECT id, name FROM {at}") == [(2, None), (3, "m"), (4, "m"), (5, "m")]
    lakeseal.sql(f"MERGE INTO {at} t USING {at} VERSION AS OF 1 s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *")
    assert len(rows(f"SELECT * FROM {at}")) == 5


def test_a_table_is_made_of_a_query(tmp_path: Path) -> None:
    name = f"delta.`{tmp_path / 'x'}`"
    (done,) = lakeseal.sql(f"CREATE TABLE {name} PARTITIONED BY (b) AS SELECT 1 AS a, 'x' AS b").to_pylist()
    assert (done["version"], done["committed"]) == (0, True)
    assert rows(f"SELECT a, b FROM {name}") == [(1, "x")]
    (done,) = lakeseal.sql(f"CREATE TABLE IF NOT EXISTS {name} AS SELECT 2 AS a").to_pylist()
    assert done == {"version": 0, "committed": False}
    with pytest.raises(errors.AlreadyExists):
        lakeseal.sql(f"CREATE TABLE {name} AS SELECT 2 AS a")


def test_a_table_is_altered(at: str, tmp_path: Path) -> None:
    table = lakeseal.Table(tmp_path / "it")
    lakeseal.sql(f"ALTER TABLE {at} ADD COLUMNS (more DECIMAL(5, 2) COMMENT 'what', other STRUCT<a: INT>)")
    lakeseal.sql(
        f"ALTER TABLE {at} SET TBLPROPERTIES"
        " ('delta.columnMapping.mode' = 'name', 'delta.logRetentionDuration' = '2 days')"
    )
    lakeseal.sql(f"ALTER TABLE {at} RENAME COLUMN more TO less")
    lakeseal.sql(f"ALTER TABLE {at} DROP COLUMN other")
    lakeseal.sql(f"ALTER TABLE {at} ADD CONSTRAINT positive CHECK (id > 0)")
    assert rows(f"SHOW COLUMNS IN {at}") == [("id",), ("less",), ("name",), ("part",)]
    with pytest.raises(errors.ConstraintViolation):
        lakeseal.sql(f"INSERT INTO {at} (id, part) VALUES (0, 1)")
    lakeseal.sql(f"ALTER TABLE {at} DROP CONSTRAINT positive")
    assert lakeseal.sql(f"ALTER TABLE {at} DROP CONSTRAINT IF EXISTS positive").to_pylist()[0]["committed"] is False
    lakeseal.sql(f"ALTER TABLE {at} UNSET TBLPROPERTIES ('delta.logRetentionDuration')")
    with pytest.raises(errors.InvalidArgument, match="no property"):
        lakeseal.sql(f"ALTER TABLE {at} UNSET TBLPROPERTIES ('delta.logRetentionDuration')")
    assert "delta.logRetentionDuration" not in table.snapshot().metadata.configuration


def test_what_a_table_is(at: str, tmp_path: Path) -> None:
    lakeseal.sql(f"DELETE FROM {at} WHERE id = 1")
    history = lakeseal.sql(f"DESCRIBE HISTORY {at} LIMIT 2").to_pylist(maps_as_pydicts="strict")
    assert [entry["operation"] for entry in history] == ["DELETE", "WRITE"]
    assert history[0]["operationMetrics"]["numDeletedRows"] == "1"
    (detail,) = lakeseal.sql(f"DESCRIBE DETAIL {at}").to_pylist(maps_as_pydicts="strict")
    assert (detail["format"], detail["numFiles"], detail["partitionColumns"]) == ("delta", 1, ["part"])
    assert lakeseal.sql(f"DESCRIBE {at}").to_pylist()[:2] == [
        {"col_name": "id", "data_type": "bigint", "comment": None},
        {"col_name": "name", "data_type": "string", "comment": None},
    ]
    assert ("Provider", "delta", None) in rows(f"DESCRIBE EXTENDED {at}")
    lakeseal.sql(f"ALTER TABLE {at} SET TBLPROPERTIES (a = 'b')")
    assert rows(f"SHOW TBLPROPERTIES {at} ('a')") == [("a", "b")]
    with pytest.raises(errors.InvalidArgument, match="no property"):
        lakeseal.sql(f"SHOW TBLPROPERTIES {at} ('c')")


def test_the_statement_that_is_shown_makes_the_same_table(tmp_path: Path) -> None:
    name = f"delta.`{tmp_path / 'x'}`"
    lakeseal.sql(
        f"CREATE TABLE {name} (`a b` BIGINT NOT NULL COMMENT 'it''s', v VARCHAR(5),"
        " s STRUCT<`x y`: INT, z: ARRAY<STRING>>,"
        " g BIGINT GENERATED ALWAYS AS (`a b` + 1), p DATE) PARTITIONED BY (p) TBLPROPERTIES ('k' = 'l')"
    )
    (shown,) = lakeseal.sql(f"SHOW CREATE TABLE {name}")["createtab_stmt"].to_pylist()
    lakeseal.sql(shown.replace(str(tmp_path / "x"), str(tmp_path / "y")))
    one, two = lakeseal.Table(tmp_path / "x").snapshot(), lakeseal.Table(tmp_path / "y").snapshot()
    assert one.schema.to_json() == two.schema.to_json()
    assert one.metadata.configuration == two.metadata.configuration
    assert one.partition_columns == two.partition_columns
    assert one.protocol == two.protocol


def test_upkeep(at: str, tmp_path: Path) -> None:
    lakeseal.sql(f"INSERT INTO {at} VALUES (4, 'd', 1)")
    (done,) = lakeseal.sql(f"OPTIMIZE {at} WHERE part = 1 ZORDER BY (id)").to_pylist()
    assert (done["committed"], done["numRemovedFiles"], done["numAddedFiles"]) == (True, 2, 1)
    assert lakeseal.sql(f"VACUUM {at} RETAIN 200 HOURS DRY RUN").to_pylist() == []
    lakeseal.sql(f"RESTORE TABLE {at} TO VERSION AS OF 1")
    assert len(rows(f"SELECT * FROM {at}")) == 3
    lakeseal.sql(f"CREATE TABLE delta.`{tmp_path / 'clone'}` SHALLOW CLONE {at} VERSION AS OF 1")
    assert rows(f"SELECT count(*) FROM delta.`{tmp_path / 'clone'}`") == [(3,)]


def test_a_directory_is_converted(tmp_path: Path) -> None:
    folder = tmp_path / "p" / "d=2024-01-01"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"a": [1, 2]}), folder / "x.parquet")
    lakeseal.sql(f"CONVERT TO DELTA parquet.`{tmp_path / 'p'}` PARTITIONED BY (d DATE)")
    assert rows(f"SELECT sum(a), min(d)::VARCHAR FROM delta.`{tmp_path / 'p'}`") == [(3, "2024-01-01")]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("SELECT 1; SELECT 2", errors.InvalidExpression),
        ("", errors.InvalidExpression),
        ("SELECT * FROM nothing", errors.TableNotFound),
        ("SELECT * FROM a.nothing JOIN b.none USING (id)", errors.TableNotFound),
        ("SELECT * FROM delta.`/nowhere/at/all`", errors.TableNotFound),
        ("DELETE FROM delta.`/nowhere/at/all`", errors.TableNotFound),
        ("DELETE FROM nothing", errors.TableNotFound),
        ("CREATE TEMP VIEW x AS SELECT 1", errors.UnsupportedExpression),
    ],
)
def test_what_cannot_be_done_without_spark_says_so(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        lakeseal.sql(text)


def test_a_version_is_only_read(at: str, tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidArgument, match="only be read"):
        lakeseal.sql(f"DELETE FROM delta.`{tmp_path / 'it'}@v0`")


def test_a_table_whose_path_looks_like_a_version_is_itself(tmp_path: Path) -> None:
    name = f"delta.`{tmp_path / 'odd@v1'}`"
    lakeseal.sql(f"CREATE TABLE {name} AS SELECT 1 AS a")
    assert rows(f"SELECT * FROM {name}") == [(1,)]


def test_a_subquery_of_a_change_needs_spark(at: str) -> None:
    with pytest.raises(errors.UnsupportedExpression, match="session"):
        lakeseal.sql(f"DELETE FROM {at} WHERE id IN (SELECT max(id) FROM {at})")


def test_a_table_is_made_with_all_that_its_columns_keep_to(tmp_path: Path) -> None:
    name = f"delta.`{tmp_path / 'x'}`"
    made = (
        f"CREATE OR REPLACE TABLE {name} (id BIGINT GENERATED BY DEFAULT AS IDENTITY (START WITH 10 INCREMENT BY 5),"
        " n INT DEFAULT 1 + 1 NOT NULL, `a b` STRING COMMENT 'c', CONSTRAINT small CHECK (n < 100))"
        " COMMENT 'what it''s for' TBLPROPERTIES (k = 'v')"
    )
    lakeseal.sql(made)
    lakeseal.sql(f"INSERT INTO {name} (`a b`) VALUES ('x'), ('y')")
    lakeseal.sql(f"INSERT INTO {name} VALUES (DEFAULT, 7, 'z'), (DEFAULT, DEFAULT, NULL)")
    found = lakeseal.sql(f"SELECT * FROM {name} ORDER BY id").to_pylist()
    assert [(row["n"], row["a b"]) for row in found] == [(2, "x"), (2, "y"), (7, "z"), (2, None)]
    assert [row["id"] % 5 for row in found] == [0] * 4
    assert len({row["id"] for row in found}) == 4
    with pytest.raises(errors.ConstraintViolation, match="small"):
        lakeseal.sql(f"INSERT INTO {name} (n) VALUES (100)")
    (detail,) = lakeseal.sql(f"DESCRIBE DETAIL {name}").to_pylist(maps_as_pydicts="strict")
    assert (detail["description"], detail["properties"]["k"]) == ("what it's for", "v")
    (shown,) = lakeseal.sql(f"SHOW CREATE TABLE {name}")["createtab_stmt"].to_pylist()
    lakeseal.sql(shown.replace(str(tmp_path / "x"), str(tmp_path / "y")))
    one, two = (lakeseal.Table(tmp_path / which) for which in ("x", "y"))
    assert one.snapshot().metadata.configuration == two.snapshot().metadata.configuration
    assert [f.name for f in one.snapshot().schema.fields] == [f.name for f in two.snapshot().schema.fields]


@pytest.mark.parametrize("mapping", ["none", "name"])
def test_a_table_is_made_anew_in_one_commit(tmp_path: Path, mapping: str) -> None:
    name, table = f"delta.`{tmp_path / 'x'}`", lakeseal.Table(tmp_path / "x")
    mapped = f"TBLPROPERTIES ('delta.columnMapping.mode' = '{mapping}', 'old' = '1')"
    lakeseal.sql(f"CREATE TABLE {name} (a INT, b STRING) PARTITIONED BY (b) COMMENT 'first' {mapped}")
    lakeseal.sql(f"INSERT INTO {name} VALUES (1, 'x')")
    before = table.snapshot()
    lakeseal.sql(f"CREATE OR REPLACE TABLE {name} (c DATE, a BIGINT) TBLPROPERTIES (new = '2')")
    after = table.snapshot()
    assert (after.version, after.files.num_rows, after.schema.names) == (2, 0, ("c", "a"))
    assert (after.metadata.id, after.metadata.description, after.partition_columns) == (before.metadata.id, None, ())
    assert (after.metadata.configuration.get("old"), after.metadata.configuration.get("new")) == (None, "2")
    assert after.properties.column_mapping_mode == mapping
    assert table.history(1)[0]["operation"] == "CREATE OR REPLACE TABLE"
    lakeseal.sql(f"INSERT INTO {name} VALUES (date'2024-01-01', 5)")
    lakeseal.sql(
        f"CREATE OR REPLACE TABLE {name} PARTITIONED BY (p) COMMENT 'third' AS SELECT a + 1 AS z, 1 AS p FROM {name}"
    )
    assert rows(f"SELECT z, p FROM {name}") == [(6, 1)]
    assert table.snapshot().metadata.description == "third"
    assert "new" not in table.snapshot().metadata.configuration
    assert rows(f"SELECT a, b FROM {name} VERSION AS OF 1") == [(1, "x")]
    with pytest.raises(errors.TableNotFound, match="replace"):
        lakeseal.sql(f"REPLACE TABLE delta.`{tmp_path / 'none'}` (a INT)")
    assert not (tmp_path / "none").exists()


def test_columns_are_altered(tmp_path: Path) -> None:
    name, table = f"delta.`{tmp_path / 'x'}`", lakeseal.Table(tmp_path / "x")
    lakeseal.sql(
        f"CREATE TABLE {name} (a INT, s STRUCT<x: INT, `y z`: INT>) TBLPROPERTIES"
        " ('delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true')"
    )
    lakeseal.sql(f"ALTER TABLE {name} ALTER COLUMN a SET NOT NULL")
    with pytest.raises(errors.LakesealError, match="null"):
        lakeseal.sql(f"INSERT INTO {name} (a) VALUES (NULL)")
    lakeseal.sql(f"ALTER TABLE {name} ALTER COLUMN a DROP NOT NULL")
    lakeseal.sql(f"ALTER TABLE {name} ALTER COLUMN a SET DEFAULT 40 + 2")
    lakeseal.sql(f"ALTER TABLE {name} ALTER COLUMN a COMMENT 'it''s'")
    lakeseal.sql(f"ALTER TABLE {name} ALTER COLUMN a TYPE BIGINT")
    lakeseal.sql(f"ALTER TABLE {name} RENAME COLUMN s.`y z` TO w")
    lakeseal.sql(f"ALTER TABLE {name} DROP COLUMN s.x")
    lakeseal.sql(f"INSERT INTO {name} (s) VALUES (named_struct('w', 1))")
    lakeseal.sql(f"ALTER TABLE {name} ALTER COLUMN a DROP DEFAULT")
    assert lakeseal.sql(f"SELECT * FROM {name}").to_pylist() == [{"a": 42, "s": {"w": 1}}]
    described = lakeseal.sql(f"DESCRIBE {name}").to_pylist()
    assert described[0] == {"col_name": "a", "data_type": "bigint", "comment": "it's"}
    assert table.history(1)[0]["operation"] == "CHANGE COLUMN"


def test_tables_have_names(tmp_path: Path) -> None:
    names = lakeseal.Catalog(f"sqlite:///{tmp_path / 'names.db'}")

    def do(text: str) -> Any:
        return lakeseal.sql(text, catalog=names).to_pylist()

    do("CREATE TABLE shop.orders (id BIGINT, total DOUBLE)")
    do(f"CREATE TABLE shop.people LOCATION '{tmp_path / 'here'}' AS SELECT 1 AS id, 'a' AS name")
    do("INSERT INTO shop.orders VALUES (1, 2.5), (2, 3.5)")
    assert do("SELECT people.name, o.total FROM shop.people JOIN main.shop.orders o USING (id)") == [
        {"name": "a", "total": 2.5}
    ]
    do("UPDATE shop.orders SET total = orders.total + 1 WHERE orders.id = 1")
    do("MERGE INTO shop.orders USING shop.people p ON orders.id = p.id WHEN MATCHED THEN UPDATE SET total = 0")
    assert do("SELECT total FROM shop.orders@v1 ORDER BY id")[0] == {"total": 2.5}
    assert do("SELECT total FROM shop.orders WHERE id = 1") == [{"total": 0.0}]
    assert [row["tableName"] for row in do("SHOW TABLES IN shop LIKE 'p*|x'")] == ["people"]
    assert do("CREATE TABLE IF NOT EXISTS shop.orders (x INT)")[0]["committed"] is False
    with pytest.raises(errors.AlreadyExists):
        do("CREATE TABLE shop.orders (x INT)")
    do("CREATE OR REPLACE TABLE shop.orders AS SELECT 9 AS id")
    assert do("SELECT * FROM shop.orders") == [{"id": 9}]
    do("ALTER TABLE shop.orders RENAME TO shop.sold")
    do("CREATE TABLE shop.copy SHALLOW CLONE shop.sold")
    assert do("SELECT * FROM shop.copy") == [{"id": 9}]
    assert do("DESCRIBE DETAIL shop.sold")[0]["name"] == "main.shop.sold"
    do("DROP TABLE shop.copy PURGE")
    do("DROP TABLE IF EXISTS shop.copy")
    for wrong in ("DROP TABLE shop.copy", "SELECT * FROM shop.copy", "DELETE FROM shop.copy"):
        with pytest.raises(errors.LakesealError):
            do(wrong)
    with pytest.raises(errors.InvalidArgument, match="schema"):
        do("CREATE TABLE bare (x INT)")
    with pytest.raises(errors.InvalidInput):
        do("CREATE TABLE shop.wrong (x INT, X INT)")
    assert names.unfinished() == []
    assert sorted(one.name.table for one in names.tables("shop")) == ["people", "sold"]


def test_a_table_is_clustered_and_optimized_in_full(tmp_path: Path) -> None:
    name, table = f"delta.`{tmp_path / 'x'}`", lakeseal.Table(tmp_path / "x")
    lakeseal.sql(f"CREATE TABLE {name} (a BIGINT, b BIGINT, s STRUCT<x: INT>) CLUSTER BY (b)")
    for n in range(3):
        lakeseal.sql(f"INSERT INTO {name} (a, b) VALUES ({n}, {9 - n})")
    assert lakeseal.sql(f"DESCRIBE DETAIL {name}").to_pylist()[0]["clusteringColumns"] == ["b"]
    assert lakeseal.sql(f"OPTIMIZE {name} FULL").to_pylist()[0]["committed"] is True
    assert table.files().num_rows == 1
    lakeseal.sql(f"ALTER TABLE {name} CLUSTER BY (a, b)")
    assert "CLUSTER BY (a, b)" in lakeseal.sql(f"SHOW CREATE TABLE {name}")["createtab_stmt"][0].as_py()
    with pytest.raises(errors.UnsupportedFeature, match="whole columns"):
        lakeseal.sql(f"ALTER TABLE {name} CLUSTER BY (s.x)")
    lakeseal.sql(f"CREATE OR REPLACE TABLE {name} AS SELECT 1 AS z")
    assert lakeseal.sql(f"DESCRIBE DETAIL {name}").to_pylist()[0]["clusteringColumns"] == []
    lakeseal.sql(f"CREATE OR REPLACE TABLE {name} CLUSTER BY (z) AS SELECT 1 AS z")
    lakeseal.sql(f"ALTER TABLE {name} CLUSTER BY NONE")
    assert lakeseal.sql(f"DESCRIBE DETAIL {name}").to_pylist()[0]["clusteringColumns"] == []
    assert rows(f"SELECT * FROM {name}") == [(1,)]


def test_a_deep_clone_follows_its_source(at: str, tmp_path: Path) -> None:
    clone = f"delta.`{tmp_path / 'deep'}`"
    lakeseal.sql(f"CREATE TABLE {clone} DEEP CLONE {at}")
    lakeseal.sql(f"DELETE FROM {at} WHERE id = 1")
    assert rows(f"SELECT count(*) FROM {clone}") == [(3,)]
    with pytest.raises(errors.AlreadyExists):
        lakeseal.sql(f"CREATE TABLE {clone} DEEP CLONE {at}")
    lakeseal.sql(f"CREATE OR REPLACE TABLE {clone} CLONE {at}")
    assert rows(f"SELECT count(*) FROM {clone}") == [(2,)]
    assert lakeseal.sql(f"VACUUM {at} LITE DRY RUN").to_pylist() == []


def test_columns_are_added_and_moved_to_their_places(tmp_path: Path) -> None:
    name = f"delta.`{tmp_path / 't'}`"
    table = lakeseal.Table(tmp_path / "t")
    lakeseal.sql(f"CREATE TABLE {name} (id BIGINT, s STRUCT<x: INT, y: STRING>, l ARRAY<STRUCT<k: INT>>, z STRING)")
    lakeseal.sql(f"INSERT INTO {name} VALUES (1, named_struct('x', 1, 'y', 'a'), array(named_struct('k', 7)), 'zz')")

    added = "f INT FIRST, s.w INT AFTER x, l.element.m INT FIRST, g INT COMMENT 'gg' AFTER id"
    lakeseal.sql(f"ALTER TABLE {name} ADD COLUMNS ({added})")
    lakeseal.sql(f"ALTER TABLE {name} ALTER COLUMN z AFTER f")
    lakeseal.sql(f"ALTER TABLE {name} ALTER COLUMN s.y FIRST")

    expected = "struct<f:int,z:string,id:bigint,g:int,s:struct<y:string,x:int,w:int>,l:array<struct<m:int,k:int>>>"
    assert str(table.snapshot().schema) == expected
    row = {"f": None, "z": "zz", "id": 1, "g": None, "s": {"y": "a", "x": 1, "w": None}, "l": [{"m": None, "k": 7}]}
    assert table.to_arrow().to_pylist() == [row]
    lakeseal.sql(f"INSERT INTO {name} (id, g) VALUES (2, 3)")
    assert table.to_arrow(where="id = 2")["g"].to_pylist() == [3]
    version = table.version()
    for wrong in (
        "ADD COLUMN g INT",
        "ADD COLUMN s.X INT",
        "ADD COLUMN z.a INT",
        "ADD COLUMN h INT AFTER nowhere",
        "ADD COLUMN h INT NOT NULL",
        "ALTER COLUMN z AFTER s.x",
        "ALTER COLUMN z AFTER z",
    ):
        with pytest.raises((errors.InvalidArgument, errors.InvalidExpression)):
            lakeseal.sql(f"ALTER TABLE {name} {wrong}")
    with pytest.raises(errors.UnsupportedFeature, match="SET DEFAULT"):
        lakeseal.sql(f"ALTER TABLE {name} ADD COLUMN h INT DEFAULT 3")
    assert table.version() == version


def test_several_columns_are_dropped_in_one_version_or_none(tmp_path: Path) -> None:
    name = f"delta.`{tmp_path / 't'}`"
    table = lakeseal.Table(tmp_path / "t")
    mapped = "TBLPROPERTIES (delta.columnMapping.mode = 'name')"
    lakeseal.sql(f"CREATE TABLE {name} (a INT, b INT, s STRUCT<x: INT, y: INT>, c INT) {mapped}")
    with pytest.raises(errors.InvalidArgument, match="nothing"):
        lakeseal.sql(f"ALTER TABLE {name} DROP COLUMNS (a, nothing)")
    assert table.version() == 0
    lakeseal.sql(f"ALTER TABLE {name} DROP COLUMNS (a, s.x)")
    assert (table.version(), str(table.snapshot().schema)) == (1, "struct<b:int,s:struct<y:int>,c:int>")
    lakeseal.sql(f"ALTER TABLE {name} DROP COLUMNS IF EXISTS (a, s.x, c)")
    assert (table.version(), table.schema().names) == (2, ["b", "s"])


def test_comments_on_tables_and_columns(tmp_path: Path, at: str) -> None:
    table = lakeseal.Table(tmp_path / "it")
    lakeseal.sql(f"COMMENT ON TABLE {at} IS 'people'")
    lakeseal.sql(f"COMMENT ON COLUMN {at}.name IS 'what they are called'")
    assert table.detail()["description"] == "people"
    assert table.snapshot().schema.field("name").metadata["comment"] == "what they are called"  # type: ignore[union-attr]
    lakeseal.sql(f"COMMENT ON TABLE {at} IS NULL")
    lakeseal.sql(f"COMMENT ON COLUMN {at}.name IS NULL")
    assert table.detail()["description"] == ""  # as Spark has it
    assert table.snapshot().schema.field("name").metadata["comment"] == ""  # type: ignore[union-attr]


@pytest.mark.parametrize("mapping", ["none", "name"])
def test_a_shallow_clone_takes_the_place_of_a_table(tmp_path: Path, at: str, mapping: str) -> None:
    other = f"delta.`{tmp_path / 'other'}`"
    tracked = f"delta.columnMapping.mode = '{mapping}', delta.enableRowTracking = true"
    lakeseal.sql(f"CREATE TABLE {other} (q INT) CLUSTER BY (q) TBLPROPERTIES ({tracked})")
    lakeseal.sql(f"INSERT INTO {other} VALUES (7)")
    table = lakeseal.Table(tmp_path / "other")
    before = table.snapshot()

    lakeseal.sql(f"CREATE OR REPLACE TABLE {other} SHALLOW CLONE {at}")

    assert rows(f"SELECT id, name FROM {other}") == rows(f"SELECT id, name FROM {at}")
    after = table.snapshot()
    assert (after.version, after.metadata.id, table.detail()["clusteringColumns"]) == (2, before.metadata.id, [])
    assert after.partition_columns == ("part",)
    assert table.to_arrow(version=1)["q"].to_pylist() == [7]
    lakeseal.sql(f"UPDATE {other} SET name = 'new' WHERE id = 1")
    lakeseal.sql(f"INSERT INTO {other} VALUES (9, 'i', 4)")
    assert rows(f"SELECT id FROM {other}") == [(1,), (2,), (3,), (9,)]
    assert rows(f"SELECT name FROM {at} WHERE id = 1") == [("a",)]
    with pytest.raises(errors.InvalidArgument, match="itself"):
        lakeseal.sql(f"CREATE OR REPLACE TABLE {at} SHALLOW CLONE {at}")


def test_a_clone_is_made_anew_of_the_table_that_it_is_a_clone_of(tmp_path: Path, at: str) -> None:
    table, clone = lakeseal.Table(tmp_path / "clone"), f"delta.`{tmp_path / 'clone'}`"
    lakeseal.sql(f"CREATE TABLE {clone} SHALLOW CLONE {at}")
    before = rows(f"SELECT * FROM {clone} ORDER BY id")
    lakeseal.sql(f"INSERT INTO {at} VALUES (9, 'i', 4)")
    lakeseal.sql(f"DELETE FROM {clone} WHERE id = 1")

    for _ in range(2):
        lakeseal.sql(f"CREATE OR REPLACE TABLE {clone} SHALLOW CLONE {at}")
        assert rows(f"SELECT * FROM {clone} ORDER BY id") == [*before, (9, "i", 4)]
    lakeseal.sql(f"CREATE OR REPLACE TABLE {clone} SHALLOW CLONE {at} VERSION AS OF 1")
    assert rows(f"SELECT * FROM {clone} ORDER BY id") == before
    assert table.history(1)[0]["operationMetrics"]["numRemovedFiles"] == "1"


def test_a_path_is_no_name_whatever_it_looks_like(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(errors.TableNotFound, match="no table here"):
        lakeseal.sql("SELECT * FROM delta.`a.b`")
    lakeseal.sql("CREATE TABLE delta.`a.b` (id BIGINT)")
    lakeseal.sql("INSERT INTO delta.`a.b` VALUES (1)")
    assert rows("SELECT * FROM delta.`a.b`") == [(1,)]
    assert (tmp_path / "a.b" / "_delta_log").is_dir()


def test_a_clone_gets_a_name(at: str, tmp_path: Path) -> None:
    catalog = lakeseal.Catalog(f"sqlite:///{tmp_path}/catalog.db")
    lakeseal.sql(f"CREATE TABLE sales.copy SHALLOW CLONE {at}", catalog=catalog)
    made = lakeseal.Table(tmp_path / "it").clone("sales.deep", deep=True, catalog=catalog)
    assert made.name == "main.sales.deep"
    assert [str(one.name) for one in catalog.tables()] == ["main.sales.copy", "main.sales.deep"]
    assert all(catalog.table(name).to_arrow().num_rows == 3 for name in ("sales.copy", "sales.deep"))
    with pytest.raises(errors.AlreadyExists):
        lakeseal.Table(tmp_path / "it").clone("sales.copy", catalog=catalog)
    lakeseal.sql(f"DELETE FROM {at} WHERE id = 1")
    assert lakeseal.Table(tmp_path / "it").clone("sales.deep", deep=True, catalog=catalog).to_arrow().num_rows == 2
