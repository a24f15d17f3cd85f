"""What is a name, and what is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeseal.catalog.table_name import SchemaName, TableName, may_be_name
from lakeseal.errors import InvalidArgument


def test_a_name_of_two_parts_is_in_the_default_catalog() -> None:
    assert TableName.parse("sales.orders") == TableName(catalog="main", schema="sales", table="orders")
    assert str(TableName.parse("lake.`sälés`.orders")) == "lake.`sälés`.orders"
    assert SchemaName.parse("sales") == SchemaName(catalog="main", schema="sales")
    assert SchemaName.parse("lake.`s-1`") == SchemaName(catalog="lake", schema="s-1")


def test_a_single_word_is_refused_and_the_hint_says_what_to_write() -> None:
    with pytest.raises(InvalidArgument, match=r"default\.orders"):
        TableName.parse("orders")


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "a.",
        ".a",
        "a..b",
        "a.b.c.d",
        "`a.b",
        "`a`b.c",
        "a.`b`c",
        "a.`b.c`",
        "a.b/c",
        "a.b\\c",
        "a.b c",
        "a.b\tc",
        "a.``",
        "a.`b``c`",
        "a.b\0",
        "a.b\n",
        "a.\u202eb",
        "a.\ud800",
        "a." + "b" * 256,
        "a." + "ﬃ" * 100,
        "a." + "b" * 100_000,
    ],
)
def test_hostile_names_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        TableName.parse(text)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("text", ["a.b.c", "a.b", "A_1.2", "`x y`.b", "a.`/p`", "größe.b"])
def test_what_has_the_form_of_a_name(text: str) -> None:
    assert may_be_name(text)


@pytest.mark.parametrize(
    "text",
    [
        "orders",
        "./a.b",
        "/a.b",
        "a/b.c",
        "file:///a.b",
        "s3://b.c",
        "~.a",
        "a..b",
        "..",
        ".a.b",
        "a.b.c.d",
        "a.b-c",
        "",
    ],
)
def test_what_has_not(text: str) -> None:
    assert not may_be_name(text)


_parts = st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters="./\\`"), min_size=1, max_size=80)


@given(_parts, _parts, _parts)
def test_a_name_reads_as_it_was_written(catalog: str, schema: str, table: str) -> None:
    name = TableName(catalog=catalog, schema=schema, table=table)
    assert TableName.parse(str(name)) == name
    assert may_be_name(str(name))
    assert TableName.parse(str(name).swapcase().swapcase()).folded is not None
