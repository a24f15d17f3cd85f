"""OPTIMIZE without Spark."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakeseal import Table, errors
from lakeseal.commands.command import NothingToDo
from lakeseal.commands.optimize import plan_bins
from lakeseal.commit.transaction import CommitResult
from lakeseal.files.zorder import ordered, zvalues
from lakeseal.log.data import DataFile
from support.rows import rows

FEED = {"delta.enableChangeDataFeed": "true"}
VECTORS = {"delta.enableDeletionVectors": "true"}


def test_small_files_become_one_per_partition_and_rows_stay(tables: Any) -> None:
    table = tables(*([n * 3, n * 3 + 1, n * 3 + 2] for n in range(8)), partition_by=["part"])
    before = rows(table.to_arrow())
    result = table.optimize()
    assert isinstance(result, CommitResult)
    assert table.files().num_rows == 3
    assert rows(table.to_arrow()) == before
    assert (result.metrics["numRemovedFiles"], result.metrics["numAddedFiles"]) == (24, 3)
    assert isinstance(table.optimize(), NothingToDo)
    tables.check(table)
    assert tables.ids(table, version=3) == list(range(12))


def test_no_action_says_that_data_changed_and_the_feed_is_silent(tables: Any) -> None:
    table = tables(range(3), range(3, 6), properties=FEED)
    table.optimize()
    actions = table._log.commit_actions(2)
    assert [a.data_change for a in actions if hasattr(a, "data_change")] == [False] * 3
    assert table.changes(2).num_rows == 0
    assert table.changes(0).num_rows == 6


def test_only_files_that_may_match_are_touched(tables: Any) -> None:
    table = tables(*([n * 3, n * 3 + 1, n * 3 + 2] for n in range(4)), partition_by=["part"])
    table.optimize("part = 'p1'")
    assert table.files().num_rows == 4 + 1 + 4


def test_hidden_rows_go_for_good(tables: Any) -> None:
    table = tables(range(1000), properties=VECTORS)
    table.delete("id % 3 = 0")
    result = table.optimize()
    assert isinstance(result, CommitResult)
    assert result.metrics["numDeletionVectorsRemoved"] == 1
    assert table.files()["deletionVector"].null_count == 1
    assert json.loads(table.files()["stats"][0].as_py())["numRecords"] == 666
    assert tables.ids(table) == [i for i in range(1000) if i % 3]
    tables.check(table)


def test_the_target_size_decides_how_many_files_there_are(tables: Any) -> None:
    table = tables(*(range(n * 1000, n * 1000 + 1000) for n in range(6)))
    sizes = table.files()["size"].to_pylist()
    table.optimize(target_file_size=2 * max(sizes) + 1)
    assert table.files().num_rows == 3
    table.set_properties({"delta.targetFileSize": str(2 * max(sizes) + 1)})
    assert isinstance(table.optimize(), NothingToDo)
    assert tables.ids(table) == list(range(6000))


def test_bins_hold_files_of_one_partition_up_to_the_target() -> None:
    files = [DataFile(path=f"{part}{n}", partition_values={"p": part}, size=n) for part in "ab" for n in (1, 5, 6, 20)]
    bins = plan_bins(files, target=11)
    assert [[file.path for file in one] for one in bins] == [["a1", "a5"], ["b1", "b5"]]


def test_appends_are_no_conflict_and_a_delete_of_the_same_file_is(tables: Any) -> None:
    from lakeseal.commands.optimize import OptimizeCommand
    from lakeseal.commands.running import run
    from lakeseal.commit.transaction import OptimisticTransaction
    from lakeseal.jobs.in_process import InProcessEngine

    table = tables(range(3), range(3, 6))

    def optimize(meanwhile: Any) -> None:
        route = table._router.route()
        txn = OptimisticTransaction.begin(route.log, route.owner)
        meanwhile()
        run(OptimizeCommand(), txn, engine=InProcessEngine(), store=table.spec)

    optimize(lambda: Table(table.uri).write(tables.people(6, 7)))
    assert tables.ids(table) == list(range(8))
    with pytest.raises(errors.ConcurrentModification):
        optimize(lambda: Table(table.uri).delete("id = 4"))
    assert tables.ids(table) == [0, 1, 2, 3, 5, 6, 7]


def test_zorder_puts_near_rows_into_the_same_files(tables: Any) -> None:
    table = Table(tables.root / "grid")
    side = 64
    x, y = np.meshgrid(np.arange(side), np.arange(side))
    shuffled = np.random.default_rng(1).permutation(side * side)
    grid = pa.table({"x": x.ravel()[shuffled], "y": y.ravel()[shuffled], "z": [f"v{n}" for n in shuffled]})
    table.write(grid)
    size = table.files()["size"][0].as_py()
    table.optimize(zorder_by=["x", "y"], target_file_size=size // 16)
    count = table.files().num_rows
    assert count >= 8
    assert rows(table.to_arrow()) == rows(grid)
    for where in ("x < 8", "y < 8"):
        assert table.snapshot().match(where).may.to_pylist().count(True) <= count * 0.7
    assert table.snapshot().match("x < 8 AND y < 8").may.to_pylist().count(True) <= count * 0.4


def test_zorder_goes_window_by_window() -> None:
    batches = [pa.record_batch({"x": [3, 1]}), pa.record_batch({"x": [2, 0]})]
    found = [b["x"].to_pylist() for b in ordered(batches, ["x"], window_bytes=batches[0].nbytes)]
    assert found == [[1, 3], [0, 2]]


def test_zorder_knows_every_type_that_compares() -> None:
    from datetime import date, datetime
    from decimal import Decimal

    for values in (
        [True, None, False],
        [b"b", b"a", None],
        [Decimal("1.5"), Decimal("-1"), None],
        [date(2020, 1, 2), None, date(2020, 1, 1)],
        [datetime(2020, 1, 2), None, datetime(2020, 1, 1)],
        [1.5, None, float("nan")],
        ["b", "a", None],
    ):
        order = zvalues([pa.array(values)])
        assert order[values.index(None)] == max(order)
        assert len(set(order.tolist())) == 3


@pytest.mark.parametrize("names", [["nobody"], ["part"], ["id", "ID"]])
def test_wrong_columns_are_refused(tables: Any, names: list[str]) -> None:
    table = tables(range(4), partition_by=["part"])
    with pytest.raises(errors.InvalidArgument):
        table.optimize(zorder_by=names)


def test_clones_and_column_mapping_are_read_through(tables: Any) -> None:
    table = tables(range(4), range(4, 8), properties={"delta.columnMapping.mode": "name"})
    table.rename_column("name", "called")
    table.optimize(zorder_by="score")
    assert table.files().num_rows == 1
    assert table.to_arrow(where="id = 3")["called"].to_pylist() == ["n3"]
