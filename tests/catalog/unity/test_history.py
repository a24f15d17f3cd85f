"""Lakeseal's own writers, Lakeseal as somebody else's client and DuckDB commit to one table, behind a proxy that loses
a tenth of all replies, while the service is killed: one history without gap, loss or double, the same rows for all.

What DuckDB inserts it says nothing about when a reply is lost, so that its writer looks whether the row is there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import duckdb_extensions
import pyarrow as pa
import pytest

import lakeseal
from lakeseal.errors import LakesealError
from lakeseal.owner.config import OwnerConfig
from support.lossy_catalog import LossyCatalog, lossy_catalog, published_txn_ids

EXTENSIONS = ("httpfs", "delta", "unity_catalog")


def connected(url: str, token: str) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for name in EXTENSIONS:
        connection.execute(f"LOAD {name}")
    said = f"TOKEN '{token}', ENDPOINT '{url}', AWS_REGION 'us-east-1'"
    connection.execute(f"CREATE SECRET (TYPE UNITY_CATALOG, {said})")
    connection.execute("ATTACH 'main' AS c (TYPE UNITY_CATALOG, DEFAULT_SCHEMA 'sales')")
    return connection


def insert_by_duckdb(catalog: LossyCatalog, numbers: range, done: list[int]) -> None:
    left = list(numbers)
    while left:
        try:
            with connected(catalog.url, catalog.token) as engine:
                there = {row[0] for row in engine.execute("SELECT id FROM c.sales.orders").fetchall()}
                while left and left[0] in there:
                    done.append(left.pop(0))
                while left:
                    engine.execute(f"INSERT INTO c.sales.orders VALUES ({left[0]})")
                    done.append(left.pop(0))
        except duckdb.Error:
            time.sleep(0.2)


def write_by_lakeseal(open_table: Callable[[], lakeseal.Table], numbers: range, done: list[int]) -> None:
    """A write that was not answered is written again under its own number, which counts once."""
    for number in numbers:
        while True:
            try:
                open_table().write(pa.table({"id": [number]}), txn=(f"writer-{numbers.start}", number))
            except LakesealError:
                time.sleep(0.05)
                continue
            done.append(number)
            break


def one_history(folder: Path, *, each: int, kills: int) -> None:
    for name in EXTENSIONS:
        duckdb_extensions.import_extension(name)
    with lossy_catalog(folder) as catalog:
        direct = lakeseal.Catalog(catalog.service.url, token=catalog.token)
        schema = pa.schema([("id", pa.int64())])
        table = direct.create("sales.orders", schema, location=folder / "orders", kind="catalog")
        owner = OwnerConfig(url=catalog.url, token=catalog.token)
        own = lakeseal.Table(table.uri, owner=owner)
        theirs = lakeseal.Catalog(catalog.url, token=catalog.token, kind="unity")
        done: dict[str, list[int]] = {"owner": [], "client": [], "duckdb": []}
        writers = [
            threading.Thread(target=write_by_lakeseal, args=(lambda: own, range(each), done["owner"])),
            threading.Thread(
                target=write_by_lakeseal,
                args=(lambda: theirs.table("sales.orders"), range(1000, 1000 + each), done["client"]),
            ),
            threading.Thread(target=insert_by_duckdb, args=(catalog, range(2000, 2000 + each), done["duckdb"])),
        ]
        for one in writers:
            one.start()
        for number in range(kills):
            goal = 3 * each * (number + 1) // (kills + 1)
            while sum(map(len, done.values())) < goal and any(one.is_alive() for one in writers):
                time.sleep(0.02)
            catalog.service.kill()
        for one in writers:
            one.join()
        wanted = sorted(first + number for first in (0, 1000, 2000) for number in range(each))
        latest = table.version()
        assert catalog.service.kills == kills
        assert catalog.loses.lost > 0
        assert sorted(table.to_arrow()["id"].to_pylist()) == wanted, "nothing is lost, and nothing is there twice"
        assert latest == 3 * each, "and every version is one of these"
        through = lakeseal.Catalog(catalog.service.url, token=catalog.token, kind="unity").table("sales.orders")
        assert sorted(through.to_arrow()["id"].to_pylist()) == wanted
        with connected(catalog.service.url, catalog.token) as engine:
            found = engine.execute("SELECT id FROM c.sales.orders ORDER BY id").fetchall()
        assert [row[0] for row in found] == wanted
        direct.opened.owner.backfill(table.uri)  # type: ignore[union-attr]
        txn_ids = published_txn_ids(folder / "orders", latest)
        assert len(set(txn_ids)) == latest + 1, "each version is another transaction's"


def test_three_kinds_of_writers_make_one_history_though_replies_are_lost_and_the_service_dies(tmp_path: Path) -> None:
    one_history(tmp_path, each=6, kills=1)


@pytest.mark.stress
@pytest.mark.timeout(1800)
def test_200_commits_of_each_make_one_history_though_the_service_dies_twice(tmp_path: Path) -> None:
    one_history(tmp_path, each=200, kills=2)
