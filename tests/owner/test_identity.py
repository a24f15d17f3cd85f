"""A table knows the ledger that has it, and no other ledger of the same name passes for that one."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest

import lakeseal
from lakeseal import ledger
from lakeseal.errors import OwnedElsewhere, PolicyRefused, WrongLedger
from lakeseal.owner import enablement
from lakeseal.owner.connect import connect
from lakeseal.owner.ledger_owner import LedgerOwner, flush
from lakeseal.protocol.properties import TableProperties
from lakeseal.storage import open_store
from support.managed_tables import append, create, managed_log

ROWS = pa.table({"id": pa.array([1], pa.int64())})


@pytest.mark.field_bug("S7")
def test_a_table_keeps_the_identity_of_its_ledger_and_nothing_to_reach_it_by(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    created = lakeseal.create(tmp_path / "created", ROWS.schema, owner=url)
    taken = lakeseal.create(tmp_path / "taken", ROWS.schema)
    taken.take_over(url)
    with ledger.open(url, create=False) as opened:
        for table in (created, taken):
            conf = TableProperties.of(table.snapshot().metadata).managed_commit_owner_conf
            assert conf == {"batchSize": "10", "ledgerId": opened.identity()}


def test_an_empty_ledger_of_the_same_name_is_an_error_and_no_stale_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten rows of fourteen were read, without a word."""
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(home)
    table = lakeseal.create(tmp_path / "t", ROWS.schema, owner="sqlite:///ledger.db")
    table.write(ROWS)
    monkeypatch.chdir(elsewhere)
    other = lakeseal.Table(tmp_path / "t", owner="sqlite:///ledger.db")
    for use in (other.to_arrow, other.version, lambda: other.write(ROWS), other.release, other.exists):
        with pytest.raises(WrongLedger, match="not there yet") as raised:
            use()
        assert str(elsewhere) in str(raised.value)
    assert os.listdir(elsewhere) == [], "reading makes no ledger"
    lakeseal.create(tmp_path / "u", ROWS.schema, owner="sqlite:///ledger.db")
    assert "ledger.db" in os.listdir(elsewhere)
    with pytest.raises(WrongLedger, match="commits are in the ledger") as raised:
        lakeseal.Table(tmp_path / "t", owner="sqlite:///ledger.db").to_arrow()
    assert raised.value.table == table.uri
    assert table.to_arrow().num_rows == 1


def test_a_ledger_that_lost_a_table_says_so_even_to_those_who_have_it_open(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    table = lakeseal.create(tmp_path / "t", ROWS.schema, owner=url)
    table.write(ROWS)
    flush()
    with sqlite3.connect(tmp_path / "ledger.db") as raw:
        raw.execute("DELETE FROM commits")
        raw.execute("DELETE FROM tables")
    for one in (table, lakeseal.Table(tmp_path / "t", owner=url)):
        with pytest.raises(WrongLedger, match="does not know the table") as raised:
            one.to_arrow()
        assert "lakeseal owner rebuild" in str(raised.value)
    with pytest.raises(OwnedElsewhere, match="rebuild"):
        table.take_over(url)


def test_reading_a_table_that_is_not_there_makes_no_ledger(tmp_path: Path) -> None:
    table = lakeseal.Table(tmp_path / "t", owner=f"sqlite:///{tmp_path}/ledger.db")
    assert not table.exists()
    assert os.listdir(tmp_path) == []
    table.write(ROWS)
    assert sorted(os.listdir(tmp_path))[:1] == ["ledger.db"]
    assert lakeseal.Table(tmp_path / "t", owner=f"sqlite:///{tmp_path}/ledger.db").to_arrow().num_rows == 1


def test_a_relative_ledger_is_made_absolute_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "lakeseal")
    monkeypatch.chdir(tmp_path)
    owner = connect("sqlite:///ledger.db")
    assert f"{tmp_path}/ledger.db" in repr(owner)
    assert [(record.levelname, f"{tmp_path}/ledger.db" in record.message) for record in caplog.records] == [
        ("WARNING", True)
    ]
    assert connect(f"sqlite:///{tmp_path}/ledger.db") is owner
    create(open_store(tmp_path / "t"), owner)
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    assert connect("sqlite:///ledger.db") is not owner, "another folder, another ledger"
    caplog.clear()
    assert connect("sqlite:///../ledger.db") is owner
    assert [record.levelname for record in caplog.records] == ["INFO"]


def test_a_commit_cannot_name_another_ledger(open_owner, memory) -> None:
    owner: LedgerOwner = open_owner(trusting=False, backfills=False)
    create(memory, owner)
    log, managed = managed_log(owner, memory)
    snapshot = log.snapshot()
    conf = json.dumps({"batchSize": "10", "ledgerId": "another"})
    changed = {**snapshot.metadata.configuration, "delta.managedCommitOwnerConf": conf}
    content = enablement.Content(metadata=type(snapshot.metadata)(id="t", configuration=changed))
    with pytest.raises(PolicyRefused, match="another ledger"):
        enablement.check_commit(content, owner="lakeseal", table="t", version=1, ledger=owner.identity)
    append(log, managed, "a")


def test_a_table_from_before_ledgers_had_an_identity_is_known_by_its_owners_name(
    open_owner, memory, monkeypatch
) -> None:
    owner: LedgerOwner = open_owner(batch_size=100)
    monkeypatch.setattr(type(owner), "identity", lambda self, *, make=False: None)
    log, managed = create(memory, owner)
    assert "ledgerId" not in (log.snapshot().metadata.configuration["delta.managedCommitOwnerConf"] or "")
    monkeypatch.undo()
    append(log, managed, "a")
    router = lakeseal.owner.routing.Router(memory, {owner.name: owner}, creator=owner)
    assert router.snapshot().version == 1
