"""Owners come from the user's configuration, and from nothing that stands in a table."""

from __future__ import annotations

import gc
import json
import socket
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.errors import InvalidArgument, InvalidUri, OwnedElsewhere, Unsupported, WrongLedger
from lakeseal.owner import connect as connecting
from lakeseal.owner.config import OwnerConfig
from lakeseal.owner.connect import OWNERS_VARIABLE, Owners, connect, register
from lakeseal.owner.enablement import managed
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.owner.routing import Router, StaleReadWarning
from lakeseal.protocol.actions import CommitInfo, Metadata, Protocol
from lakeseal.protocol.codec import encode
from lakeseal.protocol.paths import commit_path
from lakeseal.storage import Store, open_store
from support.managed_tables import SCHEMA, WRITE, add, append, create, managed_log, newest


def test_a_ledger_by_its_url_is_an_owner_in_this_process(shared_url: str, memory: Store) -> None:
    owner = connect(shared_url, batch_size=2)
    assert isinstance(owner, LedgerOwner)
    assert connect(shared_url, batch_size=2) is owner, "tables of one process share it"
    log, managed_owner = create(memory, owner)
    append(log, managed_owner, "a")
    assert newest(memory, owner) == 1
    del owner, log, managed_owner
    gc.collect()


def test_an_owner_in_memory_lives_as_long_as_the_process(memory: Store) -> None:
    url = f"memory://{uuid.uuid4().hex}"
    create(memory, connect(url))
    gc.collect()
    assert newest(memory, connect(url)) == 0
    assert connect(url).get_commits(memory.uri).state == "active"


def test_owners_have_names_in_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    configured = {"team": f"sqlite:///{tmp_path}/a.db", "other": {"url": f"sqlite:///{tmp_path}/b.db", "batch_size": 3}}
    monkeypatch.setenv(OWNERS_VARIABLE, json.dumps(configured))
    assert connect("team").name == "team"
    assert (connect("other").name, connect("other").batch_size) == ("other", 3)
    owners = Owners(OwnerConfig(url=f"sqlite:///{tmp_path}/c.db", name="mine"))
    assert sorted(owners) == ["mine", "other", "team"]
    assert not (tmp_path / "c.db").exists(), "connected when it is needed"
    assert owners["mine"].name == "mine"
    assert owners.get("stranger") is None
    with pytest.raises(InvalidArgument, match="no owner 'nobody'"):
        connect("nobody")
    for wrong in ("[]", "{", '{"x": 1}', '{"x": {"nonsense": 1}}'):
        monkeypatch.setenv(OWNERS_VARIABLE, wrong)
        with pytest.raises(InvalidArgument, match=OWNERS_VARIABLE):
            Owners()


def test_what_cannot_be_reached_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "_connectors", {})
    monkeypatch.setattr(connecting, "_PROVIDERS", {"https": "lakeseal.no_such_client"})
    with pytest.raises(Unsupported, match="service"):
        connect("https://owner.example.com", token="t")
    with pytest.raises(InvalidArgument, match="cannot be reached by 'ftp'"):
        connect("ftp://x")
    with pytest.raises(InvalidArgument, match="no configuration"):
        connect("sqlite:///x.db", nonsense=1)
    with pytest.raises(InvalidArgument):
        OwnerConfig(url="sqlite:///x.db", batch_size=0)
    with pytest.raises(InvalidUri):
        connect("sqlite:///")
    seen: list[OwnerConfig] = []
    register("https", lambda config: seen.append(config) or connect("memory://x"))  # type: ignore[func-returns-value]
    connect("https://owner.example.com", token="t")
    assert (seen[0].url, seen[0].token) == ("https://owner.example.com", "t")
    owner = connect("memory://x")
    assert connect(owner) is owner
    with pytest.raises(InvalidArgument):
        connect(owner, batch_size=1)


def test_secrets_of_an_owner_are_not_shown() -> None:
    config = OwnerConfig(url="postgresql://me:secret@host/db", token="secret")
    assert "secret" not in repr(config)
    assert "secret" not in str(config)


