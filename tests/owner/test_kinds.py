"""Tables of three kinds: as a catalog's, coordinated, managed, and from one to the other while writers go on."""

from __future__ import annotations

import json
import threading
import uuid

import msgspec
import pyarrow as pa
import pytest

import lakeseal
from lakeseal.commit.filesystem_owner import FilesystemOwner
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.errors import (
    BackfillMismatch,
    InvalidArgument,
    OwnedElsewhere,
    PolicyRefused,
    UnsupportedFeature,
)
from lakeseal.log.checkpoint_writer import write_checkpoint
from lakeseal.log.delta_log import DeltaLog
from lakeseal.owner import handover
from lakeseal.owner.handover import release, take_over, take_over_as
from lakeseal.owner.kinds import Kind
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.owner.ownership import State
from lakeseal.owner.routing import Router
from lakeseal.protocol.codec import encode
from lakeseal.protocol.features import supports
from lakeseal.protocol.paths import COMMITS_DIR, LOG_DIR, STAGED_COMMITS_DIR, commit_path
from lakeseal.storage import Store
from models.history import check_history
from support.managed_tables import WRITE, add, append, create, managed_log, newest, paths


def test_a_table_becomes_a_catalogs_and_is_freed_again_with_everything_that_was_written(
    any_url: str, open_owner, memory: Store
) -> None:
    owner = open_owner(any_url, batch_size=100)
    log, files = create(memory)
    append(log, files, "before")
    assert take_over(owner, memory, kind=Kind.CATALOG) == 2
    snapshot = DeltaLog(memory).snapshot()
    assert snapshot.protocol.reader_features == ("vacuumProtocolCheck", "catalogManaged")
    for feature in ("catalogManaged", "inCommitTimestamp", "vacuumProtocolCheck"):
        assert supports(snapshot.protocol, feature)
    configuration = snapshot.metadata.configuration
    assert uuid.UUID(configuration["io.unitycatalog.tableId"])
    assert configuration["delta.enableInCommitTimestamps"] == "true"
    assert not [key for key in configuration if key.startswith("delta.managedCommit")]
    log, managed = managed_log(owner, memory)
    for name in ("one", "two"):
        append(log, managed, name)
    assert (newest(memory), newest(memory, owner)) == (2, 4)
    assert release(owner, memory) == 5
    freed = DeltaLog(memory).snapshot()
    assert not supports(freed.protocol, "catalogManaged")
    assert not [key for key in freed.metadata.configuration if "atalog" in key]
    assert owner.get_commits(memory.uri).state is State.NONE
    assert paths(DeltaLog(memory)) == ["before", "one", "two"]
    assert DeltaLog(memory).snapshot(3).version == 3, "what was a catalog's then is plain now"
    check_history(memory)


def test_a_catalogs_table_cannot_be_read_by_its_path_and_the_error_names_whom_to_ask(
    owner: LedgerOwner, memory: Store
) -> None:
    create(memory)
    take_over(owner, memory, kind=Kind.CATALOG)
    with pytest.raises(OwnedElsewhere, match="lakeseal") as caught:
        Router(memory, {}).snapshot()
    assert "owner=" in (caught.value.hint or "")
    assert Router(memory, {owner.name: owner}).snapshot() is not None
    with pytest.raises(UnsupportedFeature, match="catalogManaged"):
        write_checkpoint(DeltaLog(memory), 1, now_ms=0)
    log, _ = managed_log(owner, memory)
    assert write_checkpoint(log, 1, now_ms=0).version == 1


