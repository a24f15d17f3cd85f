"""catalog: the protocol that other engines speak, beside the owner's own calls, of one and the same service.

- `load`: UC Delta API v1's load (metadata, latest version, commits that are not published) beside `get_commits`.
- `commit`: a staged file that becomes the next version, by add-commit and by `ratify`. Both sides write the same file
  first, in the table's staging directory, so what differs is the request: the catalog looks into the file, answers with
  the whole table as it is then, and its schema and properties with that; the owner's call answers with the version.

One client after the other asks, over HTTP, on the same machine, with one worker; tables take turns. The service's
publisher works meanwhile, for both alike.

- `load with 10,000 tables`: each request asks for another one of them, so that nothing is in any cache the first time.

To reach: `load` and `commit` at least half as many a second as the owner's own calls; `load with 10,000 tables` p99
below 20 ms.
"""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import harness
from harness import Subject, Timer

from owner import _database, _percentiles, _service

if TYPE_CHECKING:
    from harness import Report

DATABASES = ("sqlite", "postgresql")
TABLES = 50
LOADS = 1000
COMMITS = 500
MANY = 10_000
WHOLE_TABLE = "Each answer has the whole table, and the file of each commit is looked into."
ASKED = 3000


def main(report: Report) -> None:
    with harness.scratch() as folder:
        for database in DATABASES:
            asked = {"database": database, "folder": str(folder)}
            for case, ours, theirs, total in (
                ("load", loads, owner_loads, LOADS),
                ("commit", commits, owner_commits, COMMITS),
            ):
                subjects = [
                    Subject(name="catalog", function=ours, arguments=asked),
                    Subject(name="owner", function=theirs, arguments=asked),
                ]
                measured = report.compare(
                    f"{database}: {case}", subjects, targets={"owner": 0.5}, warm_up=False, reason=WHOLE_TABLE
                )
                if measured:
                    rates = [total / one.median_seconds for one in measured]
                    report.fact(f"{database}: {case}", catalog_a_second=rates[0], owner_a_second=rates[1])
            many = f"{database}: load with 10,000 tables"
            if report.wants(many):
                subject = Subject(name="many", function=load_of_many, arguments=asked)
                with report.watched(many):
                    found = harness.in_fresh_process(subject)["facts"]
                report.fact(many, p50_ms=found["p50"], p99_ms=found["p99"], p99_ms_again=found["again"])
                report.target(many, f"{many}: 20 ms by the p99 of the first loads", 20 / found["p99"], 1.0)


def loads(timer: Timer, database: str, folder: str) -> dict[str, int]:
    from lakeseal.catalog.unity.answers import TheirTable
    from lakeseal.catalog.unity.remote import table_path
    from lakeseal.service.unity_client import UnityHttp

    with _tables(database, folder) as (url, _):
        remote = UnityHttp(url)
        paths = [table_path(_name(number)) for number in range(TABLES)]
        latest = [remote.ask(path, TheirTable).latest_table_version for path in paths]
        with timer:
            for number in range(LOADS):
                assert remote.ask(paths[number % TABLES], TheirTable).latest_table_version == 1
        remote.close()
    return {"loads": LOADS, "latest": sum(one or 0 for one in latest)}


def owner_loads(timer: Timer, database: str, folder: str) -> dict[str, int]:
    from lakeseal.service.client import HttpOwner

    with _tables(database, folder) as (url, home):
        owner = HttpOwner(url)
        uris = [_uri(home, number) for number in range(TABLES)]
        latest = [owner.get_commits(uri).latest for uri in uris]
        with timer:
            for number in range(LOADS):
                assert owner.get_commits(uris[number % TABLES]).latest == 1
        owner.close()
    return {"loads": LOADS, "latest": sum(latest)}


def commits(timer: Timer, database: str, folder: str) -> dict[str, int]:
    from lakeseal.catalog.unity.answers import TheirTable
    from lakeseal.catalog.unity.remote import table_path
    from lakeseal.service.unity_client import UnityHttp

    with _tables(database, folder) as (url, home):
        remote = UnityHttp(url)
        paths = [table_path(_name(number)) for number in range(TABLES)]
        ids = [remote.ask(path, TheirTable).metadata.table_uuid for path in paths]
        with timer:
            for step in range(COMMITS):
                number, version = step % TABLES, 2 + step // TABLES
                file, data, timestamp, _ = _staged(home, number, version)
                staged = {
                    "version": version,
                    "timestamp": timestamp,
                    "file-name": file,
                    "file-size": len(data),
                    "file-modification-timestamp": timestamp,
                }
                body = {
                    "requirements": [{"type": "assert-table-uuid", "uuid": ids[number]}],
                    "updates": [{"action": "add-commit", "commit": staged}],
                }
                assert remote.change("POST", paths[number], TheirTable, body).latest_table_version == version
        remote.close()
    return {"commits": COMMITS}


