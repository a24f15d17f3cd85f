from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakeseal.errors import ConstraintViolation
from lakeseal.protocol.char_varchar import Limit, char_limits, fit, limits, padded
from lakeseal.protocol.schema import CHAR_VARCHAR, STRING, StructField

VARCHAR = Limit(length=3, is_char=False)
CHAR = Limit(length=3, is_char=True)


def declared(text: Any) -> Any:
    return limits(StructField("c", STRING, True, {CHAR_VARCHAR: text}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("varchar(3)", VARCHAR),
        ("CHAR(3)", CHAR),
        ("array<char(3)>", {"element": CHAR}),
        ("map<varchar(3),int>", {"key": VARCHAR}),
        ("map<int,char(3)>", {"value": CHAR}),
        (
            "struct<a:varchar(3),`b``:<`:array<struct<x:char(3)>>,d:decimal(3,2)>",
            {"a": VARCHAR, "b`:<": {"element": {"x": CHAR}}},
        ),
        ("array<int>", None),
        ("string", None),
    ],
)
def test_limits_are_found_through_nested_types(text: str, expected: Any) -> None:
    assert declared(text) == expected


@pytest.mark.parametrize(
    "text", ["", "varchar", "varchar(", "varchar(x)", "array<", "map<a,b,varchar(3)>", "a b", "<>", 7]
)
def test_what_is_not_understood_limits_nothing(text: Any) -> None:
    assert declared(text) is None


def test_varchar_keeps_short_strings_and_gives_up_blanks_beyond_its_length() -> None:
    array = pa.array(["abc", "ab    ", "é", None, "", "äöü "])
    assert fit(array, VARCHAR, "c").to_pylist() == ["abc", "ab ", "é", None, "", "äöü"]


def test_char_is_filled_up_with_blanks() -> None:
    assert fit(pa.array(["a", "", None, "äö", "abc"]), CHAR, "c").to_pylist() == ["a  ", "   ", None, "äö ", "abc"]


@pytest.mark.parametrize("limit", [VARCHAR, CHAR])
@pytest.mark.parametrize("value", ["abcd", "ab  x", "äöüß", "   x", "abc\t", "abc\u00a0"])
def test_a_longer_string_is_a_violation_that_shows_it(limit: Limit, value: str) -> None:
    with pytest.raises(ConstraintViolation) as caught:
        fit(pa.array(["a", value]), limit, "c")
    assert repr(value) in caught.value.message
    assert caught.value.column == "c"


def test_a_violation_in_a_nested_string_names_its_path() -> None:
    array = pa.array([None, {"a": [{"b": "abcd"}]}])
    with pytest.raises(ConstraintViolation) as caught:
        fit(array, declared("struct<a:array<struct<b:char(3)>>>"), "c")
    assert caught.value.column == "c.a.element.b"


def test_nulls_and_slices_of_nested_values_stay_as_they_are() -> None:
    array = pa.array([{"a": ["x", None]}, None, {"a": None}, {"a": []}, {"a": ["yy"]}]).slice(1)
    fitted = fit(array, declared("struct<a:array<char(2)>>"), "c")
    assert fitted.to_pylist() == [None, {"a": None}, {"a": []}, {"a": ["yy"]}]
    pairs = pa.array([[("k", "v")], None, []], pa.map_(pa.string(), pa.string()))
    assert fit(pairs, declared("map<char(2),char(3)>"), "c").to_pylist() == [[("k ", "v  ")], None, []]


def test_only_nulls_are_left_alone() -> None:
    assert fit(pa.array([None, None], pa.string()), CHAR, "c").to_pylist() == [None, None]


def test_reading_fills_up_chars_alone_and_cuts_nothing() -> None:
    column = StructField("c", STRING, True, {CHAR_VARCHAR: "struct<a:char(3),v:varchar(3),l:array<char(2)>>"})
    array = pa.array([{"a": "q", "v": "q", "l": ["x", None]}, None, {"a": "qqqq", "v": None, "l": None}])
    assert padded(array, char_limits(column)).to_pylist() == [
        {"a": "q  ", "v": "q", "l": ["x ", None]}, None, {"a": "qqqq", "v": None, "l": None},
    ]  # fmt: skip
    assert char_limits(StructField("c", STRING, True, {CHAR_VARCHAR: "varchar(3)"})) is None
