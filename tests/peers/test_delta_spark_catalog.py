"""Delta Spark on tables that Lakeseal owns, by path: through preview commits, the one way that it has without a
connector of its own. Its commits go to a service, beside Lakeseal's own; both read the same rows."""

from __future__ import annotations

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

pytestmark = pytest.mark.peers

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string())])
CONFIGURE = """
    spark.conf.set("spark.sql.catalog.lake", "io.unitycatalog.spark.UCSingleCatalog")
    spark.conf.set("spark.sql.catalog.lake.uri", url)
    spark.conf.set("spark.sql.catalog.lake.token", token)
    spark.conf.set("spark.sql.catalog.lake.deltaRestApi.enabled", "false")
"""
STATEMENTS = """
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (10, 'j'), (11, 'k')")
    spark.sql(f"UPDATE delta.`{path}` SET s = 'x' WHERE id = 1")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 2")
    spark.sql("SELECT 3L AS id, 'm' AS s UNION ALL SELECT 12L, 'n'").createOrReplaceTempView("source")
    spark.sql(
        f"MERGE INTO delta.`{path}` t USING source s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    rows = spark.sql(f"SELECT id, s FROM delta.`{path}`").collect()
    before = spark.read.format("delta").option("versionAsOf", 1).load(path).collect()
    result = [sorted([r.id, r.s] for r in rows), sorted([r.id, r.s] for r in before)]
"""
READ = """
    result = sorted(r.id for r in spark.read.format("delta").load(path).select("id").collect())
"""


class Owned:
    def __init__(self, url: str, token: str, folder: Path) -> None:
        self.url, self.token, self.folder = url, token, folder
        self.owner = OwnerConfig(url=url, token=token)

    def create(self, name: str) -> lakeseal.Table:
        """A table of the bridge's kind, which the catalog knows by its UUID."""
        table = lakeseal.create(self.folder / name, SCHEMA, owner=self.owner, kind="coordinated")
        lakeseal.Catalog(self.url, token=self.token).register(f"sales.{name}", table.uri)
        return table


@pytest.fixture(autouse=True)
def coordinators() -> None:
    if not (ROOT / ".venv-peers" / "dynamodb-jars.txt").exists():
        pytest.skip("Delta's commit coordinators lack a package: `make peers` gets it where Maven Central answers")


@pytest.fixture
def owned(tmp_path: Path) -> Iterator[Owned]:
    with service_inside(ledger=f"sqlite:///{tmp_path}/ledger.db", rate=0) as (url, service):
        token, _ = tokens.create(service.ledger, "me", (Grant.from_text("admin"),), now=now_ms())
        yield Owned(url, token, tmp_path)


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "s": [str(one) for one in ids]}, SCHEMA)


def test_delta_spark_reads_inserts_updates_deletes_merges_and_travels(owned: Owned, delta_spark: Any) -> None:
    table = owned.create("orders")
    table.write(rows(1, 2, 3))
    delta_spark.run(CONFIGURE, url=owned.url, token=owned.token)
    now, before = delta_spark.run(STATEMENTS, path=str(owned.folder / "orders"))
    assert now == [[1, "x"], [3, "m"], [10, "j"], [11, "k"], [12, "n"]]
    assert before == [[1, "1"], [2, "2"], [3, "3"]]
    found = table.to_arrow().to_pylist()
    assert sorted([one["id"], one["s"]] for one in found) == now
    assert table.version() == 5
    table.write(rows(20))
    assert delta_spark.run(READ, path=str(owned.folder / "orders")) == [1, 3, 10, 11, 12, 20]