def test_a_table_of_another_catalog_is_refused_by_the_table_id_that_it_has(owner: LedgerOwner, memory: Store) -> None:
    create(memory)
    take_over(owner, memory, kind=Kind.CATALOG)
    commit = json.loads("[" + ",".join(memory.get(commit_path(1)).decode().splitlines()) + "]")
    for action in commit:
        if "metaData" in action:
            configuration = action["metaData"]["configuration"]
            table_id = configuration["io.unitycatalog.tableId"]
            for key in [key for key in configuration if key.startswith("lakeseal.")]:
                del configuration[key]
    memory.delete([commit_path(1)])
    memory.put(commit_path(1), b"\n".join(msgspec.json.encode(action) for action in commit))
    for does in (lambda: Router(memory, {owner.name: owner}).snapshot(), lambda: handover.take_over(owner, memory)):
        with pytest.raises(OwnedElsewhere, match=table_id) as caught:
            does()
        assert "by its name in that catalog" in (caught.value.hint or "")
    with pytest.raises(OwnedElsewhere, match="catalog"):
        OptimisticTransaction.begin(DeltaLog(memory), FilesystemOwner(memory))


def test_large_commits_are_staged_where_other_engines_look_for_them(open_owner, memory: Store) -> None:
    owner = open_owner("sqlite://", batch_size=100, inline_bytes=0)
    create(memory)
    take_over(owner, memory, kind=Kind.CATALOG)
    log, managed = managed_log(owner, memory)
    append(log, managed, "a")
    (key,) = memory.list_keys(STAGED_COMMITS_DIR)
    assert memory.list_keys(COMMITS_DIR) == []
    (told,) = owner.get_commits(memory.uri).commits
    assert told.key == key
    assert paths(managed_log(owner, memory)[0]) == ["a"]
    owner.backfill(memory.uri)
    assert memory.get(commit_path(2)) == memory.get(key)
    owner.forget(memory.uri, grace_ms=0)
    assert memory.list_keys(STAGED_COMMITS_DIR) == []
    check_history(memory)


def test_what_somebody_puts_into_a_catalogs_log_is_no_part_of_the_table(owner: LedgerOwner, memory: Store) -> None:
    create(memory)
    take_over(owner, memory, kind=Kind.CATALOG)
    memory.put(commit_path(2), encode([add("forged")]))
    assert (newest(memory, owner), paths(managed_log(owner, memory)[0])) == (1, [])


def test_a_commit_that_a_client_published_with_another_line_end_is_the_same_commit(open_owner, memory: Store) -> None:
    owner = open_owner("sqlite://", batch_size=100, inline_bytes=0)
    create(memory)
    take_over(owner, memory, kind=Kind.CATALOG)
    log, managed = managed_log(owner, memory)
    for name in ("a", "b"):
        append(log, managed, name)
    first, second = (memory.get(one.key) for one in owner.get_commits(memory.uri).commits)
    memory.put(commit_path(2), first + b"\n" if not first.endswith(b"\n") else first[:-1])
    assert owner.backfill(memory.uri, 2).backfilled == 2
    memory.put(commit_path(3), second.replace(b'"b"', b'"c"'))
    with pytest.raises(BackfillMismatch):
        owner.backfill(memory.uri)