@pytest.fixture
def listener() -> Iterator[tuple[int, list[str]]]:
    """A server that only notes who comes."""
    visitors: list[str] = []
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(0.05)
    over = threading.Event()

    def accept() -> None:
        while not over.is_set():
            try:
                server.accept()[0].close()
                visitors.append("somebody")
            except TimeoutError:
                continue

    thread = threading.Thread(target=accept)
    thread.start()
    yield server.getsockname()[1], visitors
    over.set()
    thread.join()
    server.close()


def test_field_bug_s1_an_endpoint_in_table_metadata_is_never_contacted(
    listener: tuple[int, list[str]], open_owner, memory: Store
) -> None:
    port, visitors = listener
    endpoint = f"http://127.0.0.1:{port}/commit"
    conf = {"batchSize": "10", "endpoint": endpoint, "url": f"postgresql://127.0.0.1:{port}/x"}
    metadata = managed(Metadata(id="t", schema_string=SCHEMA), owner="evil", conf=conf)
    protocol = Protocol(
        min_reader_version=1, min_writer_version=7, writer_features=("inCommitTimestamp", "managedCommits")
    )
    memory.put(commit_path(0), encode([CommitInfo(txn_id="x", in_commit_timestamp=1), protocol, metadata]))
    mine = open_owner(name="mine")
    for owners in (Owners(), Owners(mine), {"mine": mine}):
        router = Router(memory, owners)
        with pytest.warns(StaleReadWarning):
            snapshot = router.snapshot()
        assert snapshot is not None
        with pytest.raises(OwnedElsewhere):
            router.run(lambda route: OptimisticTransaction.begin(route.log, route.owner).commit([add("a")], WRITE))
    with pytest.raises(OwnedElsewhere):
        append(*managed_log(mine, memory), "a")
    assert visitors == []


def test_a_table_that_names_an_owner_of_the_same_name_elsewhere_is_not_written_to(open_owner, memory: Store) -> None:
    theirs, mine = open_owner(name="lakeseal"), open_owner(name="lakeseal")
    create(memory, theirs)
    with pytest.raises(WrongLedger):
        Router(memory, {"lakeseal": mine}).run(
            lambda route: OptimisticTransaction.begin(route.log, route.owner).commit([add("a")], WRITE)
        )
    assert newest(memory, theirs) == 0


def test_the_owner_of_new_tables_can_be_chosen_and_the_file_system_stays_the_default(open_owner, memory: Store) -> None:
    owner = open_owner(name="mine", batch_size=100)
    assert Router(memory, Owners(owner)).route().owner_name is None
    router = Router(memory, Owners(owner), creator=owner)
    assert router.snapshot() is None

    def write(route) -> int:
        txn = OptimisticTransaction.begin(route.log, route.owner)
        if txn.snapshot is None:
            txn.update_metadata(Metadata(id="t", schema_string=SCHEMA))
        return txn.commit([add(str(txn.read_version))], WRITE).version

    assert [router.run(write) for _ in range(3)] == [0, 1, 2]
    snapshot = router.snapshot()
    assert snapshot is not None
    assert snapshot.properties.managed_commit_owner_name == "mine"
    other = Router(open_store(memory.uri), Owners(owner)).snapshot()
    assert other is not None
    assert other.version == 2


def test_a_conf_that_says_nothing_sensible_does_not_stop_the_owner(open_owner, memory: Store) -> None:
    owner = open_owner(batch_size=7)
    for text in ("not json", "{}", '{"batchSize":"many"}', '{"batchSize":"0"}', '{"batchSize":"-1"}'):
        metadata = managed(Metadata(id="t", schema_string=SCHEMA), owner="lakeseal", conf={})
        broken = {**metadata.configuration, "delta.managedCommitOwnerConf": text}
        store = open_store(f"memory://{uuid.uuid4().hex}/t")
        protocol = Protocol(
            min_reader_version=1, min_writer_version=7, writer_features=("inCommitTimestamp", "managedCommits")
        )
        owner.attach(store)
        owner.begin_takeover(store.uri, "x", 0)
        changed = msgspec.structs.replace(metadata, configuration=broken)
        store.put(commit_path(0), encode([CommitInfo(txn_id="x", in_commit_timestamp=1), protocol, changed]))
        assert owner.confirm_takeover(store.uri, "x").batch_size == 7
        append(*managed_log(owner, store), "a")
