"""Lakeseal: atomic, exactly-once publishing of what Spark writes.

The names here are the ones to rely on; see the README for what they do. They are loaded when they are first used, so
that a task on an executor imports only the rooms that it works in.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakeseal.catalogs import Catalog, create
    from lakeseal.errors import LakesealError
    from lakeseal.ingest.pipeline import Pipeline
    from lakeseal.protocol.identity import Identity
    from lakeseal.repository import Repository
    from lakeseal.spark.datasource import register
    from lakeseal.table import Table, convert, is_delta_table
    from lakeseal.table_sql.sql import sql
    from lakeseal.transactions import snapshots, transaction
    from lakeseal.trust import Trust

_HOMES = {
    "Catalog": "lakeseal.catalogs",
    "Identity": "lakeseal.protocol.identity",
    "LakesealError": "lakeseal.errors",
    "Pipeline": "lakeseal.ingest.pipeline",
    "Repository": "lakeseal.repository",
    "Table": "lakeseal.table",
    "Trust": "lakeseal.trust",
    "convert": "lakeseal.table",
    "create": "lakeseal.catalogs",
    "is_delta_table": "lakeseal.table",
    "register": "lakeseal.spark.datasource",
    "sql": "lakeseal.table_sql.sql",
    "snapshots": "lakeseal.transactions",
    "transaction": "lakeseal.transactions",
}

__all__ = [
    "Catalog",
    "Identity",
    "LakesealError",
    "Pipeline",
    "Repository",
    "Table",
    "Trust",
    "convert",
    "create",
    "is_delta_table",
    "register",
    "snapshots",
    "sql",
    "transaction",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("lakeseal")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'lakeseal' has no attribute {name!r}")
    try:
        value = getattr(import_module(home), name)
    except ModuleNotFoundError as error:
        if error.name != "pyspark":
            raise
        told = f"lakeseal.{name} needs Spark, which is not installed: pip install 'lakeseal[spark]'"
        raise ModuleNotFoundError(told, name=error.name) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
