"""Commits to one table take turns, and whoever lost goes first at the next version."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from anyio import to_thread

from lakeseal.clock import now_ms
from lakeseal.owner.messages import Batch, Ratified
from lakeseal.owner.queue import Turns
from lakeseal.service.access import ANONYMOUS
from lakeseal.service.client import HttpOwner
from lakeseal.service.owner_calls import Ratify
from lakeseal.storage import open_store
from models.history import check_history
from support.managed_tables import append, create, managed_log


def run(do: Callable[[Turns], Awaitable[None]], *, keeps_s: float = 60.0, longest_s: float = 60.0) -> None:
    async def running() -> None:
        turns = Turns(keeps_s=keeps_s, longest_s=longest_s)
        async with asyncio.timeout(30):
            await do(turns)
        assert not turns._lines, "nothing is left of a line that is over"

    asyncio.run(running())


async def in_line(turns: Turns, *names: str, table: str = "t") -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(turns.enter(table, name)) for name in names]
    await asyncio.sleep(0)
    return tasks


def there(*tasks: asyncio.Task[None]) -> list[bool]:
    return [task.done() for task in tasks]


def test_who_comes_alone_does_not_wait_and_tables_have_lines_of_their_own() -> None:
    async def do(turns: Turns) -> None:
        await turns.enter("t", "a")
        await turns.enter("other", "b")
        assert not turns.leave("t", "a", lost=False)
        assert not turns.leave("other", "b", lost=False)

    run(do)


def test_who_lost_keeps_its_turn_and_the_others_follow_in_the_order_in_which_they_came() -> None:
    async def do(turns: Turns) -> None:
        await turns.enter("t", "a")
        b, c = await in_line(turns, "b", "c")
        assert not turns.leave("t", "a", lost=False)
        await asyncio.sleep(0.01)
        assert there(b, c) == [True, False]
        assert turns.leave("t", "b", lost=True)
        await asyncio.sleep(0.01)
        (late,) = await in_line(turns, "late")
        assert there(c, late) == [False, False], "the turn is kept for b"
        await turns.enter("t", "b")
        assert not turns.leave("t", "b", lost=False)
        await c
        assert not late.done()
        turns.leave("t", "c", lost=False)
        await late
        turns.leave("t", "late", lost=False)

    run(do)


def test_a_turn_that_is_not_used_in_time_is_passed_on() -> None:
    async def do(turns: Turns) -> None:
        await turns.enter("t", "gone")
        (b,) = await in_line(turns, "b")
        assert turns.leave("t", "gone", lost=True)
        await b
        await turns.enter("other", "x")
        turns.leave("other", "x", lost=False)
        turns.leave("t", "b", lost=False)
        assert not turns.leave("t", "gone", lost=True), "it has no turn any more"

    run(do, keeps_s=0.05)


def test_whoever_waits_too_long_goes_on_without_a_turn() -> None:
    async def do(turns: Turns) -> None:
        await turns.enter("t", "slow")
        b, c = await in_line(turns, "b", "c")
        await asyncio.gather(b, c)
        assert not turns.leave("t", "b", lost=True), "it never had one"
        turns.leave("t", "slow", lost=False)

    run(do, longest_s=0.05)


def test_one_that_asks_twice_holds_up_nobody() -> None:
    async def do(turns: Turns) -> None:
        await turns.enter("t", "a")
        await turns.enter("t", "a")
        (b,) = await in_line(turns, "b")
        turns.leave("t", "a", lost=False)
        await b
        turns.leave("t", "a", lost=False)
        (c,) = await in_line(turns, "c")
        assert not c.done()
        turns.leave("t", "b", lost=False)
        await c
        turns.leave("t", "c", lost=False)

    run(do)


@pytest.mark.parametrize("came", [False, True])
def test_the_turn_of_whoever_is_interrupted_while_waiting_is_passed_on(came: bool) -> None:
    async def do(turns: Turns) -> None:
        await turns.enter("t", "a")
        cut, b = await in_line(turns, "cut", "b")
        if came:
            turns.leave("t", "a", lost=False)
        cut.cancel()
        await asyncio.wait([cut])
        assert cut.cancelled()
        if not came:
            turns.leave("t", "a", lost=False)
        await asyncio.wait_for(b, 5)
        turns.leave("t", "b", lost=False)

    run(do)


def test_a_turn_is_kept_while_what_is_asked_for_next_is_looked_at_and_no_longer() -> None:
    async def do(turns: Turns) -> None:
        await turns.enter("t", "a")
        (b,) = await in_line(turns, "b")
        assert turns.leave("t", "a", lost=True)
        with turns.kept("t", "b"), turns.kept("t", "a"):
            await asyncio.sleep(0.2)
            assert not b.done()
        await turns.enter("t", "a")
        assert turns.leave("t", "a", lost=True)
        with pytest.raises(ValueError, match="refused"), turns.kept("t", "a"):
            raise ValueError("refused")
        await asyncio.wait_for(b, 5)
        with turns.kept("t", "a"):
            turns.leave("t", "b", lost=False)

    run(do, keeps_s=0.05)


def test_a_commit_that_takes_long_to_look_at_has_its_turn_all_the_same(inside, tmp_path: Path) -> None:
    store = open_store(tmp_path / "t")
    with inside(insecure=True, rate=0) as client:
        service = client.service
        log, managed = create(store, HttpOwner(str(client.base_url)))
        append(log, managed, "a")
        turns = service.owner._queue.turns = Turns(keeps_s=0.05)
        service.owner.admits_at_once = False
        table = managed.table
        at = now_ms() + 1000
        info = {"txnId": "mine", "inCommitTimestamp": at, "timestamp": at, "operation": "WRITE"}
        request = managed.request(2, msgspec.json.encode({"commitInfo": info}) + b"\n", txn_id="mine")
        asked = Ratify.of(Batch(commits=(request,)))

        async def slowly(do: Callable[..., Any], *args: Any) -> Any:
            await asyncio.sleep(0.3)
            return await to_thread.run_sync(do, *args)

        async def running() -> None:
            await turns.enter(table, request.txn_id)
            (other,) = await in_line(turns, "other", table=table)
            assert turns.leave(table, request.txn_id, lost=True)
            answer = await asked.perform_in_turn(service, ANONYMOUS, slowly)
            assert isinstance(answer.commits[0], Ratified)
            assert not other.done(), "it was decided on in its turn"
            await other
            turns.leave(table, "other", lost=False)

        asyncio.run(running())


def test_it_can_be_turned_off() -> None:
    async def do(turns: Turns) -> None:
        await turns.enter("t", "a")
        assert not turns.leave("t", "a", lost=True)

    run(do, keeps_s=0)


@pytest.mark.parametrize("keeps_s", [0.2, 0.0])
def test_of_many_writers_on_one_table_nobody_loses_often(inside, tmp_path: Path, keeps_s: float) -> None:
    store = open_store(tmp_path / "t")
    with inside(insecure=True, rate=0) as client:
        client.service.owner._queue.turns._keeps_s = keeps_s
        owner = HttpOwner(str(client.base_url))
        create(store, owner)

        def write(number: int) -> list[int]:
            log, managed = managed_log(owner, open_store(store.uri))
            return [append(log, managed, f"{number}-{turn}").attempts for turn in range(4)]

        with ThreadPoolExecutor(12) as pool:
            attempts = [tries for some in pool.map(write, range(12)) for tries in some]
        owner.backfill(store.uri)
        check_history(store)
        owner.close()
    assert len(attempts) == 48
    if keeps_s:
        # Once for the version that it came too late for, now and then once more.
        assert sum(attempts) <= 3 * len(attempts)
        assert max(attempts) <= 10
