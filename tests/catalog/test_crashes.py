"""Processes that are killed while they create tables."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import lakeseal
from lakeseal.errors import TableNotFound

SCHEMA = pa.schema([("id", pa.int64())])
DIES = """
import os, sys
import pyarrow as pa
import lakeseal
from lakeseal import table
from lakeseal.catalog.names import NameBook

url, kind, where = sys.argv[1:]


def die(*args, **more):
    os._exit(9)


def do_and_die(do):
    def done(*args, **more):
        do(*args, **more)
        os._exit(9)

    return done


match where:
    case "staged":
        NameBook.stage = do_and_die(NameBook.stage)
    case "made":
        table.create = do_and_die(table.create)
    case "named":
        NameBook.register = do_and_die(NameBook.register)
lakeseal.Catalog(url).create("sales.orders", pa.schema([("id", pa.int64())]), kind=kind)
"""


@pytest.mark.parametrize("kind", ["filesystem", "managed"])
@pytest.mark.parametrize("where", ["staged", "made", "named"])
def test_a_create_that_was_killed_is_found_and_ended(tmp_path: Path, where: str, kind: str) -> None:
    url = f"sqlite:///{tmp_path}/catalog.db"
    done = subprocess.run([sys.executable, "-c", DIES, url, kind, where], check=False)
    assert done.returncode == 9
    catalog = lakeseal.Catalog(url)
    if where == "named":
        assert catalog.unfinished() == []
    else:
        with pytest.raises(TableNotFound):
            catalog.table("sales.orders")
        (left,) = catalog.unfinished()
        assert lakeseal.Table(left.uri, owner=catalog.opened.owner).exists() is (where == "made")
        if where == "made":
            catalog.register("sales.orders", left.uri)
            assert catalog.show("sales.orders").table_id == left.table_id
        else:
            assert catalog.abandon(left.table_id, delete_files=True)
            catalog.create("sales.orders", SCHEMA, kind=kind)
    assert catalog.unfinished() == []
    assert catalog.show("sales.orders").kind == kind
    table = catalog.table("sales.orders")
    table.write(pa.table({"id": [1]}))
    assert table.version() == 1
    catalog.drop("sales.orders", delete_files=True)
    assert list((tmp_path / "tables").iterdir()) == []
