"""A ledger of any age opens, with all that was in it."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from lakeseal import ledger
from lakeseal.errors import NewerLedger
from lakeseal.ledger import Ledger
from lakeseal.ledger.backend import Backend, TransactionKind
from lakeseal.ledger.migrate import SCRIPTS, migrate
from lakeseal.ledger.postgres.backend import PostgresBackend
from lakeseal.ledger.schema import HEAD, VERSION_TABLE, metadata, stores
from lakeseal.ledger.sqlite.backend import SqliteBackend
from lakeseal.ledger.url import parse

RELEASED = Path(__file__).parent / "released"
VERSIONS = sorted({path.name.split(".")[0] for path in RELEASED.glob("*.sql")})


@contextmanager
def backend_at(url: str) -> Iterator[Backend]:
    where = parse(url)
    backend: Backend = (
        PostgresBackend(where, patience=30)
        if where.kind == "postgresql"
        else SqliteBackend(where, create=True, patience=30)
    )
    yield backend
    backend.close()


def load(url: str, version: str) -> None:
    where = parse(url)
    text = (RELEASED / f"{version}.{where.kind}.sql").read_text(encoding="utf-8")
    if where.kind == "sqlite":
        connection = sqlite3.connect(where.path)
        connection.executescript(text)
        connection.close()
    else:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(text.encode())


def content(url: str) -> dict[str, list[dict[str, object]]]:
    """Everything that is stored, as the database sees it."""
    with backend_at(url) as backend, backend.transaction(TransactionKind.READ) as connection:
        found = sa.MetaData()
        found.reflect(connection)
        return {
            table.name: sorted((dict(row) for row in connection.execute(sa.select(table)).mappings()), key=repr)
            for table in found.sorted_tables
            if table.name != VERSION_TABLE
        }


def differences(url: str) -> list[object]:
    with backend_at(url) as backend, backend.transaction(TransactionKind.READ) as connection:
        # By the text of the DDL: Alembic takes a type of ours for another than the one that it stands for.
        def differs(_context: object, _found: object, _column: object, found: Any, wanted: Any) -> bool:
            return bool(found.compile(connection.dialect) != wanted.compile(connection.dialect))

        options = {"version_table": VERSION_TABLE, "compare_type": differs}
        context = MigrationContext.configure(connection, opts=options)
        return list(compare_metadata(context, metadata))


def scripts() -> ScriptDirectory:
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS))
    return ScriptDirectory.from_config(config)


def with_another(folder: Path, body: str) -> Path:
    """The migrations of a Lakeseal of the future."""
    shutil.copytree(SCRIPTS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    text = f"from alembic import op\n\nrevision = 'future'\ndown_revision = {HEAD!r}\n\n\ndef upgrade():\n    {body}\n"
    (folder / "versions" / "future.py").write_text(text)
    return folder


def test_the_newest_migration_is_the_one_that_the_code_names() -> None:
    assert scripts().get_heads() == [HEAD]


def test_every_migration_has_its_dumps() -> None:
    assert sorted(script.revision for script in scripts().walk_revisions()) == VERSIONS
    assert all(
        (RELEASED / f"{version}.{kind}.sql").exists() for version in VERSIONS for kind in ("sqlite", "postgresql")
    )


def shape(url: str) -> dict[str, object]:
    """All that a database knows of its tables, and how many rows each has."""
    rows = {name: len(found) for name, found in content(url).items()}
    with backend_at(url) as backend, backend.transaction(TransactionKind.READ) as connection:
        look = sa.inspect(connection)

        def of(name: str) -> dict[str, object]:
            columns = {
                column["name"]: (str(column["type"]), column["nullable"], column["default"])
                for column in look.get_columns(name)
            }
            return {
                "rows": rows.get(name),
                "columns": columns,
                "primary key": look.get_pk_constraint(name),
                "unique": sorted(look.get_unique_constraints(name), key=repr),
                "foreign": sorted(look.get_foreign_keys(name), key=repr),
                "indexes": sorted(look.get_indexes(name), key=repr),
                "checks": sorted(look.get_check_constraints(name), key=repr),
            }

        return {name: of(name) for name in look.get_table_names()}


def test_migrations_make_exactly_the_tables_that_the_code_uses(shared_url: str) -> None:
    ledger.open(shared_url).close()
    assert differences(shared_url) == []


def test_a_new_ledger_is_the_one_that_all_migrations_make(shared_url: str, tmp_path: Path) -> None:
    ledger.open(shared_url).close()
    made = shape(shared_url)
    migrated = f"sqlite:///{tmp_path}/migrated.db"
    if shared_url.startswith("postgresql"):
        migrated = shared_url
        with psycopg.connect(shared_url, autocommit=True) as connection:
            connection.execute("DROP SCHEMA lakeseal CASCADE")
    with backend_at(migrated) as backend:
        future = with_another(tmp_path / "future", "pass")
        migrate(backend, create=True, scripts=future, head="future")
    assert shape(migrated) == made


@pytest.mark.parametrize("version", VERSIONS)
def test_a_released_ledger_opens_with_everything_in_it(shared_url: str, version: str) -> None:
    load(shared_url, version)
    before = content(shared_url)
    # Two of everything, beside what the ledger knows of itself.
    assert all(len(rows) == 2 + (table == "facts") for table, rows in before.items())
    with ledger.open(shared_url, create=False) as book:
        assert book.write(lambda tx: tx.insert(stores, store="new", created=1))
        book.write(lambda tx: tx.delete(stores, store="new"))
    after = content(shared_url)
    for table, rows in before.items():
        kept = [{name: row[name] for name in rows[0] if name in row} for row in after[table]]
        assert sorted(kept, key=repr) == rows
    assert differences(shared_url) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_released_ledger_gets_an_identity_once_and_keeps_it(shared_url: str, version: str) -> None:
    load(shared_url, version)
    found = []
    for _ in range(2):
        with ledger.open(shared_url, create=False) as book:
            found.append(book.identity())
    assert found[0] == found[1]
    assert uuid.UUID(found[0])


def test_two_ledgers_have_two_identities(tmp_path: Path) -> None:
    with ledger.open(f"sqlite:///{tmp_path}/a.db") as a, ledger.open(f"sqlite:///{tmp_path}/b.db") as b:
        assert a.identity() != b.identity()


def test_an_older_ledger_is_brought_up_and_keeps_its_rows(shared_url: str, tmp_path: Path) -> None:
    with ledger.open(shared_url) as book:
        book.write(lambda tx: tx.insert(stores, store="s", created=1))
    future = with_another(tmp_path / "future", "op.execute('ALTER TABLE stores ADD COLUMN note TEXT')")
    with backend_at(shared_url) as backend:
        migrate(backend, create=False, scripts=future, head="future")
        migrate(backend, create=False, scripts=future, head="future")
    assert [(row["store"], row["note"]) for row in content(shared_url)["stores"]] == [("s", None)]


def test_a_migration_that_fails_half_way_leaves_the_old_schema_whole(shared_url: str, tmp_path: Path) -> None:
    with ledger.open(shared_url) as book:
        book.write(lambda tx: tx.insert(stores, store="s", created=1))
    body = "op.execute('ALTER TABLE stores ADD COLUMN note TEXT'); op.drop_table('tags'); raise ZeroDivisionError"
    future = with_another(tmp_path / "future", body)
    with backend_at(shared_url) as backend, pytest.raises(ZeroDivisionError):
        migrate(backend, create=False, scripts=future, head="future")
    assert differences(shared_url) == []
    with ledger.open(shared_url, create=False) as book:
        assert book.read(lambda tx: tx.get(stores, store="s")) is not None


def test_a_ledger_of_a_newer_lakeseal_is_refused_and_left_alone(shared_url: str, tmp_path: Path) -> None:
    ledger.open(shared_url).close()
    future = with_another(tmp_path / "future", "op.execute('ALTER TABLE stores ADD COLUMN note TEXT')")
    with backend_at(shared_url) as backend:
        migrate(backend, create=False, scripts=future, head="future")
    for create in (True, False):
        with pytest.raises(NewerLedger, match="future"):
            ledger.open(shared_url, create=create)
    with backend_at(shared_url) as backend, backend.transaction(TransactionKind.READ) as connection:
        assert "note" in {column["name"] for column in sa.inspect(connection).get_columns("stores")}


@pytest.mark.parametrize("new", [True, False])
def test_a_ledger_that_is_new_or_up_to_date_opens_without_loading_alembic(tmp_path: Path, new: bool) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    if not new:
        ledger.open(url).close()
    code = f"import sys; from lakeseal import ledger; ledger.open({url!r}).close(); print('alembic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_ledger_says_which_schema_it_has(shared_url: str) -> None:
    with ledger.open(shared_url) as book:
        assert isinstance(book, Ledger)
        version = sa.select(sa.column("version_num")).select_from(sa.table(VERSION_TABLE))
        assert book.read(lambda tx: tx.rows(version))[0][0] == HEAD
