"""DELETE without Spark."""

from __future__ import annotations

from typing import Any

import pytest

from lakeseal import errors
from lakeseal.commands.command import NothingToDo
from lakeseal.commit.transaction import CommitResult

FEED = {"delta.enableChangeDataFeed": "true"}
VECTORS = {"delta.enableDeletionVectors": "true"}


@pytest.mark.parametrize("properties", [{}, FEED, VECTORS, FEED | VECTORS], ids=["plain", "feed", "vectors", "both"])
@pytest.mark.parametrize("partition_by", [(), ("part",)], ids=["whole", "partitioned"])
def test_rows_that_match_go_and_all_others_stay(tables: Any, properties: Any, partition_by: Any) -> None:
    table = tables(range(10), range(10, 20), range(20, 30), partition_by=partition_by, properties=properties)
    result = table.delete("id % 2 = 0 OR id > 24")
    assert isinstance(result, CommitResult)
    assert tables.ids(table) == [i for i in range(25) if i % 2]
    assert tables.ids(table, version=2) == list(range(30))
    assert result.metrics["numDeletedRows"] == 18
    tables.check(table)
    if properties.get("delta.enableChangeDataFeed"):
        changes = tables.feed(table, 3)
        assert {kind for kind, _, _ in changes} == {"delete"}
        assert sorted(i for _, i, _ in changes.elements()) == [i for i in range(30) if i % 2 == 0 or i > 24]


def test_files_that_cannot_match_are_not_opened_and_whole_files_go_unread(tables: Any) -> None:
    table = tables(range(10), range(10, 20), range(20, 30))
    for path in tables.files_on_disk():
        (tables.root / "table" / path).unlink()
    result = table.delete("id BETWEEN 10 AND 19")
    assert isinstance(result, CommitResult)
    assert result.metrics["numRemovedFiles"] == 1
    assert result.metrics["numAddedFiles"] == 0
    assert result.metrics["numDeletedRows"] == 10
    assert table.files().num_rows == 2


def test_a_file_that_may_match_and_does_not_is_left_alone(tables: Any) -> None:
    table = tables([1, 3, 5], [2, 4, 6])
    before = tables.paths(table)
    result = table.delete("id = 3")
    assert isinstance(result, CommitResult)
    assert len(before & tables.paths(table)) == 1
    assert result.metrics["numCopiedRows"] == 2
    assert result.metrics["numRemovedFiles"] == 1


def test_all_rows_go_without_a_condition(tables: Any) -> None:
    table = tables(range(4), range(4, 8))
    table.delete()
    assert tables.ids(table) == []
    assert table.history(1)[0]["operation"] == "DELETE"


def test_nothing_is_committed_where_no_row_matches(tables: Any) -> None:
    table = tables([1, 3, 5])
    for where in ("id = 2", "id = 99", "name = 'nobody'"):
        result = table.delete(where)
        assert isinstance(result, NothingToDo)
        assert result.metrics["numDeletedRows"] == 0
    assert table.version() == 0


def test_null_is_not_true(tables: Any) -> None:
    table = tables(range(10))
    table.delete("name <> 'n1'")
    assert tables.ids(table) == [0, 1, 5]


def test_vectors_hide_rows_without_writing_data_and_add_up(tables: Any) -> None:
    table = tables(range(1000), properties=VECTORS)
    before = tables.paths(table)
    first = table.delete("id % 7 = 0")
    assert isinstance(first, CommitResult)
    assert (first.metrics["numDeletionVectorsAdded"], first.metrics["numAddedFiles"]) == (1, 0)
    second = table.delete("id % 5 = 0")
    assert isinstance(second, CommitResult)
    assert second.metrics["numDeletionVectorsUpdated"] == 1
    assert second.metrics["numDeletedRows"] == len([i for i in range(1000) if i % 5 == 0 and i % 7])
    assert tables.paths(table) == before
    assert tables.ids(table) == [i for i in range(1000) if i % 5 and i % 7]
    tables.check(table)


def test_small_vectors_live_in_the_log_and_large_ones_share_a_file(tables: Any) -> None:
    table = tables(range(3000), range(3000, 6000), properties=VECTORS)
    table.delete("id = 17 OR id = 4000")
    assert not [path for path in tables.files_on_disk() if path.endswith(".bin")]
    table.delete("id * id % 17 = 1")
    assert len([path for path in tables.files_on_disk() if path.endswith(".bin")]) == 1
    tables.check(table)


def test_a_file_whose_last_rows_are_hidden_leaves_the_table(tables: Any) -> None:
    table = tables(range(10), properties=VECTORS)
    table.delete("id < 5")
    result = table.delete("id % 10 >= 5")
    assert isinstance(result, CommitResult)
    assert table.files().num_rows == 0
    assert result.metrics["numRemovedFiles"] == 1


def test_the_statistics_of_a_file_with_hidden_rows_stay_bounds_and_keep_their_numbers(tables: Any) -> None:
    table = tables(range(10), properties=VECTORS)
    table.delete("id = 3")
    (stats,) = table.files()["stats"].to_pylist()
    assert '"numRecords":10' in stats
    assert '"tightBounds":false' in stats
    assert '"score":4.5' in stats


def test_deleting_whole_files_and_parts_tells_the_feed_of_every_row_once(tables: Any) -> None:
    table = tables(range(5), range(5, 10), properties=FEED)
    table.delete("id >= 3")
    assert sorted(i for _, i, _ in tables.feed(table, 2).elements()) == [3, 4, 5, 6, 7, 8, 9]


def test_partition_values_with_special_characters(tables: Any) -> None:
    table = tables([1])
    odd = tables.people(1, 2, 3, 4).set_column(2, "part", [["A/A", "a?", "é %3A", "x=y:z"]])
    table = tables(name="odd")
    table.write(odd, partition_by=["part"])
    table.write(odd)
    table.delete("part = 'é %3A'")
    table.delete("part = 'A/A' AND id + 0 = 1")
    assert tables.ids(table) == [2, 2, 4, 4]
    tables.check(table)


def test_an_append_only_table_refuses(tables: Any) -> None:
    table = tables(range(4), properties={"delta.appendOnly": "true"})
    with pytest.raises(errors.AppendOnlyTable):
        table.delete("id = 1")


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("no_such = 1", errors.InvalidExpression),
        ("id", errors.InvalidExpression),
        ("sin(id) = 1", errors.UnsupportedExpression),
        ("id / 0 = 1", errors.EvaluationError),
    ],
)
def test_a_wrong_condition_changes_nothing(tables: Any, where: str, error: type[Exception]) -> None:
    table = tables(range(4))
    with pytest.raises(error):
        table.delete(where)
    assert table.version() == 0


def test_there_must_be_a_table(tables: Any) -> None:
    with pytest.raises(errors.TableNotFound):
        tables(name="nothing").delete("id = 1")


def test_column_mapping(tables: Any) -> None:
    table = tables(range(10), properties={"delta.columnMapping.mode": "name"} | FEED, partition_by=["part"])
    table.rename_column("id", "number")
    table.delete("number > 4 AND part = 'p0'")
    assert sorted(table.to_arrow()["number"].to_pylist()) == [0, 1, 2, 3, 4, 5, 7, 8]
    assert table.changes(2)["number"].to_pylist() == [6, 9]


def test_the_moment_is_the_same_for_all_rows(tables: Any) -> None:
    table = tables(range(10))
    table.delete("current_timestamp() > TIMESTAMP '2020-01-01 00:00:00' AND id < 3")
    assert tables.ids(table) == list(range(3, 10))
