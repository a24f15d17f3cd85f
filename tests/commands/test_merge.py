"""MERGE without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakeseal import Table, create, errors
from lakeseal.commands.command import NothingToDo
from lakeseal.commit.transaction import CommitResult
from lakeseal.protocol.schema import LONG, StructField, StructType

FEED = {"delta.enableChangeDataFeed": "true"}
VECTORS = {"delta.enableDeletionVectors": "true"}
ALL = pytest.mark.parametrize(
    "properties", [{}, FEED, VECTORS, FEED | VECTORS], ids=["plain", "feed", "vectors", "both"]
)


def changed(tables: Any, *ids: int, name: str = "new") -> pa.Table:
    return tables.people(*ids).set_column(1, "name", [[f"{name}{i}" for i in ids]])


@ALL
@pytest.mark.parametrize("partition_by", [(), ("part",)], ids=["whole", "partitioned"])
def test_an_upsert_updates_what_is_there_and_inserts_the_rest(tables: Any, properties: Any, partition_by: Any) -> None:
    table = tables(range(10), range(10, 20), range(20, 30), properties=properties, partition_by=partition_by)
    before = tables.paths(table)
    merge = table.merge(changed(tables, 3, 14, 40, 41), "t.id = s.id")
    result = merge.when_matched_update("*").when_not_matched_insert("*").execute()
    assert isinstance(result, CommitResult)
    names = tables.names(table)
    assert {i: name for i, name in names.items() if (name or "").startswith("new")} == {
        i: f"new{i}" for i in (3, 14, 40, 41)
    }
    assert sorted(names) == [*range(30), 40, 41]
    assert len(before & tables.paths(table)) >= (1 if not partition_by else 7)
    assert result.metrics["numTargetRowsUpdated"] == 2
    assert result.metrics["numTargetRowsInserted"] == 2
    tables.check(table)
    if properties.get("delta.enableChangeDataFeed"):
        assert tables.feed(table, 3) == {
            ("update_preimage", 3, "n3"): 1,
            ("update_postimage", 3, "new3"): 1,
            ("update_preimage", 14, "n14"): 1,
            ("update_postimage", 14, "new14"): 1,
            ("insert", 40, "new40"): 1,
            ("insert", 41, "new41"): 1,
        }


@ALL
def test_every_kind_of_clause_with_conditions_in_order(tables: Any, properties: Any) -> None:
    table = tables(range(10), range(10, 20), properties=properties)
    result = (
        table.merge(changed(tables, 1, 2, 3, 4, 50, 51, 52), "target.id = source.id")
        .when_matched_delete("t.id = 1")
        .when_matched_update({"name": "concat(t.name, '+', s.name)"}, "s.id < 4")
        .when_not_matched_insert({"id": "s.id", "name": "'a'"}, "s.id = 50")
        .when_not_matched_insert("*", "id > 51")
        .when_not_matched_by_source_delete("t.id > 15")
        .when_not_matched_by_source_update({"t.name": "upper(name)"}, "id = 7")
        .execute()
    )
    assert isinstance(result, CommitResult)
    names = tables.names(table)
    assert sorted(names) == [0, *range(2, 16), 50, 52]
    assert [names[i] for i in (2, 3, 4, 7, 8, 50, 52)] == ["n2+new2", "n3+new3", "n4", "N7", "n8", "a", "new52"]
    assert table.to_arrow(where="id = 50")["score"].to_pylist() == [None]
    expected = {
        "numSourceRows": 7,
        "numTargetRowsMatchedUpdated": 2,
        "numTargetRowsMatchedDeleted": 1,
        "numTargetRowsNotMatchedBySourceUpdated": 1,
        "numTargetRowsNotMatchedBySourceDeleted": 4,
        "numTargetRowsInserted": 2,
    }
    assert {name: result.metrics[name] for name in expected} == expected
    tables.check(table)
    if properties.get("delta.enableChangeDataFeed"):
        kinds = sorted(kind for kind, _, _ in tables.feed(table, 2).elements())
        assert kinds == ["delete"] * 5 + ["insert"] * 2 + ["update_postimage"] * 3 + ["update_preimage"] * 3


def test_a_condition_that_a_constant_settles_matches_nothing(tables: Any) -> None:
    for n, on in enumerate(("t.id = s.id AND false", "false AND t.id = s.id", "t.id = s.id AND NULL", "false")):
        table = tables(range(3), name=f"t{n}")
        merge = table.merge(tables.people(2, 3), on).when_matched_delete().when_not_matched_insert("*")
        merge.when_not_matched_by_source_update({"name": "'alone'"}).execute()
        assert sorted(tables.ids(table)) == [0, 1, 2, 2, 3]


def test_deletes_by_vectors_are_derived_too(tables: Any) -> None:
    table = tables(range(10), properties=FEED | VECTORS)
    table.merge(changed(tables, 5, 30), "t.id = s.id").when_matched_delete().when_not_matched_insert().execute()
    assert not [path for path in tables.files_on_disk() if path.startswith("_change_data")]
    assert tables.feed(table, 1) == {("delete", 5, None): 1, ("insert", 30, "new30"): 1}


def test_inserts_alone_rewrite_nothing_and_the_feed_derives_them(tables: Any) -> None:
    table = tables(range(10), range(10, 20), properties=FEED)
    before = tables.paths(table)
    source = pa.concat_tables([changed(tables, 5, 30, 31), changed(tables, 30, name="again")])
    result = table.merge(source, "t.id = s.id").when_not_matched_insert().execute()
    assert isinstance(result, CommitResult)
    assert before < tables.paths(table)
    assert tables.ids(table) == [*range(20), 30, 30, 31]
    assert not [path for path in tables.files_on_disk() if path.startswith("_change_data")]
    assert {kind for kind, _, _ in tables.feed(table, 2)} == {"insert"}


def test_files_that_cannot_match_are_not_opened(tables: Any) -> None:
    table = tables(range(10), range(10, 20), range(20, 30))
    for path, stats in zip(table.files()["path"].to_pylist(), table.files()["stats"].to_pylist(), strict=True):
        if '"min' in stats and '"id":10' not in stats:
            (tables.root / "table" / path).unlink()
    table.merge(changed(tables, 12, 13), "t.id = s.id").when_matched_update().execute()
    assert table.version() == 3


def test_a_file_whose_matches_fall_under_no_clause_is_left_alone(tables: Any) -> None:
    table = tables(range(10), range(10, 20))
    before = tables.paths(table)
    table.merge(changed(tables, 3, 13), "t.id = s.id").when_matched_update("*", "s.id > 10").execute()
    assert len(before & tables.paths(table)) == 1


@ALL
def test_several_matches_are_an_error_that_shows_a_row(tables: Any, properties: Any) -> None:
    table = tables(range(10), properties=properties)
    source = pa.concat_tables([changed(tables, 4), changed(tables, 4, 5, name="x")])
    merge = table.merge(source, "t.id = s.id")
    with pytest.raises(errors.AmbiguousMerge, match="id: 4"):
        merge.when_matched_update("*").execute()
    assert table.version() == 0
    merge.when_matched_update("*", "s.name LIKE 'x%'").execute()
    assert tables.names(table)[4] == "x4"
    merge.when_matched_delete().execute()
    assert tables.ids(table) == [0, 1, 2, 3, 6, 7, 8, 9]


def test_null_keys_match_nothing_unless_asked_for(tables: Any) -> None:
    source = pa.table({"name": pa.array([None, "n1"], pa.string()), "score": [7.0, 8.0]})
    for on, expected in (("t.name = s.name", {1: 8.0}), ("t.name <=> s.name", {0: 7.0, 1: 8.0})):
        table = tables(range(5), name=on[7:9].strip())
        result = table.merge(source, on).when_matched_update({"score": "s.score"}).execute()
        assert isinstance(result, CommitResult)
        scores = {row["id"]: row["score"] for row in table.to_arrow().to_pylist()}
        assert {i: scores[i] for i in expected} == expected
        assert result.metrics["numTargetRowsUpdated"] == len(expected)


@pytest.mark.parametrize(
    "on",
    [
        "t.id = s.id AND t.part = s.part",
        "t.id = s.id AND t.part = s.part AND t.name <=> s.old",
        "s.id = t.id AND t.score >= 0 AND s.score >= 0",
        "t.id >= s.id AND t.id <= s.id",
        "CAST(t.id AS STRING) = CAST(s.id AS STRING)",
        "t.id + 1 = s.id + 1",
        "t.score = s.id / 2",
        "abs(t.id - s.id) < 1 AND t.part = s.part",
    ],
)
def test_conditions_of_every_shape_find_the_same_rows(tables: Any, on: str) -> None:
    table = tables(range(50), range(50, 100))
    source = changed(tables, *range(0, 200, 7)).append_column(
        "old", pa.array([f"n{i}" if i % 5 else None for i in range(0, 200, 7)])
    )
    table.merge(source.drop_columns("score").append_column("score", pa.array(np.zeros(29))), on).when_matched_update(
        {"name": "s.name"}
    ).when_not_matched_insert({"id": "s.id", "name": "s.name"}).execute()
    names = tables.names(table)
    assert {i for i, name in names.items() if (name or "").startswith("new")} == set(range(0, 200, 7))
    assert len(names) == 100 + 14


def test_many_pairs_are_looked_at_in_pieces(tables: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakeseal.commands.merge.join._PAIRS", 7)
    table = tables(range(40))
    source = pa.table({"k": [i % 2 for i in range(9)], "n": list(range(9))})
    table.merge(source, "t.id % 2 = s.k AND t.id = s.n").when_matched_update({"name": "'x'"}).execute()
    assert [i for i, name in tables.names(table).items() if name == "x"] == list(range(9))
    table.merge(source, "t.id < s.n AND t.id > s.n - 2").when_matched_update({"name": "'y'"}).execute()
    assert [i for i, name in tables.names(table).items() if name == "y"] == list(range(8))


def test_special_numbers_are_keys_like_all_others(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    table.write(pa.table({"f": [0.0, float("nan"), 1.5, None], "n": [1, 2, 3, 4]}))
    source = pa.table({"f": [-0.0, float("nan"), 9.0, None], "n": [10, 20, 30, 40]})
    table.merge(source, "t.f = s.f").when_matched_update("*").execute()
    assert sorted(table.to_arrow()["n"].to_pylist()) == [3, 4, 10, 20]


def test_new_columns_come_with_merge_schema(tables: Any) -> None:
    table = tables(range(5), properties=FEED)
    source = changed(tables, 3, 9).append_column("extra", pa.array([1, 2]))
    merge = table.merge(source, "t.id = s.id", merge_schema=True)
    merge.when_matched_update("*").when_not_matched_insert("*").execute()
    assert table.schema().names == ["id", "name", "part", "score", "extra"]
    assert {row["id"]: row["extra"] for row in table.to_arrow().to_pylist()} == {
        0: None, 1: None, 2: None, 3: 1, 4: None, 9: 2
    }  # fmt: skip
    tables.check(table)
    narrow = pa.table({"id": [3, 10], "extra": [7, 8]})
    with pytest.raises(errors.SchemaMismatch, match="name"):
        table.merge(narrow, "t.id = s.id").when_matched_update("*").execute()
    table.merge(narrow, "t.id = s.id", merge_schema=True).when_matched_update().when_not_matched_insert().execute()
    assert table.to_arrow(where="extra >= 7").select(["id", "name"]).to_pylist() == [
        {"id": 3, "name": "new3"},
        {"id": 10, "name": None},
    ]


def test_extra_columns_of_the_source_are_passed_over_without_merge_schema(tables: Any) -> None:
    table = tables(range(5))
    source = changed(tables, 3, 9).append_column("extra", pa.array([1, 2]))
    table.merge(source, "t.id = s.id").when_matched_update("*").when_not_matched_insert("*").execute()
    assert table.schema().names == ["id", "name", "part", "score"]
    assert tables.names(table)[3] == "new3"


def test_what_is_set_without_a_match_in_the_source_brings_no_fields_of_the_source(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    table.write(pa.table({"id": [1], "s": [{"a": 1}]}))
    source = pa.table({"id": [2], "s": [{"a": 2, "c": 3}]})
    merge = table.merge(source, "t.id = s.id", merge_schema=True)
    merge.when_not_matched_by_source_update({"s": "t.s", "id": "t.id + 1"}).execute()
    assert table.to_arrow().to_pylist() == [{"id": 2, "s": {"a": 1}}]


def test_constraints_defaults_and_generated_columns(tmp_path: Path) -> None:
    fields = (
        StructField("n", LONG, False),
        StructField("double", LONG, True, {"delta.generationExpression": "n * 2"}),
    )
    table = create(tmp_path / "t", StructType(fields))
    table.write(pa.table({"n": [1, 2]}))
    table.add_constraint("small", "n < 100")
    source = pa.table({"n": [2, 7], "to": [5, 7]})
    merge = table.merge(source, "t.n = s.n")
    merge.when_matched_update({"n": "s.to"}).when_not_matched_insert({"n": "s.n"}).execute()
    assert sorted(tuple(row.values()) for row in table.to_arrow().to_pylist()) == [(1, 2), (5, 10), (7, 14)]
    with pytest.raises(errors.ConstraintViolation, match="small"):
        merge.when_not_matched_insert({"n": "s.n + 100"}).execute()
    with pytest.raises(errors.ConstraintViolation, match="NOT NULL"):
        merge.when_not_matched_insert({"n": "NULL"}).execute()
    with pytest.raises(errors.SchemaMismatch, match="must not be null"):
        table.merge(source, "t.n = s.n").when_not_matched_insert({"double": "4"}).execute()


def test_rows_move_between_partitions(tables: Any) -> None:
    table = tables(range(9), partition_by=["part"])
    source = tables.people(3, 4).set_column(2, "part", [["p9", None]])
    table.merge(source, "t.id = s.id").when_matched_update("*").execute()
    assert tables.ids(table, where="part = 'p9'") == [3]
    assert tables.ids(table, where="part IS NULL") == [4]
    tables.check(table)


def test_aliases_of_ones_own(tables: Any) -> None:
    table = tables(range(5))
    merge = table.merge(changed(tables, 3), "people.id = news.id", source_alias="news", target_alias="people")
    merge.when_matched_update({"name": "news.name"}).execute()
    assert tables.names(table)[3] == "new3"


def test_nothing_is_committed_where_no_row_changes(tables: Any) -> None:
    table = tables(range(5))
    for source in (changed(tables, 30), changed(tables)):
        assert isinstance(table.merge(source, "t.id = s.id").when_matched_update().execute(), NothingToDo)
    assert table.version() == 0


def test_an_empty_table_takes_inserts(tables: Any) -> None:
    table = tables([])
    table.merge(changed(tables, 1, 2), "t.id = s.id").when_matched_delete().when_not_matched_insert().execute()
    assert tables.ids(table) == [1, 2]


@pytest.mark.parametrize(
    ("on", "clause", "error"),
    [
        ("id = s.id", {}, errors.InvalidExpression),
        ("t.nobody = s.id", {}, errors.InvalidExpression),
        ("t.id", {}, errors.InvalidExpression),
        ("t.id = s.id", {"set": {}}, errors.InvalidArgument),
        ("t.id = s.id", {"set": {"nobody": "1"}}, errors.InvalidExpression),
        ("t.id = s.id", {"set": {"id": "name"}}, errors.InvalidExpression),
        ("t.id = s.id", {"set": {"id": "s.name"}}, errors.SchemaMismatch),
        ("t.id = s.id", {"condition": "s.id + 1"}, errors.InvalidExpression),
        ("sin(t.id) = s.id", {}, errors.UnsupportedExpression),
    ],
)
def test_a_wrong_call_changes_nothing(tables: Any, on: str, clause: Any, error: type[Exception]) -> None:
    table = tables(range(3))
    with pytest.raises(error):
        table.merge(changed(tables, 1), on).when_matched_update(**clause).execute()
    assert table.version() == 0


def test_clauses_must_make_sense(tables: Any) -> None:
    merge = tables(range(3)).merge(changed(tables, 1), "t.id = s.id")
    with pytest.raises(errors.InvalidArgument, match="no clause"):
        merge.execute()
    with pytest.raises(errors.InvalidArgument, match="leaves nothing"):
        merge.when_matched_delete().when_matched_update().execute()
    with pytest.raises(errors.InvalidExpression, match="cannot be seen"):
        merge.when_not_matched_insert({"id": "t.id"}).execute()
    with pytest.raises(errors.InvalidArgument):
        merge.when_matched_update("all")


def test_a_reader_is_read_once_and_column_mapping_is_followed(tables: Any) -> None:
    table = tables(range(5), properties={"delta.columnMapping.mode": "name"} | VECTORS)
    table.rename_column("name", "called")
    source = changed(tables, 3, 9).rename_columns(["id", "called", "part", "score"])
    table.merge(source.to_reader(), "t.id = s.id").when_matched_update().when_not_matched_insert().execute()
    assert table.to_arrow(where="called LIKE 'new%'")["id"].sort().to_pylist() == [3, 9]
