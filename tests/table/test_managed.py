"""Managed tables through `Table`: created, taken over, released, several at once."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import lakeseal
from lakeseal import Table, errors
from lakeseal.owner.connect import connect
from lakeseal.owner.routing import StaleReadWarning


def numbers(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def ids(table: Table) -> list[int]:
    return sorted(table.to_arrow()["id"].to_pylist())


@pytest.fixture
def owner(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'ledger.db'}"


def test_a_table_is_created_with_an_owner_and_written_through_it(root: str, owner: str) -> None:
    table = lakeseal.create(f"{root}/table", numbers().schema, owner=owner)
    for number in range(5):
        table.write(numbers(number))
    assert table.version() == 5
    assert ids(table) == [0, 1, 2, 3, 4]
    assert ids(Table(f"{root}/table", owner=owner)) == [0, 1, 2, 3, 4]
    properties = table.snapshot().properties
    assert properties.managed_commit_owner_name
    assert properties.in_commit_timestamps


def test_what_was_just_committed_is_checkpointed_and_compacted_at_once(root: str, owner: str) -> None:
    table = lakeseal.create(f"{root}/table", numbers().schema, owner=owner)
    for number in range(4):
        table.write(numbers(number))
        assert table.checkpoint() == number + 1
        assert table.compact_log(number, number + 1) is not None
    assert ids(table) == [0, 1, 2, 3]
    assert DeltaTable(f"{root}/table").to_pyarrow_table().num_rows == 4


def test_without_its_owner_a_managed_table_is_read_as_far_as_it_is_backfilled(root: str, owner: str) -> None:
    table = lakeseal.create(f"{root}/table", numbers().schema, owner=owner)
    for number in range(5):
        table.write(numbers(number))
    stranger = Table(f"{root}/table")
    with pytest.warns(StaleReadWarning, match="newer"):
        seen = stranger.version()
    # Backfill goes on behind the writer.
    assert seen <= DeltaTable(f"{root}/table").version() <= 5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StaleReadWarning)
        with pytest.raises(errors.OwnedElsewhere):
            stranger.write(numbers(9))
    assert table.version() == 5


def test_a_table_is_taken_over_and_released_and_others_follow_it(root: str, owner: str) -> None:
    table = Table(f"{root}/table")
    table.write(numbers(1))
    other = Table(f"{root}/table", owner=owner)
    assert other.version() == 0
    assert table.take_over(owner) == 1
    table.write(numbers(2))
    assert ids(other) == [1, 2]
    other.write(numbers(3))
    released = table.release()
    assert ids(Table(f"{root}/table")) == [1, 2, 3]
    other.write(numbers(4))
    assert ids(Table(f"{root}/table")) == [1, 2, 3, 4]
    assert DeltaTable(f"{root}/table").version() == released + 1
    assert table.snapshot().properties.managed_commit_owner_name is None
    with pytest.raises(errors.InvalidArgument):
        table.release()


def test_two_tables_are_written_together_or_not_at_all(root: str, owner: str) -> None:
    a = lakeseal.create(f"{root}/a", numbers().schema, owner=owner)
    b = lakeseal.create(f"{root}/b", numbers().schema, owner=owner)
    with lakeseal.transaction(owner) as txn:
        txn.table(a).write(numbers(1))
        txn.table(f"{root}/b").write(numbers(2))
        assert (ids(a), ids(b)) == ([], [])
    assert (ids(a), ids(b)) == ([1], [2])
    assert txn.result is not None
    assert len(txn.result.tables) == 2
    with pytest.raises(RuntimeError, match="stop"), lakeseal.transaction(owner) as txn:
        txn.table(a).write(numbers(3))
        raise RuntimeError("stop")
    with pytest.raises(errors.SchemaMismatch), lakeseal.transaction(owner) as txn:
        txn.table(a).write(numbers(3))
        txn.table(b).write(pa.table({"other": [1]}))
    assert (ids(a), ids(b)) == ([1], [2])


def test_a_transaction_over_tables_fails_if_one_of_them_changed_in_the_way(root: str, owner: str) -> None:
    a = lakeseal.create(f"{root}/a", numbers().schema, owner=owner)
    b = lakeseal.create(f"{root}/b", numbers().schema, owner=owner)
    a.write(numbers(1))
    with pytest.raises(errors.ConcurrentModification), lakeseal.transaction(owner) as txn:
        txn.table(b).write(numbers(10))
        txn.table(a).write(numbers(2), mode="overwrite")
        a.write(numbers(3), mode="overwrite")
    assert (ids(a), ids(b)) == ([3], [])


def test_snapshots_of_several_tables_are_of_one_moment(root: str, owner: str) -> None:
    tables = [lakeseal.create(f"{root}/{name}", numbers().schema, owner=owner) for name in "abc"]
    with lakeseal.transaction(owner) as txn:
        for table in tables:
            txn.table(table).write(numbers(1))
    found = lakeseal.snapshots(owner, tables)
    assert [snapshot.version for snapshot in found] == [1, 1, 1]
    tables[0].write(numbers(2))
    assert [snapshot.version for snapshot in lakeseal.snapshots(owner, tables)] == [2, 1, 1]


def test_what_an_open_table_knows_of_its_log_is_not_read_again_by_transactions(tmp_path: Path, owner: str) -> None:
    tables = [lakeseal.create(f"{tmp_path}/{name}", numbers().schema, owner=owner) for name in ("one", "two")]
    for table in tables:
        table.write(numbers(0))
        assert table.version() == 1
    for number in range(1, 4):
        with lakeseal.transaction(owner) as txn:
            for table in tables:
                part = txn.table(table)
                assert sorted(part.to_arrow()["id"].to_pylist()) == list(range(number))
                part.write(numbers(number))
    for name, table in zip(("one", "two"), tables, strict=True):
        connect(owner).backfill(table.uri, 4)
        for version in range(3):
            (tmp_path / name / f"_delta_log/{version:020d}.json").unlink()  # whoever reads from there fails now
    with lakeseal.transaction(owner) as txn:
        for table in tables:
            txn.table(table).write(numbers(9))
    assert [ids(table) for table in tables] == [[0, 1, 2, 3, 9]] * 2


def test_a_transaction_over_an_open_table_sees_that_it_was_made_anew(tmp_path: Path, owner: str) -> None:
    table = lakeseal.create(f"{tmp_path}/table", numbers().schema, owner=owner)
    table.write(numbers(1))
    assert table.version() == 1
    with lakeseal.transaction(owner) as txn:
        txn.table(table).write(numbers(2))
    table.release()
    shutil.rmtree(tmp_path / "table")
    Table(f"{tmp_path}/table").write(numbers(7))
    Table(f"{tmp_path}/table").take_over(owner)
    with lakeseal.transaction(owner) as txn:
        part = txn.table(table)
        assert part.to_arrow()["id"].to_pylist() == [7]
        part.write(numbers(8))
    assert ids(Table(f"{tmp_path}/table", owner=owner)) == [7, 8]


def test_a_table_that_was_opened_without_the_owner_joins_its_transaction(tmp_path: Path, owner: str) -> None:
    lakeseal.create(f"{tmp_path}/table", numbers().schema, owner=owner).write(numbers(1))
    by_path = Table(f"{tmp_path}/table")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StaleReadWarning)
        assert by_path.version() <= 1
        with lakeseal.transaction(owner) as txn:
            txn.table(by_path).write(numbers(2))
    assert ids(Table(f"{tmp_path}/table", owner=owner)) == [1, 2]
