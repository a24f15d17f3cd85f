from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from lakeseal.errors import InvalidExpression, LakesealError, UnsupportedExpression
from lakeseal.expr import bind, bind_predicate, evaluate, parse
from lakeseal.protocol.arrow import from_arrow
from lakeseal.protocol.schema import BOOLEAN, INTEGER, STRING, StructField, StructType

SCHEMA = StructType(
    (
        StructField("Id", INTEGER, nullable=False),
        StructField("customer", StructType((StructField("Name", STRING), StructField("zip", STRING, nullable=False)))),
        StructField("a.b", STRING),
        StructField("current_date", STRING),
    )
)


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("ID = 1", {("Id",)}),
        ("Customer.NAME = 'x'", {("customer", "Name")}),
        ("customer['name'] = 'x'", {("customer",)}),
        ("`a.b` is null", {("a.b",)}),
        ("current_date = 'x'", {("current_date",)}),
        ("id > 1 and id < 5 and true", {("Id",)}),
        ("1 = 1", set()),
    ],
)
def test_columns_are_found_without_regard_to_case(text: str, paths: set[tuple[str, ...]]) -> None:
    assert bind(parse(text), SCHEMA).columns == paths


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("custmer.name = 'x'", "The column 'custmer' does not exist, at line 1, column 1. Did you mean customer"),
        ("customer.nam = 'x'", "The field customer.nam does not exist.*Did you mean Name"),
        ("id = 1 and\n zzz = 2", "The column 'zzz' does not exist, at line 2, column 2. There are Id, customer"),
        ("t.id = 1", "The column 't' does not exist"),
        ("id.x = 1", "int has no field 'x'"),
        ("id = true", "int and boolean cannot be compared"),
        ("id + customer.name = 'a' and not id", "Expected boolean, found int"),
        ("sum(id) > 1", "The aggregate sum"),
        ("date '2024-13-01' > '2024-01-01'", "'2024-13-01' is no date"),
        ("customer.name like 'a\\\\'", "ends with its escape"),
        ("customer.name like '\\\\a'", "escapes 'a'"),
    ],
)
def test_what_does_not_fit_the_schema_is_named(text: str, message: str) -> None:
    with pytest.raises(InvalidExpression, match=message):
        bind(parse(text), SCHEMA)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("sin(customer.name) = 1", "sin"),
        ("rand() > 0.5", "rand"),
        ("to_date(customer.name, 'yyyy') is null", "yyyy"),
        ("customer < customer", "struct"),
        ("extract(century from date '2024-01-01') = 21", "date_part"),
        ("array_sort(array(1), (x, y) -> x - y) is null", "array_sort with a lambda"),
        ("aggregate(array(1), 0L, (a, x) -> x) is null", "begins with bigint"),
        ("map(1, 2) = map(1, 2)", "map"),
        ("array(1) = array(1L)", "array<int> and array<bigint>"),
        ("array(1) = 1", "array<int> and int"),
        ("cast(1.5D as string) = '1.5'", "double to string"),
        ("customer.name rlike '(?i)x'", "group with options"),
        ("customer.name rlike 'a++'", "possessive"),
        ("customer.name rlike id", "not constant"),
        ("date_format(date '2024-01-01', 'ww') = '01'", "ww"),
        ("timestamp_ntz '2024-01-02' - timestamp '2024-01-01' is null", "timestamp_ntz and timestamp"),
        ("interval 1 month is null", "interval"),
        ("array(interval 1 day) is null", "array of an interval"),
        ("cast(interval 1 day as string) is null", "interval"),
        ("interval 1 day * 2 is null", "interval"),
        ("date '2024-01-01' + (date '2024-01-02' - date '2024-01-01') is null", "interval"),
        ("lpad(unhex(customer.name), 5, 'x') is null", "lpad of a binary"),
        ("overlay(unhex(customer.name), X'62', 1) is null", "overlay of a binary"),
        ("reverse(unhex(customer.name)) is null", "reverse of a binary"),
        ("elt(1, unhex(customer.name)) is null", "elt of binaries"),
        ("timestamp_seconds(1.5) is null", "decimal"),
    ],
)
def test_what_spark_can_do_and_we_cannot_is_named(text: str, name: str) -> None:
    with pytest.raises(UnsupportedExpression, match=name):
        bind(parse(text), SCHEMA)


