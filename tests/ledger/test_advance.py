"""Rows that move on together: each by itself, all of it whole, on every database, and with a courier."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from lakeseal import ledger
from lakeseal.errors import AlreadyExists, InvalidArgument, UnknownOutcome
from lakeseal.ledger import Advance, Ledger
from lakeseal.ledger.advance import statement_of
from lakeseal.ledger.courier import Courier
from lakeseal.ledger.schema import commits, tables

NAMES = ("file:///b", "file:///a", "file:///ü")


def row(name: str, latest: int = 0) -> dict[str, Any]:
    values = {"state": "active", "epoch": 0, "latest_version": latest, "latest_timestamp": None, "conf": {}}
    return {"table_id": name, **values, "backfilled_version": 7, "updated": 0}


def to(version: int, name: str, *txns: str, **expected: Any) -> Advance:
    """From `version` on by as many commits as there are transactions."""
    return Advance(
        name=name,
        expected={"state": "active", "latest_version": version, "latest_timestamp": None, **expected},
        values={"latest_version": version + len(txns), "updated": 5},
        rows=[
            {
                "version": version + number,
                "txn_id": txn,
                "file": "f",
                "size": 3,
                "in_commit_timestamp": 2**62,
                "inline": b"\x00\xff'" if number == 1 else None,
                "ratified": 1,
                "backfilled": False,
            }
            for number, txn in enumerate(txns, 1)
        ],
    )


def go(book: Ledger, *advances: Advance) -> dict[str, Any]:
    return book.advance(tables, commits, advances, tell="backfilled_version")


def latest(book: Ledger, name: str) -> int:
    found = book.read(lambda tx: tx.get(tables, table_id=name))
    assert found is not None
    return int(found.latest_version)


def check_rows_of_x_and_y(book: Ledger) -> None:
    """The first table's, each as it was given."""
    first = book.read(lambda tx: tx.get(commits, table_id=NAMES[0], version=1))
    second = book.read(lambda tx: tx.get(commits, table_id=NAMES[0], version=2))
    assert first is not None
    assert second is not None
    assert (first.txn_id, first.inline, first.in_commit_timestamp) == ("x", b"\x00\xff'", 2**62)
    assert (second.txn_id, second.inline, second.backfilled) == ("y", None, False)


@pytest.fixture
def filled(book: Ledger) -> Ledger:
    book.write(lambda tx: tx.insert_many(tables, map(row, NAMES)))
    return book


def test_those_that_are_as_expected_move_with_their_rows_and_the_others_stay(filled: Ledger) -> None:
    told = go(filled, to(0, NAMES[0], "x", "y"), to(3, NAMES[1], "x"), to(0, NAMES[2], "x"), to(0, "file:///no", "x"))
    assert told == {NAMES[0]: 7, NAMES[2]: 7}
    assert [latest(filled, name) for name in NAMES] == [2, 0, 1]
    check_rows_of_x_and_y(filled)
    assert filled.read(lambda tx: tx.get(commits, table_id=NAMES[1], version=4)) is None


def test_a_row_that_is_there_already_leaves_all_of_it_undone(filled: Ledger) -> None:
    go(filled, to(0, NAMES[0], "x"))
    with pytest.raises(AlreadyExists):
        go(filled, to(0, NAMES[1], "x"), to(1, NAMES[0], "x"))
    assert [latest(filled, name) for name in NAMES] == [1, 0, 0]


@pytest.mark.parametrize("wrong", ["nul \0", "half \ud800", "x" * 256])
def test_a_value_that_no_ledger_holds_is_refused(filled: Ledger, wrong: str) -> None:
    with pytest.raises(InvalidArgument):
        go(filled, to(0, NAMES[0], wrong))
    assert latest(filled, NAMES[0]) == 0


def test_of_writers_that_meet_one_moves_each_row_at_a_time_whatever_their_order(filled: Ledger) -> None:
    barrier = threading.Barrier(4)

    def write(number: int) -> int:
        moved = 0
        barrier.wait()
        for turn in range(15):
            order = NAMES if number % 2 else NAMES[::-1]
            moved += len(go(filled, *(to(latest(filled, name), name, f"{number}-{turn}") for name in order)))
        return moved

    with ThreadPoolExecutor(4) as pool:
        moved = sum(pool.map(write, range(4)))
    assert moved == sum(latest(filled, name) for name in NAMES)
    assert moved >= 15


