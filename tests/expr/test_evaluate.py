from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakeseal.errors import (
    EvaluationError,
    InvalidArgument,
    InvalidExpression,
    SchemaMismatch,
    UnsupportedExpression,
)
from lakeseal.expr import bind, evaluate, filter_batch, parse
from lakeseal.protocol.arrow import from_arrow

NAN = float("nan")


def run(text: str, **columns: Any) -> list[Any]:
    batch = pa.RecordBatch.from_pydict(columns or {"one": [1]})
    return list(evaluate(bind(parse(text), from_arrow(batch.schema)), batch).to_pylist())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a and b", [True, False, None, False, False, False, None, False, None]),
        ("a or b", [True, True, True, True, False, None, True, None, None]),
        ("not a", [False, False, False, True, True, True, None, None, None]),
        ("a = b", [True, False, None, False, True, None, None, None, None]),
        ("a <=> b", [True, False, False, False, True, False, False, False, True]),
        ("a is true", [True, True, True, False, False, False, False, False, False]),
        ("a is not false", [True, True, True, False, False, False, True, True, True]),
        ("a is unknown", [False] * 6 + [True] * 3),
        ("a in (b, null)", [True, None, None, None, True, None, None, None, None]),
    ],
)
def test_logic_has_three_values(text: str, expected: list[bool | None]) -> None:
    a = [True, True, True, False, False, False, None, None, None]
    b = [True, False, None] * 3
    assert run(text, a=pa.array(a), b=pa.array(b)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f = f", [True, True, True, True, None]),
        ("f > 5", [False, False, True, True, None]),
        ("f <= 5", [True, True, False, False, None]),
        ("f < double('NaN')", [True, True, False, True, None]),
        ("f = 0", [True, False, False, False, None]),
        ("f in (0, double('NaN'))", [True, False, True, False, None]),
        ("f <> double('NaN')", [True, True, False, True, None]),
        ("isnan(f)", [False, False, True, False, False]),
        ("greatest(f, 5)", [5.0, 5.0, NAN, float("inf"), 5.0]),
    ],
)
def test_nan_is_equal_to_itself_and_larger_than_all(text: str, expected: list[Any]) -> None:
    found = run(text, f=pa.array([-0.0, 1.0, NAN, float("inf"), None]))
    assert [str(value) for value in found] == [str(value) for value in expected]


