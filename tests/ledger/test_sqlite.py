"""What only the file can do wrong."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine.default import DefaultDialect

from lakeseal import ledger
from lakeseal.errors import (
    BrokenLedger,
    InvalidArgument,
    NotFound,
    OutOfSpace,
    PermissionDenied,
    StorageUnavailable,
    UnknownOutcome,
)
from lakeseal.ledger import Ledger, Tx
from lakeseal.ledger.schema import leases, sequences, stores

Start = Callable[..., "Popen[str]"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def book(path: Path) -> Iterator[Ledger]:
    with ledger.open(f"sqlite:///{path}") as opened:
        yield opened


def pragma(name: str) -> Callable[[Tx], Any]:
    return lambda tx: tx.rows(sa.select(sa.literal_column(name)).select_from(sa.text(f"pragma_{name}")))[0][0]


def test_a_commit_is_on_the_disk_before_it_is_acknowledged(book: Ledger) -> None:
    assert book.read(pragma("journal_mode")) == "wal"
    assert book.read(pragma("synchronous")) == 2  # FULL
    assert book.read(pragma("foreign_keys")) == 1


def test_the_file_is_readable_by_its_owner_only(book: Ledger, path: Path) -> None:
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["with blank.db", "per%20cent.db", "ünï😀.db", "q'uo\"te.db", "hash#.db"])
def test_a_file_name_stands_for_itself(tmp_path: Path, name: str) -> None:
    with ledger.open(f"sqlite:///{tmp_path}/{name}") as book:
        book.write(lambda tx: tx.insert(stores, store="s", created=1))
        assert name in os.listdir(tmp_path)


def test_a_relative_path_keeps_its_meaning_after_chdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with ledger.open("sqlite:///ledger.db") as book:
        monkeypatch.chdir("/")
        book.write(lambda tx: tx.insert(stores, store="s", created=1))
    with ledger.open(f"sqlite:///{tmp_path}/ledger.db", create=False) as again:
        assert again.read(lambda tx: tx.get(stores, store="s")) is not None


def test_a_file_deleted_under_an_open_ledger_does_not_swallow_writes(book: Ledger, path: Path) -> None:
    path.unlink()
    with pytest.raises(StorageUnavailable, match="removed"):
        book.write(lambda tx: tx.insert(stores, store="s", created=1))
    assert not path.exists()


def test_a_file_replaced_under_an_open_ledger_is_noticed(book: Ledger, path: Path) -> None:
    path.rename(path.with_suffix(".old"))
    with ledger.open(f"sqlite:///{path}"), pytest.raises(StorageUnavailable, match="replaced"):
        book.read(lambda tx: tx.get(stores, store="s"))


def test_somebody_elses_database_is_left_alone(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE runs (mine)")
    other.close()
    with pytest.raises(InvalidArgument, match="somebody else"):
        ledger.open(f"sqlite:///{path}")
    with sqlite3.connect(path) as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("runs",)]
    other.close()


def test_a_file_that_is_no_database_is_refused_and_kept(path: Path) -> None:
    path.write_bytes(b"these are my notes\n" * 100)
    with pytest.raises(BrokenLedger):
        ledger.open(f"sqlite:///{path}")
    assert path.read_bytes() == b"these are my notes\n" * 100


def test_a_directory_or_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match="is a directory"):
        ledger.open(f"sqlite:///{tmp_path}")
    with pytest.raises(NotFound, match="absent"):
        ledger.open(f"sqlite:///{tmp_path}/absent/ledger.db")


@pytest.mark.parametrize("mode", [0o400, 0o000])
def test_a_file_without_permission_is_refused(start: Start, mode: int) -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own directories are closed to other users
        path = Path(folder, "ledger.db")
        ledger.open(f"sqlite:///{path}").close()
        path.chmod(mode)
        Path(folder).chmod(0o777)
        out, err = start("open_without_privileges", f"sqlite:///{path}").communicate(timeout=60)
        assert json.loads(out) == PermissionDenied.kind, err


def test_a_full_database_is_out_of_space_and_keeps_what_it_had(path: Path) -> None:
    def limit(connection: Any, _record: Any) -> None:
        connection.execute("PRAGMA max_page_count = 100")

    sa.event.listen(sa.Engine, "connect", limit)
    try:
        with ledger.open(f"sqlite:///{path}") as book:
            book.write(lambda tx: tx.insert(stores, store="before", created=1))
            row = {"state": "open", "epoch": 1, "count": 1, "checksum": "c", "tries": 0, "created": 1, "updated": 1}
            with pytest.raises(OutOfSpace):
                book.write(lambda tx: tx.insert(sequences, store="s", dataset="d", payload=bytes(1_000_000), **row))
            assert book.read(lambda tx: tx.get(stores, store="before")) is not None
            book.write(lambda tx: tx.insert(stores, store="after", created=1))
    finally:
        sa.event.remove(sa.Engine, "connect", limit)


def test_a_commit_that_meets_an_io_error_has_an_unknown_outcome(path: Path, start: Start) -> None:
    url = f"sqlite:///{path}"
    out, err = start("write_on_a_full_disk", url).communicate(timeout=60)
    said = [json.loads(line) for line in out.splitlines()]
    assert said == [UnknownOutcome.kind, "True"], err
    with ledger.open(url) as book:
        assert book.read(lambda tx: tx.get(leases, name="before")) is not None
        assert book.read(lambda tx: tx.get(leases, name="after")) is not None


def test_a_commit_that_failed_leaves_nobody_inside_its_transaction(
    book: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, failures = DefaultDialect.do_commit, [True, True]

    def failing(dialect: DefaultDialect, connection: Any) -> None:
        if failures:
            failures.pop()
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error
        commit(dialect, connection)

    monkeypatch.setattr(DefaultDialect, "do_commit", failing)

    def do(tx: Tx) -> bool:
        return tx.insert(stores, store="s", created=1)

    with pytest.raises(UnknownOutcome):
        book.write(do)
    with sqlite3.connect(path, timeout=0) as other:
        other.execute("BEGIN IMMEDIATE")
    assert book.write(do, idempotent=True), "the second try of two, and it is the first that is there"
    assert book.read(lambda tx: tx.get(stores, store="s")) is not None


def test_a_ledger_that_a_process_opens_twice_loses_nothing_when_another_process_closes_it(path: Path) -> None:
    """Whoever opened and closed the file by itself took away the locks of the process's other connections on it; the
    next to close the ledger took itself for the last one, and removed the WAL that was still written to."""
    url = f"sqlite:///{path}"
    with ledger.open(url) as book, ledger.open(url):
        in_another_process("with ledger.open(url): pass", url)
        book.write(lambda tx: tx.insert(leases, name="acknowledged", holder="us", epoch=1, expires=0, info={}))
        found = in_another_process(
            "with ledger.open(url) as book: print(book.read(lambda tx: tx.get(leases, name='acknowledged')).holder)",
            url,
        )
    assert found == "us"


def in_another_process(text: str, url: str) -> str:
    loading = f"from lakeseal import ledger; from lakeseal.ledger.schema import leases; url = {url!r}"
    ran = subprocess.run([sys.executable, "-c", f"{loading}\n{text}"], capture_output=True, text=True, check=True)
    return ran.stdout.strip()
