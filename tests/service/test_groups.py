"""Commits that come at the same time are done together, and each is answered by itself."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from lakeseal.commit.transaction import now_ms
from lakeseal.errors import InvalidArgument, LakesealError, NotAllowed, PolicyRefused
from lakeseal.owner import policies
from lakeseal.owner.managed_owner import ManagedOwner
from lakeseal.owner.messages import Batch, BatchAnswer, Ratified, Taken, from_json, to_json
from lakeseal.protocol.actions import CommitInfo
from lakeseal.protocol.codec import encode
from lakeseal.service.access import ANONYMOUS, Caller, Grant
from lakeseal.service.client import HttpOwner
from lakeseal.service.lane import Lane, _Company
from lakeseal.service.service import Service
from lakeseal.storage import Store, open_store
from lakeseal.testing.history import check_history
from lakeseal.testing.managed_tables import add, append, create, managed_log, paths

FUTURE = now_ms() + 3_000_000


def body(owner: HttpOwner, store: Store, version: int, txn: str, *, more: bytes = b"") -> bytes:
    info = CommitInfo(operation="WRITE", txn_id=txn, in_commit_timestamp=FUTURE + version)
    request = ManagedOwner(owner, store).request(
        version, encode([info, add(txn)]), txn_id=txn, in_commit_timestamp=FUTURE + version
    )
    data = (request.data or b"") + more
    return to_json(Batch(commits=(msgspec.structs.replace(request, data=data, size=len(data)),)))


def kinds(done: Sequence[Any]) -> list[Any]:
    """What each came to: the answer's type, the error's type, or None for what has to be done alone."""
    return [one and (type(one[1].commits[0]) if isinstance(one, tuple) else type(one)) for one in done]


def together(service: Service, asked: Sequence[tuple[bytes, Caller]]) -> list[Any]:
    """As the lane does it, with all of them in one group."""
    done: list[Any] = [None] * len(asked)
    admitted = {}
    for place, (sent, caller) in enumerate(asked):
        try:
            request = service.admit((from_json(sent, Batch), caller))
        except Exception as error:
            done[place] = error
        else:
            admitted |= {} if request is None else {place: request}
    for place, answer in zip(admitted, service.ratify_together(list(admitted.values())), strict=True):
        done[place] = answer
    return done


SMUGGLED = (
    b'{"metaData":{"id":"x","format":{"provider":"parquet","options":{}},"schemaString":"{}","partitionColumns":[],'
    b'"configuration":{}}}\n'
)


def test_one_that_is_refused_one_that_conflicts_and_one_that_is_malformed_leave_the_others_as_they_are(
    inside, tmp_path: Path
) -> None:
    stores = [open_store(tmp_path / name) for name in "abc"]
    a, b, c = stores
    somebody = Caller(principal="x", token_id="x", grants=(Grant.from_text(f"writer:{a.uri}"),))
    with inside(insecure=True, rate=0, batch_size=1000, publish_every_s=10.0**6) as client:
        owner = HttpOwner(str(client.base_url))
        for store in stores:
            create(store, owner)
        far = to_json(Batch(commits=(), guards=()))
        asked = [
            (body(owner, a, 1, "a1"), ANONYMOUS),
            (body(owner, a, 1, "loser"), ANONYMOUS),
            (body(owner, b, 1, "smuggler", more=SMUGGLED), ANONYMOUS),
            (b'{"commits": [{"table": 5', ANONYMOUS),
            (body(owner, c, 1, "c1").replace(b'"version":1', b'"version":2'), ANONYMOUS),
            (body(owner, b, 1, "stranger"), somebody),
            (body(owner, a, 2, "a2"), somebody),
            (body(owner, c, 7, "gap"), ANONYMOUS),
            (far, ANONYMOUS),
            (body(owner, b, 1, "b1"), ANONYMOUS),
        ]
        done = together(client.service, asked)
        assert kinds(done) == [
            Ratified, Taken, PolicyRefused, InvalidArgument, InvalidArgument,
            NotAllowed, Ratified, None, None, Ratified,
        ]  # fmt: skip
        assert [paths(managed_log(owner, store)[0]) for store in stores] == [["a1", "a2"], ["b1"], []]
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


class Slow:
    """Does nothing until it is let go, and remembers what came together."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.busy = threading.Event()
        self.go = threading.Event()
        self.admitted_by: dict[str, str] = {}

    def admit(self, one: str) -> str | None:
        self.admitted_by[one] = threading.current_thread().name
        if one == "long":
            time.sleep(0.05)
        if one == "bad":
            raise InvalidArgument(one)
        return None if one == "other" else one

    def decide(self, asked: Sequence[str]) -> list[str | None]:
        self.groups.append(list(asked))
        self.busy.set()
        assert self.go.wait(20)
        if "fail" in asked:
            raise LakesealError("unexpected")
        return [None if one == "odd" else one.upper() for one in asked]


