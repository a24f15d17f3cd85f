"""What a process does while it is struck: each scenario has something that is there before, steps, and what is seen.

A step can be done again by somebody else, whatever the first came to: that is what whoever goes on does. `look` gives
values by name, each of which must be, at every moment, as before the step that is under way or as after it.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds

import lakeseal
from lakeseal import Repository, Table, ledger
from lakeseal.clock import now_ms
from lakeseal.commit import post_commit
from lakeseal.errors import AlreadyExists, NotFound, RepositoryNotFound, WrongLedger
from lakeseal.ingest import BranchTarget, Dataset, DirectoryTarget, FilesSource, Pipeline, TableTarget
from lakeseal.ledger.schema import leases
from lakeseal.log.checkpoint_writer import write_checkpoint
from lakeseal.log.delta_log import DeltaLog
from lakeseal.owner import ledger_owner, rebuild
from lakeseal.owner.handover import finish_release, release, take_over
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.owner.ownership import State
from lakeseal.owner.publisher import recover as recover_owner
from lakeseal.service import tokens
from lakeseal.service.access import Grant
from lakeseal.service.client import HttpOwner
from lakeseal.storage import open_store
from lakeseal.testing.service import service_inside
from models.history import check_history
from support.published_rows import URN, Place, stage
from support.published_rows import World as Published

NOBODY = ""
SQLITE = "sqlite"
POSTGRESQL = "postgresql"

_LONG_AGO_S = 30 * 86_400


class Lake:
    """A directory, and a ledger if there is one, as one process has them open."""

    def __init__(self, root: Path, ledger_url: str) -> None:
        self.root = root
        self.url = ledger_url
        self._owner: LedgerOwner | None = None

    @property
    def owner(self) -> LedgerOwner:
        """Has little batches, and takes little into its rows."""
        if self._owner is None:
            self._owner = LedgerOwner(ledger.open(self.url), batch_size=2, inline_bytes=1500, in_background=True)
        return self._owner

    @property
    def lazy(self) -> LedgerOwner:
        """Leaves it to others to publish."""
        return LedgerOwner(self.owner.ledger, batch_size=1000, inline_bytes=1500, backfills=False)

    def table(self, name: str, *, owned: bool = False) -> Table:
        return Table(self.root / name, owner=self.owner if owned or self.url else None)

    def owned(self, name: str) -> Table:
        return Table(self.root / name, owner=self.owner)

    @property
    def repository(self) -> Repository:
        return Repository.open(self.root / "repo", ledger=self.url)

    @property
    def catalog(self) -> lakeseal.Catalog:
        return lakeseal.Catalog(self.url, root=self.root / "tables")

    def settle(self) -> None:
        """Waits for what goes on behind commits."""
        post_commit.flush()
        ledger_owner.flush()


Step = Callable[[Lake], object]
Look = Callable[[Lake], Mapping[str, Any]]


class Scenario(NamedTuple):
    name: str
    prepare: Callable[[Lake], object]
    steps: tuple[Step, ...]
    look: Look
    ledgers: tuple[str, ...] = (NOBODY,)
    end: Look = lambda _: {}
    """More that can be seen when all is done, and not before."""
    upkeep: Callable[[Lake], object] = lambda _: None
    """What may be done at any time, and changes nothing that can be seen."""
    keeps: bool = False
    """What it opens stays open in a process, so that another state of the disk needs another one."""
    sound: Callable[[Lake], object] = lambda _: None
    """Asserts what must hold of what is on disk when all is done."""


LEDGERS = (SQLITE, POSTGRESQL)


def batch(*ids: int, text: str = "") -> pa.Table:
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "v": [text or f"v{n}" for n in ids],
            "p": pa.array([n % 3 for n in ids], pa.int64()),
        }
    )


def rows(table: Table) -> list[tuple[Any, ...]]:
    if not table.exists():
        return []
    return sorted(tuple(row.values()) for row in table.to_arrow(columns=["id", "v", "p"]).to_pylist())


def table_rows(*names: str) -> Look:
    return lambda lake: {name: rows(lake.table(name)) for name in names}


def tables_sound(*names: str) -> Callable[[Lake], None]:
    """What is published is one history; every version can still be read, and reading is replaying (F1–F7)."""

    def check(lake: Lake) -> None:
        for name in names:
            table = lake.table(name)
            if not table.exists():
                continue
            store = open_store(lake.root / name)
            if lake.url:
                lake.owner.backfill(table.uri)
                told = lake.owner.get_commits(table.uri)
                for commit in told.commits:
                    assert len(commit.ratified().read(store)) == commit.size, "M3: a ratified commit is nowhere"
            check_history(store)
            replayed = sorted(DeltaLog(store).update().files["path"].to_pylist())  # type: ignore[union-attr]
            assert replayed == sorted(_by_replay(store)), "F5: reading is not replaying"

    return check


def _by_replay(store: Any) -> set[str]:
    from lakeseal.protocol.actions import AddFile, RemoveFile

    live: set[str] = set()
    for actions in check_history(store):
        live -= {one.path for one in actions if isinstance(one, RemoveFile)}
        live |= {one.path for one in actions if isinstance(one, AddFile)}
    return live


def age(folder: Path) -> None:
    """All of it is as if it had been written long ago."""
    then = time.time() - _LONG_AGO_S
    for place, _, names in os.walk(folder):
        for name in names:
            os.utime(Path(place, name), (then, then))


def table_upkeep(*names: str) -> Callable[[Lake], None]:
    def do(lake: Lake) -> None:
        for name in names:
            table = lake.table(name)
            if table.exists():
                table.vacuum(hours=0, enforce_retention_duration=False)
                table.checkpoint() if not lake.url else None
                table.cleanup()
                lake.settle()

    return do


VECTORS = {
    "delta.enableDeletionVectors": "true",
    "delta.enableChangeDataFeed": "true",
    "delta.checkpointInterval": "2",
    "delta.enableInCommitTimestamps": "true",
    "delta.checkpointPolicy": "v2",
}
PLAIN = {"delta.checkpointInterval": "2"}
LARGE = "large " * 1000
"""More than an owner here takes into a row of its ledger: the commit is a file."""


# Tables on the file system


def _some(lake: Lake) -> None:
    table = lake.table("t")
    table.write(batch(1, 2, 3, 4), properties=PLAIN)
    table.write(batch(5, 6))
    lake.settle()


def _partitioned(lake: Lake) -> None:
    table = lake.table("t")
    table.write(batch(1, 2, 4, 5), partition_by="p", properties=PLAIN)
    lake.settle()


def _append(lake: Lake) -> object:
    return lake.table("t").write(batch(10, 11), txn=("trust", 1))


def _append_wider(lake: Lake) -> object:
    wider = batch(12, 13).append_column("w", pa.array([1, 2]))
    return lake.table("t").write(wider, merge_schema=True, txn=("trust", 2))


def _create(lake: Lake) -> object:
    return lake.table("new").write(batch(1, 2), txn=("trust", 1), properties=PLAIN)


def _overwrite_partitions(lake: Lake) -> object:
    return lake.table("t").write(batch(30, 33), mode="overwrite", partition_overwrite="dynamic")


def _replace_where(lake: Lake) -> object:
    return lake.table("t").write(batch(31, 34), mode="overwrite", replace_where="p = 1")


def _overwrite(lake: Lake) -> object:
    return lake.table("t").write(batch(7, 8, 9), mode="overwrite")


def _with_vectors(lake: Lake) -> None:
    table = lake.table("t")
    table.write(batch(1, 2, 3, 4, 5, 6), properties=VECTORS)
    table.write(batch(7, 8, 9))
    lake.settle()


def _merge(lake: Lake) -> object:
    source = batch(3, 8, 20, text="merged")
    merge = lake.table("t").merge(source, "t.id = s.id")
    return merge.when_matched_update("*").when_not_matched_insert("*").execute()


def _delete(lake: Lake) -> object:
    return lake.table("t").delete("id IN (1, 9)")


def _update(lake: Lake) -> object:
    return lake.table("t").update({"v": "'updated'"}, where="id = 2")


def _many_rows(lake: Lake) -> None:
    lake.table("t").write(batch(*range(900)), properties=VECTORS)
    lake.settle()


def _delete_many(lake: Lake) -> object:
    """So many that the vector is a file."""
    return lake.table("t").delete("id % 7 = 1 OR id % 11 = 3")


def _scattered(lake: Lake) -> None:
    table = lake.table("t")
    for n in range(4):
        table.write(batch(4 * n, 4 * n + 1, 4 * n + 2), properties=VECTORS if n == 0 else None)
    table.delete("id = 5")
    lake.settle()


def _aged(lake: Lake) -> None:
    _scattered(lake)
    lake.table("t").write(batch(1, 2, 3), mode="overwrite")
    lake.table("t").write(batch(4, 5, 6))
    (lake.root / "t" / "orphan-1.parquet").write_bytes(b"left by somebody who died")
    lake.settle()
    age(lake.root / "t")


def _long_log(lake: Lake) -> None:
    table = lake.table("t")
    kept = {"delta.checkpointInterval": "100", "delta.logRetentionDuration": "interval 1 days"}
    kept["delta.checkpointPolicy"] = "v2"
    for n in range(6):
        table.write(batch(2 * n, 2 * n + 1), properties=kept if n == 0 else None)
    lake.settle()
    age(lake.root / "t" / "_delta_log")


def _compact_log(lake: Lake) -> None:
    lake.table("t").compact_log(1, 3)


def _checkpoint(lake: Lake) -> None:
    lake.table("t").checkpoint()


def _checkpoint_in_json(lake: Lake) -> None:
    log = DeltaLog(open_store(lake.root / "t"))
    write_checkpoint(log, log.update().version, now_ms=now_ms(), sidecar_rows=3, v2_format="json")  # type: ignore[union-attr]


def _clean_up(lake: Lake) -> None:
    lake.table("t").cleanup()


def _generate(lake: Lake) -> None:
    lake.table("t").generate()


def _clone(lake: Lake) -> None:
    lake.table("t").clone(lake.root / "copy", deep=True)


def _restore(lake: Lake) -> object:
    return lake.table("t").restore(version=0)


# Tables of an owner


def _managed(lake: Lake) -> None:
    table = lake.owned("t")
    table.write(batch(1, 2, 3), properties=PLAIN)
    table.write(batch(4, 5))
    lake.settle()


def _managed_append(lake: Lake) -> object:
    return lake.owned("t").write(batch(10, 11), txn=("trust", 1))


def _managed_large(lake: Lake) -> object:
    """Larger than what the ledger takes into a row."""
    return lake.owned("t").write(batch(100, 101), txn=("trust", 2), user_metadata=LARGE)


def _managed_overwrite(lake: Lake) -> object:
    return lake.owned("t").write(batch(7, 8, 9), mode="overwrite")


def _unpublished(lake: Lake) -> None:
    owner = lake.lazy
    table = Table(lake.root / "t", owner=owner)
    table.write(batch(1, 2, 3), properties=PLAIN)
    table.write(batch(100, 101), user_metadata=LARGE)
    for n in range(3):
        table.write(batch(10 + n))


def _publish(lake: Lake) -> None:
    lake.owner.backfill(lake.table("t").uri)


def _forget(lake: Lake) -> None:
    lake.owner.forget(lake.table("t").uri, grace_ms=0)


def _published(lake: Lake) -> dict[str, Any]:
    """What somebody sees who knows of no owner, once all is published."""
    lake.owner.backfill(lake.table("t").uri)
    return {"published": rows(Table(lake.root / "t"))}


def _free(lake: Lake) -> None:
    table = Table(lake.root / "t")
    table.write(batch(1, 2, 3), properties=PLAIN)
    table.write(batch(4))
    lake.settle()


def _take_over(lake: Lake) -> None:
    with contextlib.suppress(AlreadyExists):  # also where nobody had told the owner yet
        take_over(lake.owner, open_store(lake.root / "t"))


def _release(lake: Lake) -> None:
    store = open_store(lake.root / "t")
    finish_release(lake.owner, store)
    if lake.owner.get_commits(lake.owner.attach(store)).state is not State.NONE:
        release(lake.owner, store)


def _ownership(lake: Lake) -> dict[str, Any]:
    told = lake.owner.get_commits(lake.table("t").uri)
    named = DeltaLog(open_store(lake.root / "t")).update().properties.managed_commit_owner_name  # type: ignore[union-attr]
    return {"state": told.state.name, "named": named is not None}


def _write_after(lake: Lake) -> object:
    return lake.table("t").write(batch(50), txn=("trust", 50))


def _two(lake: Lake) -> None:
    for name in ("a", "b"):
        lake.owned(name).write(batch(1, 2, 3), properties=PLAIN)
    lake.settle()


def _both(lake: Lake) -> None:
    with lakeseal.transaction(lake.owner) as txn:
        for name in ("a", "b"):
            txn.table(lake.root / name).write(batch(10, 11), txn=("trust", 1))


def _both_change(lake: Lake) -> None:
    with lakeseal.transaction(lake.owner) as txn:
        txn.table(lake.root / "a").delete("id = 1")
        txn.table(lake.root / "b").update({"v": "'both'"}, where="id = 2")


def _together(lake: Lake) -> dict[str, Any]:
    """One value: all tables have their version or none has (T1)."""
    return {"both": [rows(lake.table(name)) for name in ("a", "b")]}


# A catalog


def _clear(lake: Lake) -> None:
    for one in lake.catalog.unfinished():
        try:
            lake.catalog.abandon(one.table_id, delete_files=True)
        except NotFound:
            lake.catalog.abandon(one.table_id)


def _names(lake: Lake) -> list[str]:
    return [str(one.name) for one in lake.catalog.tables()]


def _catalog_empty(lake: Lake) -> None:
    lake.catalog.create_schema("sales")
    table = Table(lake.root / "free")
    table.write(batch(1, 2))
    lake.settle()


def _catalog_create(lake: Lake) -> None:
    _clear(lake)
    for name, kind in (("sales.orders", "catalog"), ("sales.plain", "filesystem")):
        if f"main.{name}" not in _names(lake):
            lake.catalog.create(name, batch(1).schema, kind=kind)


def _catalog_commit(lake: Lake) -> object:
    return lake.catalog.table("sales.orders").write(batch(1, 2, 3), txn=("trust", 1))


def _catalog_both(lake: Lake) -> None:
    """Rows and names together."""
    if "main.sales.stock" in _names(lake):
        return
    with lakeseal.transaction(lake.catalog.opened.owner, catalog=lake.catalog.opened) as txn:
        txn.table("sales.orders").write(batch(10, 11))
        txn.create("sales.stock", batch(1).schema)


def _catalog_register(lake: Lake) -> None:
    if "main.sales.free" not in _names(lake) and "main.sales.freed" not in _names(lake):
        lake.catalog.register("sales.free", lake.root / "free")


def _catalog_rename(lake: Lake) -> None:
    if "main.sales.freed" not in _names(lake):
        lake.catalog.rename("sales.free", "sales.freed")


def _catalog_drop(lake: Lake) -> None:
    for name, files in (("sales.freed", False), ("sales.plain", True)):
        if f"main.{name}" in _names(lake):
            lake.catalog.drop(name, delete_files=files)


def _catalog_schemas(lake: Lake) -> None:
    if "raw" not in lake.catalog.schemas():
        lake.catalog.create_schema("raw")
    lake.catalog.drop_schema("raw")


def _catalog_seen(lake: Lake) -> dict[str, Any]:
    """Rows and name of `orders` and `stock` are of one commit."""
    found = dict.fromkeys(("main.sales.free", "main.sales.freed"))
    orders = []
    for name in _names(lake):
        if name in ("main.sales.orders", "main.sales.stock"):
            orders.append((name, rows(lake.catalog.table(name))))
        elif name in found:
            found[name] = rows(lake.catalog.table(name))  # type: ignore[assignment]
    return {"orders": orders, "free": found["main.sales.free"] or found["main.sales.freed"]}


def _catalog_end(lake: Lake) -> dict[str, Any]:
    _clear(lake)
    return {"names": _names(lake), "schemas": lake.catalog.schemas(), "unfinished": len(lake.catalog.unfinished())}


# Branches


def _repository(lake: Lake) -> None:
    repo = Repository.create(lake.root / "repo", ledger=lake.url)
    repo.write(batch(1, 2, 3, 4), "main", "out", partition_by="p")


def _branch_overwrite(lake: Lake) -> None:
    lake.repository.write(batch(5, 7, 8), "main", "out", mode="overwrite", partition_by="p")


def _branch_csv(lake: Lake) -> None:
    lake.repository.write(batch(1, 2), "main", "csv", mode="overwrite", format="csv", header=True)


def _diverged(lake: Lake) -> None:
    _repository(lake)
    repo = lake.repository
    repo.create_branch("exp")
    repo.write(batch(20, 21), "exp", "exp")
    repo.put("exp", "notes/a", b"exp")
    repo.put("main", "notes/b", b"main")


def _branch_merge(lake: Lake) -> None:
    lake.repository.merge("exp", "main", strategy="source-wins")


def _branch_tag(lake: Lake) -> None:
    repo = lake.repository
    if "v1" not in [one.name for one in repo.tags()]:
        repo.tag("v1", "main")


def _branch_more(lake: Lake) -> None:
    repo = lake.repository
    if "late" not in [one.name for one in repo.branches()]:
        repo.create_branch("late")
    repo.protect("late", protected=False)
    repo.put("late", "notes/c", b"late")
    repo.reset("late", "v1")
    repo.protect("late")
    repo.protect("late", protected=False)
    repo.delete_branch("late")


def _branch_untag(lake: Lake) -> None:
    repo = lake.repository
    if "v0" not in [one.name for one in repo.tags()]:
        repo.tag("v0", "main")
    repo.delete_tag("v0")


def _repository_create(lake: Lake) -> None:
    with contextlib.suppress(AlreadyExists):
        Repository.create(lake.root / "second", ledger=lake.url)


def _second(lake: Lake) -> dict[str, Any]:
    try:
        repo = Repository.open(lake.root / "second", ledger=lake.url)
    except RepositoryNotFound:
        return {"branches": []}
    return {"branches": [one.name for one in repo.branches()]}


def _tokens_granted(lake: Lake) -> None:
    book = lake.owner.ledger
    by_name = {one.name: one for one in tokens.listed(book)}
    if "ours" not in by_name:
        tokens.create(book, "ours", (Grant.from_text("reader:*"),), now=now_ms())
        by_name = {one.name: one for one in tokens.listed(book)}
    tokens.grant(book, by_name["ours"].token_id, "writer", "file:///lake")


def _tokens_revoked(lake: Lake) -> None:
    book = lake.owner.ledger
    for one in tokens.listed(book):
        tokens.revoke(book, one.token_id, now=now_ms())


def _tokens_seen(lake: Lake) -> dict[str, Any]:
    return {"valid": sorted(one.name for one in tokens.listed(lake.owner.ledger) if one.is_valid(now_ms()))}


def _branch_export(lake: Lake) -> None:
    lake.repository.export("main", "out", lake.root / "exported")


def _branch_revert(lake: Lake) -> None:
    repo = lake.repository
    if repo.log("main", 1)[0].message != "undone":
        repo.store.revert("main", "v1", parent=1, message="undone")


def _wasted(lake: Lake) -> None:
    _diverged(lake)
    repo = lake.repository
    repo.write(batch(1), "main", "out", mode="overwrite")
    repo.create_branch("waste")
    repo.put("waste", "waste", b"waste")
    repo.delete_branch("waste")
    repo.store.begin_job("abandoned", dest="main", path="else")
    age(lake.root / "repo")


def _collect(lake: Lake) -> None:
    lake.repository.gc(job_grace_hours=0)


def _collect_history(lake: Lake) -> None:
    lake.repository.gc(job_grace_hours=0, history_days=0)


def _branch_seen(lake: Lake) -> dict[str, Any]:
    repo = lake.repository
    return {
        ref: {
            entry.path.split("/")[0] + ":" + entry.checksum: len(repo.read(ref, entry.path)) for entry in repo.list(ref)
        }
        for ref in ("main", "exp")
        if ref in [one.name for one in repo.branches()]
    }


def _branch_rows(lake: Lake) -> dict[str, Any]:
    repo = lake.repository
    found: dict[str, Any] = {}
    for path in ("out", "csv", "exp"):
        there = repo.list("main", path)
        ids = sorted(repo.to_arrow("main", path)["id"].to_pylist()) if there else []
        found[path] = [int(one) for one in ids]
    return found


def _branch_end(lake: Lake) -> dict[str, Any]:
    return {"jobs": len(lake.repository.jobs()), "branches": sorted(one.name for one in lake.repository.branches())}


def _branch_clear(lake: Lake) -> None:
    """Jobs of those that died are given up."""
    lake.repository.gc(job_grace_hours=0)


def _branch_sound(lake: Lake) -> None:
    repo = lake.repository
    for ref in [*repo.branches(), *repo.tags()]:
        for entry in repo.list(ref.name):
            repo.read(ref.name, entry.path)


# Ingest and steps


def _pipeline(lake: Lake) -> Pipeline:
    files = FilesSource(path=str(lake.root / "landing"), format="json", schema="id long, v string, p long")
    by_v: dict[str, Any] = {"mode": "upsert", "keys": ("id",), "sequence_by": "p"}
    return Pipeline(
        name="trust",
        ledger=lake.url,
        datasets=[
            Dataset(name="owned", source=files, target=TableTarget(uri=str(lake.root / "owned"))),
            Dataset(name="plain", source=files, target=TableTarget(uri=str(lake.root / "plain"), owner="none")),
            Dataset(name="upserts", source=files, target=TableTarget(uri=str(lake.root / "upserts"), **by_v)),
            Dataset(name="directory", source=files, target=DirectoryTarget(path=str(lake.root / "directory"))),
            Dataset(name="branch", source=files, target=BranchTarget(repository=str(lake.root / "repo"), path="in")),
        ],
    )


def _land(lake: Lake, number: int) -> None:
    landing = lake.root / "landing"
    landing.mkdir(exist_ok=True)
    text = "".join(f'{{"id": {4 * number + n}, "v": "v", "p": {number}}}\n' for n in range(6))
    (landing / f"{number}.json").write_text(text)


def _landed(lake: Lake) -> None:
    Repository.create(lake.root / "repo")
    _land(lake, 0)
    _pipeline(lake).run()
    _land(lake, 1)
    lake.settle()


def _ingest(lake: Lake) -> None:
    """Until nothing is new, as the next runs would, each after the time that a dead one's lease lasts."""
    with ledger.open(lake.url) as opened:
        opened.write(lambda tx: [tx.update(leases, {"name": "ingest trust"}, {"expires": 0})])
    while _pipeline(lake).run().state != "nothing_new":
        continue


