from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest

from lakeseal.errors import ConstraintViolation, EvaluationError, InvalidArgument, SchemaMismatch, UnsupportedExpression
from lakeseal.files.constraints import GENERATION_EXPRESSION
from lakeseal.files.normalize import CURRENT_DEFAULT, Normalizer, plan_columns
from lakeseal.protocol.arrow import from_arrow
from lakeseal.protocol.schema import (
    BINARY,
    CHAR_VARCHAR,
    DATE,
    DOUBLE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    DataType,
    StructField,
    StructType,
)

NOW = datetime.datetime(2024, 5, 6, 7, 8, 9, tzinfo=datetime.UTC)


def table(*fields: StructField) -> StructType:
    return StructType(fields)


def column(name: str, data_type: DataType = LONG, nullable: bool = True, **metadata: Any) -> StructField:
    return StructField(name, data_type, nullable, metadata)


def generated(name: str, sql: str, data_type: DataType = LONG) -> StructField:
    return StructField(name, data_type, True, {GENERATION_EXPRESSION: sql})


def normalized(
    rows: pa.RecordBatch | dict[str, Any], schema: StructType, *, by: tuple[str, ...] = (), **kwargs: Any
) -> Any:
    batch = rows if isinstance(rows, pa.RecordBatch) else pa.RecordBatch.from_pydict(rows)
    made = Normalizer(schema, by, now=NOW, **kwargs).apply(batch)
    made.validate(full=True)
    return made.to_pylist()


def test_columns_come_in_the_order_and_spelling_of_the_table() -> None:
    made = normalized({"B": ["x"], "a": pa.array([1], pa.int8())}, table(column("A"), column("b", STRING)))
    assert [list(row.items()) for row in made] == [[("A", 1), ("b", "x")]]


def test_a_missing_column_is_null_where_it_may_be() -> None:
    assert normalized({"a": [1]}, table(column("a"), column("b", STRING))) == [{"a": 1, "b": None}]


def test_a_missing_column_that_must_not_be_null_is_refused() -> None:
    with pytest.raises(SchemaMismatch) as caught:
        normalized({"a": [1]}, table(column("a"), column("b", nullable=False)))
    assert caught.value.column == "b"


def test_an_extra_column_is_refused_and_named() -> None:
    with pytest.raises(SchemaMismatch, match="merge_schema=True") as caught:
        normalized({"a": [1], "Extra": [2]}, table(column("a")))
    assert caught.value.column == "Extra"


def test_two_columns_of_one_name_are_refused() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["a", "A"])
    with pytest.raises(InvalidArgument, match="without regard to case"):
        normalized(batch, table(column("a")))


def test_a_value_that_does_not_fit_names_its_column() -> None:
    with pytest.raises(EvaluationError) as caught:
        normalized({"a": [2**40]}, table(column("a", INTEGER)))
    assert caught.value.column == "a"


@pytest.mark.parametrize(("data_type", "empty", "other"), [(STRING, "", "x"), (BINARY, b"", b"x")])
def test_empty_values_of_partition_columns_become_null(data_type: DataType, empty: Any, other: Any) -> None:
    schema = table(column("v", data_type), column("P", data_type))
    made = normalized({"v": [empty, other, None], "p": [empty, other, None]}, schema, by=("p",))
    assert made == [{"v": empty, "P": None}, {"v": other, "P": other}, {"v": None, "P": None}]


def test_char_and_varchar_are_made_to_fit_or_refused() -> None:
    schema = table(column("c", STRING, **{CHAR_VARCHAR: "char(3)"}))
    assert normalized({"c": ["a", None]}, schema) == [{"c": "a  "}, {"c": None}]
    with pytest.raises(ConstraintViolation, match=r"longer than char\(3\)"):
        normalized({"c": ["abcd"]}, schema)


def test_batches_of_different_schemas_are_each_understood() -> None:
    normalizer = Normalizer(table(column("a"), column("b", STRING)), ())
    first = normalizer.apply(pa.RecordBatch.from_pydict({"a": [1]}))
    second = normalizer.apply(pa.RecordBatch.from_pydict({"b": ["x"], "A": pa.array([2], pa.int16())}))
    assert pa.Table.from_batches([first, second]).to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]


