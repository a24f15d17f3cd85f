"""Commits that come to a service at the same time are each answered as if they had come alone."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from lakeseal.clock import now_ms
from lakeseal.errors import InvalidArgument, NotAllowed, PolicyRefused, VersionNotFound
from lakeseal.owner.managed_owner import ManagedOwner
from lakeseal.owner.messages import Batch, BatchAnswer, Ratified, Taken
from lakeseal.protocol.actions import CommitInfo
from lakeseal.protocol.codec import encode
from lakeseal.service import call_routes
from lakeseal.service.access import ANONYMOUS, Caller, Grant
from lakeseal.service.bodies import decoded
from lakeseal.service.client import HttpOwner
from lakeseal.service.owner_calls import Ratify
from lakeseal.storage import Store, open_store
from models.history import check_history
from support.managed_tables import add, append, create, managed_log, paths

JSON = {"content-type": "application/json"}
FUTURE = now_ms() + 3_000_000


def body(owner: HttpOwner, store: Store, version: int, txn: str, *, more: bytes = b"") -> bytes:
    info = CommitInfo(operation="WRITE", txn_id=txn, in_commit_timestamp=FUTURE + version)
    request = ManagedOwner(owner, store).request(
        version, encode([info, add(txn)]), txn_id=txn, in_commit_timestamp=FUTURE + version
    )
    data = (request.data or b"") + more
    return msgspec.json.encode(Batch(commits=(msgspec.structs.replace(request, data=data, size=len(data)),)))


SMUGGLED = (
    b'{"metaData":{"id":"x","format":{"provider":"parquet","options":{}},"schemaString":"{}","partitionColumns":[],'
    b'"configuration":{}}}\n'
)


def test_one_that_is_refused_one_that_conflicts_and_one_that_is_malformed_leave_the_others_as_they_are(
    inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = [open_store(tmp_path / name) for name in "abc"]
    a, b, c = stores
    somebody = Caller(principal="x", token_id="x", grants=(Grant.from_text(f"writer:{a.uri}"),))
    with inside(insecure=True, rate=0, batch_size=1000, publish_every_s=10.0**6) as client:
        owner, service = HttpOwner(str(client.base_url)), client.service
        for store in stores:
            create(store, owner)
        asked: list[tuple[bytes, Caller, type]] = [
            (body(owner, a, 1, "a1"), ANONYMOUS, Ratified),
            (body(owner, b, 1, "smuggler", more=SMUGGLED), ANONYMOUS, PolicyRefused),
            (b'{"commits": [{"table": 5', ANONYMOUS, InvalidArgument),
            (body(owner, c, 1, "c1").replace(b'"version":1', b'"version":2'), ANONYMOUS, VersionNotFound),
            (body(owner, b, 1, "stranger"), somebody, NotAllowed),
            (body(owner, c, 7, "gap"), ANONYMOUS, VersionNotFound),
            (msgspec.json.encode(Batch(commits=(), guards=())), ANONYMOUS, InvalidArgument),
            (body(owner, b, 1, "b1"), ANONYMOUS, Ratified),
        ]
        start = threading.Barrier(len(asked))

        def ask(one: tuple[bytes, Caller, type]) -> object:
            start.wait()
            try:
                return service.perform(decoded([one[0]], Ratify), one[1]).commits[0]
            except Exception as error:
                return error

        with ThreadPoolExecutor(len(asked)) as pool:
            found = list(pool.map(ask, asked))
        assert [type(one) for one in found] == [kind for _, _, kind in asked], found
        again = service.perform(decoded([body(owner, a, 1, "loser")], Ratify), ANONYMOUS).commits[0]
        assert isinstance(again, Taken)
        assert [paths(managed_log(owner, store)[0]) for store in stores] == [["a1"], ["b1"], []]
        for store in stores:
            owner.backfill(store.uri)
            check_history(store)
        owner.close()


def test_writers_that_come_at_once_are_each_answered_as_if_alone(postgres_service, tmp_path: Path) -> None:
    stores = [open_store(tmp_path / f"t{number}") for number in range(8)]
    owner = postgres_service.owner()
    for store in stores:
        create(store, owner)
    start = threading.Barrier(16)

    def write(number: int) -> list[int]:
        """Two on each table: for each version one of them wins."""
        store, won = stores[number % 8], []
        start.wait()
        for version in range(1, 9):
            reply = postgres_service.post("ratify", body(owner, store, version, f"{number}-{version}"))
            assert reply.status_code == 200, reply.text
            (answer,) = msgspec.json.decode(reply.content, type=BatchAnswer).commits
            assert isinstance(answer, Ratified | Taken)
            won += [version] * isinstance(answer, Ratified)
        return won

    with ThreadPoolExecutor(16) as pool:
        won = list(pool.map(write, range(16)))
    for number, store in enumerate(stores):
        assert sorted(won[number] + won[number + 8]) == list(range(1, 9))
        owner.backfill(store.uri)
        check_history(store)
    numbers = postgres_service.get("/metrics").text
    assert "lakeseal_conflicts_total" in numbers


def test_a_commit_that_came_too_late_is_read_looked_at_decided_on_and_charged_once(
    inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path / "t")
    counts = dict.fromkeys(("read", "looked at", "decided on", "charged"), 0)

    def counted(name: str, do: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            counts[name] += 1
            return do(*arguments, **named)

        return call

    with inside(insecure=True, rate=1000) as client:
        owner, service = HttpOwner(str(client.base_url)), client.service
        append(*create(store, owner), "first")
        late = body(owner, store, 1, "late")
        monkeypatch.setattr(call_routes, "decoded", counted("read", decoded))
        monkeypatch.setattr(service.owner._admission, "_check", counted("looked at", service.owner._admission._check))
        monkeypatch.setattr(service.owner._queue, "_decide", counted("decided on", service.owner.ratification.decide))
        monkeypatch.setattr(service.buckets, "take", counted("charged", service.buckets.take))
        reply = client.post("/v1/ratify", content=late, headers={"content-type": "application/json"})
        assert isinstance(msgspec.json.decode(reply.content, type=BatchAnswer).commits[0], Taken)
        owner.close()
    assert counts == dict.fromkeys(counts, 1)


@pytest.mark.parametrize("call", ["ratify", "get-commits"])
def test_calls_are_described_and_take_no_other_method(open_service, call: str) -> None:
    assert f"/v1/{call}" in json.loads(open_service.get("/openapi.json").content)["paths"]
    assert open_service.get(f"/v1/{call}").status_code == 405


def test_where_connections_to_the_ledger_are_cut_again_and_again_no_commit_is_lost_or_twice_there(
    inside, postgres_url: str, tmp_path: Path
) -> None:
    """Also while a group is under way."""
    stores = [open_store(tmp_path / f"t{number}") for number in range(4)]
    over = threading.Event()
    acknowledged: list[dict[str, int]] = [{} for _ in stores]
    cuts = 0
    with inside(ledger=postgres_url, insecure=True, rate=0) as client:
        owner = HttpOwner(str(client.base_url))
        for store in stores:
            create(store, owner)

        def write(number: int) -> None:
            log, managed = managed_log(owner, open_store(stores[number].uri))
            for turn in itertools.count():
                if over.is_set():
                    return
                result = append(log, managed, f"{number}-{turn}")
                acknowledged[number][result.txn_id] = result.version

        with ThreadPoolExecutor(len(stores)) as pool, psycopg.connect(postgres_url, autocommit=True) as other:
            writers = [pool.submit(write, number) for number in range(len(stores))]
            try:
                end = time.monotonic() + 60
                while cuts < 10 and time.monotonic() < end:
                    before = sum(map(len, acknowledged))
                    while sum(map(len, acknowledged)) < before + 3 and time.monotonic() < end:
                        time.sleep(0.001)
                    cut = other.execute(
                        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                        " WHERE pid <> pg_backend_pid() AND datname = current_database()"
                    ).fetchone()
                    cuts += cut is not None and cut[0] > 0
            finally:
                over.set()
            for writer in writers:
                writer.result(timeout=60)
        for store, known in zip(stores, acknowledged, strict=True):
            owner.backfill(store.uri)
            check_history(store, known)
            assert sorted(known.values()) == list(range(1, len(known) + 1))
        owner.close()
    assert cuts == 10


@pytest.mark.parametrize("at_once", [True, False])
def test_a_small_commit_is_looked_at_on_the_event_loop_and_that_can_be_turned_off(
    inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    store = open_store(tmp_path / "t")
    looked: list[bool] = []
    with inside(insecure=True) as client:
        owner, service = HttpOwner(str(client.base_url)), client.service
        log, managed = create(store, owner)
        service.owner.admits_at_once = at_once
        check = service.owner._admission._check

        def checked(*arguments: Any) -> Any:
            looked.append(asyncio._get_running_loop() is not None)
            return check(*arguments)

        monkeypatch.setattr(service.owner._admission, "_check", checked)
        assert append(log, managed, "a").version == 1
        late = client.post("/v1/ratify", content=body(owner, store, 1, "late"), headers=JSON)
        assert isinstance(msgspec.json.decode(late.content, type=BatchAnswer).commits[0], Taken)
        smuggled = body(owner, store, 2, "smuggler", more=SMUGGLED)
        refused = client.post("/v1/ratify", content=smuggled, headers=JSON).json()["error"]
        owner.close()
    assert refused["kind"] == PolicyRefused.kind
    # What is wrong with a commit, a thread says.
    assert looked == ([True, True, True, False] if at_once else [False, False, False])