@pytest.mark.parametrize(("when", "happened"), [("before", 0), ("after", 1)])
def test_a_lost_answer_leaves_the_outcome_unknown(proxy: Any, postgres_url: str, when: str, happened: int) -> None:
    with ledger.open(postgres_url) as book, ledger.open(proxy.url) as cut_off:
        book.write(lambda tx: tx.insert_many(tables, map(row, NAMES)))
        proxy.cut(when)
        with pytest.raises(UnknownOutcome):
            go(cut_off, to(0, NAMES[0], "x"))
        # Asking for the same waits for the first attempt where that is still on its way.
        assert len(go(cut_off, to(0, NAMES[0], "y"))) == 1 - happened
        assert latest(book, NAMES[0]) == 1


@pytest.fixture
def on_postgres(postgres_url: str) -> Iterator[Ledger]:
    with ledger.open(postgres_url) as book:
        book.write(lambda tx: tx.insert_many(tables, map(row, NAMES)))
        yield book


@asynccontextmanager
async def couriers(book: Ledger) -> AsyncIterator[Courier]:
    courier = book.courier()
    assert courier is not None
    try:
        yield courier
    finally:
        courier.close()


async def ready(courier: Courier) -> None:
    for _ in range(1000):
        if courier.is_ready():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not get ready")


async def carried(courier: Courier, *advances: Advance) -> dict[str, Any] | None:
    await ready(courier)
    told: asyncio.Future[dict[str, Any] | None] = asyncio.get_running_loop().create_future()
    courier.carry(statement_of(tables, commits, advances[0], "backfilled_version"), advances, told.set_result)
    assert not courier.is_ready()
    return await asyncio.wait_for(told, 30)


def test_only_postgresql_has_couriers() -> None:
    with ledger.open("sqlite://") as book:
        assert book.courier() is None


def test_a_courier_does_what_a_transaction_does(on_postgres: Ledger) -> None:
    async def go_about() -> None:
        async with couriers(on_postgres) as courier:
            told = await carried(courier, to(0, NAMES[0], "x", "y"), to(3, NAMES[1], "x"), to(0, NAMES[2], "x"))
            assert told == {NAMES[0]: 7, NAMES[2]: 7}
            # What was prepared once is used again; a value may be NULL.
            on_postgres.write(lambda tx: tx.update(tables, {"table_id": NAMES[1]}, {"backfilled_version": None}))
            assert await carried(courier, to(0, NAMES[1], "x"), to(0, "file:///no", "x")) == {NAMES[1]: None}
            # A row that is there already leaves all of it undone.
            assert await carried(courier, to(1, NAMES[1], "z"), to(1, NAMES[2], "x")) is None
            assert await carried(courier, to(1, NAMES[1], "z")) == {NAMES[1]: None}

    asyncio.run(go_about())
    assert [latest(on_postgres, name) for name in NAMES] == [2, 2, 1]
    check_rows_of_x_and_y(on_postgres)


@pytest.mark.parametrize("wrong", ["nul \0", "half \ud800", "x" * 256])
def test_a_courier_takes_no_value_that_no_ledger_holds(on_postgres: Ledger, wrong: str) -> None:
    async def go_about() -> None:
        async with couriers(on_postgres) as courier:
            await ready(courier)
            with pytest.raises(InvalidArgument):
                await carried(courier, to(0, NAMES[0], wrong))
            assert await carried(courier, to(0, NAMES[0], "right")) == {NAMES[0]: 7}

    asyncio.run(go_about())


def test_couriers_that_meet_move_each_row_one_at_a_time_whatever_their_order(on_postgres: Ledger) -> None:
    async def write(number: int) -> int:
        moved = 0
        async with couriers(on_postgres) as courier:
            for turn in range(15):
                order = NAMES if number % 2 else NAMES[::-1]
                versions = await asyncio.to_thread(lambda: [latest(on_postgres, name) for name in NAMES])
                told = await carried(
                    courier,
                    *(to(versions[NAMES.index(name)], name, f"{number}-{turn}") for name in order),
                )
                moved += len(told or ())
        return moved

    async def all_of_them() -> list[int]:
        return await asyncio.gather(*(write(number) for number in range(4)))

    moved = sum(asyncio.run(all_of_them()))
    assert moved == sum(latest(on_postgres, name) for name in NAMES)
    assert moved >= 15


