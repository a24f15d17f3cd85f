"""UPDATE without Spark."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeseal import Table, create, errors
from lakeseal.commands.alter import add_constraint
from lakeseal.commands.command import NothingToDo
from lakeseal.commit.transaction import CommitResult
from lakeseal.protocol.schema import LONG, StructField, StructType

FEED = {"delta.enableChangeDataFeed": "true"}
VECTORS = {"delta.enableDeletionVectors": "true"}
ALL = pytest.mark.parametrize(
    "properties", [{}, FEED, VECTORS, FEED | VECTORS], ids=["plain", "feed", "vectors", "both"]
)


@ALL
@pytest.mark.parametrize("partition_by", [(), ("part",)], ids=["whole", "partitioned"])
def test_rows_that_match_get_new_values(tables: Any, properties: Any, partition_by: Any) -> None:
    table = tables(range(10), range(10, 20), range(20, 30), partition_by=partition_by, properties=properties)
    result = table.update({"name": "concat('new', part)", "score": "score + id"}, "id % 4 = 0 AND id < 25")
    assert isinstance(result, CommitResult)
    names = tables.names(table)
    assert {i for i, name in names.items() if (name or "").startswith("new")} == {0, 4, 8, 12, 16, 20, 24}
    assert names[4] == "newp1"
    assert table.to_arrow(where="id = 8")["score"].to_pylist() == [12.0]
    assert result.metrics["numUpdatedRows"] == 7
    assert len(names) == 30
    tables.check(table)
    if properties.get("delta.enableChangeDataFeed"):
        changes = tables.feed(table, 3)
        assert Counter(kind for kind, _, _ in changes.elements()) == {"update_preimage": 7, "update_postimage": 7}
        assert changes["update_postimage", 4, "newp1"] == changes["update_preimage", 4, "n4"] == 1


@ALL
def test_all_rows_are_set_without_a_condition(tables: Any, properties: Any) -> None:
    table = tables(range(4), range(4, 8), properties=properties)
    table.update({"name": "'x'"})
    assert set(tables.names(table).values()) == {"x"}
    tables.check(table)


def test_only_files_with_rows_that_match_are_rewritten(tables: Any) -> None:
    table = tables([1, 3, 5], [2, 4, 6], [7, 8, 9])
    before = tables.paths(table)
    result = table.update({"name": "'x'"}, "id = 4")
    assert isinstance(result, CommitResult)
    assert len(before & tables.paths(table)) == 2
    assert result.metrics["numCopiedRows"] == 2


def test_expressions_see_the_row_as_it_was(tables: Any) -> None:
    table = tables(range(1, 4))
    table.update({"id": "CAST(score AS BIGINT)", "score": "id"}, "id > 1")
    assert sorted((row["id"], row["score"]) for row in table.to_arrow().to_pylist()) == [(1, 0.5), (1, 2.0), (1, 3.0)]


def test_constants_need_no_quotes(tables: Any) -> None:
    table = tables(range(3))
    table.update({"score": 2, "name": None})
    assert table.to_arrow().select(["name", "score"]).to_pylist() == [{"name": None, "score": 2.0}] * 3


def test_rows_move_between_partitions(tables: Any) -> None:
    table = tables(range(9), partition_by=["part"])
    table.update({"part": "'p9'"}, "id IN (1, 2)")
    assert tables.ids(table, where="part = 'p9'") == [1, 2]
    tables.check(table)


def test_rows_are_only_evaluated_where_they_match(tables: Any) -> None:
    table = tables(range(5))
    table.update({"score": "10 / id"}, "id <> 0")
    assert table.to_arrow(where="id = 4")["score"].to_pylist() == [2.5]
    with pytest.raises(errors.EvaluationError):
        table.update({"score": "10 / id"})


def test_nothing_is_committed_where_no_row_matches(tables: Any) -> None:
    table = tables(range(5))
    assert isinstance(table.update({"name": "'x'"}, "id = 77"), NothingToDo)
    assert table.version() == 0


@ALL
def test_constraints_hold_for_what_is_written(tables: Any, properties: Any) -> None:
    table = tables(range(5), properties=properties)
    table.add_constraint("positive", "score >= 0")
    with pytest.raises(errors.ConstraintViolation, match="positive"):
        table.update({"score": "-1"}, "id = 3")
    assert tables.ids(table, where="score < 0") == []


def test_rows_that_break_a_constraint_can_be_mended(tables: Any, tmp_path: Path) -> None:
    table = tables(range(5), properties=FEED)
    table.update({"score": "-5"}, "id = 2")
    # Another client was careless: the constraint came without a look at the rows.
    table._alter(add_constraint("positive", "score >= 0", lambda *_: None))
    table.update({"score": "5"}, "id = 2")
    kinds = table.changes(3)["_change_type"].to_pylist()
    assert sorted(kinds) == ["update_postimage", "update_preimage"]


def test_not_null_columns_stay_so(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("x", pa.string())])
    table = create(tmp_path / "t", schema)
    table.write(pa.table({"id": [1], "x": ["a"]}))
    with pytest.raises(errors.ConstraintViolation, match="NOT NULL"):
        table.update({"id": "NULL"})


def test_generated_columns_follow_what_they_are_made_of(tmp_path: Path) -> None:
    double = StructField("double", LONG, True, {"delta.generationExpression": "n * 2"})
    table = create(tmp_path / "t", StructType((StructField("n", LONG), double, StructField("m", LONG))))
    table.write(pa.table({"n": [1, 2], "m": [0, 0]}))
    table.update({"n": "n + 10"}, "n = 2")
    table.update({"m": "1"}, "n = 1")
    assert sorted(map(tuple, (row.values() for row in table.to_arrow().to_pylist()))) == [(1, 2, 1), (12, 24, 0)]
    with pytest.raises(errors.ConstraintViolation, match="double"):
        table.update({"double": "7"})


def test_a_field_of_a_struct_is_set_alone(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    table.write(pa.table({"k": [1, 2, 3], "s": [{"a": 1, "b": {"c": "x"}}, None, {"a": 3, "b": None}]}))
    table.update({"s.b.c": "upper(concat('y', k))"}, "k >= 2")
    table.update({"s.a": "s.a + 1"}, "k = 1")
    assert [row["s"] for row in sorted(table.to_arrow().to_pylist(), key=lambda row: row["k"])] == [
        {"a": 2, "b": {"c": "x"}},
        {"a": None, "b": {"c": "Y2"}},
        {"a": 3, "b": {"c": "Y3"}},
    ]


def test_lists_and_maps_are_carried_along(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    data = pa.table(
        {
            "k": pa.array([1, 2, 3]),
            "l": pa.array([[1], None, []], pa.list_(pa.int32())),
            "m": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int32())),
        }
    )
    table.write(data)
    table.update({"k": "k + 10", "l": "NULL"}, "k = 1")
    assert sorted((row["k"], row["l"], row["m"]) for row in table.to_arrow().to_pylist()) == [
        (2, None, None),
        (3, [], []),
        (11, None, [("a", 1)]),
    ]


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({}, errors.InvalidArgument),
        ({"nobody": "1"}, errors.InvalidExpression),
        ({"id": "'text'"}, errors.SchemaMismatch),
        ({"id": "nobody"}, errors.InvalidExpression),
        ({"id": "1", "ID": "2"}, errors.InvalidArgument),
        ({"id": "1 +"}, errors.InvalidExpression),
        ({"id + 1": "1"}, errors.InvalidExpression),
        ({"name": "CAST(sin(id) AS STRING)"}, errors.UnsupportedExpression),
    ],
)
def test_a_wrong_call_changes_nothing(tables: Any, values: Any, error: type[Exception]) -> None:
    table = tables(range(3))
    with pytest.raises(error):
        table.update(values)
    assert table.version() == 0