def test_strings_compare_by_their_bytes() -> None:
    # By UTF-16, as Java compares, the emoji would come first.
    assert run("s < '😀'", s=["z", "é", "￮", "😀", "😁"]) == [True, True, True, False, False]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x <> 0 and 10 / x > 3", [False, True, None, False]),
        ("x = 0 or 10 / x > 3", [True, True, None, False]),
        ("case when x <> 0 then 10 div x end", [None, 5, None, 2]),
        ("if(x = 0, -1, 10 % x)", [-1, 0, None, 2]),
        ("coalesce(nullif(x, 0), 1 / x)", "fails"),
        ("coalesce(x, 1 / 0)", "fails"),
        ("case x when 0 then 1 when 10 / x then 2 else 3 end", [1, 3, 3, 3]),
        ("x is null or x > 0 and 10 / x > 3", [False, True, True, False]),
        ("x + 1 / x", "fails"),
        ("cast(null as int) + 1 div x", [None] * 4),
        ("x in (0, 10 / x)", [True, False, None, False]),
        ("x in (10 / x, 0)", "fails"),
        ("x in (3, 10 / x)", "fails"),
        ("nullif(x, 0) in (2, 10 / x)", [None, True, None, False]),
        ("false and 1 / 0 = 1", [False] * 4),
    ],
)
def test_a_part_is_evaluated_only_for_the_rows_that_need_it(text: str, expected: Any) -> None:
    x = pa.array([0, 2, None, 4], pa.int32())
    if expected == "fails":
        with pytest.raises(EvaluationError):
            run(text, x=x)
    else:
        assert run(text, x=x) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cast('abc' as int)", "'abc' cannot be cast from string to int"),
        ("cast(' ' as date)", "' ' cannot be cast"),
        ("300 + cast('x1' as bigint)", "'x1'"),
        ("cast(1e20D as int)", r"1e\+20 cannot be cast from double to int"),
        ("cast(128 as tinyint)", "128 cannot be cast from int to tinyint"),
        ("cast(1234.5 as decimal(3,1))", "1234.5"),
        ("2147483647 + 1", "The result of .+ does not fit int"),
        ("-(-2147483648)", "neg does not fit int"),
        ("1 / 0", "Division by zero"),
        ("5 % 0", "Division by zero"),
        ("99999999999999999999999999999999999999 * 10.0", "does not fit decimal"),
        ("floor(1e30D)", "does not fit a bigint"),
    ],
)
def test_failures_say_what_failed(text: str, message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        run(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("try_cast('abc' as int)", None),
        ("cast('  12 ' as int)", 12),
        ("cast(' +1.5e2 ' as decimal(6,1))", Decimal("150.0")),
        ("cast(2.5D as int)", 2),
        ("cast(-2.5D as int)", -2),
        ("cast(1.005 as decimal(3,2))", Decimal("1.01")),
        ("cast('2024-2-3 anything' as date)", dt.date(2024, 2, 3)),
        ("cast('2024-02-03T04:05:06.123456789+02:00' as timestamp)", dt.datetime(2024, 2, 3, 2, 5, 6, 123456, dt.UTC)),
        ("cast(timestamp '1969-12-31 23:59:59.5' as date)", dt.date(1969, 12, 31)),
        ("cast(timestamp '2024-01-01 00:00:00.120' as string)", "2024-01-01 00:00:00.12"),
        ("cast(0.0000000001 as string)", "0.0000000001"),
        ("cast(0.10 / 3 as string)", "0.033333"),
        ("round(2.675D, 2)", 2.68),
        ("round(-2.5)", Decimal("-3")),
        ("date '2024-01-31' + interval 1 month", dt.date(2024, 2, 29)),
        ("upper('straße')", "STRASSE"),
        ("substring('abc', -10, 9)", "ab"),
        ("weekofyear(date '2021-01-03')", 53),
        ("date_format(timestamp '2024-01-02 03:04:05', \"yyyyMMdd'T'HHmmss\")", "20240102T030405"),
    ],
)
def test_constants_have_sparks_values(text: str, expected: Any) -> None:
    assert run(text) == [expected]


def test_reading_what_would_need_more_than_utc_is_refused() -> None:
    for text in ("2024-01-01 10:00:00 Europe/Berlin", "10:00", "T10:00"):
        with pytest.raises(UnsupportedExpression):
            run("try_cast(s as timestamp)", s=[text])


def test_letters_that_only_a_newer_unicode_pairs_are_refused() -> None:
    assert run("lower(s)", s=["ÀÉ ΑΣ", None, "x"]) == ["àé ας", None, "x"]
    for letter in ("\u019b", "\ua7cb"):
        with pytest.raises(UnsupportedExpression, match="case of"):
            run("upper(s)", s=["é" + letter])


def test_floats_that_java_versions_write_differently_are_refused() -> None:
    assert run("cast(d as decimal(20,2))", d=[2.0**53 + 2, NAN]) == [Decimal("9007199254740994.00"), None]
    with pytest.raises(UnsupportedExpression, match="above 2"):
        run("cast(d as decimal(20,0))", d=[8.434483405511069e16])


def test_the_clock_must_be_passed_in() -> None:
    batch = pa.RecordBatch.from_pydict({"d": pa.array([dt.date(2024, 5, 1), dt.date(2024, 5, 3)])})
    bound = bind(parse("d < current_date() and current_timestamp > d"), from_arrow(batch.schema))
    with pytest.raises(InvalidArgument, match="without a clock"):
        evaluate(bound, batch)
    with pytest.raises(InvalidArgument, match="time zone"):
        evaluate(bound, batch, now=dt.datetime(2024, 5, 2))
    assert evaluate(bound, batch, now=dt.datetime(2024, 5, 2, 12, tzinfo=dt.UTC)).to_pylist() == [True, False]