def test_what_does_not_fit_into_the_line_at_once_is_sent_bit_by_bit(on_postgres: Ledger) -> None:
    large = to(0, NAMES[0], *(f"txn-{number}" for number in range(2000)))
    for values in large.rows:
        assert isinstance(values, dict)
        values["inline"] = bytes(8000)

    async def go_about() -> None:
        async with couriers(on_postgres) as courier:
            assert await carried(courier, large) == {NAMES[0]: 7}
            assert await carried(courier, to(2000, NAMES[0], "small")) == {NAMES[0]: 7}

    asyncio.run(go_about())
    assert latest(on_postgres, NAMES[0]) == 2001


@pytest.mark.parametrize(("when", "happened"), [("before", 0), ("after", 1)])
def test_a_courier_whose_answer_is_lost_says_so_and_comes_back(
    proxy: Any, on_postgres: Ledger, when: str, happened: int
) -> None:
    async def go_about() -> None:
        async with couriers(cut_off) as courier:
            assert await carried(courier, to(0, NAMES[1], "prepares")) == {NAMES[1]: 7}
            proxy.cut(when, at=b"row_txn_id")
            assert await carried(courier, to(0, NAMES[0], "x")) is None
            assert len(await carried(courier, to(0, NAMES[0], "y")) or ()) == 1 - happened

    with ledger.open(proxy.url) as cut_off:
        asyncio.run(go_about())
    assert latest(on_postgres, NAMES[0]) == 1


def test_a_courier_that_lost_its_connection_while_it_had_nothing_to_do_gets_another(on_postgres: Ledger) -> None:
    async def go_about() -> None:
        async with couriers(on_postgres) as courier:
            assert await carried(courier, to(0, NAMES[0], "x")) == {NAMES[0]: 7}
            first = courier._connection
            assert first is not None
            ended = sa.select(sa.func.pg_terminate_backend(first.info.backend_pid))
            on_postgres.read(lambda tx: tx.rows(ended))
            while courier._connection is first:
                await asyncio.sleep(0.01)
            assert await carried(courier, to(1, NAMES[0], "y")) == {NAMES[0]: 7}

    asyncio.run(go_about())


def test_a_courier_prepares_again_what_the_database_has_forgotten(on_postgres: Ledger) -> None:
    async def go_about() -> None:
        async with couriers(on_postgres) as courier:
            assert await carried(courier, to(0, NAMES[0], "x")) == {NAMES[0]: 7}
            assert courier._connection is not None
            courier._connection.pgconn.exec_(b"DEALLOCATE ALL")
            assert await carried(courier, to(1, NAMES[0], "y")) is None
            assert await carried(courier, to(1, NAMES[0], "y")) == {NAMES[0]: 7}

    asyncio.run(go_about())


def test_a_courier_without_a_server_is_never_ready_and_tries_again_now_and_then(
    postgres_url: str, on_postgres: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    tries = []

    def fails() -> Any:
        tries.append(1)
        raise OSError("nobody there")

    async def go_about() -> None:
        courier = Courier(fails)
        for _ in range(30):
            assert not courier.is_ready()
            await asyncio.sleep(0.01)
        courier.close()

    asyncio.run(go_about())
    assert len(tries) == 1
    assert "nobody there" in caplog.text


def test_what_is_under_way_when_a_courier_is_closed_is_told_as_unknown(on_postgres: Ledger) -> None:
    async def go_about() -> None:
        courier = on_postgres.courier()
        assert courier is not None
        await ready(courier)
        told: list[Any] = []
        courier.carry(
            statement_of(tables, commits, to(0, NAMES[0], "x"), "backfilled_version"),
            [to(0, NAMES[0], "x")],
            told.append,
        )
        courier.close()
        assert told == []
        await asyncio.sleep(0)
        assert told == [None]
        assert not courier.is_ready()

    asyncio.run(go_about())
