"""What only a server at the other end of a line can do wrong."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep
from typing import Protocol

import psycopg
import pytest
import sqlalchemy as sa

from lakeseal import ledger
from lakeseal.errors import (
    LakesealError,
    PermissionDenied,
    StorageError,
    StorageUnavailable,
    UnknownOutcome,
)
from lakeseal.ledger import Ledger, Tx
from lakeseal.ledger.schema import commits, stores, tables
from lakeseal.testing.postgres import fresh_database, postgres_server


class Proxy(Protocol):
    url: str

    def cut(self, when: str) -> None: ...


@pytest.fixture
def book(postgres_url: str) -> Iterator[Ledger]:
    with ledger.open(postgres_url) as opened:
        yield opened


def ratify(tx: Tx) -> int:
    """As owners do it: by an id, so that asking twice is the same as asking once."""
    row = tx.get(tables, table_id="t")
    assert row is not None
    done = tx.get(commits, table_id="t", txn_id="x")
    if done is not None:
        return int(done.version)
    version = -1 if row.latest_version is None else row.latest_version
    tx.insert(
        commits,
        table_id="t",
        version=version + 1,
        txn_id="x",
        file="f",
        size=1,
        in_commit_timestamp=1,
        ratified=1,
        backfilled=False,
    )
    tx.update(tables, {"table_id": "t"}, {"latest_version": version + 1})
    return int(version) + 1


def new_table(tx: Tx) -> None:
    tx.insert(tables, table_id="t", state="active", epoch=0, conf={}, updated=0)


def ratified(book: Ledger) -> int:
    return len(book.read(lambda tx: tx.rows(sa.select(commits))))


class TestALostAnswerToCommit:
    @pytest.mark.parametrize(("when", "happened"), [("before", 0), ("after", 1)])
    def test_is_an_unknown_outcome_and_is_not_run_again(
        self, proxy: Proxy, book: Ledger, when: str, happened: int
    ) -> None:
        runs = 0

        def do(tx: Tx) -> int:
            nonlocal runs
            runs += 1
            return ratify(tx)

        with ledger.open(proxy.url) as cut_off:
            cut_off.write(new_table)
            proxy.cut(when)
            with pytest.raises(UnknownOutcome) as raised:
                cut_off.write(do)
            assert runs == 1
            assert ratified(book) == happened
            assert isinstance(raised.value, StorageError)
            assert not isinstance(raised.value, StorageUnavailable)
            assert "hidden" not in str(raised.value)
            assert cut_off.write(do) == 0
            assert ratified(book) == 1

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_is_settled_by_asking_again_where_the_caller_says_that_is_safe(
        self, proxy: Proxy, book: Ledger, when: str
    ) -> None:
        with ledger.open(proxy.url) as cut_off:
            cut_off.write(new_table)
            proxy.cut(when)
            assert cut_off.write(ratify, idempotent=True) == 0
        assert ratified(book) == 1

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_of_a_read_is_of_no_consequence(self, proxy: Proxy, when: str) -> None:
        with ledger.open(proxy.url) as cut_off:
            proxy.cut(when)
            assert cut_off.read(lambda tx: tx.rows(sa.select(stores))) == []


class TestALostConnectionBeforeCommit:
    def test_is_run_again(self, book: Ledger, postgres_url: str) -> None:
        runs = 0

        def do(tx: Tx) -> bool:
            nonlocal runs
            runs += 1
            inserted = tx.insert(stores, store="s", created=1)
            if runs == 1:
                (pid,) = tx.rows(sa.select(sa.func.pg_backend_pid()), lock=False)[0]
                terminate(postgres_url, pid)
            tx.get(stores, store="s")
            return inserted

        assert book.write(do) is True
        assert runs == 2

    def test_of_an_idle_connection_is_not_noticed(self, book: Ledger, postgres_url: str) -> None:
        book.write(lambda tx: tx.insert(stores, store="s", created=1))
        (pid,) = book.read(lambda tx: tx.rows(sa.select(sa.func.pg_backend_pid())))[0]
        terminate(postgres_url, pid)
        assert book.write(lambda tx: tx.insert(stores, store="t", created=1)) is True

    def test_between_the_last_statement_and_commit_is_an_unknown_outcome(self, book: Ledger, postgres_url: str) -> None:
        def do(tx: Tx) -> None:
            tx.insert(stores, store="s", created=1)
            (pid,) = tx.rows(sa.select(sa.func.pg_backend_pid()), lock=False)[0]
            terminate(postgres_url, pid)

        with pytest.raises(UnknownOutcome):
            book.write(do)
        assert book.read(lambda tx: tx.get(stores, store="s")) is None


def terminate(url: str, pid: int) -> None:
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))


class TestTheSession:
    def setting(self, book: Ledger, name: str) -> str:
        return str(book.read(lambda tx: tx.rows(sa.select(sa.func.current_setting(name))))[0][0])

    def test_an_acknowledgement_is_never_asynchronous(self, own_database: str) -> None:
        name = own_database.split("/")[3].split("?")[0]
        with psycopg.connect(own_database, autocommit=True) as admin:
            admin.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")  # type: ignore[arg-type]
        with ledger.open(own_database) as book:
            assert self.setting(book, "synchronous_commit") == "on"

    def test_a_stricter_setting_is_kept(self, own_database: str) -> None:
        name = own_database.split("/")[3].split("?")[0]
        with psycopg.connect(own_database, autocommit=True) as admin:
            admin.execute(f"ALTER DATABASE {name} SET synchronous_commit = remote_apply")  # type: ignore[arg-type]
        with ledger.open(own_database) as book:
            assert self.setting(book, "synchronous_commit") == "remote_apply"

    def test_nobody_waits_for_ever(self, book: Ledger) -> None:
        assert self.setting(book, "lock_timeout") == "30s"
        assert self.setting(book, "idle_in_transaction_session_timeout") == "1min"

    def test_reads_are_snapshots_and_writes_lock(self, book: Ledger) -> None:
        assert self.setting(book, "transaction_isolation") == "repeatable read"
        assert self.setting(book, "transaction_read_only") == "on"
        level = sa.select(sa.func.current_setting("transaction_isolation"))
        assert book.write(lambda tx: tx.rows(level, lock=False))[0][0] == "read committed"


class TestTheDatabase:
    def test_keeps_its_own_tables_beside_the_ledger(self, own_database: str) -> None:
        with psycopg.connect(own_database, autocommit=True) as other:
            other.execute("CREATE TABLE public.runs (mine int)")
            with ledger.open(own_database) as book:
                book.write(lambda tx: tx.insert(stores, store="s", created=1))
            assert other.execute("SELECT count(*) FROM public.runs").fetchone() == (0,)
            assert other.execute("SELECT store FROM lakeseal.stores").fetchone() == ("s",)

    def test_sorts_every_text_by_bytes_whatever_its_locale(self, book: Ledger, postgres_url: str) -> None:
        with psycopg.connect(postgres_url) as admin:
            other = admin.execute(
                "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'lakeseal'"
                " AND data_type = 'text' AND collation_name IS DISTINCT FROM 'C'"
            ).fetchall()
        assert other == []

    def test_may_be_prepared_by_an_administrator_for_a_user_without_rights(self, own_database: str) -> None:
        role = f"guest_{os.getpid()}_{threading.get_ident()}"
        as_guest = own_database.replace("postgres@", f"{role}@")
        with psycopg.connect(own_database, autocommit=True) as admin:
            admin.execute(f"CREATE ROLE {role} LOGIN")  # type: ignore[arg-type]
            try:
                with pytest.raises(PermissionDenied):
                    ledger.open(as_guest)
                admin.execute(f"CREATE SCHEMA lakeseal AUTHORIZATION {role}")  # type: ignore[arg-type]
                with ledger.open(as_guest) as book:
                    assert book.write(lambda tx: tx.insert(stores, store="s", created=1))
                admin.execute(f"REVOKE INSERT ON lakeseal.stores FROM {role}")  # type: ignore[arg-type]
                with ledger.open(as_guest) as book, pytest.raises(PermissionDenied):
                    book.write(lambda tx: tx.insert(stores, store="t", created=1))
            finally:
                admin.execute(f"DROP OWNED BY {role}")  # type: ignore[arg-type]
                admin.execute(f"DROP ROLE {role}")  # type: ignore[arg-type]

    def test_is_migrated_by_one_process_at_a_time(self, postgres_url: str) -> None:
        key = int.from_bytes(b"lakeseal")
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        with psycopg.connect(postgres_url, autocommit=True) as other, ThreadPoolExecutor(1) as pool:
            other.execute("SELECT pg_advisory_lock(%s)", (key,))
            opening = pool.submit(ledger.open, postgres_url)
            while other.execute(waiting).fetchone() != (1,):
                assert not opening.done()
                sleep(0.01)
            assert other.execute("SELECT to_regnamespace('lakeseal')").fetchone() == (None,)
            other.execute("SELECT pg_advisory_unlock(%s)", (key,))
            opening.result().close()

    def test_that_is_not_there_is_named(self, postgres: str) -> None:
        with pytest.raises(LakesealError, match="nowhere"):
            ledger.open(postgres.replace("/postgres?", "/nowhere?"))

    def test_that_can_not_be_reached_is_unavailable_and_keeps_the_password(self) -> None:
        with pytest.raises(StorageUnavailable) as raised:
            ledger.open("postgresql://me:hunter2@127.0.0.1:1/x")
        assert "hunter2" not in str(raised.value)
        assert "hunter2" not in repr(raised.value.to_json())
        assert "127.0.0.1" in str(raised.value)


def test_a_server_for_tests_leaves_nothing_behind() -> None:
    with postgres_server() as url, fresh_database(url) as database:
        folder = Path(url.partition("host=")[2])
        with psycopg.connect(database) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        pid = int((folder / "data" / "postmaster.pid").read_text().splitlines()[0])
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