def _ingested(lake: Lake) -> dict[str, Any]:
    folder = lake.root / "directory"
    in_directory = sorted(ds.dataset(folder, format="parquet").to_table()["id"].to_pylist()) if folder.exists() else []
    repo = Repository.open(lake.root / "repo")
    in_branch = sorted(repo.to_arrow("main", "in")["id"].to_pylist()) if repo.list("main", "in") else []
    tables = {name: [row[0] for row in rows(lake.owned(name))] for name in ("owned", "upserts")}
    return {**tables, "plain": [row[0] for row in rows(Table(lake.root / "plain"))], "branch": in_branch} | {
        "directory": in_directory
    }


def _ingest_end(lake: Lake) -> dict[str, Any]:
    pipeline = _pipeline(lake)
    return {
        "open": dict(pipeline.open_sequences()),
        "watermarks": sorted((mark.dataset, str(mark.value)) for mark in pipeline.watermarks()).__len__(),
    }


def _published_world(lake: Lake, *, files: bool) -> Published:
    place = Place(root=str(lake.root / "steps-world"), ledger=lake.url, files=files, copies=files)
    return Published(place, ledger=lake.owner.ledger)


def _recorded(files: bool) -> Callable[[Lake], None]:
    def prepare(lake: Lake) -> None:
        world = _published_world(lake, files=files)
        world.steps.put(stage(world.files, 0, 30))

    return prepare


