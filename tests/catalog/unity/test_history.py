"""Lakeseal's own writers, Lakeseal as somebody else's client and DuckDB commit to one table, behind a proxy that loses
a tenth of all replies, while the service is killed: one history without gap, loss or double, the same rows for all.
With Delta Spark among them: tests/peers/test_one_history.py."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakeseal
from lakeseal.owner.config import OwnerConfig
from support.lossy_catalog import lossy_catalog
from support.one_history import ByDuckDB, check_one_history, write_at_once, write_by_lakeseal

NAME = "main.sales.orders"


def one_history(folder: Path, *, each: int, kills: int) -> None:
    with lossy_catalog(folder) as catalog:
        direct = lakeseal.Catalog(catalog.service.url, token=catalog.token)
        schema = pa.schema([("id", pa.int64())])
        table = direct.create(NAME, schema, location=folder / "orders", kind="catalog")
        own = lakeseal.Table(table.uri, owner=OwnerConfig(url=catalog.url, token=catalog.token))
        theirs = lakeseal.Catalog(catalog.url, token=catalog.token, kind="unity")
        writers = {
            "owner": write_by_lakeseal(lambda: own, "owner"),
            "client": write_by_lakeseal(lambda: theirs.table(NAME), "client"),
            "duckdb": ByDuckDB(catalog.url, catalog.token, NAME).write,
        }
        wanted = write_at_once(catalog, writers, each=each, kills=kills)
        check_one_history(catalog, table, folder / "orders", NAME, wanted=wanted, first=0)


def test_three_kinds_of_writers_make_one_history_though_replies_are_lost_and_the_service_dies(tmp_path: Path) -> None:
    one_history(tmp_path, each=6, kills=1)


@pytest.mark.stress
@pytest.mark.timeout(1800)
def test_200_commits_of_each_make_one_history_though_the_service_dies_twice(tmp_path: Path) -> None:
    one_history(tmp_path, each=200, kills=2)
