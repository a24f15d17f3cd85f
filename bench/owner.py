"""owner: commits through a managed owner, beside the database's own rate of transactions that insert one row.

Writers are processes, each with its own connection. What is timed starts when all are ready and ends when the last has
its last answer; both sides do the same number of transactions. A commit of ours is: one ledger transaction, in which
its bytes are; and its share of the backfill, durable too, by the writers' own process or, over HTTP, by the service's
publisher meanwhile. The database's side is one row, durable, by its driver alone.

- `1 table`: all writers want the next version of one table, so all but one lose each time, wait and try again, as the
  client's commit loop does.
- `100 tables`: writers go round the tables.
- `direct`: the ledger in the writers' processes. `http`: a service with one worker, on the same machine.
- `transactions`: the whole client as well: reading what is new, conflict check, rendering, the snapshot afterwards.
  Direct and over HTTP.

p50 and p99 are per commit, retries included. CPU is what writers, service and database spend on a commit, each with all
of its processes, from the start of the first to the last answer: what other work on the machine does not change much.

`get_commits`: the latest state of one table of 10,000 in the ledger, half of them with commits that are not backfilled.

To reach: `100 tables` over HTTP on PostgreSQL at 25 % of the one-row inserts of as many writers, and 2.0 ms of CPU for
a commit of 8 writers; on one table a p99 below 1 s with 32 writers; `get_commits` p99 under 10 ms.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import harness
import psutil
from harness import Subject, Timer
from rich.table import Table

if TYPE_CHECKING:
    from harness import Report

    from lakeseal.owner.endpoint import OwnerEndpoint
    from lakeseal.owner.managed_owner import ManagedOwner

DATABASES = ("sqlite", "postgresql")
ALONE = "Processes that share nothing but the database do not know who lost before; a service lets losers go first."
CASES: dict[str, dict[str, int]] = {
    "1 table, 1 writer": {"tables": 1, "writers": 1, "total": 200},
    "1 table, 8 writers": {"tables": 1, "writers": 8, "total": 400},
    "1 table, 32 writers": {"tables": 1, "writers": 32, "total": 640},
    "100 tables, 8 writers": {"tables": 100, "writers": 8, "total": 4000},
    "100 tables, 32 writers": {"tables": 100, "writers": 32, "total": 4800},
}
INSERTS = "one-row inserts"
SPENDERS = ("client", "service", "database")
_LATER_MS = int(time.time() * 1000) + 600_000
"""Above that of the commits that make the tables; the same for all writers."""


def main(report: Report) -> None:
    # Files of all cases are deleted at the end: ext4 without a journal looks at each inode that was freed in the last
    # minutes before it makes a new file, which then takes ten times as long.
    with harness.scratch() as folder:
        for database in DATABASES:
            for case, shape in CASES.items():
                _compare(report, folder, f"{database}: {case}", {"database": database, **shape})
            case = f"{database}: get_commits with 10,000 tables"
            if not report.wants(case):
                continue
            asked = {"database": database, "tables": 10_000}
            with report.watched(case):
                found = harness.in_fresh_process(Subject(name="get_commits", function=get_commits, arguments=asked))
            p50, p99 = found["facts"]["p50"], found["facts"]["p99"]
            report.fact(case, p50_ms=p50, p99_ms=p99)
            report.target(case, f"{case}: 10 ms by the p99", 10 / p99, 1.0)


def _compare(report: Report, folder: Path, case: str, shape: dict[str, Any]) -> None:
    ways: dict[str, Callable[..., dict[str, int]]] = {"direct": commits, "http": http_commits, INSERTS: inserts}
    if shape["tables"] == 1 and shape["writers"] < 32:
        ways |= {"transactions": transactions, "http transactions": http_transactions}
    notes = {way: folder / uuid.uuid4().hex for way in ways}
    subjects = [
        Subject(name=way, function=function, arguments={**shape, "notes": str(notes[way])})
        for way, function in ways.items()
    ]
    measured = report.compare(case, subjects, warm_up=False)
    if not measured:
        return
    inserted = next(shape["total"] / one.median_seconds for one in measured if one.subject == INSERTS)
    table = Table(title=case, header_style="bold")
    shown = ("", "per second", f"of {INSERTS}", "p50 ms", "p99 ms", "CPU ms", *(f"of {who}" for who in SPENDERS))
    for heading in shown:
        table.add_column(heading, justify="right" if heading else "left")
    for one in measured:
        rate = shape["total"] / one.median_seconds
        spread = _percentiles([float(took) for took in notes[one.subject].read_text().split()])
        runs = [json.loads(line) for line in _spent_notes(notes[one.subject]).read_text().splitlines()]
        spent = [1000 * statistics.median(run[who] for run in runs) / shape["total"] for who in SPENDERS]
        table.add_row(
            one.subject,
            f"{rate:,.0f}",
            f"{rate / inserted:.0%}",
            f"{spread['p50']:.1f}",
            f"{spread['p99']:.1f}",
            f"{sum(spent):.2f}",
            *(f"{one:.2f}" for one in spent),
        )
        told = {"a_second": rate, "of_inserts": rate / inserted, "cpu_ms": sum(spent), "p99_ms": spread["p99"]}
        report.fact(case, **{f"{one.subject}: {name}": value for name, value in told.items()})
        if case.startswith("postgresql: 100 tables") and one.subject == "http":
            report.target(case, f"{case}: over HTTP beside as many inserts", rate / inserted, 0.25)
            if shape["writers"] == 8:
                report.target(case, f"{case}: 2 ms by the CPU time of a commit over HTTP", 2 / sum(spent), 1.0)
        if shape["writers"] == 32 and shape["tables"] == 1 and one.subject != INSERTS:
            reason = ALONE if one.subject == "direct" else ""
            report.target(case, f"{case}: 1 s by the p99, {one.subject}", 1000 / spread["p99"], 1.0, reason)
    report.console.print(table)


def commits(timer: Timer, **shape: Any) -> dict[str, int]:
    return _measured(timer, _commit_loop, **shape)


def http_commits(timer: Timer, **shape: Any) -> dict[str, int]:
    return _measured(timer, _commit_loop, over_http=True, **shape)


def transactions(timer: Timer, **shape: Any) -> dict[str, int]:
    return _measured(timer, _transaction_loop, **shape)


def http_transactions(timer: Timer, **shape: Any) -> dict[str, int]:
    return _measured(timer, _transaction_loop, over_http=True, **shape)


def inserts(timer: Timer, **shape: Any) -> dict[str, int]:
    return _measured(timer, _insert_loop, **{**shape, "tables": 0})


def get_commits(timer: Timer, database: str, tables: int) -> dict[str, float]:
    from lakeseal import ledger
    from lakeseal.ledger.schema import commits as commit_rows
    from lakeseal.ledger.schema import tables as table_rows
    from lakeseal.owner.ledger_owner import LedgerOwner

    with harness.scratch() as folder, _database(database, folder) as (url, _):
        opened = ledger.open(url)
        names = [f"s3://bucket/lake/table-{number}" for number in range(tables)]
        for start in range(0, tables, 1000):
            some = names[start : start + 1000]

            def fill(tx: Any, some: list[str] = some) -> None:
                tx.insert_many(
                    table_rows,
                    [
                        {
                            "table_id": name,
                            "state": "active",
                            "epoch": 0,
                            "latest_version": 100,
                            "latest_timestamp": 100,
                            "backfilled_version": 100 if number % 2 else 90,
                            "conf": {"batchSize": 10},
                            "updated": 0,
                        }
                        for number, name in enumerate(some)
                    ],
                )
                tx.insert_many(
                    commit_rows,
                    [
                        {
                            "table_id": name,
                            "version": version,
                            "txn_id": str(uuid.uuid4()),
                            "file": f"{version:020d}.{uuid.uuid4()}.json",
                            "size": 800,
                            "in_commit_timestamp": version,
                            "ratified": 0,
                            "backfilled": False,
                        }
                        for number, name in enumerate(some)
                        if number % 2 == 0
                        for version in range(91, 101)
                    ],
                )

            opened.write(fill)
        owner = LedgerOwner(opened)
        took = []
        for number in range(3000):
            start_ns = time.perf_counter_ns()
            owner.get_commits(names[number * 7919 % tables], 0)
            took.append((time.perf_counter_ns() - start_ns) / 1e6)
        opened.close()
    return _percentiles(took[200:])


def _commit_loop(url: str, home: Path, mine: list[int], count: int, note: Callable[[float], None]) -> Iterator[None]:
    from lakeseal.commit.attempts import Patience, Retry
    from lakeseal.commit.owner import Committed
    from lakeseal.protocol.actions import AddFile, CommitInfo
    from lakeseal.protocol.codec import encode

    owners = _owners(url, home, mine)
    latest = {number: owner.get_commits(0).latest for number, owner in owners.items()}
    yield
    for step in range(count):
        number = mine[step % len(mine)]
        owner, txn_id, start = owners[number], str(uuid.uuid4()), time.perf_counter()
        add = AddFile(
            path=f"part-00000-{txn_id}.snappy.parquet",
            partition_values={},
            size=12345,
            modification_time=0,
            data_change=True,
            stats='{"numRecords":1000,"minValues":{"x":1},"maxValues":{"x":1000},"nullCount":{"x":0}}',
        )
        patience = Patience(Retry())
        for tried in itertools.count(1):
            version = latest[number] + 1
            info = CommitInfo(operation="WRITE", txn_id=txn_id, in_commit_timestamp=_LATER_MS + version)
            outcome = owner.commit(version, encode([info, add]), txn_id=txn_id, in_commit_timestamp=_LATER_MS + version)
            if isinstance(outcome, Committed):
                latest[number] = version
                break
            if not outcome.is_next:
                patience.wait(tried)
            latest[number] = owner.get_commits(2**62).latest
        note(time.perf_counter() - start)
    yield


def _transaction_loop(
    url: str, home: Path, mine: list[int], count: int, note: Callable[[float], None]
) -> Iterator[None]:
    from lakeseal.commit.owner import OwnedCommits
    from lakeseal.log.delta_log import DeltaLog
    from support.managed_tables import append

    (owner,) = _owners(url, home, mine).values()
    log = DeltaLog(owner.store, commit_source=OwnedCommits(owner))
    log.update()
    yield
    for _ in range(count):
        start = time.perf_counter()
        append(log, owner, f"part-00000-{uuid.uuid4()}.snappy.parquet")
        note(time.perf_counter() - start)
    yield


def _insert_loop(url: str, home: Path, mine: list[int], count: int, note: Callable[[float], None]) -> Iterator[None]:
    connection = _plain(url)
    insert = f"INSERT INTO one_row VALUES ({'?' if url.startswith('sqlite') else '%s'})"
    yield
    for _ in range(count):
        name, start = str(uuid.uuid4()), time.perf_counter()
        connection.execute("BEGIN IMMEDIATE" if url.startswith("sqlite") else "BEGIN")
        connection.execute(insert, (name,))
        connection.execute("COMMIT")
        note(time.perf_counter() - start)
    yield


def _plain(url: str) -> Any:
    """A connection by the database's own driver, with the promises that the ledger asks for."""
    if not url.startswith("sqlite"):
        import psycopg

        return psycopg.connect(url, autocommit=True)
    import sqlite3

    connection = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


