"""DuckDB from PyPI as a client of our catalog: it reads staged commits, inserts, and is told no at once."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import lakeseal
from lakeseal.protocol.paths import STAGED_COMMITS_DIR
from lakeseal.storage import open_store
from lakeseal.testing.proxy import faulty_proxy


def ids(connection: duckdb.DuckDBPyConnection, name: str = "orders") -> list[int]:
    return sorted(row[0] for row in connection.execute(f"SELECT id FROM c.sales.{name}").fetchall())


def again(connection: duckdb.DuckDBPyConnection) -> None:
    """As DuckDB has it after another writer's commit: it keeps its state for as long as a catalog is attached."""
    connection.execute("DETACH c")
    connection.execute("ATTACH 'main' AS c (TYPE UNITY_CATALOG, DEFAULT_SCHEMA 'sales')")


def test_duckdb_reads_and_inserts_beside_lakeseal(catalog: Any) -> None:
    table = catalog.create("orders")
    table.write(pa.table({"id": [1, 2], "s": ["a", "b"]}))
    with catalog.duckdb() as engine:
        assert ids(engine) == [1, 2]
        engine.execute("INSERT INTO c.sales.orders VALUES (3, 'c')")
        assert ids(engine) == [1, 2, 3]
        assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2, 3]
        table.write(pa.table({"id": [4], "s": ["d"]}))
        again(engine)
        engine.execute("INSERT INTO c.sales.orders VALUES (5, 'e')")
        assert ids(engine) == [1, 2, 3, 4, 5]
    assert table.version() == 4
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2, 3, 4, 5]


def test_duckdb_reads_commits_that_are_staged_and_not_published(catalogs: Any, tmp_path: Path) -> None:
    with catalogs(tmp_path, publish_every_s=3600.0) as catalog:
        catalog.service.unity.when_published = lambda table: None
        catalog.create("orders")
        with catalog.duckdb() as engine:
            for number in range(3):
                engine.execute(f"INSERT INTO c.sales.orders VALUES ({number}, 'x')")
        told = catalog.load("orders")
        assert [one["version"] for one in told["commits"]] == [3, 2, 1]
        assert told["latest-table-version"] == 3
        store = open_store(tmp_path / "orders")
        names = {key.removeprefix(STAGED_COMMITS_DIR) for key in store.list_keys(STAGED_COMMITS_DIR)}
        assert {one["file-name"] for one in told["commits"]} <= names
        with catalog.duckdb() as engine:
            assert ids(engine) == [0, 1, 2]


def test_duckdb_reads_a_managed_table_by_its_name_up_to_the_last_commit(catalogs: Any, tmp_path: Path) -> None:
    with catalogs(tmp_path, publish_every_s=3600.0) as catalog:
        table = catalog.create("orders", kind="managed")
        table.write(pa.table({"id": [1], "s": ["a"]}))
        with catalog.duckdb() as engine:
            assert ids(engine) == [1]
            table.write(pa.table({"id": [2], "s": ["b"]}))
            again(engine)
            assert ids(engine) == [1, 2]


def test_a_policys_no_arrives_at_once_as_an_error(catalogs: Any, tmp_path: Path) -> None:
    policy = {"policy": "allowed-principals", "principals": ["somebody"], "tables": f"file://{tmp_path}/orders"}
    with catalogs(tmp_path, policies=(policy,)) as catalog, faulty_proxy(catalog.url, lambda _: None) as proxy:
        table = catalog.create("orders")
        with (
            catalog.duckdb(token=catalog.login("writer", name="stranger"), url=proxy.endpoint) as engine,
            pytest.raises(duckdb.Error, match="stranger"),
        ):
            engine.execute("INSERT INTO c.sales.orders VALUES (1, 'a')")
        assert table.version() == 0
        asked = [one for one in proxy.requests if one.method == "POST" and one.path.endswith(catalog.path("orders"))]
        assert len(asked) == 1, "it does not ask again"


def test_a_wrong_token_is_an_error_at_once(catalog: Any) -> None:
    catalog.create("orders")
    with faulty_proxy(catalog.url, lambda _: None) as proxy:
        with catalog.duckdb(token="lks_wrong", url=proxy.endpoint) as engine, pytest.raises(duckdb.Error, match="401"):
            ids(engine)
        paths = [one.path for one in proxy.requests]
        assert len(paths) == len(set(paths)), "it does not ask again"


@pytest.mark.parametrize("refused", ["by a policy", "by a conflict"])
def test_after_an_insert_that_was_refused_a_new_attach_goes_on(catalogs: Any, tmp_path: Path, refused: str) -> None:
    policy = {"policy": "max-bytes", "limit": 5_000, "tables": f"file://{tmp_path}/orders"}
    many = "SELECT n, 'x' || md5(n::VARCHAR) FROM range(1000) t(n)"
    few = "VALUES (9, 'z')"
    with catalogs(tmp_path, policies=(policy,)) as catalog:
        table = catalog.create("orders")
        with catalog.duckdb() as engine:
            # DuckDB 1.5.5 can't detach if the first that it did to the table was the insert that failed.
            assert ids(engine) == []
            table.write(pa.table({"id": [1], "s": ["a"]}))
            if refused == "by a policy":
                again(engine)
                assert ids(engine) == [1]
            said = "max-bytes" if refused == "by a policy" else "CommitVersionConflictException"
            with pytest.raises(duckdb.Error, match=said):
                engine.execute(f"INSERT INTO c.sales.orders {many if refused == 'by a policy' else few}")
            again(engine)
            engine.execute("INSERT INTO c.sales.orders VALUES (2, 'b')")
            assert ids(engine) == [1, 2]
        assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2]
        assert table.version() == 2


def test_a_reader_may_read_and_not_insert(catalog: Any) -> None:
    table = catalog.create("orders")
    table.write(pa.table({"id": [1], "s": ["a"]}))
    with catalog.duckdb(token=catalog.login("reader")) as engine:
        assert ids(engine) == [1]
        with pytest.raises(duckdb.Error, match="writer"):
            engine.execute("INSERT INTO c.sales.orders VALUES (2, 'b')")
    assert table.version() == 1


def test_a_commit_over_three_tables_is_seen_and_met_whole_while_duckdb_writes_one_of_them(catalog: Any) -> None:
    names = ("a", "b", "c")
    tables = {name: catalog.create(name) for name in names}
    stop = threading.Event()
    inserted: list[int] = []
    failed: list[str] = []

    def insert() -> None:
        number = 1000
        while not stop.is_set() and not failed:
            # After a conflict a new connection knows what is there.
            with catalog.duckdb() as engine:
                try:
                    while not stop.is_set():
                        engine.execute(f"INSERT INTO c.sales.a VALUES ({number}, 'd')")
                        inserted.append(number)
                        number += 1
                except duckdb.Error as error:
                    if "CommitVersionConflictException" not in str(error):
                        failed.append(str(error))

    engine = threading.Thread(target=insert)
    engine.start()
    try:
        for number in range(5):
            with lakeseal.transaction(catalog.owner) as txn:
                for name in names:
                    txn.table(tables[name].uri).write(pa.table({"id": [number], "s": [name]}))
    finally:
        stop.set()
        engine.join()
    assert failed == []
    rows = {name: sorted(table.to_arrow()["id"].to_pylist()) for name, table in tables.items()}
    assert rows["b"] == rows["c"] == list(range(5))
    assert rows["a"] == sorted([*range(5), *inserted])
    with catalog.duckdb() as engine_after:
        assert {name: ids(engine_after, name) for name in names} == rows