def run(slow: Slow, first: str, *rest: str, pause: float = 0.0, at_once: bool = False) -> list[Any]:
    async def ask() -> list[Any]:
        lane: Lane[str, str, str] = Lane(slow.admit, slow.decide, at_once=lambda _: at_once)
        lane.start()
        tasks = [asyncio.create_task(lane.ask(first))]
        await asyncio.to_thread(slow.busy.wait, 20)
        await asyncio.sleep(pause)
        tasks += [asyncio.create_task(lane.ask(one)) for one in rest]
        await asyncio.sleep(0.01)
        slow.go.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        await lane.stop()
        return list(found)

    return asyncio.run(ask())


@pytest.mark.parametrize("at_once", [False, True])
def test_what_came_while_a_group_was_busy_is_the_next_group(at_once: bool) -> None:
    slow = Slow()
    found = run(slow, "a", "b", "bad", "odd", "other", "c", at_once=at_once)
    assert slow.groups == [["a"], ["b", "odd", "c"]]
    assert [one if not isinstance(one, Exception) else type(one) for one in found] == [
        "A", "B", InvalidArgument, None, None, "C",
    ]  # fmt: skip


def test_what_can_be_admitted_at_once_is_until_it_took_long() -> None:
    slow = Slow()
    assert run(slow, "a", "b", "long", "c", at_once=True) == ["A", "B", "LONG", "C"]
    assert slow.groups[0] == ["a"]
    assert len({slow.admitted_by[one] for one in ("a", "b", "long")}) == 1
    assert slow.admitted_by["c"].startswith("lakeseal-lane")
    assert slow.admitted_by["c"] != slow.admitted_by["a"]


def test_what_is_not_admitted_need_not_wait_for_the_group_that_is_under_way() -> None:
    slow = Slow()

    async def ask() -> Any:
        lane: Lane[str, str, str] = Lane(slow.admit, slow.decide)
        lane.start()
        first = asyncio.create_task(lane.ask("a"))
        await asyncio.to_thread(slow.busy.wait, 20)
        told = await lane.ask("other"), await asyncio.gather(lane.ask("bad"), return_exceptions=True)
        slow.go.set()
        last = await first
        await lane.stop()
        return *told, last

    nothing, (bad,), last = asyncio.run(ask())
    assert (nothing, type(bad), last) == (None, InvalidArgument, "A")


@pytest.mark.parametrize("at_once", [False, True])
def test_what_waits_when_a_lane_is_stopped_is_still_done(at_once: bool) -> None:
    async def ask() -> list[Any]:
        slow = Slow()
        slow.go.set()
        lane: Lane[str, str, str] = Lane(slow.admit, slow.decide, at_once=lambda _: at_once)
        tasks = [asyncio.create_task(lane.ask(str(number))) for number in range(200)]
        await asyncio.sleep(0)
        lane.start()
        await lane.stop()
        assert max(map(len, slow.groups)) <= 64
        return [*(await asyncio.gather(*tasks)), await lane.ask("late")]

    assert asyncio.run(ask()) == [*map(str, range(200)), None]


def test_who_was_just_answered_is_waited_for() -> None:
    """Eight who ask again and again: what is done for them is done for all at once."""
    sizes: list[int] = []

    def decide(asked: Sequence[int]) -> list[int]:
        sizes.append(len(asked))
        time.sleep(0.002)
        return list(asked)

    async def ask() -> None:
        lane: Lane[int, int, int] = Lane(lambda one: one, decide, at_once=lambda _: True)
        lane.start()

        async def one(number: int) -> None:
            for _ in range(50):
                assert await lane.ask(number) == number

        await asyncio.gather(*map(one, range(8)))
        await lane.stop()

    asyncio.run(ask())
    assert sum(sizes) == 400
    # Without it, the first is alone and the others are together, for ever.
    assert len(sizes) < 90


def test_company_is_as_many_as_were_answered_and_left_and_no_more_than_is_worth_it() -> None:
    company = _Company()
    assert company.is_there(1), "whoever asks alone"
    company.began(1)
    company.answered(1, left=2, took_s=0.003)
    assert [company.is_there(count) for count in (1, 2, 3)] == [False, False, True]
    assert company.pause_s == 0.003
    company.began(3)
    company.answered(3, left=40, took_s=5.0)
    assert not company.is_there(7)
    assert company.is_there(8)
    assert company.pause_s < 0.1


def test_waiting_in_vain_is_left_for_a_while_and_longer_each_time() -> None:
    company = _Company()
    waited = []
    for _ in range(400):
        company.answered(1, left=1, took_s=0.001)
        waited.append(not company.is_there(1))
        company.began(1)
    assert [place for place, one in enumerate(waited) if one][:5] == [0, 2, 6, 14, 30]
    assert 8 <= sum(waited) <= 12, "and tried again now and then"
    while company.is_there(1):
        company.began(1)
        company.answered(1, left=1, took_s=0.001)
    company.began(2)
    company.answered(2, left=0, took_s=0.001)
    assert not company.is_there(1), "it paid"


