"""What a MERGE or an UPDATE sets: fields of structs by name, at every depth, in Arrow and in Spark; defaults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeseal
from lakeseal import Table, errors

PAIR = pa.struct([("a", pa.int64()), ("b", pa.int64())])
SCHEMA = pa.schema([("id", pa.int64()), ("s", PAIR), ("l", pa.list_(PAIR)), ("m", pa.map_(pa.string(), PAIR))])
ROWS = [
    {"id": 1, "s": {"a": 1, "b": 2}, "l": [{"a": 1, "b": 2}], "m": [("k", {"a": 1, "b": 2})]},
    {"id": 2, "s": None, "l": None, "m": None},
    {"id": 3, "s": {"a": 3, "b": 4}, "l": [], "m": []},
]
Make = Callable[[Any], Any]


def rows(table: Table, *names: str) -> dict[int, Any]:
    found = table.to_arrow().to_pylist(maps_as_pydicts="strict")
    return {row["id"]: row[names[0]] if len(names) == 1 else [row[n] for n in names] for row in found}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table(tmp_path / "table")
    made.write(pa.Table.from_pylist(ROWS, SCHEMA), properties={"delta.enableChangeDataFeed": "true"})
    return made


@pytest.fixture(params=["arrow", pytest.param("spark", marks=pytest.mark.spark)])
def source(request: pytest.FixtureRequest) -> Make:
    """A source of a merge, for one of the two engines."""
    if request.param == "arrow":
        return lambda data: data
    spark = request.getfixturevalue("spark")

    def made(data: pa.Table) -> Any:
        return spark.createDataFrame(data)

    return made


def given(fields: str, *, ids: tuple[int, ...] = (1, 2, 9), null: bool = False) -> pa.Table:
    """Structs with these fields, in this order: ten times the id and the place of the letter."""
    struct = pa.struct([(name, pa.int64()) for name in fields])
    values = [None if null else {name: 10 * i + "abc".index(name) for name in fields} for i in ids]
    columns = {
        "id": pa.array(ids, pa.int64()),
        "s": pa.array(values, struct),
        "l": pa.array([[value, None] for value in values], pa.list_(struct)),
        "m": pa.array([[("k", value)] for value in values], pa.map_(pa.string(), struct)),
    }
    return pa.table(columns)


def test_structs_of_a_source_go_in_by_name_at_every_depth(table: Table, source: Make) -> None:
    merge = table.merge(source(given("ba")), "t.id = s.id")
    merge.when_matched_update("*").when_not_matched_insert({"id": "s.id", "s": "s.s", "l": "s.l", "m": "s.m"}).execute()
    found = rows(table, "s", "l", "m")
    for row in (1, 2, 9):
        one = {"a": 10 * row, "b": 10 * row + 1}
        assert found[row] == [one, [one, None], {"k": one}]
    assert found[3] == [{"a": 3, "b": 4}, [], {}]


@pytest.mark.spark
def test_named_structs_go_in_by_name_through_spark(spark: Any, table: Table) -> None:
    one = "named_struct('b', 20, 'a', 10)"
    table.update({"s": one, "l": f"array({one})", "m": f"map('k', {one})"}, "id = 1", spark=spark)
    lakeseal.sql(f"UPDATE delta.`{table.uri}` SET s = {one} WHERE id = 2", spark)
    merge = table.merge(spark.sql("SELECT 3L AS id"), "t.id = s.id")
    merge.when_matched_update({"s": one, "l": f"array({one})"}).execute()
    wanted = {"a": 10, "b": 20}
    assert rows(table, "s", "l", "m") == {
        1: [wanted, [wanted], {"k": wanted}],
        2: [wanted, None, None],
        3: [wanted, [wanted], {}],
    }


def test_fields_that_only_the_source_has_are_added_by_name(table: Table, source: Make) -> None:
    merge = table.merge(source(given("cba")), "t.id = s.id", merge_schema=True)
    merge.when_matched_update("*").when_not_matched_insert("*").execute()
    found = rows(table, "s", "l", "m")
    for row in (1, 2, 9):
        one = {"a": 10 * row, "b": 10 * row + 1, "c": 10 * row + 2}
        assert found[row] == [one, [one, None], {"k": one}]
    assert found[3][0] == {"a": 3, "b": 4, "c": None}


def test_a_field_that_the_source_lacks_stays_by_star_and_is_null_elsewhere(table: Table, source: Make) -> None:
    merge = table.merge(source(given("b")), "t.id = s.id", merge_schema=True)
    merge.when_matched_update("*").when_not_matched_insert("*").execute()
    found = rows(table, "s", "l", "m")
    assert found[1] == [{"a": 1, "b": 11}, [{"a": None, "b": 11}, None], {"k": {"a": None, "b": 11}}]
    assert found[2][0] == {"a": None, "b": 21}
    assert found[9] == [{"a": None, "b": 91}, [{"a": None, "b": 91}, None], {"k": {"a": None, "b": 91}}]
    merge = table.merge(source(given("b", ids=(3,))), "t.id = s.id", merge_schema=True)
    merge.when_matched_update({"s": "s.s"}).execute()
    assert rows(table, "s")[3] == {"a": None, "b": 31}


def test_a_struct_that_is_null_in_the_source_is_null_unless_fields_of_the_table_stay(
    table: Table, source: Make
) -> None:
    merge = table.merge(source(given("ba", ids=(3, 9), null=True)), "t.id = s.id", merge_schema=True)
    merge.when_matched_update("*").when_not_matched_insert("*").execute()
    assert rows(table, "s") == {1: {"a": 1, "b": 2}, 2: None, 3: None, 9: None}
    merge = table.merge(source(given("b", ids=(1,), null=True)), "t.id = s.id", merge_schema=True)
    merge.when_matched_update("*").execute()
    assert rows(table, "s")[1] == {"a": 1, "b": None}


def test_a_struct_that_is_null_on_both_sides_stays_null_where_fields_of_the_table_stay(
    tmp_path: Path, source: Make
) -> None:
    both = pa.struct([("a", pa.int64()), ("b", pa.int64())])
    deep = pa.struct([("x", both), ("y", pa.int64())])
    there = [None, {"a": None, "b": 2}, {"a": 5, "b": 2}, {"a": 5, "b": 2}]
    deep_there = [None, {"x": None, "y": 1}, {"x": {"a": 5, "b": 6}, "y": 1}, None]
    made = Table(tmp_path / "made")
    ids = pa.array([1, 2, 3, 4], pa.int64())
    made.write(pa.table({"id": ids, "s": pa.array(there, both), "n": pa.array(deep_there, deep)}))
    few = pa.struct([("b", pa.int64())])
    given = pa.table(
        {
            "id": ids,
            "s": pa.array([None, None, None, {"b": 9}], few),
            "n": pa.array([None, None, None, {"x": None}], pa.struct([("x", few)])),
        }
    )
    made.merge(source(given), "t.id = s.id", merge_schema=True).when_matched_update("*").execute()
    # As Delta Spark has it.
    assert rows(made, "s", "n") == {
        1: [None, None],
        2: [{"a": None, "b": None}, {"x": None, "y": 1}],
        3: [{"a": 5, "b": None}, {"x": {"a": 5, "b": None}, "y": 1}],
        4: [{"a": 5, "b": 9}, {"x": None, "y": None}],
    }


@pytest.mark.parametrize("fields", ["b", "cba"])
def test_other_fields_than_the_columns_are_refused_without_merge_schema(
    table: Table, source: Make, fields: str
) -> None:
    merge = table.merge(source(given(fields)), "t.id = s.id")
    wrong = [
        merge.when_matched_update("*"),
        merge.when_matched_update({"s": "s.s"}),
        merge.when_matched_update({"l": "s.l"}),
        merge.when_matched_update({"m": "s.m"}),
        merge.when_not_matched_insert({"id": "s.id", "s": "s.s"}),
    ]
    for one in wrong:
        with pytest.raises(errors.SchemaMismatch):
            one.execute()
    assert table.version() == 0


def test_columns_that_clauses_name_are_added_with_merge_schema(table: Table, source: Make) -> None:
    data = given("ab").append_column("fresh", pa.array(["x", "y", "z"])).append_column("other", pa.array([1, 2, 3]))
    merge = table.merge(source(data), "t.id = s.id", merge_schema=True)
    merge.when_matched_update({"fresh": "s.fresh"}).when_not_matched_insert({"id": "s.id"}).execute()
    assert table.schema().names == ["id", "s", "l", "m", "fresh"]
    assert rows(table, "fresh") == {1: "x", 2: "y", 3: None, 9: None}


def test_a_field_of_a_null_struct_can_be_set(table: Table, source: Make) -> None:
    merge = table.merge(source(given("ab", ids=(2,))), "t.id = s.id")
    result = (
        merge.when_matched_update({"s.a": "s.s.b"}).when_not_matched_by_source_update({"s.b": "t.s.b + 1"}).execute()
    )
    assert result.metrics["numTargetRowsUpdated"] == 3
    assert rows(table, "s") == {1: {"a": 1, "b": 3}, 2: {"a": 21, "b": None}, 3: {"a": 3, "b": 5}}
    posts = [row for row in table.changes(1).to_pylist() if row["_change_type"] == "update_postimage"]
    assert {row["id"]: row["s"] for row in posts} == rows(table, "s")


@pytest.mark.parametrize("through", ["arrow", pytest.param("spark", marks=pytest.mark.spark)])
def test_an_update_sets_a_field_of_a_null_struct(table: Table, through: str, request: pytest.FixtureRequest) -> None:
    spark = request.getfixturevalue("spark") if through == "spark" else None
    table.update({"s.a": "7 + id" if spark is None else "7 + bit_count(1) * id"}, "id < 3", spark=spark)
    assert rows(table, "s") == {1: {"a": 8, "b": 2}, 2: {"a": 9, "b": None}, 3: {"a": 3, "b": 4}}


class TestDefaults:
    @pytest.fixture
    def table(self, tmp_path: Path) -> Table:
        field = pa.field("v", pa.int64(), metadata={"CURRENT_DEFAULT": "40 + 2"})
        made = Table(tmp_path / "table")
        schema = pa.schema([("id", pa.int64()), field, ("w", pa.int64())])
        made.write(
            pa.table({"id": [1, 2], "v": [1, 1], "w": [1, 1]}, schema),
            properties={"delta.feature.allowColumnDefaults": "supported"},
        )
        return made

    def test_default_is_the_columns_own_or_null(self, table: Table) -> None:
        table.update({"v": "DEFAULT", "w": " default "}, "id = 1")
        assert rows(table, "v", "w") == {1: [42, None], 2: [1, 1]}

    def test_a_merge_sets_and_inserts_defaults(self, table: Table, source: Make) -> None:
        data = pa.table({"id": pa.array([1, 9], pa.int64())})
        merge = table.merge(source(data), "t.id = s.id").when_matched_update({"v": "DEFAULT", "w": "default"})
        merge = merge.when_not_matched_insert({"id": "s.id", "v": "DEFAULT"})
        merge.when_not_matched_by_source_update({"v": "DEFAULT"}).execute()
        assert rows(table, "v", "w") == {1: [42, None], 2: [42, 1], 9: [42, None]}

    def test_a_star_of_a_merge_wants_every_column_even_one_with_a_default(self, table: Table, source: Make) -> None:
        data = pa.table({"id": pa.array([1, 9], pa.int64()), "w": pa.array([5, 5], pa.int64())})
        for kind in ("when_matched_update", "when_not_matched_insert"):
            with pytest.raises(errors.SchemaMismatch, match="sets all columns") as raised:
                getattr(table.merge(source(data), "t.id = s.id"), kind)("*").execute()
            assert raised.value.column == "v"
        table.merge(source(data), "t.id = s.id", merge_schema=True).when_not_matched_insert("*").execute()
        assert rows(table, "v", "w") == {1: [1, 1], 2: [1, 1], 9: [42, 5]}

    @pytest.mark.spark
    def test_sql_says_default(self, spark: Any, table: Table) -> None:
        lakeseal.sql(f"UPDATE delta.`{table.uri}` SET v = DEFAULT, w = default WHERE id = 1", spark)
        lakeseal.sql(
            f"MERGE INTO delta.`{table.uri}` t USING (SELECT 9L AS id) s ON t.id = s.id "
            "WHEN NOT MATCHED THEN INSERT (id, v, w) VALUES (s.id, DEFAULT, 5)",
            spark,
        )
        assert rows(table, "v", "w") == {1: [42, None], 2: [1, 1], 9: [42, 5]}

    @pytest.mark.parametrize("value", ["DEFAULT + 1", "coalesce(DEFAULT, 1)"])
    def test_default_is_no_part_of_an_expression(self, table: Table, value: str) -> None:
        with pytest.raises(errors.InvalidExpression):
            table.update({"v": value})

    def test_a_column_called_default_is_that_column(self, tmp_path: Path) -> None:
        table = Table(tmp_path / "other")
        table.write(pa.table({"id": [1], "default": [5], "v": [1]}))
        table.update({"v": "DEFAULT"})
        assert rows(table, "v") == {1: 5}


TWICE = pa.table({"id": pa.array([1, 1, 2], pa.int64()), "v": pa.array([10, 20, 5], pa.int64())})


class TestSeveralSourceRows:
    @pytest.fixture
    def table(self, tmp_path: Path) -> Table:
        made = Table(tmp_path / "table")
        made.write(pa.table({"id": [1, 2, 3], "v": [1, 2, 3]}))
        return made

    def test_of_which_all_delete_whatever_matches_are_no_question(self, table: Table, source: Make) -> None:
        table.merge(source(TWICE), "t.id = s.id").when_matched_delete().execute()
        assert rows(table, "v") == {3: 3}

    def test_that_meet_a_conditional_delete_are_refused(self, table: Table, source: Make) -> None:
        merge = table.merge(source(TWICE), "t.id = s.id")
        for wrong in (
            merge.when_matched_delete("s.v > 1"),
            merge.when_matched_delete("s.v > 15").when_matched_delete(),
            merge.when_matched_update("*", "s.v > 100").when_matched_delete(),
        ):
            with pytest.raises(errors.AmbiguousMerge):
                wrong.execute()
        assert table.version() == 0

    def test_of_which_one_meets_a_clause_are_no_question(self, table: Table, source: Make) -> None:
        merge = (
            table.merge(source(TWICE), "t.id = s.id")
            .when_matched_delete("s.v = 5")
            .when_matched_update("*", "s.v = 20")
        )
        merge.execute()
        assert rows(table, "v") == {1: 20, 3: 3}
