"""Delta Spark on tables that Lakeseal owns, beside Lakeseal's own writers; both read the same rows. Its commits go to a
service: by path through preview commits (the bridge's kind, the one way that it has without a connector and without a
name), and by name through UC Delta API v1 (the kind `catalog`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeseal
from lakeseal.clock import now_ms
from lakeseal.owner.config import OwnerConfig
from lakeseal.service import tokens
from lakeseal.service.access import Grant
from lakeseal.testing.service import service_inside
from support.spark_names import made_by_spark, names_in_spark

pytestmark = pytest.mark.peers

ROOT = Path(__file__).resolve().parents[2]
BY_PATH, BY_NAME = "coordinated, by path", "catalog, by name"
SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string())])
CONFIGURE = """
    spark.conf.set("spark.sql.catalog.lake", "io.unitycatalog.spark.UCSingleCatalog")
    spark.conf.set("spark.sql.catalog.lake.uri", url)
    spark.conf.set("spark.sql.catalog.lake.token", token)
    spark.conf.set("spark.sql.catalog.lake.deltaRestApi.enabled", "false")
"""
FORGET = """
    for name in ("", ".uri", ".token", ".deltaRestApi.enabled"):
        spark.conf.unset("spark.sql.catalog.lake" + name)
"""
STATEMENTS = """
    spark.sql(f"INSERT INTO {table} VALUES (10, 'j'), (11, 'k')")
    spark.sql(f"UPDATE {table} SET s = 'x' WHERE id = 1")
    spark.sql(f"DELETE FROM {table} WHERE id = 2")
    spark.sql("SELECT 3L AS id, 'm' AS s UNION ALL SELECT 12L, 'n'").createOrReplaceTempView("source")
    spark.sql(
        f"MERGE INTO {table} t USING source s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    rows = spark.sql(f"SELECT id, s FROM {table}").collect()
    before = spark.sql(f"SELECT id, s FROM {table} VERSION AS OF {version}").collect()
    result = [sorted([r.id, r.s] for r in rows), sorted([r.id, r.s] for r in before)]
"""
STREAM = """
    # One batch for each file, then the query ends; the next one goes on where it ended.
    source = spark.readStream.schema("id BIGINT, s STRING").option("maxFilesPerTrigger", 1).json(files)
    sink = source.writeStream.format("delta").option("checkpointLocation", checkpoint).trigger(availableNow=True)
    sink.start(path).awaitTermination()
"""
READ = """
    result = sorted(r.id for r in spark.sql(f"SELECT id FROM {table}").collect())
"""


class Owned:
    """A table in Delta Spark."""

    def __init__(self, table: lakeseal.Table, in_spark: str) -> None:
        self.table, self.in_spark = table, in_spark


@pytest.fixture(autouse=True)
def coordinators() -> None:
    if not (ROOT / ".venv-peers" / "dynamodb-jars.txt").exists():
        pytest.skip("Delta's commit coordinators lack a package: `make peers` gets it where Maven Central answers")


@pytest.fixture
def owned(request: pytest.FixtureRequest, tmp_path: Path, delta_spark: Any) -> Iterator[Owned]:
    place = tmp_path / "orders"
    with service_inside(ledger=f"sqlite:///{tmp_path}/ledger.db", rate=0) as (url, service):
        token, _ = tokens.create(service.ledger, "me", (Grant.from_text("admin"),), now=now_ms())
        catalog = lakeseal.Catalog(url, token=token)
        if request.param == BY_PATH:
            owner = OwnerConfig(url=url, token=token)
            table = lakeseal.create(place, SCHEMA, owner=owner, kind="coordinated")
            catalog.register("sales.orders", table.uri)
            delta_spark.run(CONFIGURE, url=url, token=token)
            yield Owned(table, f"delta.`{place}`")
            delta_spark.run(FORGET)
        else:
            with names_in_spark(delta_spark, url, token):
                name = made_by_spark(delta_spark, catalog, str(place), "id BIGINT, s STRING")
                yield Owned(catalog.table(name), name.rpartition(".")[2])


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "s": [str(one) for one in ids]}, SCHEMA)


def put(files: Path, *ids: int) -> None:
    """A file for each row."""
    files.mkdir(exist_ok=True)
    for one in ids:
        (files / f"{one}.json").write_text(json.dumps({"id": one, "s": str(one)}))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("owned", [BY_PATH, BY_NAME], indirect=True)
def test_delta_spark_reads_inserts_updates_deletes_merges_and_travels(owned: Owned, delta_spark: Any) -> None:
    table = owned.table
    table.write(rows(1, 2, 3))
    first = table.version()
    now, before = delta_spark.run(STATEMENTS, table=owned.in_spark, version=first)
    assert now == [[1, "x"], [3, "m"], [10, "j"], [11, "k"], [12, "n"]]
    assert before == [[1, "1"], [2, "2"], [3, "3"]]
    found = table.to_arrow().to_pylist()
    assert sorted([one["id"], one["s"]] for one in found) == now
    assert table.version() == first + 4
    table.write(rows(20))
    assert delta_spark.run(READ, table=owned.in_spark) == [1, 3, 10, 11, 12, 20]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("owned", [BY_PATH], indirect=True)
def test_a_stream_of_delta_sparks_writes_each_batch_once(owned: Owned, delta_spark: Any, tmp_path: Path) -> None:
    """By path only: a query has a session of its own, which would load the connector that is merely named."""
    table = owned.table
    places = {name: str(tmp_path / name) for name in ("files", "checkpoint")}
    for ids in ((30, 31), (32,)):
        put(tmp_path / "files", *ids)
        delta_spark.run(STREAM, path=str(tmp_path / "orders"), **places)
        table.write(rows(ids[0] + 10))
    wanted = [30, 31, 32, 40, 42]
    assert delta_spark.run(READ, table=owned.in_spark) == wanted
    assert sorted(table.to_arrow()["id"].to_pylist()) == wanted
    assert table.version() == 5, "a batch is a commit"
