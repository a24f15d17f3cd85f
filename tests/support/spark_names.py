"""Tables of a service's catalog by their names in Delta Spark, without the connector that would bring the names along.

Delta Spark commits to a table of the kind `catalog` through its own commit client, which it looks for by the name of
the catalog that a table is found in. Here the session's own catalog has the names, and the client that Delta Spark
comes with is told to it: over UC Delta API v1 (so that the table's name in the service is the same one,
`spark_catalog.default.…`) or over preview commits. The connector's class is named, as Delta Spark wants it, and never
loaded."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import lakeseal

_CONFIGURE = """
    spark.catalog.listTables()  # the session has its catalog from here on, whatever its setting says
    coordinated = spark._jvm.org.apache.spark.sql.delta.coordinatedcommits
    builder = getattr(getattr(coordinated, "UCCommitCoordinatorBuilder$"), "MODULE$")
    provider = getattr(getattr(coordinated, "CatalogOwnedCommitCoordinatorProvider$"), "MODULE$")
    provider.clearBuilders()
    provider.registerBuilder("spark_catalog", builder)
    for name, value in settings.items():
        spark.conf.set("spark.sql.catalog.spark_catalog" + name, value)
"""
_RESTORE = """
    coordinated = spark._jvm.org.apache.spark.sql.delta.coordinatedcommits
    getattr(getattr(coordinated, "CatalogOwnedCommitCoordinatorProvider$"), "MODULE$").clearBuilders()
    for name in names:
        spark.conf.unset("spark.sql.catalog.spark_catalog" + name)
    spark.conf.set("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
"""
_CREATE = """
    spark.sql(f"CREATE TABLE {table} ({columns}) USING delta LOCATION '{place}'")
"""


@contextmanager
def names_in_spark(delta_spark: Any, url: str, token: str, *, preview: bool = False) -> Iterator[None]:
    """Until then, Delta Spark's commits to tables of the kind `catalog` go to `url`."""
    settings = {
        "": "io.unitycatalog.spark.UCSingleCatalog",
        ".uri": url,
        ".token": token,
        ".deltaRestApi.enabled": "false" if preview else "true",
    }
    delta_spark.run(_CONFIGURE, settings=settings)
    try:
        yield
    finally:
        delta_spark.run(_RESTORE, names=[name for name in settings if name])


def made_by_spark(delta_spark: Any, catalog: lakeseal.Catalog, place: str, columns: str) -> str:
    """The name of a new table that Delta Spark made, as any table of its own, and that the catalog took over then."""
    table = f"t{uuid.uuid4().hex[:8]}"
    delta_spark.run(_CREATE, table=table, columns=columns, place=place)
    name = f"spark_catalog.default.{table}"
    catalog.register(name, place)
    owner = catalog.opened.owner
    assert owner is not None
    catalog.table(name).take_over(owner, kind="catalog")
    return name