def _recover(files: bool) -> Callable[[Lake], None]:
    return lambda lake: _check_clear(_published_world(lake, files=files).recover())


def _check_clear(recovery: Any) -> None:
    if recovery.not_clear:
        raise AssertionError(f"not recovered: {recovery.not_clear}")


def _next_sequence(files: bool) -> Callable[[Lake], None]:
    def do(lake: Lake) -> None:
        world = _published_world(lake, files=files)
        _check_clear(world.recover())
        if world.watermark() < 40:
            world.stage(30, 10, run="run-2").commit(world.steps, world.context())

    return do


def _nothing(lake: Lake) -> dict[str, Any]:
    """Rows and watermark agree when a recovery is done, and not before."""
    return {}


def _published_end(files: bool) -> Look:
    def look(lake: Lake) -> dict[str, Any]:
        world = _published_world(lake, files=files)
        world.check(world.watermark())
        output = [name for name in world.all_files() if name.startswith("task-output/")]
        is_open = world.steps.exists("clicks", URN)
        seen = {"rows": world.published(), "watermark": world.watermark()}
        return {**seen, "task output": len(output), "open": is_open}

    return look


# A service, and its client, in one process

_SERVED = {"insecure": True, "publish_every_s": 0.05, "batch_size": 2}


def _served(do: Callable[[Lake, HttpOwner], object]) -> Step:
    """Through a service that begins and ends with it."""

    def step(lake: Lake) -> None:
        with service_inside(ledger=lake.url, **_SERVED) as (address, _):
            client = HttpOwner(address)
            try:
                do(lake, client)
                lake.settle()
            finally:
                client.close()

    return step