def test_a_table_from_not_null_data_says_nothing_of_nulls() -> None:
    schema = from_arrow(
        pa.schema([pa.field("s", pa.struct([pa.field("x", pa.int64(), nullable=False)]), nullable=False)])
    )
    made = Normalizer(schema, ()).apply(pa.RecordBatch.from_pydict({"s": [{"x": 1}]}))
    assert made.schema.field("s").nullable
    assert made.schema.field("s").type.field("x").nullable


class TestGeneratedColumns:
    def test_a_missing_generated_column_is_computed_from_the_stored_values(self) -> None:
        schema = table(
            column("t", TIMESTAMP),
            generated("day", "CAST(t AS DATE)", DATE),
            column("p", STRING),
            generated("n", "length(p)"),
        )
        made = normalized({"t": [NOW, None], "p": ["ab", ""]}, schema, by=("p",))
        assert made == [
            {"t": NOW, "day": NOW.date(), "p": "ab", "n": 2},
            {"t": None, "day": None, "p": None, "n": None},
        ]

    def test_a_given_generated_column_is_kept_for_the_check(self) -> None:
        assert normalized({"a": [1], "b": [9]}, table(column("a"), generated("b", "a + 1"))) == [{"a": 1, "b": 9}]

    def test_the_expression_is_stored_as_the_columns_type(self) -> None:
        assert normalized({"a": [1]}, table(column("a"), generated("b", "a + 1", DOUBLE))) == [{"a": 1, "b": 2.0}]


class TestDefaults:
    @pytest.mark.parametrize(
        ("sql", "data_type", "value"),
        [("42", INTEGER, 42), ("'x'", STRING, "x"), ("NULL", LONG, None), ("current_timestamp()", TIMESTAMP, NOW)],
    )
    def test_a_missing_column_gets_its_default(self, sql: str, data_type: DataType, value: Any) -> None:
        schema = table(column("a"), StructField("d", data_type, True, {CURRENT_DEFAULT: sql}))
        assert normalized({"a": [1, 2]}, schema) == [{"a": 1, "d": value}, {"a": 2, "d": value}]

    def test_a_given_null_stays_null(self) -> None:
        schema = table(StructField("d", LONG, True, {CURRENT_DEFAULT: "42"}))
        assert normalized({"d": pa.array([None], pa.int64())}, schema) == [{"d": None}]


class TestPlan:
    def test_says_which_columns_are_given(self) -> None:
        plan = plan_columns(table(column("B"), column("a")), table(column("a"), column("b"), column("c")))
        assert plan.given == ("a", "b")
        assert plan.in_plan == ()

    def test_what_only_an_engine_can_compute_is_handed_back_as_sql(self) -> None:
        data = table(column("f", DOUBLE))
        target = table(
            column("f", STRING),
            generated("h", "monotonically_increasing_id()"),
            StructField("d", STRING, True, {CURRENT_DEFAULT: "uuid()"}),
        )
        plan = plan_columns(data, target)
        assert [(c.name, c.sql) for c in plan.in_plan] == [
            ("f", "CAST(f AS string)"),
            ("h", "monotonically_increasing_id()"),
            ("d", "uuid()"),
        ]
        assert all(isinstance(c.reason, UnsupportedExpression) for c in plan.in_plan)

    def test_without_an_engine_the_reason_is_raised(self) -> None:
        with pytest.raises(UnsupportedExpression):
            normalized({"f": [1.5]}, table(column("f", STRING)))

    def test_a_default_that_does_not_fit_is_refused(self) -> None:
        with pytest.raises(SchemaMismatch):
            plan_columns(table(), table(StructField("d", LONG, True, {CURRENT_DEFAULT: "'x'"})))


class TestChanges:
    def test_the_change_type_stays_behind_the_tables_columns(self) -> None:
        made = normalized({"_change_type": [None, "insert"], "a": [1, 2]}, table(column("a")), cdc=True)
        assert made == [{"a": 1, "_change_type": None}, {"a": 2, "_change_type": "insert"}]

    def test_rows_without_a_change_type_are_the_tables(self) -> None:
        assert normalized({"a": [1]}, table(column("a")), cdc=True) == [{"a": 1, "_change_type": None}]
