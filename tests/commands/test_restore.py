"""RESTORE and CLONE."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakeseal import Table, errors
from lakeseal.commands.command import NothingToDo
from lakeseal.commit.transaction import CommitResult
from support.rows import rows

FEED = {"delta.enableChangeDataFeed": "true"}
VECTORS = {"delta.enableDeletionVectors": "true"}


def test_rows_come_back_and_others_go(tables: Any) -> None:
    table = tables(range(5), range(5, 10), properties=FEED)
    table.delete("id < 3")
    table.write(tables.people(20))
    result = table.restore(0)
    assert isinstance(result, CommitResult)
    assert tables.ids(table) == list(range(5))
    assert (result.metrics["numRestoredFiles"], result.metrics["numRemovedFiles"]) == (1, 3)
    tables.check(table)
    changes = tables.feed(table, 4)
    assert sorted(i for kind, i, _ in changes if kind == "delete") == [3, 4, 5, 6, 7, 8, 9, 20]
    assert sorted(i for kind, i, _ in changes if kind == "insert") == [0, 1, 2, 3, 4]


def test_only_the_difference_of_vectors_is_a_change(tables: Any) -> None:
    table = tables(range(10), properties=FEED | VECTORS)
    table.delete("id = 3")
    table.delete("id = 7")
    table.restore(1)
    assert tables.ids(table) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert tables.feed(table, 3) == {("insert", 7, "n7"): 1}


def test_schema_and_properties_come_back(tables: Any) -> None:
    table = tables(range(3))
    table.add_columns(pa.schema([("extra", pa.int32())]))
    table.set_properties({"delta.checkpointInterval": "5"})
    table.write(pa.table({"id": [9], "extra": pa.array([1], pa.int32())}))
    table.restore(0)
    assert table.schema().names == ["id", "name", "part", "score"]
    assert table.snapshot().properties.checkpoint_interval == 10
    table.restore(3)
    assert tables.ids(table, where="extra = 1") == [9]


def test_what_cannot_be_undone_stays(tables: Any) -> None:
    table = tables(range(3))
    table.set_properties({"delta.enableInCommitTimestamps": "true"})
    enabled = table.snapshot().properties.in_commit_timestamp_enablement_version
    table.write(tables.people(4))
    protocol = table.snapshot().protocol
    table.restore(0)
    assert table.snapshot().protocol == protocol
    assert table.snapshot().properties.in_commit_timestamps
    assert table.snapshot().properties.in_commit_timestamp_enablement_version == enabled
    assert tables.ids(table) == [0, 1, 2]


def test_by_time_and_to_the_newest_version(tables: Any) -> None:
    table = tables(range(3), properties={"delta.enableInCommitTimestamps": "true"})
    table.write(tables.people(7))
    moment = table.history()[-1]["timestamp"]
    assert isinstance(table.restore(1), NothingToDo)
    table.restore(timestamp=moment)
    assert tables.ids(table) == [0, 1, 2]
    with pytest.raises(errors.InvalidArgument):
        table.restore()
    with pytest.raises(errors.VersionNotFound):
        table.restore(99)


def test_a_vacuumed_version_cannot_come_back_and_nothing_changes(tables: Any) -> None:
    table = tables(range(5))
    table.delete("id = 2")
    tables.vacuum(table)
    with pytest.raises(errors.DataFileMissing):
        table.restore(0)
    assert tables.ids(table) == [0, 1, 3, 4]


def test_an_append_only_table_is_not_restored(tables: Any) -> None:
    table = tables(range(5), range(5, 6), properties={"delta.appendOnly": "true"})
    with pytest.raises(errors.AppendOnlyTable):
        table.restore(0)


@pytest.mark.parametrize("properties", [{}, VECTORS, {"delta.columnMapping.mode": "name"}])
def test_a_clone_reads_the_sources_files_and_goes_its_own_way(tables: Any, properties: Any) -> None:
    source = tables(range(3000), partition_by=["part"], properties=properties, name="a table with blanks é%20")
    source.delete("id % 3 = 1 AND id % 7 = 0")
    clone = source.clone(tables.root / "clone")
    expected = rows(source.to_arrow())
    assert rows(clone.to_arrow()) == expected
    assert tables.files_on_disk("clone") == set()
    clone.delete("id < 10")
    clone.update({"name": "'c'"}, "id = 1000")
    clone.write(tables.people(5000))
    assert rows(source.to_arrow()) == expected
    assert clone.optimize().metrics["numRemovedFiles"]
    assert tables.ids(Table(clone.uri), where="id < 20 OR id > 2998") == [
        *(i for i in range(10, 20) if not (i % 3 == 1 and i % 7 == 0)),
        2999,
        5000,
    ]
    tables.vacuum(clone)
    assert rows(source.to_arrow()) == expected
    assert clone.snapshot().metadata.id != source.snapshot().metadata.id


def test_a_clone_of_a_clone_and_of_an_earlier_version(tables: Any) -> None:
    source = tables(range(3), range(3, 6))
    twice = source.clone(tables.root / "one", version=0).clone(tables.root / "two")
    assert tables.ids(twice) == [0, 1, 2]
    with pytest.raises(errors.AlreadyExists):
        source.clone(tables.root / "two")
