from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeseal.errors import InvalidMetadata, UnsupportedType
from lakeseal.protocol import schema as delta
from lakeseal.protocol.partitions import (
    can_partition,
    escape_path_name,
    format_partition_values,
    parse_partition_directory,
    parse_partition_values,
    partition_directory,
    unescape_path_name,
)
from lakeseal.protocol.schema import ArrayType, DataType, DecimalType, MapType, StructType

PARTITIONABLE: list[DataType] = [
    delta.STRING, delta.BINARY, delta.BOOLEAN, delta.BYTE, delta.SHORT, delta.INTEGER, delta.LONG, delta.FLOAT,
    delta.DOUBLE, delta.DATE, delta.TIMESTAMP, delta.TIMESTAMP_NTZ, DecimalType(10, 2),
]  # fmt: skip


@pytest.mark.parametrize("data_type", PARTITIONABLE, ids=str)
def test_null_and_empty_text_are_null_for_every_type(data_type: DataType) -> None:
    assert can_partition(data_type)
    values = parse_partition_values(pa.array([None, "", None]), data_type)
    assert values.to_pylist() == [None, None, None]


def test_rows_keep_their_order_and_repeats() -> None:
    texts = pa.chunked_array([["b", "a"], [], [None, "b", ""]], pa.string())
    assert parse_partition_values(texts, delta.STRING).to_pylist() == ["b", "a", None, "b", None]


def test_large_strings_are_texts_too() -> None:
    assert parse_partition_values(pa.array(["1", "", None], pa.large_string()), delta.LONG).to_pylist() == [
        1,
        None,
        None,
    ]


def test_a_single_value_of_any_size_has_a_text() -> None:
    far = pa.scalar(2**62, pa.timestamp("us"))
    texts = format_partition_values(pa.repeat(far, 1), delta.TIMESTAMP_NTZ)
    assert texts.to_pylist() == ["+148108-07-06 14:00:27.387904"]


def test_no_rows_give_no_values() -> None:
    assert len(parse_partition_values(pa.chunked_array([], pa.string()), delta.DATE)) == 0
    assert len(parse_partition_values(pa.array([], pa.string()), delta.DATE)) == 0


@pytest.mark.parametrize("data_type", [t for t in PARTITIONABLE if t not in (delta.STRING, delta.BINARY)], ids=str)
def test_a_value_that_does_not_fit_names_column_and_value(data_type: DataType) -> None:
    with pytest.raises(InvalidMetadata, match="'not a value'") as caught:
        parse_partition_values(pa.array([None, "not a value"]), data_type, column="p")
    assert caught.value.column == "p"


def test_a_long_bad_value_is_shown_shortened() -> None:
    with pytest.raises(InvalidMetadata) as caught:
        parse_partition_values(pa.array(["x" * 10_000]), delta.LONG)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "data_type", [ArrayType(delta.LONG), MapType(delta.LONG, delta.LONG), StructType(), delta.VARIANT, delta.VOID]
)
def test_types_that_cannot_partition_are_refused(data_type: DataType) -> None:
    assert not can_partition(data_type)
    with pytest.raises(UnsupportedType, match="cannot partition"):
        parse_partition_values(pa.array(["x"]), data_type, column="p")
    with pytest.raises(UnsupportedType, match="cannot partition"):
        format_partition_values(pa.nulls(1), data_type)


@pytest.mark.parametrize(("value", "data_type"), [("", delta.STRING), (b"", delta.BINARY), (None, delta.STRING)])
def test_empty_values_are_written_as_null(value: Any, data_type: DataType) -> None:
    assert format_partition_values(pa.repeat(pa.scalar(value), 1), data_type).to_pylist() == [None]


@given(st.lists(st.text(min_size=1) | st.none()))
def test_texts_come_back(texts: list[str | None]) -> None:
    column = pa.chunked_array([pa.array(texts, pa.string())])
    assert format_partition_values(parse_partition_values(column, delta.STRING), delta.STRING).to_pylist() == texts


@given(st.text())
def test_escaped_names_come_back_and_hold_no_separator(text: str) -> None:
    escaped = escape_path_name(text)
    assert unescape_path_name(escaped) == text
    assert not set(escaped) & set("/=:?#\\\"'*[]{^\n\x7f")


@pytest.mark.parametrize(
    ("text", "escaped"),
    [("a b+é&,;~", "a b+é&,;~"), ("10:00", "10%3A00"), ("A/A", "A%2FA"), ("a?", "a%3F"), ("%3A", "%253A"), ("}", "}")],
)
def test_names_are_escaped_as_hive_does(text: str, escaped: str) -> None:
    assert escape_path_name(text) == escaped


def test_an_escape_stands_for_a_character_and_other_percent_signs_for_themselves() -> None:
    assert unescape_path_name("%C3%zz%4") == "Ã%zz%4"


@given(st.dictionaries(st.text(min_size=1), st.text(min_size=1) | st.none(), max_size=4))
def test_a_directory_gives_its_partition_back(values: dict[str, str | None]) -> None:
    directory = "/".join(partition_directory(column, text) for column, text in values.items())
    assert "\0" not in directory
    assert list(parse_partition_directory(directory).items()) == list(values.items())


def test_null_has_the_default_directory_and_a_text_that_reads_like_it_has_not() -> None:
    assert partition_directory("a", None) == "a=__HIVE_DEFAULT_PARTITION__"
    assert partition_directory("a", "__HIVE_DEFAULT_PARTITION__") == "a=%5F_HIVE_DEFAULT_PARTITION__"


def test_directories_that_are_no_partitions_are_left_out() -> None:
    assert parse_partition_directory("data/a=1/=x/part=2") == {"a": "1", "part": "2"}
