"""Several statements on the tables of one transaction: they see each other, count together, and keep a serial order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeseal
from lakeseal.errors import (
    AlreadyExists,
    ConcurrentModification,
    ConstraintViolation,
    OwnedElsewhere,
    TableNotFound,
    UnsupportedFeature,
)
from lakeseal.testing.service import service_inside

VECTORS = {"delta.enableDeletionVectors": "true"}


def rows(*pairs: tuple[int, int]) -> pa.Table:
    return pa.table(
        {"k": pa.array([k for k, _ in pairs], pa.int64()), "n": pa.array([n for _, n in pairs], pa.int64())}
    )


def held(table: Any, where: str | None = None) -> list[tuple[int, int]]:
    return sorted((row["k"], row["n"]) for row in table.to_arrow(where=where).to_pylist())


def made(folder: Path, name: str, *pairs: tuple[int, int], **properties: str) -> lakeseal.Table:
    table = lakeseal.Table(folder / name, owner=f"sqlite:///{folder}/ledger.db")
    table.write(rows(*pairs), properties=properties)
    return table


def owner(folder: Path) -> str:
    return f"sqlite:///{folder}/ledger.db"


@pytest.fixture(params=["ledger", "service"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[lakeseal.Catalog]:
    if request.param == "ledger":
        yield lakeseal.Catalog(owner(tmp_path))
        return
    with service_inside(ledger=owner(tmp_path), rate=0, roots=(f"file://{tmp_path}",), insecure=True) as (url, _):
        yield lakeseal.Catalog(url)


@pytest.mark.parametrize("properties", [{}, VECTORS, {"delta.enableRowTracking": "true"}])
def test_statements_see_what_the_block_did_before_and_make_one_version(tmp_path: Path, properties: Any) -> None:
    table = made(tmp_path, "t", (1, 1), (2, 2), **properties)
    other = made(tmp_path, "other", (9, 9))

    with lakeseal.transaction(owner(tmp_path)) as txn:
        part = txn.table(table)
        part.write(rows((3, 3), (4, 4)))
        assert held(part) == [(1, 1), (2, 2), (3, 3), (4, 4)]
        part.update({"n": "n * 10"}, "k >= 2")
        part.delete("k = 3")
        merge = part.merge(rows((4, 0), (5, 5)), "t.k = s.k").when_matched_update({"n": "t.n + 1"})
        merge.when_not_matched_insert("*").execute()
        assert held(part) == [(1, 1), (2, 20), (4, 41), (5, 5)]
        assert held(part, "k > 4") == [(5, 5)]
        assert held(table) == [(1, 1), (2, 2)]
        txn.table(other).delete()

    assert held(table) == [(1, 1), (2, 20), (4, 41), (5, 5)]
    assert held(other) == []
    assert (table.version(), other.version()) == (1, 1)
    newest = table.history(1)[0]
    assert newest["operation"] == "TRANSACTION"
    assert newest["operationParameters"]["operations"] == '["WRITE","UPDATE","DELETE","MERGE"]'
    assert held(lakeseal.Table(table.uri, owner=owner(tmp_path))) == held(table)
    if "delta.enableRowTracking" in properties:
        assert table.files()["baseRowId"].null_count == 0


def test_a_file_that_came_and_went_is_never_part_of_the_table(tmp_path: Path) -> None:
    table = made(tmp_path, "t", (1, 1))

    with lakeseal.transaction(owner(tmp_path)) as txn:
        part = txn.table(table)
        part.write(rows((2, 2)))
        part.write(rows((3, 3)), mode="overwrite")

    assert held(table) == [(3, 3)]
    assert table.files().num_rows == 1


def test_columns_that_one_statement_adds_are_there_for_the_next(tmp_path: Path) -> None:
    table = made(tmp_path, "t", (1, 1))

    with lakeseal.transaction(owner(tmp_path)) as txn:
        part = txn.table(table)
        part.write(rows((2, 2)))
        part.write(rows((3, 3)).append_column("s", pa.array(["x"])), merge_schema=True)
        part.update({"s": "'all'"}, "k < 3")

    assert sorted((row["k"], row["s"]) for row in table.to_arrow().to_pylist()) == [(1, "all"), (2, "all"), (3, "x")]


def test_a_statement_that_fails_and_is_caught_counts_for_nothing(tmp_path: Path) -> None:
    table = made(tmp_path, "t", (1, 1))
    table.add_constraint("positive", "n > 0")

    with lakeseal.transaction(owner(tmp_path)) as txn:
        part = txn.table(table)
        part.write(rows((2, 2)))
        with pytest.raises(ConstraintViolation):
            part.write(rows((3, -3)).append_column("s", pa.array(["x"])), merge_schema=True)
        part.write(rows((4, 4)))

    assert held(table) == [(1, 1), (2, 2), (4, 4)]
    assert table.schema().names == ["k", "n"]


def test_identities_go_on_within_a_transaction(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("k", pa.int64())])
    table = lakeseal.create(tmp_path / "t", schema, owner=owner(tmp_path), identity="id")

    with lakeseal.transaction(owner(tmp_path)) as txn:
        txn.table(table).write(pa.table({"k": [1, 2]}))
        txn.table(table).write(pa.table({"k": [3]}))

    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2, 3]


def test_the_change_feed_tells_of_the_sum_or_the_second_change_is_refused(tmp_path: Path) -> None:
    table = made(tmp_path, "t", (1, 1), (2, 2), **{"delta.enableChangeDataFeed": "true"})

    with lakeseal.transaction(owner(tmp_path)) as txn:
        part = txn.table(table)
        part.write(rows((3, 3)))
        part.write(rows((4, 4)))
        with pytest.raises(UnsupportedFeature, match="change feed"):
            part.update({"n": "0"}, "k = 1")

    kinds = sorted((row["_change_type"], row["k"]) for row in table.changes(1).to_pylist())
    assert kinds == [("insert", 3), ("insert", 4)]
    assert held(table) == [(1, 1), (2, 2), (3, 3), (4, 4)]


@pytest.mark.spark
def test_spark_reads_and_changes_in_a_transaction_too(spark: Any, tmp_path: Path) -> None:
    table = made(tmp_path, "t", (1, 1), (2, 2))

    with lakeseal.transaction(owner(tmp_path)) as txn:
        part = txn.table(table)
        part.write(spark.sql("SELECT 3L AS k, 3L AS n"))
        part.delete("k = 1", spark=spark)
        part.update({"n": "n + 1"}, spark=spark)
        assert sorted(tuple(row) for row in part.to_spark(spark).collect()) == [(2, 3), (3, 4)]

    assert held(table) == [(2, 3), (3, 4)]


Rows = dict[int, int]


class Statement:
    """A random statement, done to tables of a transaction by their names and to dictionaries. Some drop tables; one on
    a table that is not there creates it."""

    def __init__(self, source: random.Random, fresh: int) -> None:
        self.kind = source.choice(["write", "delete", "update", "merge", "move", "move", "write", "drop"])
        self.low = source.randrange(8)
        self.high = self.low + source.randrange(3)
        self.fresh = fresh
        self.table = source.randrange(3)
        self.creates = False
        self.finds_other = True

    @property
    def where(self) -> str:
        return f"k BETWEEN {self.low} AND {self.high}"

    def on_table(self, txn: Any, names: list[str], properties: dict[str, str]) -> None:
        name = names[self.table]
        try:
            part = txn.table(name)
        except TableNotFound:
            self.creates = True
            txn.create(name, rows().schema, properties=properties).write(rows((self.fresh, self.low)))
            return
        match self.kind:
            case "write":
                part.write(rows((self.fresh, self.low)))
            case "delete":
                part.delete(self.where)
            case "update":
                part.update({"n": "n * 2 + k"}, self.where)
            case "merge":
                merge = part.merge(rows((self.low, 100), (self.fresh, 7)), "t.k = s.k")
                merge.when_matched_update({"n": "t.n + s.n"}).when_not_matched_insert("*").execute()
            case "move":
                # What is written to one table depends on what is read of another.
                try:
                    total = sum(n for _, n in held(txn.table(names[(self.table + 1) % 3]), self.where))
                except TableNotFound:
                    self.finds_other = False
                    return
                part.write(rows((self.fresh, total)))
            case "drop":
                txn.drop(name, delete_files=bool(self.low % 2))

    def on_model(self, tables: list[Rows | None]) -> None:
        mine, others = tables[self.table], tables[(self.table + 1) % 3]
        chosen = range(self.low, self.high + 1)
        assert self.creates == (mine is None), "it saw the table come or go otherwise than it did"
        if mine is None:
            tables[self.table] = {self.fresh: self.low}
            return
        match self.kind:
            case "write":
                mine[self.fresh] = self.low
            case "delete":
                for k in chosen:
                    mine.pop(k, None)
            case "update":
                for k in chosen:
                    if k in mine:
                        mine[k] = mine[k] * 2 + k
            case "merge":
                for k, n in ((self.low, 100), (self.fresh, 7)):
                    mine[k] = mine[k] + n if k in mine else n
            case "move" if self.finds_other:
                assert others is not None, "what was read of it was true"
                mine[self.fresh] = sum(others[k] for k in chosen if k in others)
            case "drop":
                tables[self.table] = None


@pytest.mark.parametrize("properties", [{}, VECTORS])
@pytest.mark.parametrize("seed", range(4))
def test_random_transactions_over_three_tables_keep_a_serial_order(
    catalog: lakeseal.Catalog, seed: int, properties: dict[str, str]
) -> None:
    source = random.Random(seed)
    names = [f"shop.t{n}" for n in range(3)]
    for n, name in enumerate(names):
        table = catalog.create(name, rows().schema, kind="managed", properties=properties)
        table.write(rows(*((k, k * n) for k in range(8))))
    model: list[Rows | None] = [{k: k * n for k in range(8)} for n in range(3)]
    fresh, committed, refused = 100, 0, 0
    for _ in range(6):
        running = [(lakeseal.transaction(None, "Serializable", catalog=catalog), []) for _ in range(2)]
        for _ in range(source.randrange(2, 7)):
            txn, done = source.choice(running)
            fresh += 1
            statement = Statement(source, fresh)
            try:
                statement.on_table(txn, names, properties)
            except ConcurrentModification:  # a table that joins late is not as those before it
                done.append(None)
                break
            done.append(statement)
        source.shuffle(running)
        for txn, done in running:
            try:
                if None in done:
                    txn.__exit__(ConcurrentModification, None, None)
                    refused += 1
                    continue
                txn.commit()
            except (ConcurrentModification, AlreadyExists):
                refused += 1
                continue
            committed += 1
            for statement in done:
                statement.on_model(model)
        there = {str(one.name.table) for one in catalog.tables("shop")}
        assert there == {f"t{n}" for n in range(3) if model[n] is not None}, f"seed {seed}"
        for name, expected in zip(names, model, strict=True):
            assert expected is None or dict(held(catalog.table(name))) == expected, f"seed {seed}"
    assert committed
    assert committed + refused == 12
    assert catalog.unfinished() == []


def test_tables_are_created_and_dropped_with_the_commit_or_not_at_all(catalog: lakeseal.Catalog) -> None:
    old = catalog.create("shop.old", rows().schema, kind="managed")
    old.write(rows((1, 1)))
    with lakeseal.transaction(catalog=catalog) as txn:
        new = txn.create("shop.new", rows().schema, comment="made together")
        new.write(txn.table("shop.old").to_arrow())
        new.write(rows((2, 2)))
        assert held(txn.table("shop.new")) == [(1, 1), (2, 2)]
        txn.create("shop.empty", rows().schema, identity={"k": lakeseal.Identity(start=5)})
        txn.drop("shop.old")
        with pytest.raises(TableNotFound):
            txn.table("shop.old")
        txn.create("shop.gone", rows().schema)
        txn.drop("shop.gone")
        scratch = txn.create("shop.scratch", rows().schema)
        scratch.write(rows((3, 3)))
        new.write(txn.table("shop.Scratch").to_arrow())
        txn.drop("shop.scratch")
        txn.create("shop.scratch", rows().schema).write(rows((4, 4)))
        txn.drop("shop.SCRATCH", delete_files=True)
        assert [str(one.name.table) for one in catalog.tables("shop")] == ["old"]
    assert [str(one.name.table) for one in catalog.tables("shop")] == ["empty", "new"]
    assert held(catalog.table("shop.new")) == [(1, 1), (2, 2), (3, 3)]
    assert held(catalog.table("shop.empty")) == []
    assert old.history(1)[0]["operation"] == "DROP TABLE"
    assert held(old) == [(1, 1)]

    with pytest.raises(ZeroDivisionError), lakeseal.transaction(catalog=catalog) as txn:
        txn.drop("shop.new", delete_files=True)
        txn.create("shop.new", rows().schema).write(rows((9, 9)))
        assert held(txn.table("shop.new")) == [(9, 9)]
        raise ZeroDivisionError
    assert held(catalog.table("shop.new")) == [(1, 1), (2, 2), (3, 3)]
    assert catalog.unfinished() == []


def test_a_table_that_was_renamed_is_not_dropped_by_its_former_name(catalog: lakeseal.Catalog) -> None:
    for name in ("shop.a", "shop.b"):
        catalog.create(name, rows().schema, kind="managed").write(rows((1, 1)))
    dropping = lakeseal.transaction(catalog=catalog)
    dropping.table("shop.a").write(rows((2, 2)))
    dropping.drop("shop.b", delete_files=True)
    catalog.rename("shop.b", "shop.kept")
    with pytest.raises(ConcurrentModification):
        dropping.commit()
    assert held(catalog.table("shop.kept")) == held(catalog.table("shop.a")) == [(1, 1)]


def test_a_name_that_somebody_else_took_and_a_table_that_was_dropped_refuse_the_whole(
    catalog: lakeseal.Catalog,
) -> None:
    for name in ("shop.a", "shop.b"):
        catalog.create(name, rows().schema, kind="managed").write(rows((1, 1)))

    first, second = (lakeseal.transaction(catalog=catalog) for _ in range(2))
    for txn in (first, second):
        txn.create("shop.new", rows().schema).write(rows((1, 1)))
        txn.table("shop.a").write(rows((2, 2)))
    first.commit()
    with pytest.raises(AlreadyExists, match="new"):
        second.commit()
    assert held(catalog.table("shop.a")) == [(1, 1), (2, 2)]

    dropping, writing = (lakeseal.transaction(catalog=catalog) for _ in range(2))
    writing.table("shop.b").write(rows((3, 3)))
    writing.table("shop.a").write(rows((3, 3)))
    dropping.drop("shop.b", delete_files=True)
    dropping.commit()
    with pytest.raises((ConcurrentModification, OwnedElsewhere, TableNotFound)):
        writing.commit()
    assert held(catalog.table("shop.a")) == [(1, 1), (2, 2)]
    assert catalog.unfinished() == []

    with pytest.raises(ConcurrentModification, match="The table a was"), lakeseal.transaction(catalog=catalog) as txn:
        txn.drop("shop.a", delete_files=True)
        catalog.rename("shop.a", "shop.kept")
    assert held(catalog.table("shop.kept")) == [(1, 1), (2, 2)]

    with pytest.raises(UnsupportedFeature, match="take"), lakeseal.transaction(catalog=catalog) as txn:
        catalog.create("shop.plain", rows().schema)
        txn.drop("shop.plain")