@contextmanager
def _service(url: str) -> Iterator[str]:
    command = [sys.executable, "-m", "lakeseal", "serve", "--ledger", url, "--listen", "127.0.0.1:0", "--insecure"]
    command += ["--workers", "1", "--rate", "0", "--log-level", "warning", "--json"]
    service = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert service.stdout is not None
    try:
        yield json.loads(service.stdout.readline())["url"]
    finally:
        service.terminate()
        service.wait()
        service.stdout.close()


def _owners(url: str, home: Path, numbers: list[int]) -> dict[int, ManagedOwner]:
    from lakeseal.owner.managed_owner import ManagedOwner
    from lakeseal.storage import open_store

    endpoint = _endpoint(url)
    return {number: ManagedOwner(endpoint, open_store(home / f"table-{number}")) for number in set(numbers)}


def _endpoint(url: str) -> OwnerEndpoint:
    from lakeseal import ledger
    from lakeseal.owner.ledger_owner import LedgerOwner

    if url.startswith("http"):
        from lakeseal.service.client import HttpOwner

        return HttpOwner(url)
    return LedgerOwner(ledger.open(url), batch_size=10, in_background=True)


Loop = Callable[[str, Path, list[int], int, Callable[[float], None]], Iterator[None]]


def _measured(
    timer: Timer,
    loop: Loop,
    *,
    database: str,
    tables: int,
    writers: int,
    total: int,
    notes: str,
    over_http: bool = False,
) -> dict[str, int]:
    import support.managed_tables  # noqa: F401  before the forks, so that no writer has to import it
    from lakeseal.owner.ledger_owner import flush

    with ExitStack() as stack:
        url, home = stack.enter_context(_database(database, Path(notes).parent))
        _in_child(lambda: _prepare(url, home, tables))
        way = stack.enter_context(_service(url)) if over_http else url
        go, release = os.pipe()
        children = []
        for writer in range(writers):
            # Writers start at different tables and meet where there are fewer tables than writers.
            mine = [(writer + step * writers) % tables for step in range(max(1, tables // writers))] if tables else []
            child = os.fork()
            if child == 0:
                os.close(release)
                status = 1
                try:
                    took: list[float] = []
                    stages = loop(way, home, mine, total // writers, took.append)
                    next(stages)
                    (home / f"ready-{writer}").touch()
                    os.read(go, 1)
                    next(stages)
                    flush()
                    (home / f"took-{writer}").write_text("\n".join(map(str, took)))
                    status = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(status)
            children.append(child)
        while len(list(home.glob("ready-*"))) < writers:
            if any(os.waitpid(child, os.WNOHANG) != (0, 0) for child in children):
                raise SystemExit("a writer failed; its reason is above")
            time.sleep(0.01)
        before = _spent(children)
        with timer:
            os.close(release)
            over = [os.wait4(child, 0) for child in children]
        spent = {who: after - before[who] for who, after in _spent([]).items()}
        spent["client"] = sum(used.ru_utime + used.ru_stime for *_, used in over) - before["client"]
        ended = [status for _, status, _ in over]
        if any(ended):
            raise SystemExit("a writer failed; its reason is above")
        took_ms = [1000 * float(line) for out in home.glob("took-*") for line in out.read_text().split()]
        with open(notes, "a") as out:
            out.write("".join(f"{one}\n" for one in took_ms))
        with _spent_notes(Path(notes)).open("a") as out:
            out.write(json.dumps(spent) + "\n")
    return {"transactions": len(took_ms)}


def _spent(writers: list[int]) -> dict[str, float]:
    """Seconds of CPU so far. Writers that have ended are not among them."""
    found = dict.fromkeys(SPENDERS, 0.0)
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            who = "client" if process.pid in writers else "service" if "serve" in process.cmdline() else "database"
            found[who] += sum(process.cpu_times()[:2])
    return found


def _spent_notes(notes: Path) -> Path:
    return notes.with_suffix(".cpu")


def _prepare(url: str, home: Path, tables: int) -> None:
    from lakeseal import ledger
    from lakeseal.owner.ledger_owner import LedgerOwner
    from lakeseal.storage import open_store
    from support.managed_tables import create

    endpoint = LedgerOwner(ledger.open(url), batch_size=10)
    for number in range(tables):
        create(open_store(home / f"table-{number}"), endpoint)
    if not tables:
        _plain(url).execute("CREATE TABLE one_row (name TEXT PRIMARY KEY)")


def _in_child(do: Callable[[], None]) -> None:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            do()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    if os.waitpid(child, 0)[1]:
        raise SystemExit("the tables could not be made")


@contextmanager
def _database(name: str, folder: Path) -> Iterator[tuple[str, Path]]:
    """With a new directory in `folder`, which is left there."""
    from lakeseal.testing.postgres import postgres_server

    home = Path(tempfile.mkdtemp(dir=folder))
    if name == "sqlite":
        yield f"sqlite:///{home}/ledger.db", home
    else:
        with postgres_server(max_connections="200", shared_buffers="256MB") as url:
            yield url, home


def _percentiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {"p50": ordered[len(ordered) // 2], "p99": ordered[int(len(ordered) * 0.99)]}
