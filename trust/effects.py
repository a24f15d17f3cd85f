"""Every effect that a process has on disk, ledger and service, at the call that has it; and a process that is struck
at one of them.

    effects = Effects(root, at=7, way=Way.LOST)
    effects.install()

Effects are calls of the operating system that change something below `root`, obstore's too where it is used, SQL
statements that change rows, their COMMIT, and requests to a service. They are counted from 1 in the order in which
they happen. Nothing of the product is replaced: it is Python's own `os`, SQLAlchemy's dialects and the sockets' side of
the service's client that are watched. For good in this process, so it is a child's.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple, NoReturn, TypeVar

import psycopg
from sqlalchemy.engine.default import DefaultDialect

from lakeseal.service.http_client import HttpClient
from lakeseal.storage.local import files

T = TypeVar("T")

_SOURCE = "/src/lakeseal/"
_CHANGES_ROWS = ("INSERT", "UPDATE", "DELETE", "WITH", "CREATE", "ALTER", "DROP")
_NO_SPACE = {"create", "write", "link", "mkdir"}
_write, _readlink = os.write, os.readlink


class Way(Enum):
    BEFORE = "killed, and nothing of it has happened"
    TORN = "killed, and half of it is written"
    KILLED = "killed, and it has happened"
    FAILED = "fails, and nothing of it has happened"
    LOST = "fails, and it has happened"


DIFFERENT = {
    "create": (Way.FAILED,),
    "write": (Way.TORN, Way.FAILED),
    "fsync": (Way.FAILED,),
    "syncfs": (Way.FAILED,),
    "utime": (Way.KILLED, Way.FAILED),
    "statement": (Way.KILLED, Way.FAILED),
}
"""The ways that leave something else than another point or way does, where these are not all of `WAYS`. Whoever dies
behind a sync, or when a file has been opened that nobody can see, leaves what he leaves who dies behind the effect
before; a sync, a write to a file that nobody can see, and a statement in a transaction that is rolled back come to the
same when they fail and when only their answer is lost."""

WAYS = (Way.KILLED, Way.FAILED, Way.LOST)


def ways(kind: str) -> tuple[Way, ...]:
    return DIFFERENT.get(kind, WAYS)


class Site(NamedTuple):
    """A place in the product that was on its way when something happened."""

    file: str
    """Below `src/lakeseal/`."""
    line: int


class Effect(NamedTuple):
    kind: str
    about: str


class Effects:
    def __init__(self, root: str, at: int | None = None, way: Way = Way.KILLED) -> None:
        self._root = root
        self._at = at
        self._way = way
        self._lock = threading.Lock()
        self.seen: list[Effect] = []
        self.sites: set[Site] = set()
        self.struck: Callable[[Effect], object] = lambda _: None
        """Told before the process is struck."""

    def install(self) -> None:
        self._watch_files()
        self._watch_ledgers()
        self._watch_requests()

    def around(
        self,
        kind: str,
        about: str,
        do: Callable[[], T],
        error: Callable[[], BaseException],
        half: Callable[[], object] | None = None,
    ) -> T:
        with self._lock:
            effect = Effect(kind, about)
            self.seen.append(effect)
            number = len(self.seen)
            self._note()
        if number != self._at or (self._way is Way.TORN and half is None):
            return do()
        self.struck(effect)
        match self._way:
            case Way.BEFORE:
                die()
            case Way.TORN if half is not None:
                half()
                die()
            case Way.KILLED:
                try:
                    return do()
                finally:  # also where it was refused
                    die()
            case Way.FAILED:
                raise error()
            case _:
                do()
                raise error()

    def _note(self) -> None:
        frame = sys._getframe(2)
        while frame is not None:
            name = frame.f_code.co_filename
            at = name.rfind(_SOURCE)
            if at >= 0:
                self.sites.add(Site(name[at + len(_SOURCE) :], frame.f_lineno))
            frame = frame.f_back  # type: ignore[assignment]

    def _below(self, path: object, directory: int | None = None) -> str | None:
        """The path below the root, if it is there; an open file's by its descriptor."""
        if isinstance(path, int):
            name = _of(path)
        else:
            name = os.fsdecode(path)  # type: ignore[arg-type]
            if directory is not None and not name.startswith("/"):
                name = f"{_of(directory)}/{name}"
        return name[len(self._root) :] if name.startswith(self._root) else None

    def _watch_files(self) -> None:
        def watch(name: str, kind: str, place: Callable[..., str | None]) -> None:
            original = getattr(os, name)

            def watched(*given: Any, **named: Any) -> Any:
                about = place(*given, **named)
                if about is None:
                    return original(*given, **named)
                half = None
                if kind == "write" and len(given[1]) > 1:
                    half = lambda: original(given[0], bytes(given[1])[: len(given[1]) // 2])  # noqa: E731
                number = errno.ENOSPC if kind in _NO_SPACE else errno.EIO
                return self.around(
                    kind, about, lambda: original(*given, **named), lambda: OSError(number, os.strerror(number)), half
                )

            setattr(os, name, watched)

        def of_first(first: Any, *_: Any, dir_fd: int | None = None, **__: Any) -> str | None:
            return self._below(first, dir_fd)

        def of_second(_: Any, second: Any, *__: Any, dst_dir_fd: int | None = None, **___: Any) -> str | None:
            return self._below(second, dst_dir_fd)

        def of_new(path: Any, flags: int, *_: Any, dir_fd: int | None = None, **__: Any) -> str | None:
            unnamed = flags & os.O_TMPFILE == os.O_TMPFILE
            return self._below(path, dir_fd) if unnamed or flags & (os.O_CREAT | os.O_TRUNC) else None

        watch("open", "create", of_new)
        for name in ("write", "pwrite", "writev"):
            watch(name, "write", of_first)
        for name in ("fsync", "fdatasync"):
            watch(name, "fsync", of_first)
        for name in ("unlink", "remove"):
            watch(name, "unlink", of_first)
        for name in ("mkdir", "rmdir", "utime", "chmod", "truncate", "ftruncate"):
            watch(name, name, of_first)
        for name, kind in (("link", "link"), ("symlink", "link"), ("rename", "rename"), ("replace", "rename")):
            watch(name, kind, of_second)
        whole = files._syncfs
        assert whole is not None

        def syncfs(descriptor: int) -> int:
            about = self._below(descriptor)
            if about is None:
                return whole(descriptor)
            try:
                return self.around("syncfs", about, lambda: whole(descriptor), lambda: OSError(errno.EIO, "syncfs"))
            except OSError:
                ctypes.set_errno(errno.EIO)
                return -1

        files._syncfs = syncfs

    def _watch_ledgers(self) -> None:
        for name in ("do_execute", "do_executemany", "do_execute_no_params"):
            original = getattr(DefaultDialect, name)

            def watched(dialect: Any, cursor: Any, statement: str, *given: Any, _original: Any = original) -> Any:
                first = statement.lstrip(" \n(").split(None, 1)[0].upper()
                if first not in _CHANGES_ROWS:
                    return _original(dialect, cursor, statement, *given)
                return self.around(
                    "statement",
                    " ".join(statement.split())[:80],
                    lambda: _original(dialect, cursor, statement, *given),
                    lambda: _broken(dialect, cursor.connection),
                )

            setattr(DefaultDialect, name, watched)
        commit = DefaultDialect.do_commit

        def committed(dialect: Any, connection: Any) -> None:
            # A transaction that changed nothing has nothing to lose.
            with self._lock:
                changed = any(one.kind == "statement" for one in self.seen[self._committed :])
                self._committed = len(self.seen)
            if not changed:
                return commit(dialect, connection)
            return self.around(
                "commit",
                "COMMIT",
                lambda: commit(dialect, connection),
                lambda: _broken(dialect, connection.dbapi_connection),
            )

        self._committed = 0
        DefaultDialect.do_commit = committed  # type: ignore[method-assign]

    def _watch_requests(self) -> None:
        ask = HttpClient._ask

        def watched(one: HttpClient, mine: Any, method: str, target: str, *given: Any) -> Any:
            if method == "GET":
                return ask(one, mine, method, target, *given)
            return self.around(
                "request",
                f"{method} {target}",
                lambda: ask(one, mine, method, target, *given),
                lambda: one._unanswered(EOFError("the connection was cut")),
            )

        HttpClient._ask = watched  # type: ignore[method-assign]


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a process that is killed does not go on")


def _of(descriptor: int) -> str:
    try:
        return _readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""


def _broken(dialect: Any, connection: Any) -> Exception:
    """What a driver says when its disk or its server is gone."""
    if dialect.name == "sqlite":
        error: Exception = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR  # type: ignore[attr-defined]
        return error
    connection.close()
    return psycopg.OperationalError("server closed the connection unexpectedly")
