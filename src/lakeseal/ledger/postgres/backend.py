"""The ledger on PostgreSQL, in the schema `lakeseal` of the database that the URL names.

- Writers run at READ COMMITTED and lock the rows that they read (`Tx` does that), readers at REPEATABLE READ, which is
  one snapshot, and single questions outside of any. See docs/design/003-ledger.md for why not SERIALIZABLE.
- The session asks for what an acknowledgement means: `synchronous_commit` is never off.
- Nobody waits for ever: for a lock as long as the ledger's patience, for a client that went silent inside a transaction
  a minute, for a dead network half a minute.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import DBAPIError

from lakeseal.errors import (
    AlreadyExists,
    BrokenLedger,
    InvalidArgument,
    LakesealError,
    NotFound,
    OutOfSpace,
    PermissionDenied,
    StorageUnavailable,
    Unsupported,
)
from lakeseal.ledger.backend import DatabaseFault, TransactionKind, survive_forks
from lakeseal.ledger.url import LedgerUrl

SCHEMA = "lakeseal"

# Any number that others are unlikely to lock: the bytes of "lakeseal".
_MIGRATION_LOCK = int.from_bytes(b"lakeseal")

_CONNECTING = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
    "application_name": "lakeseal",
}

_SESSION = """
SELECT set_config('search_path', %(schema)s, false),
       set_config('lock_timeout', %(lock)s, false),
       set_config('idle_in_transaction_session_timeout', '60s', false),
       set_config('synchronous_commit',
                  CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
                  ELSE current_setting('synchronous_commit') END, false)
"""

# SQLSTATE, whole or by class, and what it means. Anything else is a fault of the server or of its set-up.
_BUSY = {"40001", "40P01", "55P03"}
_LOST = {"08", "57P01", "57P02", "57P03", "57P05", "25P03", "53300", "40003"}
_MEANING: dict[str, type[LakesealError]] = {
    "23505": AlreadyExists,
    "23": InvalidArgument,
    "22": InvalidArgument,
    "28": PermissionDenied,
    "42501": PermissionDenied,
    "25006": PermissionDenied,
    "53100": OutOfSpace,
    "3D000": NotFound,
    "42P01": BrokenLedger,
    "42703": BrokenLedger,
    "XX": BrokenLedger,
}


class PostgresBackend:
    insert = staticmethod(insert)
    locks_rows = True
    reads_rows = True

    def __init__(self, url: LedgerUrl, *, patience: float) -> None:
        self.url = url
        self._patience = patience
        self._abandoned: list[sa.Engine] = []
        self._start()
        survive_forks(self)

    @contextmanager
    def transaction(self, kind: TransactionKind) -> Iterator[sa.Connection]:
        with self._engines.get(kind, self._engine).connect() as connection:
            if kind is TransactionKind.MIGRATE:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
            yield connection

    def fault(self, error: Exception) -> DatabaseFault:
        original = error.orig if isinstance(error, DBAPIError) else error
        state = getattr(original, "sqlstate", None) or ""
        # Further lines hold hints that are not ours and values that are nobody's business.
        lines = str(original).strip().splitlines() or [type(original).__name__]
        text = f"the ledger {self.url}: {lines[0]}"
        lost = isinstance(error, DBAPIError) and error.connection_invalidated
        if state in _BUSY:
            return DatabaseFault(
                error=StorageUnavailable(text, hint="Another writer holds it; run it again"), retry=True
            )
        if lost or state in _LOST or state[:2] in _LOST or (not state and _is_operational(error)):
            hint = "Check that the server runs and can be reached"
            return DatabaseFault(error=StorageUnavailable(text, hint=hint), retry=True, ambiguous=True)
        if not state:
            # The driver itself refused the values; the server was not asked.
            return DatabaseFault(error=InvalidArgument(text))
        meaning = _MEANING.get(state) or _MEANING.get(state[:2]) or StorageUnavailable
        return DatabaseFault(error=meaning(text))

    def now(self, connection: sa.Connection) -> int:
        seconds = connection.scalar(sa.text("SELECT extract(epoch FROM clock_timestamp())"))
        return int(seconds * 1000)

    def make_room(self, connection: sa.Connection) -> None:
        # Asked first: a user who may not create schemas can still use one that an administrator made.
        if connection.scalar(sa.select(sa.func.to_regnamespace(SCHEMA))) is None:
            connection.execute(sa.schema.CreateSchema(SCHEMA))

    def close(self) -> None:
        self._engine.dispose()

    def before_fork(self) -> None:
        pass

    def after_fork_in_parent(self) -> None:
        pass

    def after_fork_in_child(self) -> None:
        # Kept, so that nothing closes the parent's sockets from here.
        self._abandoned.append(self._engine)
        self._start()

    def _start(self) -> None:
        url = sa.make_url(self.url.connect)
        options = {name: value for name, value in _CONNECTING.items() if name not in url.query}
        try:
            self._engine = sa.create_engine(
                url,
                isolation_level="READ COMMITTED",
                connect_args=options,
                pool_size=8,
                max_overflow=8,
                pool_timeout=self._patience,
                pool_use_lifo=True,
                use_native_hstore=False,
                hide_parameters=True,
            )
        except ModuleNotFoundError:
            hint = "pip install 'lakeseal[server]'"
            raise Unsupported(f"the ledger {self.url} needs the package psycopg", hint=hint) from None
        sa.event.listen(self._engine, "connect", self._prepare_session)
        self._engines = {
            TransactionKind.READ: self._engine.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            ),
            # One message to the server where a transaction takes three: half of the time of a small question.
            TransactionKind.LOOK: self._engine.execution_options(isolation_level="AUTOCOMMIT"),
        }

    def _prepare_session(self, connection: Any, _record: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(_SESSION, {"schema": SCHEMA, "lock": str(max(1, int(self._patience * 1000)))})
        connection.commit()


def _is_operational(error: Exception) -> bool:
    return isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError | sa.exc.TimeoutError)
