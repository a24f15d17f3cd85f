"""Variables in texts, `${name}`: what Spark reads in a text is what we read in it. Spark is asked by the same text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeseal
from lakeseal import Table
from lakeseal.errors import InvalidExpression, LakesealError, UnsupportedExpression
from oracles.sessions import with_settings

pytestmark = pytest.mark.spark

SET = {
    "my.note": "a",
    "my.id": "2",
    "my.more": "${my.id} + ${hivevar:my.id}",
    "my.quoted": "a' OR note = 'b",
    "my.name": "note",
    "my.circle": "${my.circle}",
    "my.half": "{my.id}",
}
NOTES = ["a", "b", "", "${my.note}", "${env:LAKESEAL_NOT_SET}", "${other:my.note}", "2", "$2"]
ROWS = pa.table({"id": pa.array(range(len(NOTES)), pa.int64()), "note": NOTES})

CONDITIONS = (
    "note = '${my.note}'",
    "note = '${spark:my.note}' OR id = ${sparkconf:my.id}",
    "id = ${hiveconf:my.id} AND note <> '${nothing.is.set}'",
    "note = '${nothing.is.set}'",
    "note = '${nothing.is.set:a}'",
    "note = '$${my.id}'",
    "note = '${other:my.note}'",
    "note = '${env:LAKESEAL_NOT_SET}'",
    "note < '${system:file.separator}'",
    "note = '${ my.note }' OR note = '${}'",
    "id = ${my.more}",
    "note = '${my.quoted}'",
    "${my.name} = 'b' -- ${my.id}",
    "id IN (${my.id}, length('${my.note}'))",
    r"note = '\${my.note}'",
)


@pytest.fixture(params=["true", "false"])
def session(spark: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    with with_settings(spark, {**SET, "spark.sql.variable.substitute": request.param}):
        yield spark


def table(path: Path, name: str = "t") -> Table:
    made = Table(path / name)
    made.write(ROWS)
    return made


def in_spark(session: Any, condition: str) -> list[int] | None:
    """Which rows Spark says that they are; None if it cannot read the text."""
    try:
        return sorted(row.id for row in session.createDataFrame(ROWS).where(condition).collect())
    except Exception:
        return None


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_condition_is_about_the_rows_that_spark_says(session: Any, tmp_path: Path, condition: str) -> None:
    chosen = in_spark(session, condition)
    place = f"delta.`{table(tmp_path, 'by_sql').uri}`"
    by_api = table(tmp_path)
    if chosen is None:
        for refused in (
            lambda: by_api.delete(condition, spark=session),
            lambda: lakeseal.sql(f"DELETE FROM {place} WHERE {condition}", session),
        ):
            with pytest.raises(LakesealError):
                refused()
        assert by_api.version() == 0
        return
    left = [n for n in range(ROWS.num_rows) if n not in chosen]
    assert sorted(row.id for row in by_api.to_spark(session, where=condition).collect()) == chosen
    by_api.update({"note": "'changed'"}, condition, spark=session)
    assert sorted(by_api.to_arrow(where="note = 'changed'")["id"].to_pylist()) == chosen
    by_api.restore(0)
    by_api.delete(condition, spark=session)
    assert sorted(by_api.to_arrow()["id"].to_pylist()) == left
    lakeseal.sql(f"DELETE FROM {place} WHERE {condition}", session)
    assert sorted(lakeseal.sql(f"SELECT id FROM {place}", session).toArrow()["id"].to_pylist()) == left


def test_tables_columns_and_values_may_be_named_by_variables(spark: Any, tmp_path: Path) -> None:
    changed = table(tmp_path)
    with with_settings(spark, {**SET, "my.folder": str(tmp_path), "my.table": "t"}):
        place = "delta.`${my.folder}/${my.table}`"
        lakeseal.sql(f"UPDATE {place} SET ${{my.name}} = concat('<', '${{my.note}}', '>') WHERE id = ${{my.id}}", spark)
        lakeseal.sql(f"INSERT INTO {place} VALUES (100, '${{my.note}}'), (${{my.id}}00, 'x')", spark)
        lakeseal.sql(
            f"MERGE INTO {place} t USING (SELECT ${{my.id}} AS id) s ON t.id = s.id AND '${{my.note}}' = 'a' "
            "WHEN MATCHED THEN UPDATE SET note = concat(note, '${my.note}')",
            spark,
        )
        assert lakeseal.sql(f"SELECT note FROM {place} WHERE id = ${{my.id}}", spark).first().note == "<a>a"
    added = changed.to_arrow(where="id >= 100").sort_by("id").to_pylist()
    assert added == [{"id": 100, "note": "a"}, {"id": 200, "note": "x"}]


def test_a_merge_and_a_replacement_read_the_variables_of_their_data(session: Any, tmp_path: Path) -> None:
    source = session.createDataFrame([(1, "a"), (2, "a"), (50, "${my.note}")], "id long, note string")
    asked = "'${my.note}'"
    (said,) = session.sql(f"SELECT {asked}").first()
    for name, local in (("local", "true"), ("spark", "false")):
        with with_settings(session, {"spark.lakeseal.localMerge": local}):
            merged = table(tmp_path, name)
            merge = merged.merge(source, f"t.id = s.id AND s.note <> {asked}")
            merge.when_not_matched_insert({"id": "s.id + 100", "note": asked}, f"s.note = {asked}").execute()
        expected = [(row.id + 100, said) for row in source.collect() if row.note == said]
        added = merged.to_arrow(where="id >= 100")
        assert sorted(zip(added["id"].to_pylist(), added["note"].to_pylist(), strict=True)) == sorted(expected)
    replaced = table(tmp_path, "replaced")
    news = session.createDataFrame([(0, said)], "id long, note string")
    replaced.write(news, mode="overwrite", replace_where=f"note = {asked}")
    assert replaced.to_arrow().num_rows == ROWS.num_rows
    assert replaced.history(1)[0]["operationParameters"]["predicate"].strip('"') == f"note = '{said}'"


def test_what_a_table_keeps_has_values_and_no_variables(spark: Any, tmp_path: Path) -> None:
    with with_settings(spark, SET):
        made = lakeseal.create(
            tmp_path / "t",
            pa.schema([("id", pa.int64()), ("note", pa.string()), ("twice", pa.int64())]),
            properties={"delta.feature.allowColumnDefaults": "supported"},
            defaults={"note": "'${my.note}'"},
            generated={"twice": "id * ${my.id}"},
            constraints={"few": "id < ${my.id}0"},
            spark=spark,
        )
        made.add_constraint("other", "note <> '${my.id}'", spark=spark)
        made.set_default("note", "'${my.note}${my.note}'", spark=spark)
    made.write(pa.table({"id": pa.array([3], pa.int64())}))
    assert made.to_arrow().to_pylist() == [{"id": 3, "note": "aa", "twice": 6}]
    configuration = made.snapshot().metadata.configuration
    assert [configuration[f"delta.constraints.{name}"] for name in ("few", "other")] == ["id < 20", "note <> '2'"]


def test_without_a_session_a_text_stays_as_it_is(tmp_path: Path) -> None:
    changed = table(tmp_path)
    changed.delete("note = '${my.note}'")
    assert 3 not in changed.to_arrow()["id"].to_pylist()
    assert lakeseal.sql(f"DELETE FROM delta.`{changed.uri}` WHERE note = '${{other:my.note}}'").num_rows == 1
    assert changed.to_arrow().num_rows == ROWS.num_rows - 2


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("note = '${my.circle}'", InvalidExpression, "itself"),
        ("note = '$${my.half}'", UnsupportedExpression, "again"),
        ("note = '${spark.sql.ansi.enabled}'", InvalidExpression, "no value"),
        ("note = '${system:lakeseal.\"}'", UnsupportedExpression, "from outside"),
    ],
)
def test_what_cannot_be_read_is_refused(
    spark: Any, tmp_path: Path, text: str, kind: type[LakesealError], says: str
) -> None:
    changed = table(tmp_path)
    with with_settings(spark, SET):
        with pytest.raises(kind, match=says):
            changed.delete(text, spark=spark)
        with pytest.raises(kind, match=says):
            lakeseal.sql(f"DELETE FROM delta.`{changed.uri}` WHERE {text}", spark)
    assert changed.version() == 0


def test_a_source_that_is_not_told_of_the_session_refuses_variables(spark: Any, tmp_path: Path) -> None:
    changed = table(tmp_path)
    news = spark.createDataFrame([(3, "${my.note}")], "id long, note string")
    writer = news.write.format("lakeseal").mode("overwrite").option("replaceWhere", "note = '${my.note}'")
    with pytest.raises(Exception, match="variables"):
        writer.save(changed.uri)
    with pytest.raises(Exception, match="variables"):
        spark.read.format("lakeseal").option("where", "note = '${my.note}'").load(changed.uri).collect()
    assert changed.version() == 0
