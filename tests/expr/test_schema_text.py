"""Schemas as people write them, beside Spark's own reader of them."""

from __future__ import annotations

from typing import Any

import pytest

from lakeseal.errors import InvalidArgument
from lakeseal.expr.schema_text import parse_schema

TEXTS = [
    "id long, n: int, `a b` string",
    "at timestamp, t timestamp_ntz, z timestamp_ltz, d date",
    "x decimal(10,2), y decimal, z decimal(38,38), w dec(5), v numeric(7 , 3)",
    "a array<struct<x: int>>, m map<string, double>",
    "s struct<a:struct<b:array<map<string,array<array<int>>>>>>",
    "id bigint NOT NULL COMMENT 'it''s \\n the key', b Binary, t TINYINT, s smallint",
    "f real, o boolean, n byte, r short",
    "s struct<a: int NOT NULL COMMENT 'x', b string>, date date, `a.b` int, `a``b` int",
    "e struct<>",
    "map map<string,int>, array array<int>, struct struct<struct:int>",
]


@pytest.mark.spark
@pytest.mark.parametrize("text", TEXTS)
def test_a_schema_is_what_spark_makes_of_it(spark: Any, text: str) -> None:
    from pyspark.sql.types import _parse_datatype_string

    from lakeseal.spark.schema import from_spark

    assert parse_schema(text) == from_spark(_parse_datatype_string(text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "name of a column"),
        ("id", "type"),
        ("id long,", "name of a column"),
        ("id long name string", "',' or the end"),
        ("id longish", "'longish' is not supported"),
        ("id array", "array without"),
        ("id array<int", "'>'"),
        ("id array<int>>", "',' or the end"),
        ("id map<int>", "','"),
        ("id decimal(39,2)", "cannot be used here"),
        ("id varchar(x)", "a length"),
        ("id int NOT", "NULL"),
        ("id int COMMENT 5", "comment"),
        ("id int DEFAULT 5", "',' or the end"),
        ("id int; drop table t", "',' or the end"),
        ("id int, ID string", "two columns called"),
        ("s struct<a int, A int>", "two columns called"),
        ("id 'int'", "not supported"),
        ("a " + "array<" * 70 + "int" + ">" * 70, "within each other"),
        ("a " + "array<" * 100_000, "within each other"),
    ],
)
def test_what_is_no_schema_is_refused_and_told_why(text: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        parse_schema(text)


@pytest.mark.parametrize("text", ["c char(3)", "c VARCHAR(10)", "c character(1)"])
def test_texts_of_some_length_are_strings(text: str) -> None:
    assert [str(field.type) for field in parse_schema(text).fields] == ["string"]
