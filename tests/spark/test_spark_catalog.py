"""Tables of ours by names of Spark's own catalog: what its data sources in Python allow works, the rest is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException

import lakeseal
from lakeseal import Table, errors
from lakeseal.spark.failures import recovered

pytestmark = pytest.mark.spark

NAMES = ("held_a", "held_b", "held_c", "held_p")


@pytest.fixture
def session(spark: Any, tmp_path: Path) -> Iterator[Any]:
    for name in ("a", "b"):
        Table(tmp_path / name).write(pa.table({"id": [1, 2], "s": [f"{name}1", f"{name}2"]}))
        spark.sql(f"CREATE TABLE held_{name} USING lakeseal LOCATION '{tmp_path / name}'")
    try:
        yield spark
    finally:
        spark.sql("DROP VIEW IF EXISTS held_v")
        for name in NAMES:
            spark.sql(f"DROP TABLE IF EXISTS {name}")


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def test_a_table_with_a_name_is_read_joined_and_viewed_and_dropping_it_keeps_its_files(
    session: Any, tmp_path: Path
) -> None:
    assert rows(session.table("held_a")) == [(1, "a1"), (2, "a2")]
    session.sql("CREATE VIEW held_v AS SELECT a.id, b.s FROM held_a a JOIN held_b b USING (id) WHERE a.s > 'a1'")
    assert rows(session.sql("SELECT * FROM held_v")) == [(2, "b2")]
    Table(tmp_path / "a").write(pa.table({"id": [3], "s": ["a3"]}))
    assert rows(session.sql("SELECT * FROM held_a WITH (`where` = 'id = 3')")) == [(3, "a3")]
    with pytest.raises(AnalysisException, match="TIME_TRAVEL"):
        session.sql("SELECT * FROM held_a VERSION AS OF 0")
    assert rows(session.sql("SELECT id, s FROM held_a WHERE id > 1")) == [(2, "a2"), (3, "a3")]
    assert session.sql("SELECT count(*) FROM held_a").collect()[0][0] == 3
    session.sql("DROP TABLE held_a")
    assert Table(tmp_path / "a").to_arrow().num_rows == 3
    session.sql(f"CREATE TABLE held_c USING lakeseal OPTIONS (path '{tmp_path / 'a'}', columns 's')")
    assert rows(session.table("held_c")) == [("a1",), ("a2",), ("a3",)]
    assert session.catalog.tableExists("held_c")


def test_spark_can_say_of_no_write_where_it_goes_so_none_goes_anywhere(session: Any, tmp_path: Path) -> None:
    for statement in (
        "INSERT INTO held_a VALUES (9, 'x')",
        "INSERT INTO held_a SELECT * FROM held_b",
        "INSERT INTO held_a BY NAME SELECT s, id FROM held_b",
        "INSERT OVERWRITE held_a SELECT * FROM held_b",
        f"CREATE TABLE held_c USING lakeseal LOCATION '{tmp_path / 'c'}' AS SELECT * FROM held_a",
    ):
        with pytest.raises(errors.UnsupportedFeature, match="into which table") as caught, recovered():
            session.sql(statement)
        assert "lakeseal.sql" in caught.value.hint
    frame = session.sql("SELECT 9L AS id, 'x' AS s")
    for write in (lambda: frame.write.insertInto("held_a"), lambda: frame.writeTo("held_a").append()):
        with pytest.raises(errors.UnsupportedFeature, match="into which table"), recovered():
            write()
    for statement in ("DELETE FROM held_a WHERE id = 1", "UPDATE held_a SET id = 1", "TRUNCATE TABLE held_a"):
        with pytest.raises(PySparkException, match=r"(?i)support"):
            session.sql(statement)
    assert [Table(tmp_path / name).version() for name in "ab"] == [0, 0]
    assert not (tmp_path / "c").exists()


def test_what_could_keep_another_tables_note_under_a_new_name_is_refused(session: Any, tmp_path: Path) -> None:
    place = str(tmp_path / "c")
    with pytest.raises(errors.UnsupportedFeature, match="another table"), recovered():
        session.table("held_a").writeTo("held_c").using("lakeseal").option("path", place).create()
    assert not session.catalog.tableExists("held_c")
    # A table of another format has our columns, notes and all, and is still that format's.
    session.sql(f"CREATE TABLE held_p USING parquet LOCATION '{tmp_path / 'p'}' AS SELECT * FROM held_a")
    lakeseal.sql("INSERT INTO held_p VALUES (7, 'p')", session)
    assert session.table("held_p").count() == 3
    session.sql("CREATE VIEW held_v AS SELECT * FROM held_a")
    with pytest.raises(AnalysisException):
        lakeseal.sql("INSERT INTO held_v VALUES (7, 'v')", session)
    assert Table(tmp_path / "a").version() == 0
    # A schema that the user gives has no note; whoever uses the name is told.
    session.sql(f"CREATE TABLE held_c (id bigint, s string) USING lakeseal LOCATION '{tmp_path / 'a'}'")
    with pytest.raises(errors.UnsupportedFeature, match="where a table is"), recovered():
        session.table("held_c").collect()
    with pytest.raises(errors.UnsupportedFeature, match=r"storage\.token"), recovered():
        session.sql(f"CREATE TABLE held_x USING lakeseal OPTIONS (path '{place}', `storage.token` 'secret')")
    with pytest.raises(errors.TableNotFound), recovered():
        session.sql(f"CREATE TABLE held_x USING lakeseal LOCATION '{place}'")
    with pytest.raises(errors.UnsupportedFeature, match="place of its own"), recovered():
        session.sql("CREATE TABLE held_x USING lakeseal")


def test_statements_of_lakeseal_know_names_of_sparks_catalog(session: Any, tmp_path: Path) -> None:
    table = Table(tmp_path / "a")
    lakeseal.sql("INSERT INTO held_a SELECT * FROM held_b", session)
    lakeseal.sql("UPDATE default.held_a SET s = 'new' WHERE id = 1", session)
    lakeseal.sql("DELETE FROM held_a WHERE s = 'b2'", session)
    assert rows(session.table("held_a")) == [(1, "new"), (1, "new"), (2, "a2")]
    assert rows(lakeseal.sql("SELECT id FROM held_a VERSION AS OF 0", session)) == [(1,), (2,)]
    assert Table(tmp_path / "b").version() == 0
    lakeseal.sql("ALTER TABLE held_a ADD COLUMNS (n INT)", session)
    assert session.table("held_a").columns == ["id", "s", "n"]
    assert table.version() == 4
    made = f"CREATE TABLE held_c (x INT, y STRING) USING lakeseal LOCATION '{tmp_path / 'c'}'"
    lakeseal.sql(made, session)
    lakeseal.sql("INSERT INTO held_c VALUES (1, 'one')", session)
    assert rows(session.table("held_c")) == [(1, "one")]
    lakeseal.sql("DROP TABLE held_c", session)
    assert Table(tmp_path / "c").to_arrow().num_rows == 1


def test_save_as_table_gives_rows_a_place_and_the_place_a_name(session: Any, tmp_path: Path) -> None:
    lakeseal.register(session)
    place = str(tmp_path / "c")
    source = session.table("held_a")
    with pytest.raises(errors.InvalidArgument, match="place"):
        source.write.format("lakeseal").mode("append").saveAsTable("held_c")
    source.write.format("lakeseal").option("path", place).saveAsTable("held_c")
    source.write.format("lakeseal").mode("append").saveAsTable("held_c")
    source.write.saveAsTable("held_c", format="lakeseal", mode="ignore")
    with pytest.raises(errors.AlreadyExists):
        source.write.format("lakeseal").saveAsTable("held_c")
    assert rows(session.table("held_c")) == [(1, "a1"), (1, "a1"), (2, "a2"), (2, "a2")]
    session.table("held_b").write.saveAsTable("held_c", format="lakeseal", mode="overwrite")
    assert rows(session.table("held_c")) == [(1, "b1"), (2, "b2")]
    assert Table(place).version() == 2
    assert not any("__lakeseal" in str(field.metadata) for field in Table(place).snapshot().schema.fields)
    assert Table(tmp_path / "a").version() == 0
    session.table("held_a").write.format("lakeseal").mode("append").save(str(tmp_path / "d"))
    assert Table(tmp_path / "d").to_arrow().num_rows == 2


def test_a_stream_reads_a_table_by_its_name(session: Any, tmp_path: Path) -> None:
    query = (
        session.readStream.table("held_a")
        .writeStream.format("lakeseal")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "d"))
    )
    query.awaitTermination()
    assert sorted(Table(tmp_path / "d").to_arrow()["id"].to_pylist()) == [1, 2]