@pytest.mark.parametrize(
    ("text", "data_type", "nullable"),
    [
        ("id", "int", False),
        ("customer.zip", "string", True),
        ("id + 1L", "bigint", False),
        ("id / 2", "double", False),
        ("id * 1.50", "decimal(14,2)", False),
        ("coalesce(customer.name, '')", "string", False),
        ("customer.name <=> 'x'", "boolean", False),
        ("case when id > 1 then 5 end", "int", True),
        ("try_cast('5' as int) + id", "int", False),
        ("try_cast(customer.name as int)", "int", True),
        ("if(id > 1, 1, 2.5D)", "double", False),
        ("greatest(id, 2L)", "bigint", False),
        ("null", "void", True),
    ],
)
def test_an_expression_has_the_type_that_spark_gives_it(text: str, data_type: str, nullable: bool) -> None:
    bound = bind(parse(text), SCHEMA)
    assert (str(bound.type), bound.nullable) == (data_type, nullable)


def test_strings_that_spark_compares_by_other_rules_are_left_to_spark() -> None:
    padded = StructField("c", STRING, metadata={"__CHAR_VARCHAR_TYPE_STRING": "char(5)"})
    limited = StructField("v", STRING, metadata={"__CHAR_VARCHAR_TYPE_STRING": "varchar(5)"})
    collated = StructField("u", STRING, metadata={"__COLLATIONS": {"u": "icu.UNICODE_CI"}})
    schema = StructType((padded, limited, collated))
    for text in ("c = 'a'", "u = 'a'"):
        with pytest.raises(UnsupportedExpression):
            bind(parse(text), schema)
    assert bind(parse("v = 'a'"), schema).type == BOOLEAN


def test_a_condition_must_be_boolean() -> None:
    with pytest.raises(InvalidExpression, match="'id' is of type int, not boolean"):
        bind_predicate(parse("id"), SCHEMA)
    assert bind_predicate(parse("null"), SCHEMA).type == BOOLEAN


def test_constants_are_calculated_once_and_failing_ones_stay_where_they_are() -> None:
    assert bind(parse("1 + 1 = 2"), SCHEMA).root.is_literal
    batch = pa.RecordBatch.from_pydict({"Id": pa.array([1, 2], pa.int32())})
    guarded = bind(parse("id = 1 or 1 / 0 > 1"), SCHEMA)
    assert evaluate(guarded, batch.slice(0, 1)).to_pylist() == [True]
    with pytest.raises(LakesealError, match="Division by zero"):
        evaluate(guarded, batch)


def test_many_equalities_become_one_look_up() -> None:
    bound = bind_predicate(parse(" or ".join(f"id = {n}" for n in range(1000)) + " or customer.zip = 'x'"), SCHEMA)
    assert [arg.op for arg in bound.root.args] == ["in", "="]


def test_a_bound_expression_survives_pickling() -> None:
    schema = from_arrow(pa.schema({"a": pa.int64(), "s": pa.string()}))
    bound = bind(parse("nullif(a, 2) in (1, 3) and s like 'x%y' and a between 0 and 5"), schema)
    copy = pickle.loads(pickle.dumps(bound))
    batch = pa.RecordBatch.from_pydict({"a": [1, 2, 3, None], "s": ["xy", "xzy", "x", "xy"]})
    assert evaluate(copy, batch).to_pylist() == evaluate(bound, batch).to_pylist() == [True, None, False, None]


def test_text_that_repeats_itself_stays_cheap() -> None:
    text = "id"
    for _ in range(60):
        text = f"nullif({text}, 7)"
    batch = pa.RecordBatch.from_pydict({"Id": pa.array([1, 7], pa.int32())})
    assert evaluate(bind(parse(text), SCHEMA), batch).to_pylist() == [1, None]
    text = "id"
    for _ in range(40):
        text = f"case ({text}) when 7 then 1 / (id - 7) else ({text.count('(')}) + id end"
    assert evaluate(bind(parse(text), SCHEMA), batch.slice(0, 1)).to_pylist()[0] is not None
