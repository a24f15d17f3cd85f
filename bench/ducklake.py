"""ducklake: one-row commits beside DuckLake, the other system with several tables in one commit on a SQL database.

Both keep their facts in the same database: SQLite, or a PostgreSQL of the run's own. Writers are processes; what is
timed starts when all of them are connected and know the tables, and ends when the last has its last answer. A commit is
one row into one table, or one row into each of three tables in one transaction. Ours is `Table.write` and
`lakeseal.transaction` on managed tables, by whose commits a durable Parquet file is there too; DuckLake's is `INSERT`,
which keeps a few rows in the database, as it does by default. Who loses against another writer tries again: both do so
by themselves, and where DuckLake gives up, or finds the database locked, its writer asks again. Facts are the rows that
are there afterwards.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import harness
from harness import Subject, Timer, cpu_of_children

from owner import _database

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier

    from harness import Report

DATABASES = ("sqlite", "postgresql")
TABLES = {"one table": 1, "three tables": 3}
COMMITS = {1: 48, 8: 4}
"""Of each writer, by how many there are. DuckLake makes a few a second where eight meet."""
PATIENCE = 300.0
FILES = (
    "Each commit of ours makes a durable Parquet file, too, for every table; DuckLake keeps the row in the database."
)


def main(report: Report) -> None:
    with harness.scratch() as folder:
        for database in DATABASES:
            for name, tables in TABLES.items():
                for writers, commits in COMMITS.items():
                    asked = {"database": database, "tables": tables, "writers": writers, "folder": str(folder)}
                    case = f"{database}: {name}, {writers} {'process' if writers == 1 else 'processes'}"
                    measured = report.compare(
                        case,
                        [
                            Subject(name="lakeseal", function=ours, arguments=asked),
                            Subject(name="DuckLake", function=theirs, arguments=asked),
                        ],
                        targets={"DuckLake": 2.0},
                        reason=FILES,
                        warm_up=False,
                    )
                    for one in measured:
                        rate = writers * commits / one.median_seconds
                        report.fact(case, **{f"{one.subject}: commits_a_second": rate})


def ours(timer: Timer, **asked: Any) -> Any:
    return _measured(timer, "lakeseal", **asked)


def theirs(timer: Timer, **asked: Any) -> Any:
    return _measured(timer, "DuckLake", **asked)


def _measured(timer: Timer, way: str, database: str, tables: int, writers: int, folder: str) -> Any:
    context = multiprocessing.get_context("spawn")
    prepare, write, count = WAYS[way]
    with _database(database, Path(folder)) as (url, home):
        prepared = context.Process(target=prepare, args=(url, str(home), tables))
        prepared.start()
        prepared.join()
        assert prepared.exitcode == 0
        ready, done = context.Barrier(writers + 1), context.Barrier(writers + 1)
        processes = [
            context.Process(target=write, args=(url, str(home), tables, number, COMMITS[writers], ready, done))
            for number in range(writers)
        ]
        for process in processes:
            process.start()
        try:
            ready.wait(PATIENCE)
            with timer, cpu_of_children(timer):
                done.wait(PATIENCE)
            timer.peak_mb = sum(harness.peak_mb(process.pid or "self") for process in processes)
            ready.wait(PATIENCE)
        finally:
            for process in processes:
                process.join(PATIENCE)
                process.kill()
        return {"rows": count(url, str(home), tables)}


def _ours_prepared(url: str, home: str, tables: int) -> None:
    import pyarrow as pa

    import lakeseal

    for number in range(tables):
        lakeseal.create(f"{home}/table-{number}", pa.schema({"id": pa.int64()}), owner=url)


def _ours_written(url: str, home: str, tables: int, writer: int, commits: int, ready: Barrier, done: Barrier) -> None:
    import pyarrow as pa

    import lakeseal
    from lakeseal.owner.connect import connect

    owner = connect(url)
    uris = [f"{home}/table-{number}" for number in range(tables)]
    opened = [lakeseal.Table(uri, owner=owner) for uri in uris]
    for table in opened:
        table.version()
    ready.wait(PATIENCE)
    for number in range(commits):
        row = pa.table({"id": [writer * 1000 + number]})
        if tables == 1:
            opened[0].write(row)
            continue
        with lakeseal.transaction(owner) as txn:
            for table in opened:
                txn.table(table).write(row)
    done.wait(PATIENCE)
    ready.wait(PATIENCE)


def _ours_counted(url: str, home: str, tables: int) -> list[int]:
    import lakeseal

    return [
        lakeseal.Table(f"{home}/table-{number}", owner=url).to_arrow(columns=[]).num_rows for number in range(tables)
    ]


def _lake(url: str, home: str) -> Any:
    import duckdb
    import duckdb_extensions

    for extension in ("ducklake", "sqlite_scanner" if url.startswith("sqlite") else "postgres_scanner"):
        duckdb_extensions.import_extension(extension)
    duck = duckdb.connect(config={"threads": 1})
    place = f"sqlite:{home}/lake.db" if url.startswith("sqlite") else f"postgres:{url}"
    _patiently(lambda: duck.execute(f"ATTACH 'ducklake:{place}' AS lake (DATA_PATH '{home}/lake')"))
    return duck


def _lake_prepared(url: str, home: str, tables: int) -> None:
    duck = _lake(url, home)
    for number in range(tables):
        duck.execute(f"CREATE TABLE lake.table_{number} (id BIGINT)")


def _lake_written(url: str, home: str, tables: int, writer: int, commits: int, ready: Barrier, done: Barrier) -> None:
    duck = _lake(url, home)
    for number in range(tables):
        duck.execute(f"SELECT count(*) FROM lake.table_{number}").fetchall()
    ready.wait(PATIENCE)
    for number in range(commits):

        def commit(row: int = writer * 1000 + number) -> None:
            duck.execute("BEGIN")
            for table in range(tables):
                duck.execute(f"INSERT INTO lake.table_{table} VALUES ({row})")
            duck.execute("COMMIT")

        _patiently(commit, lambda: duck.execute("ROLLBACK"))
    done.wait(PATIENCE)
    ready.wait(PATIENCE)


def _patiently(do: Callable[[], Any], give_up: Callable[[], Any] | None = None) -> None:
    import duckdb

    until = time.monotonic() + PATIENCE
    while True:
        try:
            do()
            return
        except duckdb.Error:
            if give_up is not None:
                with contextlib.suppress(duckdb.TransactionException):  # it may be over already
                    give_up()
            if time.monotonic() > until:
                raise
            time.sleep(0.005)


def _lake_counted(url: str, home: str, tables: int) -> list[int]:
    duck = _lake(url, home)
    return [duck.execute(f"SELECT count(*) FROM lake.table_{number}").fetchall()[0][0] for number in range(tables)]


WAYS: dict[str, tuple[Callable[..., None], Callable[..., None], Callable[..., list[int]]]] = {
    "lakeseal": (_ours_prepared, _ours_written, _ours_counted),
    "DuckLake": (_lake_prepared, _lake_written, _lake_counted),
}