def _through(lake: Lake, client: HttpOwner) -> Table:
    return Table(lake.root / "t", owner=client)


def _served_append(lake: Lake, client: HttpOwner) -> None:
    _through(lake, client).write(batch(10, 11), txn=("trust", 1))


def _served_large(lake: Lake, client: HttpOwner) -> None:
    _through(lake, client).write(batch(12), txn=("trust", 2), user_metadata=LARGE * 2)


def _served_release(lake: Lake, client: HttpOwner) -> None:
    store = open_store(lake.root / "t")
    finish_release(client, store)
    if client.get_commits(client.attach(store)).state is not State.NONE:
        release(client, store)


def _served_take_over(lake: Lake, client: HttpOwner) -> None:
    with contextlib.suppress(AlreadyExists):
        take_over(client, open_store(lake.root / "t"))


def _served_both(lake: Lake, client: HttpOwner) -> None:
    with lakeseal.transaction(client) as txn:
        for name in ("a", "b"):
            txn.table(lake.root / name).write(batch(10, 11), txn=("trust", 1))


def _served_tables(lake: Lake) -> None:
    _managed(lake)
    _two(lake)


def _served_seen(lake: Lake) -> dict[str, Any]:
    return {**_together(lake), "t": rows(lake.table("t"))}


# A lost ledger