def test_filtering_keeps_the_rows_that_are_true() -> None:
    table = pa.table({"a": pa.chunked_array([[1, 2, None], [], [4]]), "b": pa.chunked_array([["x", "y", "z", "w"]])})
    bound = bind(parse("a > 1"), from_arrow(table.schema))
    kept = filter_batch(bound, table)
    assert kept.to_pylist() == [{"a": 2, "b": "y"}, {"a": 4, "b": "w"}]
    assert filter_batch(bound, table.to_batches()[0]).num_rows == 1
    assert evaluate(bound, table).to_pylist() == [False, True, None, True]
    assert filter_batch(bound, table.slice(0, 0)).num_rows == 0
    assert evaluate(bound, table.slice(0, 0)).to_pylist() == []
    with pytest.raises(InvalidExpression, match="not boolean"):
        filter_batch(bind(parse("a"), from_arrow(table.schema)), table)


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["a", "b", None]).dictionary_encode(),
        pa.array(["a", "b", None], pa.large_string()),
        pa.array(["a", "b", None], pa.string_view()),
    ],
    ids=str,
)
def test_other_arrow_forms_of_a_column_are_taken(array: pa.Array) -> None:
    batch = pa.RecordBatch.from_arrays([array], ["S"])
    schema = from_arrow(pa.schema({"s": pa.string()}))
    assert evaluate(bind(parse("s >= 'b'"), schema), batch).to_pylist() == [False, True, None]


def test_times_of_other_units_are_taken() -> None:
    moments = pa.array([1_700_000_000_123_456_789, None], pa.timestamp("ns", "UTC"))
    schema = from_arrow(pa.schema({"t": pa.timestamp("us", "UTC")}))
    bound = bind(parse("t = timestamp '2023-11-14 22:13:20.123456'"), schema)
    assert evaluate(bound, pa.RecordBatch.from_arrays([moments], ["t"])).to_pylist() == [True, None]


def test_data_that_does_not_have_the_tables_columns_is_refused() -> None:
    schema = from_arrow(pa.schema({"a": pa.int64(), "s": pa.struct([("x", pa.int64())])}))
    with pytest.raises(SchemaMismatch, match="no column 'a'"):
        evaluate(bind(parse("a = 1"), schema), pa.RecordBatch.from_pydict({"b": [1]}))
    with pytest.raises(SchemaMismatch, match=r"no field s\.x"):
        evaluate(bind(parse("s.x = 1"), schema), pa.RecordBatch.from_pydict({"s": [{"y": 1}]}))
    with pytest.raises(SchemaMismatch, match="int64"):
        evaluate(bind(parse("a = 1"), schema), pa.RecordBatch.from_pydict({"a": ["x"]}))


def test_a_struct_of_which_only_some_fields_were_read_can_be_asked_for() -> None:
    schema = from_arrow(pa.schema({"s": pa.struct([("x", pa.int64()), ("y", pa.string())])}))
    batch = pa.RecordBatch.from_pydict({"s": [{"x": 1}, None]})
    assert evaluate(bind(parse("s is null"), schema), batch).to_pylist() == [False, True]
    assert evaluate(bind(parse("s.x"), schema), batch).to_pylist() == [1, None]


@pytest.mark.parametrize("text", ["upper(s)", "lower(s)", "initcap(s)", "upper(trim(s))"])
def test_texts_need_not_begin_where_their_buffer_does(text: str) -> None:
    whole = pa.array(["x" * 40, "Ab", "cD", "e"], pa.large_string())
    part = whole.slice(1).cast(pa.string())  # as slices of frames and of other libraries' arrays come
    bound = bind(parse(text), from_arrow(pa.schema({"s": pa.string()})))
    for array in (part, part.slice(1), whole.slice(2).cast(pa.string())):
        expected = evaluate(bound, pa.record_batch({"s": pa.array(array.to_pylist(), pa.string())}))
        assert evaluate(bound, pa.record_batch({"s": array})).to_pylist() == expected.to_pylist()


def test_slices_are_read_from_where_they_start() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "s": [{"a": None}, None, {"a": 3}, {"a": 4}],
            "l": [[1], [2, 3], None, [4]],
            "m": pa.array([[("k", 1)], [], None, [("k", 4)]], pa.map_(pa.string(), pa.int64())),
        }
    )
    schema = from_arrow(batch.schema)
    part = batch.slice(1)
    assert evaluate(bind(parse("s.a"), schema), part).to_pylist() == [None, 3, 4]
    assert evaluate(bind(parse("l[0]"), schema), part).to_pylist() == [2, None, 4]
    assert evaluate(bind(parse("size(l)"), schema), part).to_pylist() == [2, None, 1]
    assert evaluate(bind(parse("m['k']"), schema), part).to_pylist() == [None, None, 4]
    assert evaluate(bind(parse("array_contains(l, 3)"), schema), part).to_pylist() == [True, None, False]
