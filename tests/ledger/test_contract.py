"""What `Ledger` promises, on every database."""

from __future__ import annotations

import json
import pickle
import signal
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
import sqlalchemy as sa

from lakeseal import ledger
from lakeseal.errors import (
    AlreadyExists,
    InvalidArgument,
    LakesealError,
    NotFound,
    StorageUnavailable,
)
from lakeseal.ledger import Ledger, Tx, key
from lakeseal.ledger.schema import commits, heads, leases, sequences, stores, tables, tokens, watermarks

Start = Callable[..., "subprocess.Popen[str]"]


def lease(name: str, epoch: int = 0, **more: Any) -> dict[str, Any]:
    return {"name": name, "holder": "nobody", "epoch": epoch, "expires": 0, "info": {}, **more}


def table_row(table_id: str) -> dict[str, Any]:
    return {"table_id": table_id, "state": "active", "epoch": 0, "conf": {}, "updated": 0}


def commit_row(table_id: str, version: int, txn_id: str) -> dict[str, Any]:
    return {
        "table_id": table_id,
        "version": version,
        "txn_id": txn_id,
        "file": "f",
        "size": 1,
        "in_commit_timestamp": 1,
        "ratified": 1,
        "backfilled": False,
    }


def epoch(book: Ledger, name: str) -> int | None:
    row = book.read(lambda tx: tx.get(leases, name=name))
    return None if row is None else row.epoch


def add_one(tx: Tx) -> None:
    row = tx.get(leases, name="counter")
    assert row is not None
    tx.update(leases, {"name": "counter"}, {"epoch": row.epoch + 1})


def at_once(number: int, do: Callable[[int], Any]) -> list[Any]:
    """Runs `do(0)` … `do(number - 1)` in threads that start together."""
    barrier = threading.Barrier(number)

    def run(index: int) -> Any:
        barrier.wait()
        return do(index)

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(run, range(number)))


