"""Table features that one of the two switches on and the other uses: the same rows, whoever reads and writes."""

from __future__ import annotations

import decimal
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import VariantVal

import lakeseal
from lakeseal.protocol.arrow import to_arrow_type
from lakeseal.protocol.schema import VARIANT

pytestmark = pytest.mark.peers

READ = """
rows = spark.read.format("delta").load(uri).collect()
result = [row.asDict(recursive=True) for row in rows]
"""


def test_delta_spark_writes_to_a_table_with_defaults_generated_and_identity_columns(
    delta_spark: Any, tmp_path: Path
) -> None:
    uri = str(tmp_path / "t")
    schema = pa.schema([("id", pa.int64()), ("n", pa.int32()), ("s", pa.string()), ("twice", pa.int64())])
    table = lakeseal.create(
        uri,
        schema,
        identity={"id": lakeseal.Identity(start=10, step=5)},
        defaults={"s": "'new'"},
        generated={"twice": "CAST(n AS BIGINT) * 2"},
        constraints={"positive": "n > 0"},
        comments={"n": "how many"},
    )
    table.write(pa.table({"n": pa.array([1, 2], pa.int32())}))

    delta_spark.run("spark.sql(f'INSERT INTO delta.`{uri}` (n) VALUES (3), (4)')\nresult = None", uri=uri)
    table.write(pa.table({"n": pa.array([5], pa.int32())}))
    refused = delta_spark.run(
        """
        result = []
        for bad in ("(n) VALUES (0)", "(id, n) VALUES (1, 1)"):
            try:
                spark.sql(f"INSERT INTO delta.`{uri}` {bad}")
                result.append("taken")
            except Exception as error:
                result.append("refused")
        """,
        uri=uri,
    )

    rows = sorted(delta_spark.run(READ, uri=uri), key=lambda row: row["n"])
    assert rows == sorted(table.to_arrow().to_pylist(), key=lambda row: row["n"])
    assert [(row["n"], row["s"], row["twice"]) for row in rows] == [(n, "new", 2 * n) for n in range(1, 6)]
    ids = [row["id"] for row in rows]
    assert ids[:2] == [10, 15]
    assert len(set(ids)) == 5
    assert all(i % 5 == 0 for i in ids)
    assert refused == ["refused", "refused"]