@pytest.mark.parametrize("ends", [True, False])
def test_a_commit_that_a_client_is_still_publishing_is_waited_for_and_one_that_it_left_half_is_ended(
    open_owner, local: Store, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """DuckDB puts the file first, and then what is in it."""
    owner = open_owner("sqlite://", batch_size=100, inline_bytes=0)
    create(local)
    take_over(owner, local, kind=Kind.CATALOG)
    log, managed = managed_log(owner, local)
    append(log, managed, "a")
    (told,) = owner.get_commits(local.uri).commits
    whole = local.get(told.key)
    parts = [b"", whole[:40], whole if ends else whole[:50]]
    get = type(local).get

    def read(store: Store, key: str) -> bytes:
        if key == commit_path(2) and parts:
            store.delete([key])
            store.put(key, parts.pop(0))
        return get(store, key)

    local.put(commit_path(2), b"")
    monkeypatch.setattr(type(local), "get", read)
    assert owner.backfill(local.uri).backfilled == 2
    assert local.get(commit_path(2)) == whole


@pytest.mark.parametrize("key", ["lakeseal.catalogOwner", "io.unitycatalog.tableId"])
def test_an_ordinary_commit_cannot_change_what_a_catalog_calls_the_table(
    owner: LedgerOwner, memory: Store, key: str
) -> None:
    create(memory)
    take_over(owner, memory, kind=Kind.CATALOG)
    log, managed = managed_log(owner, memory)
    snapshot = log.snapshot()
    configuration = {**snapshot.metadata.configuration, key: str(uuid.uuid4())}
    changed = msgspec.structs.replace(snapshot.metadata, configuration=configuration)
    lines = memory.get(commit_path(1)).split(b"\n")
    info = json.loads(lines[0])
    info["commitInfo"] |= {"txnId": "t", "inCommitTimestamp": info["commitInfo"]["inCommitTimestamp"] + 1}
    data = msgspec.json.encode(info) + b"\n" + encode([changed])
    with pytest.raises(PolicyRefused):
        managed.commit(2, data, txn_id="t")
    assert newest(memory, owner) == 1


def test_a_coordinated_table_says_what_clients_of_the_preview_look_for(owner: LedgerOwner, memory: Store) -> None:
    create(memory)
    take_over(owner, memory, kind=Kind.COORDINATED)
    snapshot = DeltaLog(memory).snapshot()
    assert "coordinatedCommits-preview" in (snapshot.protocol.writer_features or ())
    assert not supports(snapshot.protocol, "catalogManaged")
    configuration = snapshot.metadata.configuration
    assert configuration["delta.coordinatedCommits.commitCoordinator-preview"] == "unity-catalog"
    table = json.loads(configuration["delta.coordinatedCommits.tableConf-preview"])
    assert table == {"io.unitycatalog.tableId": configuration["io.unitycatalog.tableId"]}
    log, managed = managed_log(owner, memory)
    append(log, managed, "a")
    release(owner, memory)
    freed = DeltaLog(memory).snapshot()
    assert not [key for key in freed.metadata.configuration if "oordinat" in key]
    assert paths(DeltaLog(memory)) == ["a"]


def test_a_table_goes_from_kind_to_kind_while_writers_go_on(owner: LedgerOwner, memory: Store) -> None:
    create(memory)
    writers, each = 3, 6
    start = threading.Barrier(writers + 1)
    failed: list[BaseException] = []

    def write(number: int) -> None:
        router = Router(memory, {owner.name: owner})
        start.wait()
        try:
            for n in range(each):
                router.run(
                    lambda route, n=n: OptimisticTransaction.begin(route.log, route.owner).commit(
                        [add(f"{number}-{n}")], WRITE
                    )
                )
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    start.wait()
    for kind in (Kind.CATALOG, Kind.MANAGED, Kind.COORDINATED, Kind.CATALOG):
        take_over_as(owner, memory, kind)
        assert owner.get_commits(memory.uri).kind is kind
    for thread in threads:
        thread.join()
    assert failed == []
    release(owner, memory)
    assert paths(DeltaLog(memory)) == sorted(f"{w}-{n}" for w in range(writers) for n in range(each))
    check_history(memory)


def test_a_user_creates_a_catalogs_table_and_changes_its_kind(tmp_path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    table = lakeseal.create(tmp_path / "t", pa.schema([("id", pa.int64())]), owner=url, kind="catalog")
    table.write(pa.table({"id": [1]}))
    with pytest.raises(OwnedElsewhere):
        lakeseal.Table(tmp_path / "t").to_arrow()
    assert lakeseal.Table(tmp_path / "t", owner=url).to_arrow().to_pylist() == [{"id": 1}]
    table.take_over(url, kind="managed")
    table.write(pa.table({"id": [2]}))
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2]
    table.restore(1)
    assert table.snapshot().properties.managed_commit_owner_name == "lakeseal"
    table.take_over(url, kind="catalog")
    assert table.to_arrow()["id"].to_pylist() == [1]
    with pytest.raises(InvalidArgument, match="kind"):
        table.take_over(url, kind="feudal")
    with pytest.raises(InvalidArgument):
        table.set_properties({"lakeseal.catalogOwner": "me"})
    assert [key for key in (tmp_path / "t" / LOG_DIR).iterdir() if key.name == "_commits"] == []
