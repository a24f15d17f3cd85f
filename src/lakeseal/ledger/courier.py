"""A courier takes an `advance` to PostgreSQL and tells later what it came to: for an event loop, which must not wait.

What it carries is one statement and one transaction. It is not patient: where anything goes wrong it tells None, which
means that all of it happened or nothing did. Whoever asked learns which by asking in another way.

A connection that is lost is made again, by a thread; until then nothing is taken.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn, PGresult

from lakeseal.ledger.advance import Advance, Statement

_log = logging.getLogger(__name__)

_BETWEEN_TRIES_S = 1.0

Told = dict[str, Any]


class Courier:
    """One statement at a time. All of it is for the event loop in which it is used first; no child has it."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]]) -> None:
        """`connect` waits, and raises what it likes."""
        self._connect = connect
        self._connection: psycopg.Connection[Any] | None = None
        self._line = -1
        """The connection's socket, by a descriptor of our own: the driver closes its own one when it likes to."""
        self._is_full = False
        self._is_connecting = False
        self._not_before = 0.0
        self._is_closed = False
        self._prepared: dict[str, bytes] = {}
        self._names = 0
        self._carried: tuple[Statement, list[bytes], Callable[[Told | None], None]] | None = None
        self._is_asked = False
        """Whether the statement itself is on its way, and not its preparation."""
        self._results: list[PGresult] = []

    def is_ready(self) -> bool:
        """If it is not, that is seen to."""
        if self._connection is not None or self._carried is not None:
            return self._carried is None
        if not self._is_connecting and not self._is_closed and time.monotonic() >= self._not_before:
            self._is_connecting = True
            asyncio.get_running_loop().run_in_executor(None, self._connect).add_done_callback(self._connected)
        return False

    def carry(self, statement: Statement, advances: Sequence[Advance], tell: Callable[[Told | None], None]) -> None:
        """Only when it is ready. `tell` is called later, once. Raises `InvalidArgument` for values that no ledger
        holds, before anything was sent."""
        values = statement.parameters(advances)
        assert self._connection is not None
        assert self._carried is None
        self._carried = statement, values, tell
        self._do(self._send)

    def close(self) -> None:
        self._is_closed = True
        if self._connection is not None:
            self._lose(self._connection, "it is closed")

    def _connected(self, made: asyncio.Future[psycopg.Connection[Any]]) -> None:
        self._is_connecting = False
        if made.cancelled():
            return
        try:
            connection = made.result()
        except Exception as error:
            self._not_before = time.monotonic() + _BETWEEN_TRIES_S
            _log.warning("no connection for commits that are ratified together: %s", _first_line(error))
            return
        if self._is_closed:
            connection.close()
            return
        connection.pgconn.nonblocking = 1
        self._connection, self._line = connection, os.dup(connection.fileno())
        asyncio.get_running_loop().add_reader(self._line, self._do, self._receive)

    def _do(self, step: Callable[[PGconn], None]) -> None:
        connection = self._connection
        if connection is not None:
            try:
                step(connection.pgconn)
            except psycopg.Error as error:
                self._lose(connection, _first_line(error))

    def _send(self, line: PGconn) -> None:
        assert self._carried is not None
        statement, values, _ = self._carried
        name = self._prepared.get(statement.text)
        self._is_asked = name is not None
        if name is None:
            self._names += 1
            line.send_prepare(b"lakeseal_%d" % self._names, statement.text.encode())
        else:
            line.send_query_prepared(name, values)
        self._flush(line)

    def _flush(self, line: PGconn) -> None:
        was_full, self._is_full = self._is_full, bool(line.flush())
        if self._is_full and not was_full:
            asyncio.get_running_loop().add_writer(self._line, self._do, self._flush)
        elif was_full and not self._is_full:
            asyncio.get_running_loop().remove_writer(self._line)

    def _receive(self, line: PGconn) -> None:
        line.consume_input()
        while not line.is_busy():
            result = line.get_result()
            if result is not None:
                self._results.append(result)
                continue
            if self._results:
                self._end(line, self._results.pop())
            return

    def _end(self, line: PGconn, result: PGresult) -> None:
        self._results.clear()
        assert self._carried is not None
        statement = self._carried[0]
        if self._is_asked and result.status == ExecStatus.TUPLES_OK:
            found = ((result.get_value(row, 0), result.get_value(row, 1)) for row in range(result.ntuples))
            self._tell(statement.told(found))
        elif not self._is_asked and result.status == ExecStatus.COMMAND_OK:
            self._prepared[statement.text] = b"lakeseal_%d" % self._names
            self._send(line)
        else:
            # What was prepared may be what is wrong.
            self._prepared.clear()
            self._tell(None)

    def _lose(self, connection: psycopg.Connection[Any], why: str) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._line)
        loop.remove_writer(self._line)
        os.close(self._line)
        connection.close()
        self._connection, self._is_full = None, False
        self._prepared.clear()
        self._results.clear()
        if not self._is_closed:
            _log.warning("the connection for commits that are ratified together was lost: %s", why)
        # Not at once: it may be lost as soon as it is to carry something.
        loop.call_soon(self._tell, None)

    def _tell(self, told: Told | None) -> None:
        carried, self._carried = self._carried, None
        if carried is not None:
            carried[2](told)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