def test_what_joins_is_told_later_and_what_cannot_join_is_not_taken() -> None:
    slow = Slow()

    async def ask() -> list[Any]:
        told: list[Any] = []
        lane: Lane[str, str, str] = Lane(slow.admit, slow.decide, at_once=lambda one: one != "c")
        lane.start()
        assert lane.join("a", told.append)
        assert not lane.join("c", told.append)
        assert not lane.join("other", told.append)
        with pytest.raises(InvalidArgument):
            lane.join("bad", told.append)

        def failing(answer: str | None) -> None:
            told.append("failing")
            raise RuntimeError

        assert lane.join("b", failing)
        assert lane.join("odd", told.append)
        assert told == []
        slow.go.set()
        await lane.stop()
        assert not lane.join("d", told.append)
        return told

    assert asyncio.run(ask()) == ["A", "failing", None]


def test_others_have_their_turn_while_a_group_is_decided_on_or_after_a_moment() -> None:
    slow = Slow()

    async def ask() -> None:
        lane: Lane[str, str, str] = Lane(slow.admit, slow.decide, at_once=lambda _: True)
        lane.start()
        lane.pace()
        first = asyncio.create_task(lane.ask("a"))
        await asyncio.to_thread(slow.busy.wait, 20)
        assert lane._is_calm.is_set()
        slow.go.set()
        await first
        assert not lane._is_calm.is_set()
        lane.pace()
        await lane.stop()

    asyncio.run(ask())


def test_a_group_that_fails_as_a_whole_leaves_its_requests_to_be_done_alone() -> None:
    assert run(Slow(), "a", "b", "fail") == ["A", None, None]


def test_behind_a_group_that_is_stuck_nobody_waits() -> None:
    slow = Slow()
    assert run(slow, "a", "b", pause=1.2) == ["A", None]
    assert slow.groups == [["a"]]


def test_commits_with_their_bytes_are_admitted_at_once_where_files_are_written_to_memory(
    inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the others by threads: nothing that the event loop does may wait for a disk or for somebody's policy."""
    store = open_store(tmp_path / "t")
    with inside(insecure=True, rate=0, batch_size=1000, publish_every_s=10.0**6) as client:
        owner, service = HttpOwner(str(client.base_url)), client.service
        create(store, owner)
        by: list[str] = []
        admit = service.lane._admit

        def noted(asked: Any) -> Any:
            by.append(threading.current_thread().name)
            return admit(asked)

        monkeypatch.setattr(service.lane, "_admit", noted)
        managed = ManagedOwner(owner, store)
        for version in range(1, 6):
            if version == 5:
                held = policies.from_json([{"policy": "max-files", "limit": 5}])
                service.owner._gate.policies = [("", policy) for policy in held]
            info = CommitInfo(operation="WRITE", txn_id=f"t{version}", in_commit_timestamp=FUTURE + version)
            request = managed.request(
                version, encode([info, add(f"f{version}")]), txn_id=f"t{version}", in_commit_timestamp=FUTURE + version
            )
            if version == 4:
                assert request.data is not None
                store.put_if_absent(request.key, request.data)
                request = msgspec.structs.replace(request, data=None)
            (answer,) = owner.ratify(Batch(commits=(request,))).commits
            assert isinstance(answer, Ratified)
        # Before the first the directory was not there, and after the second it is known how files are made in it.
        assert [name.startswith("lakeseal-lane") for name in by] == [True, True, False, True, True]
        assert paths(managed_log(owner, store)[0]) == ["f1", "f2", "f3", "f4", "f5"]
        owner.close()


@pytest.mark.parametrize("call", ["ratify", "get-commits"])
def test_calls_past_the_router_are_described_and_take_no_other_method(open_service, call: str) -> None:
    assert f"/v1/{call}" in json.loads(open_service.get("/openapi.json").content)["paths"]
    assert open_service.get(f"/v1/{call}").status_code == 405


def test_groups_go_with_a_courier_and_without_one_while_its_connection_is_lost(
    inside, postgres_url: str, tmp_path: Path
) -> None:
    """The connection is cut again and again, also while a group is under way: no commit is lost or twice there."""
    stores = [open_store(tmp_path / f"t{number}") for number in range(4)]
    over = threading.Event()
    cuts = carried = 0
    acknowledged: list[dict[str, int]] = [{} for _ in stores]
    with inside(ledger=postgres_url, insecure=True, rate=0) as client:
        owner = HttpOwner(str(client.base_url))
        for store in stores:
            create(store, owner)
        courier = client.service.courier
        carry = courier.carry

        def counted(*arguments: Any) -> None:
            nonlocal carried
            carried += 1
            carry(*arguments)

        courier.carry = counted

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
                    before, connection = carried, courier._connection
                    while (carried < before + 3 or connection is None) and time.monotonic() < end:
                        time.sleep(0.001)
                        connection = courier._connection
                    if connection is not None and not connection.closed:
                        other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))
                        cuts += 1
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
    assert carried >= 30