def owner_commits(timer: Timer, database: str, folder: str) -> dict[str, int]:
    from lakeseal.log.ratified_commit import digest
    from lakeseal.owner.messages import Batch, CommitRequest, Ratified
    from lakeseal.service.client import HttpOwner

    with _tables(database, folder) as (url, home):
        owner = HttpOwner(url)
        epochs = [owner.get_commits(_uri(home, number)).epoch for number in range(TABLES)]
        with timer:
            for step in range(COMMITS):
                number, version = step % TABLES, 2 + step // TABLES
                file, data, timestamp, txn_id = _staged(home, number, version)
                request = CommitRequest(
                    table=_uri(home, number),
                    version=version,
                    txn_id=txn_id,
                    size=len(data),
                    in_commit_timestamp=timestamp,
                    epoch=epochs[number],
                    file=f"_staged_commits/{file}",
                    sha256=digest(data),
                )
                (answer,) = owner.ratify(Batch(commits=(request,))).commits
                assert isinstance(answer, Ratified)
        owner.close()
    return {"commits": COMMITS}


def load_of_many(timer: Timer, database: str, folder: str) -> dict[str, float]:
    from lakeseal.catalog.unity.answers import TheirTable
    from lakeseal.catalog.unity.remote import table_path
    from lakeseal.service.unity_client import UnityHttp

    with _tables(database, folder, tables=MANY) as (url, _):
        remote = UnityHttp(url)
        remote.ask(table_path(_name(MANY - 1)), TheirTable)  # the first request of all
        paths = [table_path(_name(number * 7919 % MANY)) for number in range(ASKED)]
        rounds = []
        for _ in range(2):
            took = []
            for path in paths:
                start = time.perf_counter_ns()
                remote.ask(path, TheirTable)
                took.append((time.perf_counter_ns() - start) / 1e6)
            rounds.append(_percentiles(took))
        remote.close()
    return {**rounds[0], "again": rounds[1]["p99"]}


def _name(number: int) -> Any:
    from lakeseal.catalog.table_name import TableName

    return TableName(schema="bench", table=f"t{number}")


def _staged(home: Path, number: int, version: int) -> tuple[str, bytes, int, str]:
    """A commit's file as an engine writes it, in the table's staging directory."""
    from lakeseal.protocol.actions import AddFile, CommitInfo
    from lakeseal.protocol.codec import encode

    txn_id, timestamp = str(uuid.uuid4()), int(time.time() * 1000) + 600_000
    add = AddFile(
        path=f"part-00000-{txn_id}.snappy.parquet",
        partition_values={},
        size=12345,
        modification_time=0,
        data_change=True,
        stats='{"numRecords":1000,"minValues":{"x":1},"maxValues":{"x":1000},"nullCount":{"x":0}}',
    )
    data = encode([CommitInfo(operation="WRITE", txn_id=txn_id, in_commit_timestamp=timestamp + version), add])
    file = f"{version:020d}.{uuid.uuid4()}.json"
    folder = home / f"table-{number}" / "_delta_log" / "_staged_commits"
    folder.mkdir(exist_ok=True)
    (folder / file).write_bytes(data)
    return file, data, timestamp + version, txn_id


@contextmanager
def _tables(database: str, folder: str, *, tables: int = TABLES) -> Iterator[tuple[str, Path]]:
    """A service, and where its tables are: each at version 1."""
    with _database(database, Path(folder)) as (url, home):
        code = f"import catalog; catalog.fill({url!r}, {str(home)!r}, {tables})"
        subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent)
        with _service(url) as address:
            yield address, home


def fill(url: str, home: str, tables: int) -> None:
    """By copies of one table that was made the usual way: its files, and its row in the ledger."""
    import pyarrow as pa

    import lakeseal
    from lakeseal import ledger
    from lakeseal.catalog.names import CommitKind, NameBook
    from lakeseal.ledger.schema import tables as table_rows
    from lakeseal.owner.ledger_owner import LedgerOwner

    opened = ledger.open(url)
    owner, names = LedgerOwner(opened), NameBook(opened)
    first = lakeseal.create(f"{home}/table-0", pa.schema([("x", pa.int64())]), owner=owner, kind="catalog")
    first.write(pa.table({"x": [1]}))
    owner.backfill(first.uri)
    table_id = first.snapshot().properties.catalog_table_id
    assert table_id is not None
    names.register(_name(0), first.uri, CommitKind.CATALOG, table_id=table_id)
    log = {version: Path(home, "table-0", "_delta_log", f"{version:020d}.json").read_text() for version in (0, 1)}
    row = opened.read(lambda tx: tx.get(table_rows, table_id=first.uri))
    assert row is not None
    values = {name: value for name, value in row._mapping.items() if name != "table_key"}
    for number in range(1, tables):
        new_id, place, uri = str(uuid.uuid4()), Path(home, f"table-{number}", "_delta_log"), _uri(home, number)
        place.mkdir(parents=True)
        for version, text in log.items():
            place.joinpath(f"{version:020d}.json").write_text(text.replace(table_id, new_id))
        mine = {**values, "table_id": uri}
        opened.write(lambda tx, mine=mine: tx.insert(table_rows, **mine))
        names.register(_name(number), uri, CommitKind.CATALOG, table_id=new_id)
    opened.close()


def _uri(home: str | Path, number: int) -> str:
    return f"file://{home}/table-{number}"
