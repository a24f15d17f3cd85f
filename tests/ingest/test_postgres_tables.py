"""What PostgreSQL's log does not tell of a table, or tells under another name: the target is the table all the same."""

from __future__ import annotations

from typing import Any

import pytest

from lakeseal.errors import RunFailed
from support.captured_table import Captured


def there(captured: Captured) -> list[dict[str, Any]]:
    """In the database."""
    cursor = captured.connection.execute("SELECT * FROM t ORDER BY id")
    names = [column.name for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def equal(captured: Captured) -> None:
    """Columns that the table does not have any more stay in the target."""
    wanted = there(captured)
    names = wanted[0].keys() if wanted else ()
    assert [{name: row[name] for name in names} for row in captured.rows()] == wanted
    assert captured.pipeline.run().state == "nothing_new"


@pytest.fixture
def captured(lake: Any, database: str) -> Any:
    made = Captured(lake, database, "id bigint PRIMARY KEY, a text", merge_schema=True)
    yield made
    made.connection.close()


@pytest.fixture
def parted(lake: Any, database: str) -> Any:
    made = Captured(lake, database, "id bigint PRIMARY KEY, a text) PARTITION BY RANGE (id", merge_schema=True)
    made.do("CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (100)")
    made.do("CREATE TABLE high PARTITION OF t FOR VALUES FROM (100) TO (200) PARTITION BY RANGE (id)")
    made.do("CREATE TABLE higher PARTITION OF high FOR VALUES FROM (100) TO (200)")
    yield made
    made.connection.close()


def test_a_partitioned_table_is_captured_with_all_of_its_partitions(parted: Captured) -> None:
    """Changes are told as those of the partition; they were passed over."""
    parted.do("INSERT INTO t VALUES (1, 'one'), (101, 'big')")
    equal(parted)
    parted.do("INSERT INTO t VALUES (2, 'two')", "UPDATE t SET a = 'BIG' WHERE id = 101", "DELETE FROM t WHERE id = 1")
    parted.do("UPDATE t SET id = 102 WHERE id = 2")  # goes to another partition
    equal(parted)
    parted.do("CREATE TABLE new PARTITION OF t FOR VALUES FROM (200) TO (300)", "INSERT INTO t VALUES (201, 'new')")
    parted.do("ALTER TABLE low RENAME TO lower", "INSERT INTO t VALUES (3, 'three')")
    equal(parted)
    parted.do("TRUNCATE t", "INSERT INTO t VALUES (4, 'four')")
    equal(parted)


def test_a_partition_that_is_emptied_alone_is_told(parted: Captured) -> None:
    parted.do("INSERT INTO t VALUES (1, 'one'), (101, 'big')")
    equal(parted)
    parted.do("TRUNCATE low")
    with pytest.raises(RunFailed, match="Only a part of t was truncated, and not higher"):
        parted.pipeline.run()
    assert parted.lake.ids() == {1: 1, 101: 1}


def test_a_table_that_is_emptied_without_those_that_inherit_is_told(captured: Captured) -> None:
    captured.do("CREATE TABLE child (PRIMARY KEY (id)) INHERITS (t)")
    captured.do("INSERT INTO t VALUES (1, 'one')", "INSERT INTO child VALUES (2, 'two')")
    equal(captured)
    captured.do("TRUNCATE ONLY t")
    with pytest.raises(RunFailed, match="Only a part of t was truncated, and not child"):
        captured.pipeline.run()
    assert captured.lake.ids() == {1: 1, 2: 1}


def test_rows_of_tables_that_inherit_are_those_of_the_table(lake: Any, database: str) -> None:
    captured = Captured(lake, database, "id bigint PRIMARY KEY, a text", merge_schema=True)
    captured.do("CREATE TABLE child (more int, PRIMARY KEY (id)) INHERITS (t)")
    captured.do("INSERT INTO t VALUES (1, 'one')", "INSERT INTO child VALUES (2, 'two', 7)")
    equal(captured)
    captured.do("UPDATE child SET a = 'zwei'", "INSERT INTO child VALUES (3, 'three', 8)")
    equal(captured)
    captured.do("TRUNCATE t", "INSERT INTO child VALUES (5, 'five', 9)")
    equal(captured)
    captured.do("CREATE TABLE later (PRIMARY KEY (id)) INHERITS (t)", "INSERT INTO later VALUES (4, 'four')")
    with pytest.raises(RunFailed, match="does not publish all of t: not later"):
        captured.pipeline.run()
    captured.connection.close()


@pytest.mark.parametrize(
    ("publication", "told"),
    [
        ("CREATE TABLE other (id int); CREATE PUBLICATION cap FOR TABLE other", "does not publish all of t"),
        ("CREATE PUBLICATION cap FOR TABLE t WITH (publish = 'insert, delete')", "leaves out update, truncate"),
        ("CREATE PUBLICATION cap FOR TABLE t WHERE (id > 5)", "only some rows or columns"),
        ("CREATE PUBLICATION cap FOR TABLE t (id)", "only some rows or columns"),
    ],
)
def test_a_publication_that_leaves_something_out_is_refused(captured: Captured, publication: str, told: str) -> None:
    """What it leaves out never came, and nobody knew."""
    captured.do(*publication.split(";"))
    with pytest.raises(RunFailed, match=told):
        captured.pipeline.run()
    assert captured.pipeline.watermarks() == []


@pytest.mark.parametrize("publication", ["FOR ALL TABLES", "FOR TABLES IN SCHEMA public"])
def test_a_publication_of_more_than_the_table_is_as_good(captured: Captured, publication: str) -> None:
    captured.do(f"CREATE PUBLICATION cap {publication}", "INSERT INTO t VALUES (1, 'one')")
    equal(captured)
    captured.do("CREATE TABLE other (id int)", "INSERT INTO other VALUES (1)", "UPDATE t SET a = 'uno'")
    equal(captured)


def test_a_column_that_the_server_computes_is_left_out(lake: Any, database: str) -> None:
    """Changes come without it, and it was null in them."""
    captured = Captured(lake, database, "id bigint PRIMARY KEY, b bigint GENERATED ALWAYS AS (id * 2) STORED")
    captured.do("INSERT INTO t VALUES (1)")
    captured.rows()
    captured.do("INSERT INTO t VALUES (2)")
    assert captured.rows() == [{"id": 1}, {"id": 2}]
    captured.connection.close()


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE t ADD COLUMN b int DEFAULT 5",
        "ALTER TABLE t ADD COLUMN b double precision DEFAULT random()",
        "ALTER TABLE t ADD COLUMN b bigint GENERATED ALWAYS AS IDENTITY",
        "ALTER TABLE t RENAME COLUMN a TO b",
        "ALTER TABLE t ALTER COLUMN a TYPE varchar(10) USING upper(a)",
        "ALTER TABLE t DROP COLUMN a; ALTER TABLE t ADD COLUMN a text DEFAULT 'again'",
        "DROP TABLE t; CREATE TABLE t (id bigint PRIMARY KEY, a text); ALTER PUBLICATION cap ADD TABLE t;"
        " INSERT INTO t VALUES (1, 'new'), (7, 'seven')",
        "ALTER TABLE t RENAME TO old; CREATE TABLE t (LIKE old INCLUDING ALL); INSERT INTO t SELECT id + 1, a FROM old;"
        " ALTER PUBLICATION cap ADD TABLE t",
    ],
)
def test_a_change_of_the_table_that_changes_rows_untold_loads_it_again(captured: Captured, change: str) -> None:
    captured.do("INSERT INTO t VALUES (1, 'one'), (2, 'two'), (3, 'three')")
    equal(captured)
    captured.do("DELETE FROM t WHERE id = 3")
    captured.do(*change.split(";"))
    captured.do("INSERT INTO t (id) VALUES (50)")
    version = captured.lake.table().version()
    result = captured.pipeline.run()
    assert "loaded again" in result.datasets[0].notes[0]
    equal(captured)
    captured.do("DELETE FROM t WHERE id = 50", "INSERT INTO t (id) VALUES (60)")
    equal(captured)
    assert captured.lake.table().version() == version + 2, "no version is half of it"


def test_a_change_of_the_table_that_changes_no_row_loads_nothing_again(captured: Captured) -> None:
    captured.do("INSERT INTO t VALUES (1, 'one'), (2, 'two')")
    equal(captured)
    captured.do("ALTER TABLE t ADD COLUMN b int", "ALTER TABLE t ALTER COLUMN b SET DEFAULT NULL")
    captured.do("INSERT INTO t VALUES (3, 'three', 3)")
    assert captured.pipeline.run().rows == 1
    equal(captured)