def _lost(lake: Lake) -> None:
    """The tables are those of a ledger that is gone; this one is new."""
    before = ledger.open(f"sqlite:///{lake.root}/lost.db")
    owner = LedgerOwner(before, batch_size=1000, inline_bytes=1500, backfills=False)
    for name in ("t", "u"):
        table = Table(lake.root / name, owner=owner)
        table.write(batch(1, 2, 3), properties=PLAIN)
        owner.backfill(table.uri)
        table.write(batch(100, 101), user_metadata=LARGE)
    before.close()
    for end in ("", "-wal", "-shm"):
        Path(f"{lake.root}/lost.db{end}").unlink(missing_ok=True)
    ledger.open(lake.url).close()


def _rebuild(lake: Lake) -> None:
    stores = [open_store(lake.root / name) for name in ("t", "u")]
    found = rebuild.examine(lake.owner, stores)
    refused = [one.reason for one in found if one.does == "refuses"]
    assert not refused, refused
    rebuild.carry_out(lake.owner, found, now=now_ms())


def _rebuilt(lake: Lake) -> dict[str, Any]:
    try:
        return {"tables": [[row[0] for row in rows(lake.owned(name))] for name in ("t", "u")]}
    except WrongLedger:
        return {"tables": None}


def _recover_owner(lake: Lake) -> None:
    for error in recover_owner(lake.owner).failed.values():
        raise error