def line(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    text = process.stdout.readline()
    if not text:
        raise AssertionError(process.communicate()[1])
    return json.loads(text)


def finish(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


class TestAtomicity:
    def test_a_write_returns_what_its_function_returned(self, book: Ledger) -> None:
        assert book.write(lambda tx: tx.insert(leases, **lease("a"))) is True

    def test_an_exception_rolls_back_everything_and_comes_through(self, book: Ledger) -> None:
        def do(tx: Tx) -> None:
            tx.insert(leases, **lease("a"))
            tx.insert(stores, store="s", created=1)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            book.write(do)
        assert epoch(book, "a") is None
        assert book.read(lambda tx: tx.get(stores, store="s")) is None

    def test_an_error_that_the_function_swallowed_still_rolls_back(self, book: Ledger) -> None:
        def do(tx: Tx) -> None:
            tx.insert(leases, **lease("a"))
            with suppress(AlreadyExists):
                tx.insert_many(stores, [{"store": "s", "created": 1}] * 2)

        with pytest.raises(AlreadyExists):
            book.write(do)
        assert epoch(book, "a") is None

    def test_after_a_failed_statement_no_other_runs(self, book: Ledger) -> None:
        def do(tx: Tx) -> None:
            with pytest.raises(AlreadyExists):
                tx.insert_many(stores, [{"store": "s", "created": 1}] * 2)
            tx.insert(leases, **lease("a"))

        with pytest.raises(AlreadyExists):
            book.write(do)
        assert epoch(book, "a") is None

    def test_a_write_killed_half_way_leaves_nothing(self, shared_url: str, start: Start) -> None:
        process = start("die_inside", shared_url, "a")
        assert process.wait(timeout=60) == -signal.SIGKILL
        with ledger.open(shared_url) as book:
            assert epoch(book, "a") is None


class TestIsolation:
    def test_8_threads_of_50_increments_lose_none(self, book: Ledger) -> None:
        book.write(lambda tx: tx.insert(leases, **lease("counter")))
        at_once(8, lambda _: [book.write(add_one) for _ in range(50)])
        assert epoch(book, "counter") == 400

    def test_4_processes_of_50_increments_lose_none(self, shared_url: str, start: Start) -> None:
        with ledger.open(shared_url) as book:
            book.write(lambda tx: tx.insert(leases, **lease("counter")))
            for process in [start("increment", shared_url, 50) for _ in range(4)]:
                finish(process)
            assert epoch(book, "counter") == 200

    def test_a_row_read_by_a_query_is_as_safe_as_one_read_by_key(self, book: Ledger) -> None:
        book.write(lambda tx: tx.insert(leases, **lease("counter")))

        def do(tx: Tx) -> None:
            (row,) = tx.rows(sa.select(leases.c.epoch))
            tx.update(leases, {"name": "counter"}, {"epoch": row.epoch + 1})

        at_once(8, lambda _: [book.write(do) for _ in range(10)])
        assert epoch(book, "counter") == 80

    def test_rows_under_a_locked_parent_are_guarded_by_it(self, book: Ledger) -> None:
        """The owner's way to ratify: the next version is found and taken under the lock of the table's row."""
        book.write(lambda tx: tx.insert(tables, **table_row("t")))

        def ratify(index: int) -> list[int]:
            def do(tx: Tx) -> int:
                assert tx.get(tables, table_id="t") is not None
                newest = sa.select(sa.func.max(commits.c.version)).where(commits.c.table_key == ledger.key("t"))
                (row,) = tx.rows(newest, lock=False)
                version = 0 if row[0] is None else row[0] + 1
                assert tx.insert(commits, **commit_row("t", version, f"{index}-{version}"))
                return int(version)

            return [book.write(do) for _ in range(10)]

        taken = [version for versions in at_once(8, ratify) for version in versions]
        assert sorted(taken) == list(range(80))

    def test_a_reader_never_sees_half_of_a_write(self, shared_url: str, start: Start) -> None:
        with ledger.open(shared_url) as book:
            seen = set()
            for _ in range(10):  # where others want the machine, a writer may be through before it was looked at
                writer = start("toggle", shared_url, 300)
                while writer.poll() is None:
                    pair = book.read(lambda tx: (tx.get(leases, name="left"), tx.get(leases, name="right")))
                    left, right = (None if row is None else row.epoch for row in pair)
                    assert left == right
                    seen.add(left)
                finish(writer)
                if len(seen) > 2:
                    break
        assert len(seen) > 2

    def test_a_read_stays_at_its_moment_while_others_commit(self, book: Ledger) -> None:
        book.write(lambda tx: tx.insert(leases, **lease("counter")))
        written = threading.Event()
        writer = threading.Thread(target=lambda: (book.write(add_one), written.set()))

        def do(tx: Tx) -> list[int]:
            first = tx.rows(sa.select(leases.c.epoch))[0].epoch
            writer.start()
            written.wait(0.5)  # in memory, writers wait for readers
            return [first, tx.rows(sa.select(leases.c.epoch))[0].epoch]

        assert book.read(do) == [0, 0]
        writer.join()
        assert epoch(book, "counter") == 1

    def test_a_look_is_one_question_and_writes_nothing(self, book: Ledger) -> None:
        book.write(lambda tx: tx.insert(leases, **lease("counter")))
        assert book.look(lambda tx: tx.rows(sa.select(leases.c.epoch)))[0].epoch == 0
        book.write(add_one)
        assert book.look(lambda tx: tx.rows(sa.select(leases.c.epoch)))[0].epoch == 1
        with pytest.raises(InvalidArgument, match="one question"):
            book.look(lambda tx: [tx.rows(sa.select(leases)) for _ in range(2)])
        with pytest.raises(InvalidArgument, match="read"):
            book.look(lambda tx: tx.insert(stores, store="a", created=1))
        assert book.write(lambda tx: tx.insert(stores, store="a", created=1)), "its connection is as before"
        assert book.read(lambda tx: [tx.get(stores, store="a") is not None for _ in range(2)]) == [True, True]

    def test_writers_that_lock_in_opposite_orders_both_get_through(self, book: Ledger) -> None:
        for name in ("a", "b"):
            book.write(lambda tx, name=name: tx.insert(leases, **lease(name)))  # type: ignore[misc]

        def do(index: int) -> None:
            def swap(tx: Tx) -> None:
                for name in ("ab", "ba")[index]:
                    row = tx.get(leases, name=name)
                    assert row is not None
                    tx.update(leases, {"name": name}, {"epoch": row.epoch + 1})

            for _ in range(10):
                book.write(swap)

        at_once(2, do)
        assert (epoch(book, "a"), epoch(book, "b")) == (20, 20)


class TestOneWinner:
    def test_compare_and_set_has_one_winner_of_32(self, book: Ledger) -> None:
        book.write(lambda tx: tx.insert(leases, **lease("a", epoch=5)))

        def contend(index: int) -> bool:
            return book.write(
                lambda tx: tx.compare_and_set(leases, {"name": "a"}, {"epoch": 5}, {"epoch": 6, "holder": str(index)})
            )

        won = at_once(32, contend)
        assert won.count(True) == 1
        row = book.read(lambda tx: tx.get(leases, name="a"))
        assert row is not None
        assert (row.epoch, row.holder) == (6, str(won.index(True)))

    def test_insert_has_one_winner_of_32_and_tells_the_others(self, book: Ledger) -> None:
        won = at_once(32, lambda index: book.write(lambda tx: tx.insert(leases, **lease("a", epoch=index))))
        assert won.count(True) == 1
        assert epoch(book, "a") == won.index(True)

    def test_a_loser_sees_the_winners_row_in_the_same_transaction(self, book: Ledger) -> None:
        def claim(index: int) -> int:
            def do(tx: Tx) -> int:
                tx.insert(leases, **lease("a", epoch=index))
                row = tx.get(leases, name="a")
                assert row is not None
                return int(row.epoch)

            return book.write(do)

        assert len(set(at_once(8, claim))) == 1

    def test_insert_respects_every_unique_constraint(self, book: Ledger) -> None:
        def do(tx: Tx) -> list[bool]:
            tx.insert(tables, **table_row("t"))
            tx.insert(tables, **table_row("other"))
            return [
                tx.insert(commits, **commit_row("t", 0, "x")),
                tx.insert(commits, **commit_row("t", 0, "y")),
                tx.insert(commits, **commit_row("t", 1, "x")),
                tx.insert(commits, **commit_row("other", 0, "x")),
                tx.insert(commits, **commit_row("t", 1, "y")),
            ]

        assert book.write(do) == [True, False, False, True, True]

    def test_compare_and_set_can_expect_nothing_to_be_there(self, book: Ledger) -> None:
        def do(tx: Tx) -> list[bool]:
            tx.insert(tables, **table_row("t"))
            ask = {"table_id": "t"}
            return [
                tx.compare_and_set(tables, ask, {"latest_version": 0}, {"latest_version": 1}),
                tx.compare_and_set(tables, ask, {"latest_version": None}, {"latest_version": 0}),
                tx.compare_and_set(tables, ask, {"latest_version": None}, {"latest_version": 0}),
                tx.compare_and_set(tables, {"table_id": "absent"}, {}, {"latest_version": 0}),
            ]

        assert book.write(do) == [False, True, False, False]

    def test_compare_and_set_compares_json_by_value(self, book: Ledger) -> None:
        def do(tx: Tx) -> bool:
            tx.insert(leases, **lease("a", info={"x": 1, "y": [1, None]}))
            return tx.compare_and_set(leases, {"name": "a"}, {"info": {"y": [1, None], "x": 1}}, {"epoch": 1})

        assert book.write(do) is True


class TestStatements:
    def test_put_inserts_then_overwrites_only_what_is_given(self, book: Ledger) -> None:
        def do(tx: Tx) -> None:
            tx.put(heads, repo="r", branch="b", commit_id="1", epoch=1, kind="branch", info={}, created=1, updated=1)
            tx.put(heads, repo="r", branch="b", commit_id="2", epoch=2, kind="branch", info={}, created=1, updated=9)

        book.write(do)
        row = book.read(lambda tx: tx.get(heads, repo="r", branch="b"))
        assert row is not None
        assert (row.commit_id, row.epoch, row.updated, row.repo, row.branch) == ("2", 2, 9, "r", "b")

    def test_delete_says_how_many_went(self, book: Ledger) -> None:
        rows = [{"store": name, "created": number} for number, name in enumerate("abc")]
        book.write(lambda tx: tx.insert_many(stores, rows))
        assert book.write(lambda tx: tx.delete(stores, store="a")) == 1
        assert book.write(lambda tx: tx.delete(stores, store="a")) == 0
        assert book.write(lambda tx: tx.run(sa.delete(stores).where(stores.c.created > 0))) == 2

    def test_a_delete_or_update_without_condition_is_refused(self, book: Ledger) -> None:
        with pytest.raises(InvalidArgument):
            book.write(lambda tx: tx.delete(stores))
        with pytest.raises(InvalidArgument):
            book.write(lambda tx: tx.update(stores, {}, {"created": 1}))

    def test_a_column_that_is_not_there_is_refused_by_name(self, book: Ledger) -> None:
        with pytest.raises(InvalidArgument, match="colour"):
            book.write(lambda tx: tx.insert(stores, store="a", created=1, colour="red"))
        with pytest.raises(InvalidArgument, match="colour"):
            book.read(lambda tx: tx.get(stores, colour="red"))

    def test_a_key_can_not_be_expected_as_well(self, book: Ledger) -> None:
        with pytest.raises(InvalidArgument):
            book.write(lambda tx: tx.compare_and_set(stores, {"created": 1}, {"created": 2}, {"created": 3}))

    def test_insert_many_is_all_or_nothing(self, book: Ledger) -> None:
        book.write(lambda tx: tx.insert(stores, store="5", created=1))
        with pytest.raises(AlreadyExists):
            book.write(lambda tx: tx.insert_many(stores, [{"store": str(n), "created": 1} for n in range(2000)]))
        assert len(book.read(lambda tx: tx.rows(sa.select(stores)))) == 1
        book.write(lambda tx: tx.insert_many(stores, [{"store": f"new {n}", "created": 1} for n in range(2000)]))
        book.write(lambda tx: tx.insert_many(stores, []))
        assert len(book.read(lambda tx: tx.rows(sa.select(stores)))) == 2001

    def test_one_change_with_many_values_is_all_or_nothing(self, book: Ledger) -> None:
        book.write(lambda tx: tx.insert_many(stores, [{"store": str(n), "created": n} for n in range(100)]))
        change = sa.update(stores).where(stores.c.created == sa.bindparam("was")).values(created=sa.bindparam("new"))
        book.write(lambda tx: tx.run_many(change, [{"was": n, "new": n + 1000} for n in range(50)]))
        book.write(lambda tx: tx.run_many(change, []))
        with pytest.raises(InvalidArgument):
            book.write(lambda tx: tx.run_many(change, [{"was": 1000, "new": 1}, {"was": 1001, "new": 2**63}]))
        above = sa.select(stores.c.created).where(stores.c.created >= sa.bindparam("least")).order_by(stores.c.created)
        found = book.read(lambda tx: tx.rows(above, {"least": 99}))
        assert [row.created for row in found] == [99, *range(1000, 1050)]

    def test_a_commit_of_an_unknown_table_is_refused(self, book: Ledger) -> None:
        with pytest.raises(InvalidArgument):
            book.write(lambda tx: tx.insert(commits, **commit_row("nowhere", 0, "x")))

    def test_a_missing_value_is_refused(self, book: Ledger) -> None:
        with pytest.raises(InvalidArgument):
            book.write(lambda tx: tx.insert(stores, store="a"))

    def test_a_read_can_not_write(self, book: Ledger) -> None:
        with pytest.raises(InvalidArgument, match="read"):
            book.read(lambda tx: tx.insert(stores, store="a", created=1))
        with pytest.raises(InvalidArgument, match="read"):
            book.read(lambda tx: tx.run(sa.delete(stores)))

    def test_now_is_one_clock_in_milliseconds(self, book: Ledger) -> None:
        first = book.read(lambda tx: tx.now())
        second = book.write(lambda tx: tx.now())
        assert 1_700_000_000_000 < first <= second


class TestValues:
    LONG = "s3://bücket/" + "長い名前/" * 1000

    def test_names_of_any_length_and_script_are_kept_apart(self, book: Ledger) -> None:
        names = [self.LONG, self.LONG + "x", self.LONG + "X", "", "a", "A", "a ", "é", "e\u0301", "😀", "\U0010ffff"]
        book.write(lambda tx: tx.insert_many(leases, [lease(name, number) for number, name in enumerate(names)]))
        assert [epoch(book, name) for name in names] == list(range(len(names)))

    def test_names_of_several_parts_are_kept_apart(self, book: Ledger) -> None:
        rest = {"value": 1, "epoch": 0, "updated": 0}
        parts = [("a", "bc", "d"), ("ab", "c", "d"), ("a", "b", "cd"), (self.LONG, self.LONG, self.LONG)]
        rows = [{"pipeline": p, "dataset": d, "partition": q, **rest} for p, d, q in parts]
        book.write(lambda tx: tx.insert_many(watermarks, rows))
        found = [
            book.read(lambda tx, p=p, d=d, q=q: tx.get(watermarks, pipeline=p, dataset=d, partition=q))  # type: ignore[misc]
            for p, d, q in parts
        ]
        assert [(row.pipeline, row.dataset, row.partition) for row in found if row] == parts

    def test_names_sort_by_their_bytes(self, book: Ledger) -> None:
        names = ["b", "B", "a", "A", "ä", "_", "~", "1", "10", "2", "😀", "\ufffd", "-", "a b", "ab"]
        book.write(lambda tx: tx.insert_many(stores, [{"store": name, "created": 1} for name in names]))
        rows = book.read(lambda tx: tx.rows(sa.select(stores.c.store).order_by(stores.c.store)))
        assert [row.store for row in rows] == sorted(names, key=lambda name: name.encode())

    @pytest.mark.parametrize("name", ["nul\0", "half \ud800", 7], ids=["NUL", "surrogate", "number"])
    def test_text_that_some_database_could_not_hold_is_refused_by_all(self, book: Ledger, name: Any) -> None:
        with pytest.raises(InvalidArgument):
            book.write(lambda tx: tx.insert(leases, **{**lease("a"), "holder": name}))
        assert epoch(book, "a") is None

    @pytest.mark.parametrize("number", [2**63, -(2**63) - 1, "1", 1.5])
    def test_a_number_that_is_not_a_64_bit_integer_is_refused(self, book: Ledger, number: Any) -> None:
        with pytest.raises(InvalidArgument):
            book.write(lambda tx: tx.insert(leases, **{**lease("a"), "epoch": number}))

    def test_the_largest_and_smallest_integers_are_kept(self, book: Ledger) -> None:
        book.write(lambda tx: tx.insert_many(leases, [lease("max", 2**63 - 1), lease("min", -(2**63))]))
        assert (epoch(book, "max"), epoch(book, "min")) == (2**63 - 1, -(2**63))

    def test_an_id_longer_than_255_characters_is_refused(self, book: Ledger) -> None:
        row = {"name": "n", "hash": "h", "roles": [], "created": 1}
        assert book.write(lambda tx: tx.insert(tokens, token_id="𝔵" * 255, **row))
        with pytest.raises(InvalidArgument, match="255"):
            book.write(lambda tx: tx.insert(tokens, token_id="x" * 256, **row))

    def test_json_comes_back_as_it_went_in(self, book: Ledger) -> None:
        value = {"b": [1, 2.5, None, True], "a": {"ü": "\0\\\"'", "n": 2**62}, "": ""}
        book.write(lambda tx: tx.insert(leases, **lease("a", info=value)))
        row = book.read(lambda tx: tx.get(leases, name="a"))
        assert row is not None
        assert row.info == value

    @pytest.mark.parametrize("value", [{"a": object()}, {"a": "\ud800"}], ids=["object", "surrogate"])
    def test_what_is_not_json_is_refused(self, book: Ledger, value: Any) -> None:
        with pytest.raises(InvalidArgument):
            book.write(lambda tx: tx.insert(leases, **lease("a", info=value)))

    def test_a_payload_of_ten_megabytes_is_kept_byte_by_byte(self, book: Ledger) -> None:
        payload = bytes(range(256)) * (10 * 1024 * 4)
        row = {"state": "open", "epoch": 1, "count": 1, "checksum": "c", "tries": 0, "created": 1, "updated": 1}
        book.write(lambda tx: tx.insert(sequences, store="s", dataset="d", payload=payload, **row))
        found = book.read(lambda tx: tx.get(sequences, store="s", dataset="d"))
        assert found is not None
        assert found.payload == payload


class TestWaiting:
    def held(self, book: Ledger) -> tuple[threading.Thread, threading.Event]:
        """A thread that holds the row "a" until the event is set."""
        holding, go_on = threading.Event(), threading.Event()

        def do(tx: Tx) -> None:
            tx.put(leases, **lease("a", epoch=1))
            holding.set()
            go_on.wait(60)

        thread = threading.Thread(target=lambda: book.write(do))
        thread.start()
        assert holding.wait(60)
        return thread, go_on

    def test_a_writer_waits_for_its_turn(self, book: Ledger) -> None:
        thread, go_on = self.held(book)
        threading.Timer(0.3, go_on.set).start()
        book.write(lambda tx: tx.put(leases, **lease("a", epoch=2)))
        thread.join()
        assert epoch(book, "a") == 2

    def test_a_writer_whose_patience_ends_changes_nothing_and_says_so(self, url: str) -> None:
        with ledger.open(url, patience=0.3) as book:
            thread, go_on = self.held(book)
            with pytest.raises(StorageUnavailable, match="ledger"):
                book.write(lambda tx: tx.put(leases, **lease("a", epoch=2)))
            go_on.set()
            thread.join()
            assert epoch(book, "a") == 1

    def test_a_writer_waits_for_another_process(self, shared_url: str, start: Start) -> None:
        with ledger.open(shared_url) as book:
            other = start("hold", shared_url, "a")
            assert line(other) == "holding"
            with ledger.open(shared_url, patience=0.3) as hasty, pytest.raises(StorageUnavailable):
                hasty.write(lambda tx: tx.put(leases, **lease("a", epoch=2)))
            assert epoch(book, "a") is None  # readers do not wait
            waiting = threading.Thread(target=lambda: book.write(lambda tx: tx.put(leases, **lease("a", epoch=2))))
            waiting.start()
            finish(other)
            waiting.join()
            assert epoch(book, "a") == 2

    def test_a_killed_holder_frees_what_it_held(self, shared_url: str, start: Start) -> None:
        with ledger.open(shared_url) as book:
            other = start("hold", shared_url, "a")
            assert line(other) == "holding"
            other.kill()
            book.write(lambda tx: tx.put(leases, **lease("a", epoch=2)))
            assert epoch(book, "a") == 2


class TestDurability:
    def test_an_acknowledged_write_survives_sigkill(self, shared_url: str, start: Start) -> None:
        for name in ("a", "b", "c"):
            process = start("write_and_die", shared_url, name)
            assert process.wait(timeout=60) == -signal.SIGKILL
        with ledger.open(shared_url, create=False) as book:
            assert [epoch(book, name) for name in ("a", "b", "c")] == [0, 0, 0]


class TestLife:
    def test_closing_twice_is_fine_and_using_it_afterwards_is_not(self, url: str) -> None:
        book = ledger.open(url)
        book.close()
        book.close()
        with pytest.raises(InvalidArgument, match="closed"):
            book.read(lambda tx: tx.now())

    def test_a_transaction_inside_another_is_refused(self, book: Ledger) -> None:
        for outer in (book.read, book.write):
            for inner in (book.read, book.write):
                with pytest.raises(InvalidArgument, match="inside"):
                    outer(lambda tx, inner=inner: inner(lambda tx: None))  # type: ignore[misc]
        book.write(lambda tx: None)

    def test_a_transaction_is_over_when_its_function_returns(self, book: Ledger) -> None:
        tx = book.write(lambda tx: tx)
        with pytest.raises(InvalidArgument, match="over"):
            tx.get(leases, name="a")

    def test_4_processes_make_a_fresh_ledger_at_the_same_moment(self, shared_url: str, start: Start) -> None:
        processes = [start("open_when_told", shared_url) for _ in range(4)]
        for process in processes:
            assert line(process) == "ready"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        assert [finish(process) for process in processes] == ["0\n"] * 4

    def test_8_threads_make_a_fresh_ledger_at_the_same_moment(self, shared_url: str) -> None:
        books = at_once(8, lambda _: ledger.open(shared_url))
        books[0].write(lambda tx: tx.insert(leases, **lease("a", epoch=3)))
        assert [epoch(book, "a") for book in books] == [3] * 8
        for book in books:
            book.close()

    def test_what_is_not_there_is_not_made_unless_asked(self, shared_url: str) -> None:
        with pytest.raises(NotFound, match="no ledger"):
            ledger.open(shared_url, create=False)
        ledger.open(shared_url).close()
        ledger.open(shared_url, create=False).close()

    def test_it_shows_its_place(self, shared_url: str) -> None:
        with ledger.open(shared_url) as book:
            assert repr(book).startswith(("Ledger('sqlite:////", "Ledger('postgresql://"))


class TestOtherProcesses:
    def test_a_pickled_ledger_opens_again_elsewhere(self, shared_url: str, start: Start) -> None:
        with ledger.open(shared_url) as book:
            book.write(lambda tx: tx.insert(leases, **lease("counter")))
            process = start("unpickled", pickle.dumps(book).hex())
            assert line(process) == [1, repr(book)]
            finish(process)
            assert epoch(book, "counter") == 1

    def test_a_ledger_in_memory_can_not_be_pickled(self) -> None:
        with ledger.open("sqlite://") as book, pytest.raises(InvalidArgument, match="memory"):
            pickle.dumps(book)

    def test_after_a_fork_parent_and_children_all_go_on(self, shared_url: str, start: Start) -> None:
        process = start("fork_and_count", shared_url, 3, 20)
        assert line(process) == [[0, 0, 0], 100]
        finish(process)

    def test_after_a_fork_the_parent_may_close_while_the_child_writes(self, shared_url: str, start: Start) -> None:
        """A child that inherits SQLite's locks does not hold them, and the parent would delete the log under it."""
        process = start("fork_and_close", shared_url)
        assert line(process) == ["first", "parent", "second"]
        finish(process)

    def test_after_a_fork_a_ledger_in_memory_is_the_parents(self, start: Start) -> None:
        process = start("fork_and_report", "sqlite://")
        assert line(process) == StorageUnavailable.kind
        finish(process)

    def test_a_fork_inside_a_transaction_leaves_the_child_without_a_broken_file(
        self, shared_url: str, start: Start
    ) -> None:
        """SQLite's locks are in the memory that the child inherits, so the child must not touch the file."""
        process = start("fork_inside", shared_url)
        said = line(process)
        finish(process)
        assert said == (StorageUnavailable.kind if shared_url.startswith("sqlite") else "None")
        with ledger.open(shared_url) as book:
            assert epoch(book, "mine") == 0

    def test_every_error_of_the_ledger_is_one_of_ours(self, book: Ledger) -> None:
        with pytest.raises(LakesealError):
            book.write(lambda tx: tx.rows(sa.select(sa.literal_column("nonsense"))))


class TestManyRows:
    """Several at once, whatever they hold."""

    TEXTS = ("", "plain", "ü 😀 \u2028", 'a "quote" and \\ and \x01 and \x7f', "null", "{}", "'; DROP TABLE tables; --")

    @pytest.fixture(params=[True, False], ids=["together", "row by row"])
    def filled(self, book: Ledger, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Ledger:
        if not request.param:
            monkeypatch.setattr(book._backend, "reads_rows", False)
        rows = [
            {
                "table_id": text,
                "state": "active",
                "epoch": number - 3,
                "takeover_id": None if number % 2 else text,
                "latest_version": 2**63 - 1,
                "conf": {"text": [text, "\0", None, 1.5, -(2**62)]},
                "updated": -(2**63),
            }
            for number, text in enumerate(self.TEXTS)
        ]
        book.write(lambda tx: tx.insert_many(tables, rows))
        return book

    def test_all_values_are_as_they_were_given(self, filled: Ledger) -> None:
        data = [bytes(range(256)), b"", None]
        rows = [
            {
                "table_id": text,
                "version": version,
                "txn_id": f"{version}",
                "size": 1,
                "in_commit_timestamp": 1,
                "inline": inline,
                "ratified": 1,
                "backfilled": version == 1,
            }
            for text in self.TEXTS
            for version, inline in enumerate(data)
        ]
        filled.write(lambda tx: tx.insert_many(commits, rows))
        for number, text in enumerate(self.TEXTS):
            row = filled.read(lambda tx, text=text: tx.get(tables, table_id=text))
            assert row is not None
            assert (row.epoch, row.takeover_id) == (number - 3, None if number % 2 else text)
            assert (row.latest_version, row.updated, row.backfilled_version) == (2**63 - 1, -(2**63), None)
            assert row.conf == {"text": [text, "\0", None, 1.5, -(2**62)]}
            for version, inline in enumerate(data):
                key = {"table_id": text, "version": version}
                found = filled.read(lambda tx, key=key: tx.get(commits, **key))
                assert found is not None
                assert (found.inline, found.backfilled, found.file) == (inline, version == 1, None)
        asked = [*self.TEXTS[::2], "not there"]
        found_rows = filled.write(lambda tx: tx.get_all(tables, "table_id", asked))
        assert [row.table_id for row in found_rows] == sorted(self.TEXTS[::2], key=str.encode)

    def test_each_row_is_changed_by_its_own_values_and_no_other_is(self, filled: Ledger) -> None:
        changed = [
            {"table_key": key(text), "latest_version": number or None, "updated": number}
            for number, text in enumerate(self.TEXTS[:4])
        ]
        absent = {"table_key": key("not there"), "latest_version": 1, "updated": 1}
        filled.write(lambda tx: tx.update_many(tables, "table_key", [*changed, absent]))
        filled.write(lambda tx: tx.update_many(tables, "table_key", []))
        for number, text in enumerate(self.TEXTS):
            row = filled.read(lambda tx, text=text: tx.get(tables, table_id=text))
            assert row is not None
            expected = (number or None, number) if number < 4 else (2**63 - 1, -(2**63))
            assert (row.latest_version, row.updated, row.epoch) == (*expected, number - 3)

    def test_rows_of_one_table_come_with_changes_of_another_or_neither_does(self, filled: Ledger) -> None:
        rows = [
            {
                "table_id": text,
                "version": 1,
                "txn_id": "1",
                "size": 1,
                "in_commit_timestamp": 1,
                "inline": text.encode(),
                "ratified": 1,
                "backfilled": False,
            }
            for text in self.TEXTS
        ]
        changes = [{"table_key": key(text), "latest_version": 1, "updated": 7} for text in self.TEXTS]

        def written(latest: int) -> None:
            for text in self.TEXTS:
                commit = filled.read(lambda tx, text=text: tx.get(commits, table_id=text, version=1))
                row = filled.read(lambda tx, text=text: tx.get(tables, table_id=text))
                assert row is not None
                assert commit is not None
                assert (row.latest_version, commit.inline) == (latest, text.encode())

        filled.write(lambda tx: tx.insert_and_update(commits, rows, tables, "table_key", changes))
        written(latest=1)
        again = [{**change, "latest_version": 2} for change in changes]
        with pytest.raises(AlreadyExists):
            filled.write(lambda tx: tx.insert_and_update(commits, rows, tables, "table_key", again))
        written(latest=1)
        filled.write(lambda tx: tx.insert_and_update(commits, [], tables, "table_key", again))
        written(latest=2)

    @pytest.mark.parametrize(
        "wrong", [{"table_id": "a\0"}, {"updated": 2**63}, {"table_id": "\ud800"}, {"updated": "x"}]
    )
    def test_what_no_ledger_holds_is_refused_with_all_of_it(self, filled: Ledger, wrong: dict[str, Any]) -> None:
        rows = [{"table_id": name, "state": "none", "epoch": 0, "conf": {}, "updated": 1} for name in ("x", "y")]
        with pytest.raises(InvalidArgument):
            filled.write(lambda tx: tx.insert_many(tables, [rows[0], {**rows[1], **wrong}]))
        assert filled.read(lambda tx: tx.get(tables, table_id="x")) is None
