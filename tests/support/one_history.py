"""Writers of several engines that commit to one table behind a proxy which loses a tenth of all replies, while the
service is killed; and what has to be true of the table then: one history without gap, loss or double, the same rows for
all who read it.

A writer takes numbers, puts each into the table as a commit of its own, and says which it has done. What came of an
insert whose reply was lost it has to find out by itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import duckdb
import duckdb_extensions  # type: ignore[import-untyped]
import pyarrow as pa

import lakeseal
from lakeseal.catalog.table_name import TableName
from lakeseal.errors import LakesealError
from support.lossy_catalog import LossyCatalog, published_txn_ids

_EXTENSIONS = ("httpfs", "delta", "unity_catalog")
Writer = Callable[[Sequence[int], list[int]], None]


def write_by_lakeseal(open_table: Callable[[], lakeseal.Table], writer: str) -> Writer:
    """A write that was not answered is written again under its own number, which counts once."""

    def write(numbers: Sequence[int], done: list[int]) -> None:
        for number in numbers:
            while True:
                try:
                    open_table().write(pa.table({"id": [number]}), txn=(writer, number))
                except LakesealError:
                    time.sleep(0.05)
                    continue
                done.append(number)
                break

    return write


class ByDuckDB:
    """One table of a catalog in DuckDB, which keeps its state for as long as a catalog is attached."""

    def __init__(self, url: str, token: str, name: str) -> None:
        for extension in _EXTENSIONS:
            duckdb_extensions.import_extension(extension)
        self._said = f"TOKEN '{token}', ENDPOINT '{url}', AWS_REGION 'us-east-1'"
        self._name = TableName.parse(name)
        self._table = f'c."{self._name.schema}"."{self._name.table}"'

    def ids(self) -> list[int]:
        with self._connected() as engine:
            return _ids(engine, self._table)

    def write(self, numbers: Sequence[int], done: list[int]) -> None:
        """It says nothing of an insert whose reply is lost, so it is looked whether the row is there."""
        left = list(numbers)
        while left:
            try:
                with self._connected() as engine:
                    there = set(_ids(engine, self._table))
                    while left and left[0] in there:
                        done.append(left.pop(0))
                    while left:
                        engine.execute(f"INSERT INTO {self._table} VALUES ({left[0]})")
                        done.append(left.pop(0))
            except duckdb.Error:
                time.sleep(0.2)

    def _connected(self) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect()
        for extension in _EXTENSIONS:
            connection.execute(f"LOAD {extension}")
        connection.execute(f"CREATE SECRET (TYPE UNITY_CATALOG, {self._said})")
        where = f"DEFAULT_SCHEMA '{self._name.schema}'"
        connection.execute(f"ATTACH '{self._name.catalog}' AS c (TYPE UNITY_CATALOG, {where})")
        return connection


def _ids(engine: duckdb.DuckDBPyConnection, table: str) -> list[int]:
    return sorted(row[0] for row in engine.execute(f"SELECT id FROM {table}").fetchall())


def write_at_once(catalog: LossyCatalog, writers: Mapping[str, Writer], *, each: int, kills: int) -> list[int]:
    """All numbers that were written, `each` of every writer; the service was killed in between."""
    done: dict[str, list[int]] = {name: [] for name in writers}
    numbers = {name: range(1000 * place, 1000 * place + each) for place, name in enumerate(writers, 1)}
    threads = [
        threading.Thread(target=write, args=(numbers[name], done[name]), name=name) for name, write in writers.items()
    ]
    start = time.monotonic()
    for one in threads:
        one.start()
    for number in range(kills):
        goal = len(writers) * each * (number + 1) // (kills + 1)
        while sum(map(len, done.values())) < goal and any(one.is_alive() for one in threads):
            time.sleep(0.02)
        catalog.service.kill()
    for one in threads:
        one.join()
    assert catalog.service.kills == kills
    assert catalog.loses.lost > 0
    took, loses = time.monotonic() - start, catalog.loses
    print(f"{each} of each of {', '.join(writers)} in {took:.0f} s; {loses.lost} of {loses.asked} replies were lost")
    return sorted(one for written in numbers.values() for one in written)


def check_one_history(
    catalog: LossyCatalog, table: lakeseal.Table, folder: Path, name: str, *, wanted: list[int], first: int
) -> None:
    """`first` is the version that the writers began at."""
    url, token = catalog.service.url, catalog.token
    latest = table.version()
    assert sorted(table.to_arrow()["id"].to_pylist()) == wanted, "nothing is lost, and nothing is there twice"
    assert latest == first + len(wanted), "and every version is one of these"
    through = lakeseal.Catalog(url, token=token, kind="unity").table(name)
    assert sorted(through.to_arrow()["id"].to_pylist()) == wanted
    assert ByDuckDB(url, token, name).ids() == wanted
    lakeseal.Catalog(url, token=token).opened.owner.backfill(table.uri)  # type: ignore[union-attr]
    txn_ids = published_txn_ids(folder, latest, first=first)
    assert len(set(txn_ids)) == latest + 1 - first, "each version is another transaction's"