def test_lakeseal_writes_to_a_table_whose_columns_delta_spark_defined(delta_spark: Any, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    delta_spark.run(
        """
        from delta.tables import DeltaTable, IdentityGenerator
        (DeltaTable.create(spark).location(uri)
            .addColumn("id", "BIGINT", generatedAlwaysAs=IdentityGenerator(start=100, step=-1))
            .addColumn("n", "INT")
            .addColumn("half", "DOUBLE", generatedAlwaysAs="n / 2")
            .execute())
        spark.sql(f"INSERT INTO delta.`{uri}` (n) VALUES (1), (2)")
        result = None
        """,
        uri=uri,
    )

    table = lakeseal.Table(uri)
    table.write(pa.table({"n": pa.array([3, 4], pa.int32())}))
    delta_spark.run("spark.sql(f'INSERT INTO delta.`{uri}` (n) VALUES (5)')\nresult = None", uri=uri)

    rows = table.to_arrow().to_pylist()
    assert sorted((row["n"], row["half"]) for row in rows) == [(n, n / 2) for n in range(1, 6)]
    ids = [row["id"] for row in rows]
    assert len(set(ids)) == 5
    assert max(ids) == 100
    assert sorted(map(str, rows)) == sorted(map(str, delta_spark.run(READ, uri=uri)))


def test_delta_spark_reads_and_widens_what_lakeseal_widened(delta_spark: Any, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    schema = pa.schema([("n", pa.int8()), ("l", pa.list_(pa.int32())), ("s", pa.struct([("f", pa.float32())]))])
    properties = {"delta.enableTypeWidening": "true", "delta.columnMapping.mode": "name"}
    table = lakeseal.create(uri, schema, properties=properties)
    table.write(pa.Table.from_pylist([{"n": 1, "l": [1], "s": {"f": 0.5}}], schema=schema))

    table.change_type("n", "int")
    table.change_type("l.element", "bigint")
    table.change_type("s.f", "double")
    table.rename_column("s.f", "g")
    delta_spark.run(
        """
        spark.sql(f"ALTER TABLE delta.`{uri}` ALTER COLUMN n TYPE DECIMAL(12,2)")
        spark.sql(f"INSERT INTO delta.`{uri}` VALUES (2.25, array(5000000000L), named_struct('g', 0.1D))")
        result = None
        """,
        uri=uri,
    )
    table.write(pa.table({"n": [decimal.Decimal("3.50")]}))

    expected = [
        {"n": "1.00", "l": [1], "s": {"g": 0.5}},
        {"n": "2.25", "l": [5_000_000_000], "s": {"g": 0.1}},
        {"n": "3.50", "l": None, "s": None},
    ]
    ours = [{**row, "n": str(row["n"])} for row in table.to_arrow().sort_by("n").to_pylist()]
    assert ours == expected
    read = delta_spark.run(
        "rows = spark.read.format('delta').load(uri).orderBy('n').collect()\n"
        "result = [dict(row.asDict(recursive=True), n=str(row.n)) for row in rows]",
        uri=uri,
    )
    assert read == expected


def test_delta_spark_keeps_to_what_lakeseal_altered(delta_spark: Any, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    table = lakeseal.create(
        uri,
        pa.schema([("id", pa.int64()), ("s", pa.struct([("a", pa.int32()), ("b", pa.string())]))]),
        properties={"delta.columnMapping.mode": "name"},
    )
    table.write(pa.Table.from_pylist([{"id": 1, "s": {"a": 1, "b": "x"}}], schema=table.schema()))

    table.drop_column("s.b")
    table.add_columns(pa.schema([("state", pa.string())]))
    table.set_default("state", "'open'")
    table.set_not_null("id")
    table.set_comment("s.a", "first")

    found = delta_spark.run(
        """
        spark.sql(f"INSERT INTO delta.`{uri}` (id, s) VALUES (2, named_struct('a', 5))")
        try:
            spark.sql(f"INSERT INTO delta.`{uri}` (id) VALUES (NULL)")
            refused = False
        except Exception:
            refused = True
        rows = spark.read.format("delta").load(uri).orderBy("id").collect()
        comment = spark.read.format("delta").load(uri).schema["s"].dataType["a"].metadata.get("comment")
        result = [refused, comment, [row.asDict(recursive=True) for row in rows]]
        """,
        uri=uri,
    )

    assert found == [
        True,
        "first",
        [{"id": 1, "s": {"a": 1}, "state": None}, {"id": 2, "s": {"a": 5}, "state": "open"}],
    ]
    assert table.to_arrow().sort_by("id").to_pylist() == found[2]


def test_either_clusters_what_the_other_created(delta_spark: Any, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    table = lakeseal.create(
        uri,
        pa.schema([("a", pa.int64()), ("b", pa.int64())]),
        cluster_by=["a", "b"],
        properties={"delta.columnMapping.mode": "name"},
    )
    table.write(pa.table({"a": list(range(100)), "b": list(range(100, 0, -1))}))
    table.optimize()
    table.write(pa.table({"a": [1000], "b": [1000]}))

    told = delta_spark.run(
        """
        columns = spark.sql(f"DESCRIBE DETAIL delta.`{uri}`").collect()[0].clusteringColumns
        spark.sql(f"OPTIMIZE delta.`{uri}`")
        spark.sql(f"ALTER TABLE delta.`{uri}` CLUSTER BY (b)")
        spark.sql(f"INSERT INTO delta.`{uri}` VALUES (2000, 2000)")
        result = [list(columns), spark.read.format("delta").load(uri).count()]
        """,
        uri=uri,
    )
    table.optimize()

    assert told == [["a", "b"], 102]
    assert table.detail()["clusteringColumns"] == ["b"]
    assert table.to_arrow().num_rows == 102
    tags = [dict(tag) for tag in table.files()["tags"].to_pylist()]
    assert {tag["ZCUBE_ZORDER_BY"] for tag in tags} == {'["b"]'}
    assert delta_spark.run("result = spark.read.format('delta').load(uri).count()", uri=uri) == 102


ROW_IDS = """
rows = spark.read.format("delta").load(uri).selectExpr("id", "_metadata.row_id", "_metadata.row_commit_version")
result = {str(row.id): [row.row_id, row.row_commit_version] for row in rows.collect()}
"""


def row_ids(table: lakeseal.Table) -> dict[str, list[int]]:
    found = table.to_arrow(row_ids=True).to_pylist()
    return {str(row["id"]): [row["_row_id"], row["_row_commit_version"]] for row in found}


@pytest.mark.parametrize("vectors", ["false", "true"])
@pytest.mark.parametrize("mapping", ["none", "name", "id"])
def test_rows_keep_their_ids_whoever_writes_them_again(
    delta_spark: Any, tmp_path: Path, vectors: str, mapping: str
) -> None:
    uri = str(tmp_path / "t")
    properties = {
        "delta.enableRowTracking": "true",
        "delta.enableDeletionVectors": vectors,
        "delta.columnMapping.mode": mapping,
        "delta.enableChangeDataFeed": "true",
    }
    schema = pa.schema([("id", pa.int64()), ("n", pa.int64())])
    table = lakeseal.create(uri, schema, properties=properties)
    for start in (0, 20):
        table.write(pa.table({"id": list(range(start, start + 20)), "n": [0] * 20}))

    def both() -> dict[str, list[int]]:
        theirs = delta_spark.run(ROW_IDS, uri=uri)
        assert theirs == row_ids(table)
        return dict(theirs)

    before = both()
    table.delete("id % 10 = 3")
    table.update({"n": "n + 1"}, "id % 10 = 4")
    source = pa.table({"id": [5, 6, 100], "n": [5, 6, 100]})
    table.merge(source, "t.id = s.id").when_matched_update().when_not_matched_insert().execute()
    ours = both()
    table.optimize()
    assert both() == ours

    delta_spark.run(
        """
        spark.sql(f"DELETE FROM delta.`{uri}` WHERE id = 7")
        spark.sql(f"UPDATE delta.`{uri}` SET n = 8 WHERE id = 8")
        spark.sql(f"OPTIMIZE delta.`{uri}`")
        result = None
        """,
        uri=uri,
    )
    both()
    table.update({"n": "9"}, "id IN (8, 9)")
    after = both()

    for number, (row_id, _) in after.items():
        if number != "100":
            assert row_id == before[number][0]
    assert before.keys() - after.keys() == {"3", "13", "23", "33", "7"}
    unchanged = {n for n in after if n not in ("4", "14", "24", "34", "5", "6", "8", "9", "100")}
    assert {n: after[n] for n in unchanged} == {n: before[n] for n in unchanged}


def test_delta_spark_reads_columns_where_they_were_moved_and_a_clone_in_the_place_of_a_table(
    delta_spark: Any, tmp_path: Path
) -> None:
    uri, other = str(tmp_path / "t"), str(tmp_path / "other")
    sql = lakeseal.sql
    sql(
        f"CREATE TABLE delta.`{uri}` (id BIGINT, s STRUCT<x: INT, y: STRING>, z STRING)"
        " TBLPROPERTIES (delta.columnMapping.mode = 'name')"
    )
    sql(f"INSERT INTO delta.`{uri}` VALUES (1, named_struct('x', 1, 'y', 'a'), 'z')")
    sql(f"ALTER TABLE delta.`{uri}` ADD COLUMNS (f INT FIRST, s.w INT AFTER x, g INT AFTER id)")
    sql(f"ALTER TABLE delta.`{uri}` ALTER COLUMN z FIRST")
    sql(f"ALTER TABLE delta.`{uri}` DROP COLUMNS (g, s.y)")
    sql(f"COMMENT ON TABLE delta.`{uri}` IS 'moved'")
    sql(f"CREATE TABLE delta.`{other}` (q INT) CLUSTER BY (q)")
    sql(f"INSERT INTO delta.`{other}` VALUES (7)")
    sql(f"CREATE OR REPLACE TABLE delta.`{other}` SHALLOW CLONE delta.`{uri}`")

    told = delta_spark.run(
        """
        spark.sql(f"ALTER TABLE delta.`{uri}` ALTER COLUMN f AFTER id")
        spark.sql(f"INSERT INTO delta.`{uri}` VALUES ('y', 2, 3, named_struct('x', 4, 'w', 5))")
        spark.sql(f"UPDATE delta.`{other}` SET f = 9")
        spark.sql(f"INSERT INTO delta.`{other}` VALUES ('y', 3, 2, named_struct('x', 4, 'w', 5))")
        detail = spark.sql(f"DESCRIBE DETAIL delta.`{uri}`").collect()[0]
        result = [detail.description]
        for place in (uri, other):
            rows = spark.read.format("delta").load(place).orderBy("id").collect()
            result.append([row.asDict(recursive=True) for row in rows])
        """,
        uri=uri,
        other=other,
    )

    first = {"z": "z", "id": 1, "f": None, "s": {"x": 1, "w": None}}
    second = {"z": "y", "id": 2, "f": 3, "s": {"x": 4, "w": 5}}
    assert told == ["moved", [first, second], [{**first, "f": 9}, second]]
    assert lakeseal.Table(uri).to_arrow().sort_by("id").to_pylist() == told[1]
    assert [list(row) for row in lakeseal.Table(uri).to_arrow().to_pylist()] == [["z", "id", "f", "s"]] * 2
    assert lakeseal.Table(other).to_arrow().sort_by("id").to_pylist() == told[2]


def test_delta_spark_goes_on_with_what_was_put_together_unasked(delta_spark: Any, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    properties = {"delta.autoOptimize.autoCompact": "true", "delta.autoOptimize.optimizeWrite": "true"}
    table = lakeseal.create(uri, pa.schema([("id", pa.int64())]), properties=properties)
    for number in range(50):
        table.write(pa.table({"id": [number]}))
    assert table.files().num_rows == 1
    found = delta_spark.run(
        """
        spark.sql(f"INSERT INTO delta.`{uri}` VALUES (100)")
        newest = spark.sql(f"DESCRIBE HISTORY delta.`{uri}`").where("operation = 'OPTIMIZE'").collect()
        result = [spark.read.format("delta").load(uri).count(), [row.operationParameters["auto"] for row in newest]]
        """,
        uri=uri,
    )
    count, unasked = found
    assert count == 51
    # Delta Spark follows the property, too, behind its own commit.
    assert unasked in (["true"], ["true", "true"])


@pytest.mark.parametrize(
    ("feature", "properties", "changes"),
    [
        ("deletionVectors", {"delta.enableDeletionVectors": "true"}, "DELETE FROM {t} WHERE n = 1"),
        ("columnMapping", {"delta.columnMapping.mode": "name"}, "ALTER TABLE {t} RENAME COLUMN s TO text"),
        ("typeWidening", {"delta.enableTypeWidening": "true"}, "ALTER TABLE {t} ALTER COLUMN n TYPE BIGINT"),
        (
            "v2Checkpoint",
            {"delta.checkpointPolicy": "v2", "delta.checkpointInterval": "1"},
            "DELETE FROM {t} WHERE n = 1",
        ),
    ],
)
def test_delta_spark_goes_on_with_a_table_whose_feature_was_dropped(
    delta_spark: Any, tmp_path: Path, feature: str, properties: dict[str, str], changes: str
) -> None:
    uri = str(tmp_path / "t")
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    code = """
        for statement in statements:
            spark.sql(statement).collect()
        frame = spark.read.format("delta").load(uri)
        protocol = spark.sql(f"DESCRIBE DETAIL delta.`{uri}`").collect()[0]
        result = [sorted(row[0] for row in frame.collect()), list(protocol.tableFeatures), protocol.minReaderVersion]
    """
    statements = [
        f"CREATE TABLE delta.`{uri}` (n INT, s STRING) USING delta TBLPROPERTIES ({listed})",
        f"INSERT INTO delta.`{uri}` VALUES (1, 'a'), (2, 'b')",
        changes.format(t=f"delta.`{uri}`"),
    ]
    before, features, _ = delta_spark.run(code, statements=statements, uri=uri)
    assert feature in features

    table = lakeseal.Table(uri)
    table.set_properties({"delta.dropFeatureTruncateHistory.retentionDuration": "interval 0 hours"})
    table.drop_feature(feature, truncate_history=True)

    after, features, reader = delta_spark.run(code, statements=[f"INSERT INTO delta.`{uri}` VALUES (9, 'z')"], uri=uri)
    assert after == [*before, 9]
    assert feature not in features
    assert reader == 1
    assert sorted(table.to_arrow()["n"].to_pylist()) == after


@pytest.mark.parametrize("shredding", ["false", "true"])
def test_variants_are_the_same_whoever_writes_them(delta_spark: Any, tmp_path: Path, shredding: str) -> None:
    uri, texts = str(tmp_path / "t"), ['{"a": 1, "b": [true, null, "x"]}', "12.5", '{"a": {"deep": "ü"}}']
    values = [VariantVal.parseJson(text) for text in texts]
    variants = pa.array([{"metadata": v.metadata, "value": v.value} for v in values], to_arrow_type(VARIANT))
    table = lakeseal.Table(uri)
    properties = {"delta.enableVariantShredding": shredding}
    table.write(pa.table({"n": pa.array([0, 1, 2], pa.int64()), "v": variants}), properties=properties)
    table.update({"n": "n + 10"}, "n = 2")

    read = """
        for statement in statements:
            spark.sql(statement).collect()
        frame = spark.read.format("delta").load(uri).orderBy("n")
        frame = frame.selectExpr("n", "to_json(v)", "try_variant_get(v, '$.a', 'int')")
        result = [list(row) for row in frame.collect()]
    """
    more = [f"INSERT INTO delta.`{uri}` SELECT 3, parse_json('[1, {{\"c\": null}}]')"]
    rows = delta_spark.run(read, statements=more, uri=uri)

    expected = [*(json.loads(text) for text in texts), [1, {"c": None}]]
    order = [0, 1, 3, 12]
    assert [row[0] for row in rows] == order
    assert [json.loads(row[1]) for row in rows] == [expected[0], expected[1], expected[3], expected[2]]
    assert [row[2] for row in rows] == [1, None, None, None]
    ours = sorted(table.to_arrow().to_pylist(), key=lambda row: row["n"])
    held = [json.loads(VariantVal(row["v"]["value"], row["v"]["metadata"]).toJson()) for row in ours]
    assert held == [expected[0], expected[1], expected[3], expected[2]]
