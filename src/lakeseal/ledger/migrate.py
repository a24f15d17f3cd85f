"""Bringing a database's schema up to the one that this code knows.

Any number of processes may open a ledger at the same moment: one makes or migrates it, inside one transaction and under
the database's lock, and the others find it done. A crash on the way leaves the old schema whole. There is no way down.

A new ledger is made as the newest schema at once, in a quarter of the time of all its migrations one after the other
and without loading Alembic; a test holds the two together.
"""

from __future__ import annotations

import threading
import uuid
from pathlib import Path

import sqlalchemy as sa

from lakeseal.errors import NewerLedger, NotFound
from lakeseal.ledger.backend import Backend, TransactionKind
from lakeseal.ledger.schema import HEAD, IDENTITY, VERSION_TABLE, facts, metadata

SCRIPTS = Path(__file__).parent / "migrations"

# Alembic keeps the migration that runs in module globals.
_one_at_a_time = threading.Lock()


def migrate(backend: Backend, *, create: bool, scripts: Path = SCRIPTS, head: str = HEAD) -> None:
    with backend.transaction(TransactionKind.READ) as connection:
        version = _version(connection)
    if version == head:
        return
    if version is None and not create:
        raise NotFound(f"there is no ledger at {backend.url}", hint="Check the URL, or open it with create=True")
    with _one_at_a_time, backend.transaction(TransactionKind.MIGRATE) as connection:
        version = _version(connection)
        if version == head:
            return
        if version is None:
            backend.make_room(connection)
        if version is None and head == HEAD:
            _make(connection)
        else:
            _upgrade(connection, backend, version, scripts, head)
        connection.commit()


def _make(connection: sa.Connection) -> None:
    metadata.create_all(connection, checkfirst=False)
    connection.execute(sa.insert(facts), {"name": IDENTITY, "value": str(uuid.uuid4())})
    # As Alembic makes it, which finds it there when the ledger is migrated.
    version = sa.Table(
        VERSION_TABLE,
        sa.MetaData(),
        sa.Column("version_num", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
    )
    version.create(connection, checkfirst=False)
    connection.execute(sa.insert(version), {"version_num": HEAD})


def _version(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.scalar(sa.select(sa.column("version_num")).select_from(sa.table(VERSION_TABLE)))


def _upgrade(connection: sa.Connection, backend: Backend, version: str | None, scripts: Path, head: str) -> None:
    # Loading Alembic takes longer than opening a ledger, and a ledger that is up to date does not need it.
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if version is not None and version not in known:
        raise NewerLedger(f"the ledger {backend.url} has schema {version}; this Lakeseal knows up to {head}")
    config.attributes["connection"] = connection
    command.upgrade(config, head)
