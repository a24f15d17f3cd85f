"""Tables by their names in `format("lakeseal")`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeseal
from lakeseal.errors import InvalidArgument, TableNotFound
from lakeseal.spark.read_options import ReadOptions
from lakeseal.spark.sink_options import SinkOptions

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def catalog(tmp_path: Path) -> lakeseal.Catalog:
    return lakeseal.Catalog(f"sqlite:///{tmp_path}/catalog.db")


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["filesystem", "managed"])
def test_batches_and_streams_go_by_name(spark: Any, catalog: lakeseal.Catalog, kind: str, tmp_path: Path) -> None:
    lakeseal.register(spark)
    url = catalog.opened.url
    orders = catalog.create("sales.orders", SCHEMA, kind=kind)
    catalog.create("sales.copy", SCHEMA, kind=kind)
    frame = spark.range(3)
    frame.write.format("lakeseal").mode("append").option("catalog", url).save("sales.orders")
    frame.write.format("lakeseal").mode("append").option("catalog", url).option("table", "sales.orders").save()
    assert orders.version() == 2
    read = spark.read.format("lakeseal").option("catalog", url)
    assert read.load("Sales.Orders").count() == 6
    assert read.option("table", "main.sales.orders").load().count() == 6
    stream = spark.readStream.format("lakeseal").option("catalog", url).load("sales.orders")
    query = (
        stream.writeStream.format("lakeseal")
        .option("catalog", url)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .option("table", "sales.copy")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sorted(catalog.table("sales.copy").to_arrow()["id"].to_pylist()) == [0, 0, 1, 1, 2, 2]


def test_options_name_the_table_once(catalog: lakeseal.Catalog) -> None:
    catalog.create("sales.orders", SCHEMA, kind="managed")
    url = catalog.opened.url
    uri = catalog.show("sales.orders").uri
    for kind in (ReadOptions, SinkOptions):
        found = kind.from_options({"table": "SALES.orders", "catalog": url}).table
        assert (found.uri, found.catalog, found.is_catalogs) == (uri, url, True)
        assert kind.from_options({"path": uri}).table.catalog is None
        with pytest.raises(InvalidArgument, match="Give one of them"):
            kind.from_options({"path": uri, "table": "sales.orders"})
        with pytest.raises(InvalidArgument, match=r"default\.orders"):
            kind.from_options({"table": "orders", "catalog": url})
        with pytest.raises(InvalidArgument, match="location is missing"):
            kind.from_options({"catalog": url})
        with pytest.raises(TableNotFound):
            kind.from_options({"path": "sales.nothing", "catalog": url})
