"""The ledger on SQLite: a file that processes of one machine share, or memory that one process has to itself.

- WAL with `synchronous=FULL`: readers never wait, and a COMMIT returns after its bytes are on the disk (with NORMAL,
  the usual choice beside WAL, the last commits before a power cut would be lost although they were acknowledged).
- Writers begin with BEGIN IMMEDIATE, so that what a writer reads can't change before it writes. Within a process they
  queue at a lock first: SQLite's own waiting is by polling, which wastes most of the time when threads contend.
- A file that was deleted or replaced while it is open would swallow writes unseen; each transaction looks first.
- In memory all transactions take turns on one connection. That is slower and otherwise the same.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import QueuePool, StaticPool

from lakeseal.backoff import Backoff
from lakeseal.clock import now_ms
from lakeseal.errors import (
    AlreadyExists,
    BrokenLedger,
    InvalidArgument,
    NotFound,
    OutOfSpace,
    PermissionDenied,
    StorageUnavailable,
)
from lakeseal.ledger.backend import DatabaseFault, TransactionKind, survive_forks
from lakeseal.ledger.url import LedgerUrl

_BEGIN = {
    TransactionKind.READ: "BEGIN",
    TransactionKind.LOOK: "BEGIN",
    TransactionKind.WRITE: "BEGIN IMMEDIATE",
    TransactionKind.MIGRATE: "BEGIN EXCLUSIVE",
}
_READING = (TransactionKind.READ, TransactionKind.LOOK)
_FORK_SECONDS = 5.0


class SqliteBackend:
    insert = staticmethod(insert)
    locks_rows = False
    reads_rows = False

    def __init__(self, url: LedgerUrl, *, create: bool, patience: float) -> None:
        self.url = url
        self._memory = url.kind == "memory"
        self._patience = patience
        self._unusable = ""
        self._abandoned: list[sa.Engine] = []
        self._inode: tuple[int, int] | None = None
        self._new_locks()
        if not self._memory:
            self._prepare_file(create)
        self._engine = self._new_engine()
        survive_forks(self)

    @contextmanager
    def transaction(self, kind: TransactionKind) -> Iterator[sa.Connection]:
        alone = self._memory or kind not in _READING
        self._enter()
        try:
            if alone and not self._writer.acquire(timeout=self._patience):
                raise StorageUnavailable(f"the ledger {self.url} is busy with another thread's transaction")
            try:
                with self._engine.connect() as connection:
                    self._check_file()
                    connection.exec_driver_sql(_BEGIN[kind])
                    try:
                        yield connection
                    finally:
                        _end(connection)
            finally:
                if alone:
                    self._writer.release()
        finally:
            self._leave()

    def fault(self, error: Exception) -> DatabaseFault:
        original = error.orig if isinstance(error, DBAPIError) else error
        code = getattr(original, "sqlite_errorcode", None)
        text = f"the ledger {self.url}: {original}"
        if code is None:
            # sqlite3 itself refused the values; the database was not asked.
            return DatabaseFault(error=InvalidArgument(text))
        match code & 0xFF:
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                return DatabaseFault(
                    error=StorageUnavailable(text, hint="Another writer holds it; run it again"), retry=True
                )
            case sqlite3.SQLITE_IOERR:
                # A failed fsync leaves a whole commit in the WAL, which a later recovery may find.
                return DatabaseFault(error=StorageUnavailable(text, hint="Check the disk"), ambiguous=True)
            case sqlite3.SQLITE_CONSTRAINT:
                unique = (sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY)
                return DatabaseFault(error=AlreadyExists(text) if code in unique else InvalidArgument(text))
            case sqlite3.SQLITE_MISMATCH | sqlite3.SQLITE_TOOBIG | sqlite3.SQLITE_RANGE:
                return DatabaseFault(error=InvalidArgument(text))
            case sqlite3.SQLITE_FULL:
                return DatabaseFault(error=OutOfSpace(text))
            case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
                return DatabaseFault(error=PermissionDenied(text))
            case sqlite3.SQLITE_CANTOPEN:
                return DatabaseFault(
                    error=StorageUnavailable(text, hint="Check that the file and its directory are writable")
                )
            case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_ERROR:
                return DatabaseFault(error=BrokenLedger(text))
            case _:
                return DatabaseFault(error=StorageUnavailable(text))

    def now(self, connection: sa.Connection) -> int:
        return now_ms()

    def make_room(self, connection: sa.Connection) -> None:
        found = connection.exec_driver_sql("SELECT name FROM sqlite_master LIMIT 1").scalar()
        if found is not None:
            hint = "Give the ledger a file of its own"
            raise InvalidArgument(f"{self.url} holds somebody else's data (such as {found!r})", hint=hint)

    def close(self) -> None:
        self._engine.dispose()

    def before_fork(self) -> None:
        """Waits for transactions in flight, keeps new ones out, and closes what is idle."""
        with self._idle:
            self._paused = True
            self._calm = self._idle.wait_for(lambda: self._active == 0, timeout=0 if self._mine() else _FORK_SECONDS)
        if self._calm and not self._memory:
            self._engine.dispose()

    def after_fork_in_parent(self) -> None:
        with self._idle:
            self._paused = False
            self._idle.notify_all()

    def after_fork_in_child(self) -> None:
        if self._memory:
            self._unusable = "a ledger in memory belongs to the process that opened it"
        elif not self._calm:
            self._unusable = "this process was forked while a transaction on the ledger was open"
        self._new_locks()
        # Kept: what is left in it is the parent's, and must not be closed here.
        self._abandoned.append(self._engine)
        self._engine = self._new_engine()

    def _new_locks(self) -> None:
        self._writer = threading.Lock()
        self._idle = threading.Condition()
        self._active = 0
        self._paused = False
        self._calm = True
        self._thread = threading.local()

    def _mine(self) -> bool:
        return bool(getattr(self._thread, "inside", False))

    def _enter(self) -> None:
        if self._unusable:
            raise StorageUnavailable(
                f"the ledger {self.url} can't be used here: {self._unusable}", hint="Open it again"
            )
        with self._idle:
            self._idle.wait_for(lambda: not self._paused)
            self._active += 1
        self._thread.inside = True

    def _leave(self) -> None:
        self._thread.inside = False
        with self._idle:
            self._active -= 1
            self._idle.notify_all()

    def _new_engine(self) -> sa.Engine:
        engine = sa.create_engine(
            "sqlite://",
            creator=self._connect,
            poolclass=StaticPool if self._memory else QueuePool,
            hide_parameters=True,
            # Threads wait for the database, not for the pool.
            **({} if self._memory else {"pool_size": 8, "max_overflow": -1}),
        )
        return engine

    def _connect(self) -> sqlite3.Connection:
        where = ":memory:" if self._memory else f"file:{quote(self.url.path)}?mode=rw"
        # isolation_level=None: sqlite3 then leaves BEGIN to us.
        connection = sqlite3.connect(
            where, uri=True, timeout=self._patience, isolation_level=None, check_same_thread=False
        )
        for pragma in ("foreign_keys=ON", "synchronous=FULL", "fullfsync=ON", "checkpoint_fullfsync=ON"):
            connection.execute(f"PRAGMA {pragma}")
        return connection

    def _prepare_file(self, create: bool) -> None:
        path = self.url.path
        folder = os.path.dirname(path)
        if os.path.isdir(path):
            raise StorageUnavailable(f"the ledger {self.url} is a directory", hint="Name a file in it")
        if not os.path.exists(path):
            if not create:
                raise NotFound(f"there is no ledger at {self.url}", hint="Check the path, or open it with create=True")
            if not os.path.isdir(folder):
                raise NotFound(f"the ledger's directory {folder} is not there", hint="Make the directory first")
        try:
            if create:
                self._make_file(path)
            self._inode = self._file_now()
            self._use_wal()
        except PermissionError as error:
            raise PermissionDenied(f"the ledger {self.url} can't be opened: {error.strerror}") from None
        except OSError as error:
            raise StorageUnavailable(f"the ledger {self.url} can't be opened: {error.strerror}") from None

    @staticmethod
    def _make_file(path: str) -> None:
        """Never opens one that is there: to close it again would take away the locks that other connections of this
        process have on it, and the next process to close the ledger would remove the WAL that they still write to."""
        with suppress(FileExistsError):
            # SQLite keeps an empty file as it is; the first page comes with the first transaction.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        if not os.access(path, os.R_OK | os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    def _use_wal(self) -> None:
        """The mode stays in the file. Switching needs the file for itself and, unlike a transaction, does not wait."""
        for _ in Backoff(first_s=0.01, longest_s=0.1).tries(within_s=self._patience):
            connection = None
            try:
                connection = self._connect()
                mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
            except sqlite3.Error as error:
                fault, cause = self.fault(error), error
                if not fault.retry:
                    raise fault.error from error
            else:
                if mode != "wal":
                    raise StorageUnavailable(
                        f"the ledger {self.url} lies where SQLite can't share it between processes",
                        hint="Put it on a local disk, or use PostgreSQL",
                    )
                return
            finally:
                if connection is not None:
                    connection.close()
        raise fault.error from cause

    def _file_now(self) -> tuple[int, int]:
        found = os.stat(self.url.path)
        return found.st_dev, found.st_ino

    def _check_file(self) -> None:
        if self._memory:
            return
        try:
            same = self._file_now() == self._inode
        except OSError:
            same = False
        if not same:
            raise StorageUnavailable(
                f"the file of the ledger {self.url} was removed or replaced while it was open",
                hint="Put it back, and start this process again",
            )


def _end(connection: sa.Connection) -> None:
    """After a COMMIT that failed SQLite may still be inside the transaction, and hold its lock. SQLAlchemy takes it for
    ended, and would hand the connection to the next transaction as it is."""
    driver = connection.connection.dbapi_connection
    if isinstance(driver, sqlite3.Connection) and driver.in_transaction:
        try:
            driver.rollback()
        except sqlite3.Error:
            connection.invalidate()
