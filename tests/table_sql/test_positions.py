"""INSERT by position: fields of structs too, at every depth, whatever they are called in the rows. So does Delta Spark,
which made the rows that are expected here of the same statements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakeseal
from lakeseal.errors import SchemaMismatch

COLUMNS = "(id INT, s STRUCT<a: INT, b: INT>, l ARRAY<STRUCT<a: INT, b: INT>>, m MAP<STRING, STRUCT<a: INT, b: INT>>)"
PUT = {"a": 20, "b": 10}
TURNED = "named_struct('b', 20, 'a', 10)"


@pytest.fixture
def table(tmp_path: Path) -> str:
    name = f"delta.`{tmp_path / 't'}`"
    lakeseal.sql(f"CREATE TABLE {name} {COLUMNS}")
    return name


def rows(name: str) -> list[dict[str, Any]]:
    found = lakeseal.Table(name.split("`")[1]).to_arrow().sort_by("id")
    return found.to_pylist(maps_as_pydicts="strict")  # type: ignore[no-any-return]


def test_fields_of_values_go_in_by_position(table: str) -> None:
    lakeseal.sql(
        f"INSERT INTO {table} VALUES (1, {TURNED}, array({TURNED}), map('k', {TURNED})), (2, NULL, NULL, NULL)"
    )
    assert rows(table) == [
        {"id": 1, "s": PUT, "l": [PUT], "m": {"k": PUT}},
        {"id": 2, "s": None, "l": None, "m": None},
    ]


def test_fields_of_a_query_without_spark_go_in_by_position(table: str) -> None:
    turned = "{'b': 20, 'a': 10}"
    lakeseal.sql(f"INSERT INTO {table} SELECT 1, {turned}, [{turned}], NULL")
    lakeseal.sql(f"INSERT INTO {table} BY NAME SELECT 2 AS id, {turned} AS s, NULL AS l")
    assert rows(table) == [
        {"id": 1, "s": PUT, "l": [PUT], "m": None},
        {"id": 2, "s": {"a": 10, "b": 20}, "l": None, "m": None},
    ]


def test_rows_with_the_names_and_types_of_all_columns_go_in_by_name(tmp_path: Path) -> None:
    table = f"delta.`{tmp_path / 't'}`"
    lakeseal.sql(f"CREATE TABLE {table} (id INT, s STRUCT<a: INT, b: INT>, p INT) PARTITIONED BY (p)")
    turned = "{'b': 20, 'a': 10}"
    lakeseal.sql(f"INSERT INTO {table} SELECT 1 AS id, {turned} AS s, 1 AS p")
    lakeseal.sql(f"INSERT INTO {table} SELECT 2 AS id, {turned} AS s, 1 AS q")
    lakeseal.sql(f"INSERT INTO {table} SELECT CAST(3 AS BIGINT) AS id, {turned} AS s, 1 AS p")
    lakeseal.sql(f"INSERT INTO {table} PARTITION (p = 1) SELECT 4 AS id, {turned} AS s")
    named = {"a": 10, "b": 20}
    assert [(row["id"], row["s"]) for row in rows(table)] == [(1, named), (2, PUT), (3, PUT), (4, named)]


@pytest.mark.spark
def test_rows_of_spark_with_the_names_and_types_of_all_columns_go_in_by_name(spark: Any, table: str) -> None:
    values = f"{TURNED} AS s, array({TURNED}) AS l, map('k', {TURNED})"
    for number, (kind, name) in enumerate([("INT", "m"), ("INT", "n"), ("BIGINT", "m"), ("INT", "M")]):
        lakeseal.sql(f"INSERT INTO {table} SELECT CAST({number} AS {kind}) AS id, {values} AS {name}", spark)
    named = {"a": 10, "b": 20}
    assert [(row["s"], row["l"], row["m"]) for row in rows(table)] == [
        (one, [one], {"k": one}) for one in (named, PUT, PUT, PUT)
    ]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("named_struct('a', 1)", "1 fields, and its column 2"),
        ("named_struct('a', 1, 'b', 2, 'c', 3)", "does not have"),
        ("named_struct('x', 1, 'y', 2, 'a', 3)", "'a' is beyond"),
    ],
)
def test_fields_that_have_no_place_are_refused(table: str, value: str, told: str) -> None:
    with pytest.raises(SchemaMismatch, match=told):
        lakeseal.sql(f"INSERT INTO {table} VALUES (1, {value}, NULL, NULL)")
    assert rows(table) == []


@pytest.mark.parametrize("values", [f"array({TURNED}), 1", "array(named_struct('x', 1, 'a', 2)), 1"])
def test_below_arrays_another_order_of_fields_is_refused_where_columns_are_listed(table: str, values: str) -> None:
    """Delta Spark goes by name there or by position, as other columns have it."""
    with pytest.raises(SchemaMismatch, match="in another order"):
        lakeseal.sql(f"INSERT INTO {table} (l, id) VALUES ({values})")
    assert rows(table) == []
    lakeseal.sql(f"INSERT INTO {table} (s, id) VALUES ({TURNED}, 1)")
    assert rows(table) == [{"id": 1, "s": PUT, "l": None, "m": None}]


@pytest.mark.spark
def test_fields_of_a_query_of_spark_go_in_by_position(spark: Any, table: str) -> None:
    lakeseal.sql(f"INSERT INTO {table} SELECT 1, {TURNED}, array({TURNED}), map('k', {TURNED})", spark)
    lakeseal.sql(
        f"INSERT INTO {table} VALUES (2, struct(20, 10), array(struct(20, 10)), map('k', struct(20, 10)))", spark
    )
    lakeseal.sql(f"INSERT OVERWRITE {table} SELECT id, struct(s.b, s.a), NULL, NULL FROM {table} WHERE id = 2", spark)
    assert rows(table) == [{"id": 2, "s": {"a": 10, "b": 20}, "l": None, "m": None}]
    assert lakeseal.Table(table.split("`")[1]).to_arrow(version=2).sort_by("id").to_pylist(
        maps_as_pydicts="strict"
    ) == [
        {"id": 1, "s": PUT, "l": [PUT], "m": {"k": PUT}},
        {"id": 2, "s": PUT, "l": [PUT], "m": {"k": PUT}},
    ]
    with pytest.raises(SchemaMismatch, match="1 fields"):
        lakeseal.sql(f"INSERT INTO {table} SELECT 3, struct(1), NULL, NULL", spark)
