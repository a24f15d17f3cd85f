"""A table's place goes away and comes back: a disk is unmounted, a directory is moved. Nothing that was acknowledged is
forgotten, nothing is put where the table is not, and the table goes on when it is back."""

from __future__ import annotations

import os
import random
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from lakeseal.commit.attempts import Retry
from lakeseal.commit.proposal import Operation
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.errors import LakesealError, NotBackfilled, TableVanished
from lakeseal.log.delta_log import DeltaLog
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.owner.publisher import Publisher, recover
from lakeseal.owner.routing import Router
from lakeseal.storage import Store, open_store
from support.managed_tables import add, append, create, managed_log, newest, paths

from .conftest import OpenOwner

STEPS = (
    *("append", "append large") * 3,
    *("create", "drop", "read", "backfill", "publish", "recover", "tidy", "forget caches"),
)


@contextmanager
def moved_away(root: Path) -> Iterator[None]:
    """As `mv table elsewhere` and back."""
    away = root.with_name(root.name + ".away")
    os.rename(root, away)
    yield
    assert not root.exists(), "somebody made the directory anew, where the table is not"
    os.rename(away, root)


@contextmanager
def unmounted(root: Path) -> Iterator[None]:
    """The mount point stays; whatever is put below it is hidden when the disk is back."""
    point = root.parent
    away = point.with_name(point.name + ".away")
    os.rename(point, away)
    point.mkdir()
    yield
    hidden = [name for _, _, names in os.walk(point) for name in names]
    shutil.rmtree(point)
    os.rename(away, point)
    assert hidden == [], "what was put there is lost"


@pytest.fixture(params=[moved_away, unmounted], ids=["moved", "unmounted"])
def gone(request: pytest.FixtureRequest) -> Callable[[Path], Iterator[None]]:
    found: Callable[[Path], Iterator[None]] = request.param
    return found


def test_a_table_that_is_not_there_for_a_moment_is_neither_dropped_nor_made_anew(
    open_owner: OpenOwner, sqlite_url: str, tmp_path: Path, gone
) -> None:
    owner = open_owner(sqlite_url, backfills=False)
    store = open_store(tmp_path / "disk" / "table")
    log, managed = create(store, owner)
    for name in "abc":
        append(log, managed, name)
    with gone(tmp_path / "disk" / "table"):
        with pytest.raises((TableVanished, NotBackfilled)):
            owner.drop(store.uri)
        with pytest.raises(TableVanished):
            owner.begin_takeover(store.uri, "id", 0)
        with pytest.raises(TableVanished):
            Router(store, {}, creator=owner).snapshot()
        with pytest.raises(TableVanished):
            owner.backfill(store.uri)
        assert recover(owner).failed
    owner.backfill(store.uri)
    assert paths(DeltaLog(store)) == ["a", "b", "c"]


def test_dropping_needs_the_root_and_its_parent(open_owner: OpenOwner, sqlite_url: str, tmp_path: Path) -> None:
    owner = open_owner(sqlite_url)
    store = open_store(tmp_path / "parent" / "table")
    create(store, owner)
    shutil.rmtree(tmp_path / "parent" / "table")
    with pytest.raises(TableVanished, match="Absent is not deleted"):
        owner.drop(store.uri)
    os.rename(tmp_path / "parent", tmp_path / "elsewhere")
    with pytest.raises(TableVanished):
        owner.drop(store.uri)
    (tmp_path / "parent" / "table").mkdir(parents=True)
    assert owner.drop(store.uri).latest == -1


def test_what_was_ratified_and_never_in_the_log_is_not_forgotten(
    open_owner: OpenOwner, sqlite_url: str, tmp_path: Path
) -> None:
    owner = open_owner(sqlite_url, backfills=False)
    store = open_store(tmp_path / "table")
    log, managed = create(store, owner)
    append(log, managed, "a")
    shutil.rmtree(tmp_path / "table")
    (tmp_path / "table").mkdir()
    with pytest.raises(NotBackfilled, match="versions 1 to 1"):
        owner.drop(store.uri)
    assert [one.commit.version for one in owner.book.stored(store.uri, 0, limit=9)] == [1]


def test_a_table_that_the_owner_never_knew_is_dropped_without_a_trace(owner: LedgerOwner, tmp_path: Path) -> None:
    table = open_store(tmp_path / "never").uri
    assert owner.drop(table).epoch == 0


@pytest.mark.parametrize(
    "seed", [*range(20), *(pytest.param(seed, marks=pytest.mark.stress) for seed in range(20, 50))]
)
def test_nothing_acknowledged_is_lost_however_a_store_comes_and_goes(
    open_owner: OpenOwner, tmp_path: Path, scratch: Path, seed: int
) -> None:
    dice = random.Random(seed)
    root = scratch / "disk" / "table"
    url = f"sqlite:///{tmp_path}/ledger.db"
    owners = [open_owner(url, backfills=seed % 2 == 0, batch_size=2, trusting=number == 0) for number in (0, 1)]
    create(open_store(root), owners[0])
    acknowledged: list[str] = []

    def step(store: Store) -> None:
        owner = dice.choice(owners)
        owner.attach(store)
        match dice.choice(STEPS):
            case "append":
                acknowledge(owner, store, [uuid.uuid4().hex])
            case "append large":
                acknowledge(owner, store, [uuid.uuid4().hex for _ in range(60)])
            case "create":
                create(store, owner)
            case "drop":
                owner.drop(store.uri)
            case "read":
                Router(store, {owner.name: owner}, creator=owner).snapshot()
            case "backfill":
                owner.backfill(store.uri)
            case "publish":
                Publisher(owner, tidy_every_s=0, grace_ms=0, alone=True).run_once()
            case "recover":
                recover(owner)
            case "tidy":
                owner.forget(store.uri, grace_ms=0)
            case "forget caches":
                owners[owners.index(owner)] = LedgerOwner(owner.ledger, backfills=True, batch_size=3)

    def acknowledge(owner: LedgerOwner, store: Store, files: list[str]) -> None:
        log, managed = managed_log(owner, store)
        txn = OptimisticTransaction.begin(log, managed, retry=Retry(deadline_s=1.0))
        txn.commit([add(file) for file in files], Operation(name="WRITE"))
        acknowledged.extend(files)

    store = open_store(root)
    acknowledge(owners[0], store, ["first"])
    for _ in range(12):
        for _ in range(dice.randrange(4)):
            with suppress(LakesealError):
                step(store)
        with dice.choice([moved_away, unmounted])(root):
            for _ in range(1 + dice.randrange(3)):
                with suppress(LakesealError):
                    step(dice.choice([store, open_store(root)]))
        if dice.random() < 0.3:
            store = open_store(root)
    owner = open_owner(url)
    store = open_store(root)
    owner.attach(store)
    assert paths(managed_log(owner, store)[0]) == sorted(acknowledged)
    owner.backfill(store.uri)
    assert paths(DeltaLog(store)) == sorted(acknowledged)
    append(*managed_log(owner, store), "more")
    assert newest(store, owner) == newest(store) + 1