# Anything that may come


def history(seed: int, length: int) -> Scenario:
    """A table of the file system, one of an owner, and a branch, and steps by dice that change them or tidy up."""
    dice = random.Random(seed)
    steps: list[Step] = []
    for number in range(length):
        name = dice.choice("tm")
        ids = sorted(dice.sample(range(30), 3))
        steps.append(dice.choice(_ANYTHING)(name, number, ids))

    def prepare(lake: Lake) -> None:
        for number in range(3):
            Table(lake.root / "t").write(batch(*range(10), text=f"p{number}"), properties=VECTORS, mode="overwrite")
        lake.owned("m").write(batch(*range(10)), properties=PLAIN)
        Repository.create(lake.root / "repo", ledger=lake.url).write(batch(1, 2, 3), "main", "out")
        lake.settle()

    def look(lake: Lake) -> dict[str, Any]:
        return {**table_rows("t", "m")(lake), **_branch_rows(lake)}

    return Scenario(f"history {seed}", prepare, tuple(steps), look, (SQLITE,), sound=tables_sound("t", "m"))


_ANYTHING: tuple[Callable[[str, int, list[int]], Step], ...] = (
    lambda name, number, ids: lambda lake: lake.table(name).write(batch(*ids, text=f"w{number}"), txn=("h", number)),
    lambda name, number, ids: lambda lake: lake.table(name).write(batch(*ids, text=f"w{number}"), txn=("h", number)),
    lambda name, number, ids: lambda lake: lake.table(name).delete(f"id IN ({ids[0]}, {ids[1]})"),
    lambda name, number, ids: lambda lake: lake.table(name).update({"v": f"'u{number}'"}, where=f"id = {ids[0]}"),
    lambda name, number, ids: (
        lambda lake: (
            lake.table(name)
            .merge(batch(*ids, text=f"m{number}"), "t.id = s.id")
            .when_matched_update("*")
            .when_not_matched_insert("*")
            .execute()
        )
    ),
    lambda name, number, ids: (
        lambda lake: lake.table(name).write(
            batch(*ids, text=f"o{number}"), mode="overwrite", replace_where="p < 3", txn=("h", number)
        )
    ),
    lambda name, number, ids: lambda lake: lake.table(name).optimize(),
    lambda name, number, ids: lambda lake: lake.table(name).vacuum(hours=0, enforce_retention_duration=False),
    lambda name, number, ids: lambda lake: lake.table("t").checkpoint(),
    lambda name, number, ids: lambda lake: lake.table("t").compact_log(0, 2),
    lambda name, number, ids: lambda lake: lake.repository.write(batch(*ids), "main", "out", mode="overwrite"),
    lambda name, number, ids: lambda lake: lake.repository.put("main", f"notes/{ids[0]}", b"%d" % number),
    lambda name, number, ids: lambda lake: lake.repository.gc(job_grace_hours=0, history_days=0),
)


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        "append",
        _some,
        (_append, _append_wider, _create),
        table_rows("t", "new"),
        upkeep=table_upkeep("t", "new"),
        sound=tables_sound("t", "new"),
    ),
    Scenario(
        "overwrite",
        _partitioned,
        (_overwrite_partitions, _replace_where, _overwrite),
        table_rows("t"),
        upkeep=table_upkeep("t"),
        sound=tables_sound("t"),
    ),
    Scenario(
        "table merge",
        _with_vectors,
        (_merge, _update, _delete),
        table_rows("t"),
        upkeep=table_upkeep("t"),
        sound=tables_sound("t"),
    ),
    Scenario(
        "delete of many",
        _many_rows,
        (_delete_many,),
        table_rows("t"),
        upkeep=table_upkeep("t"),
        sound=tables_sound("t"),
    ),
    Scenario(
        "optimize",
        _scattered,
        (lambda lake: lake.table("t").optimize(), lambda lake: lake.table("t").optimize(zorder_by=["id"])),
        table_rows("t"),
        upkeep=table_upkeep("t"),
        sound=tables_sound("t"),
    ),
    Scenario(
        "vacuum",
        _aged,
        (lambda lake: lake.table("t").vacuum(hours=0, enforce_retention_duration=False),),
        table_rows("t"),
        end=lambda lake: {"files": len([*(lake.root / "t").glob("*.parquet")])},
        upkeep=lambda lake: lake.table("t").cleanup(),
        sound=tables_sound("t"),
    ),
    Scenario(
        "log upkeep",
        _long_log,
        (_compact_log, _checkpoint, _checkpoint_in_json, _clean_up, _generate),
        table_rows("t"),
    ),
    Scenario(
        "managed commit",
        _managed,
        (_managed_append, _managed_large, _managed_overwrite),
        table_rows("t"),
        LEDGERS,
        upkeep=table_upkeep("t"),
        sound=tables_sound("t"),
    ),
    Scenario(
        "publish",
        _unpublished,
        (_publish, _forget, _write_after),
        table_rows("t"),
        LEDGERS,
        end=_published,
        upkeep=table_upkeep("t"),
        sound=tables_sound("t"),
    ),
    Scenario(
        "take-over",
        _free,
        (_take_over, _write_after),
        table_rows("t"),
        LEDGERS,
        end=_ownership,
        upkeep=table_upkeep("t"),
        sound=tables_sound("t"),
    ),
    Scenario(
        "release",
        _managed,
        (_release, _write_after),
        table_rows("t"),
        LEDGERS,
        end=_ownership,
        upkeep=table_upkeep("t"),
        sound=tables_sound("t"),
    ),
    Scenario(
        "several tables",
        _two,
        (_both, _both_change),
        _together,
        LEDGERS,
        upkeep=table_upkeep("a", "b"),
        sound=tables_sound("a", "b"),
    ),
    Scenario(
        "catalog",
        _catalog_empty,
        (
            _catalog_create,
            _catalog_commit,
            _catalog_both,
            _catalog_register,
            _catalog_rename,
            _catalog_drop,
            _catalog_schemas,
        ),
        _catalog_seen,
        LEDGERS,
        end=_catalog_end,
        keeps=True,
    ),
    Scenario("repository", lambda lake: lake.owner.ledger.identity(), (_repository_create,), _second, LEDGERS),
    Scenario(
        "tokens", lambda lake: lake.owner.ledger.identity(), (_tokens_granted, _tokens_revoked), _tokens_seen, LEDGERS
    ),
    Scenario(
        "branch job",
        _repository,
        (_branch_overwrite, _branch_csv),
        _branch_rows,
        LEDGERS,
        end=_branch_end,
        upkeep=_branch_clear,
        sound=_branch_sound,
    ),
    Scenario(
        "branch merge",
        _diverged,
        (_branch_merge, _branch_tag, _branch_more, _branch_revert, _branch_untag, _branch_export),
        _branch_rows,
        LEDGERS,
        end=_branch_end,
        upkeep=_branch_clear,
        sound=_branch_sound,
    ),
    Scenario(
        "collection", _wasted, (_collect, _collect_history), _branch_rows, LEDGERS, end=_branch_end, sound=_branch_sound
    ),
    Scenario("ingest", _landed, (_ingest,), _ingested, (SQLITE,), end=_ingest_end, keeps=True),
    Scenario(
        "recovery",
        _recorded(False),
        (_recover(False), _next_sequence(False)),
        _nothing,
        LEDGERS,
        end=_published_end(False),
    ),
    Scenario(
        "recovery of files",
        _recorded(True),
        (_recover(True), _next_sequence(True)),
        _nothing,
        (SQLITE,),
        end=_published_end(True),
    ),
    Scenario(
        "service",
        _served_tables,
        (
            _served(_served_append),
            _served(_served_large),
            _served(_served_both),
            _served(_served_release),
            _served(_served_take_over),
        ),
        _served_seen,
        (SQLITE,),
        sound=tables_sound("t", "a", "b"),
    ),
    Scenario(
        "clone and restore", _with_vectors, (_clone, _restore), table_rows("t", "copy"), sound=tables_sound("copy")
    ),
    Scenario("rebuild", _lost, (_rebuild, _recover_owner), _rebuilt, LEDGERS, sound=tables_sound("t", "u")),
)
