from __future__ import annotations

import json
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from lakeseal.errors import ConstraintViolation, EvaluationError, InvalidMetadata, UnsupportedExpression
from lakeseal.files.constraints import (
    GENERATION_EXPRESSION,
    INVARIANTS,
    Constraint,
    ConstraintCheck,
    NotNull,
    RowCondition,
    plan_constraints,
    show_row,
)
from lakeseal.protocol.arrow import from_arrow, to_arrow
from lakeseal.protocol.schema import INTEGER, LONG, STRING, ArrayType, MapType, StructField, StructType

SCHEMA = StructType((StructField("id", LONG), StructField("name", STRING)))


def batch(rows: list[dict[str, Any]], schema: StructType = SCHEMA) -> pa.RecordBatch:
    # Arrow itself would refuse nulls where a field is flagged as without.
    loose = pa.schema([pa.field(f.name, _loose(f.type)) for f in to_arrow(schema)])
    return pa.RecordBatch.from_pylist(rows, loose)


def _loose(arrow: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(arrow):
        return pa.struct([pa.field(f.name, _loose(f.type)) for f in arrow])
    if pa.types.is_map(arrow):
        return pa.map_(_loose(arrow.key_type), _loose(arrow.item_type))
    if pa.types.is_list(arrow):
        return pa.list_(_loose(arrow.value_type))
    return arrow


def check(rows: list[dict[str, Any]], *constraints: Constraint, schema: StructType = SCHEMA) -> None:
    ConstraintCheck(constraints, schema).check(batch(rows, schema))


def sql(text: str) -> RowCondition:
    return RowCondition(what="CHECK constraint", name="c", sql=text)


class TestCheck:
    def test_true_everywhere_passes(self) -> None:
        check([{"id": 1}, {"id": 2}], sql("id > 0"))
        check([], sql("id > 0"))

    @pytest.mark.parametrize("value", [0, -1, None])
    def test_false_and_null_are_violations(self, value: int | None) -> None:
        with pytest.raises(ConstraintViolation) as caught:
            check([{"id": 1, "name": "a"}, {"id": value, "name": "b"}], sql("id > 0"))
        shown = "null" if value is None else value
        assert f"c (id > 0) is violated by the row {{id: {shown}, name: 'b'}}" in caught.value.message

    def test_a_constant_that_is_not_true_is_a_violation(self) -> None:
        with pytest.raises(ConstraintViolation):
            check([{"id": 1}], sql("NULL"))

    def test_an_expression_that_fails_names_the_constraint(self) -> None:
        with pytest.raises(EvaluationError, match=r"c \(1 / id > 0\) failed"):
            check([{"id": 0}], sql("1 / id > 0"))


class TestNotNull:
    NESTED = StructType(
        (
            StructField(
                "s",
                StructType(
                    (
                        StructField("x", INTEGER, False),
                        StructField("l", ArrayType(StructType((StructField("y", LONG, False),)), False)),
                        StructField("m", MapType(STRING, StructType((StructField("z", LONG, False),)), False)),
                    )
                ),
            ),
        )
    )

    def test_the_schema_says_where_null_is_not_allowed_at_every_depth(self) -> None:
        plan = plan_constraints(self.NESTED, {}, given=["s"])
        assert [c.path for c in plan.in_task if isinstance(c, NotNull)] == [
            ("s", "x"),
            ("s", "l", "element"),
            ("s", "l", "element", "y"),
            ("s", "m", "value"),
            ("s", "m", "value", "z"),
        ]

    @pytest.mark.parametrize(
        ("row", "column"),
        [
            ({"x": None}, "s.x"),
            ({"x": 1, "l": [{"y": 1}, None]}, "s.l.element"),
            ({"x": 1, "l": [{"y": 1}, {"y": None}]}, "s.l.element.y"),
            ({"x": 1, "m": [("k", None)]}, "s.m.value"),
            ({"x": 1, "m": [("k", {"z": 1}), ("j", {"z": None})]}, "s.m.value.z"),
        ],
    )
    def test_a_null_is_found_at_every_depth_and_its_row_is_shown(self, row: Any, column: str) -> None:
        good = [
            {"s": {"x": 5, "l": [{"y": 2}], "m": [("a", {"z": 3})]}},
            {"s": None},
            {"s": {"x": 1, "l": [], "m": None}},
        ]
        plan = plan_constraints(self.NESTED, {}, given=["s"])
        check(good, *plan.in_task, schema=self.NESTED)
        with pytest.raises(ConstraintViolation) as caught:
            check([*good, {"s": row}, good[0]], *plan.in_task, schema=self.NESTED)
        assert caught.value.column == column
        assert f"NOT NULL of column {column} " in caught.value.message
        x = row.get("x")
        assert f"{{s: {{'x': {x}" in caught.value.message

    def test_slices_are_checked_as_slices(self) -> None:
        rows = batch([{"s": {"x": None}}, {"s": {"x": 1, "l": [{"y": None}]}}, {"s": {"x": 2, "m": []}}], self.NESTED)
        checker = ConstraintCheck(plan_constraints(self.NESTED, {}, given=[]).in_task, self.NESTED)
        checker.check(rows.slice(2))
        with pytest.raises(ConstraintViolation, match=r"NOT NULL of column s\.l\.element\.y"):
            checker.check(rows.slice(1))


class TestPlan:
    def field(self, **metadata: str) -> StructField:
        return StructField("name", STRING, True, {key.replace("_", "."): text for key, text in metadata.items()})

    def test_check_constraints_of_the_table_are_in_the_task(self) -> None:
        plan = plan_constraints(SCHEMA, {"positive": "id > 0"}, given=SCHEMA.names)
        assert plan.in_task == (RowCondition(what="CHECK constraint", name="positive", sql="id > 0"),)
        assert plan.in_plan == ()

    def test_invariants_are_read_from_the_metadata_of_columns_nested_ones_too(self) -> None:
        text = json.dumps({"expression": {"expression": "s.x > 3"}})
        inner = StructType((StructField("x", LONG, True, {INVARIANTS: text}),))
        plan = plan_constraints(StructType((StructField("s", inner),)), {}, given=["s"])
        assert plan.in_task == (RowCondition(what="Invariant", name="of column s.x", sql="s.x > 3", column="s.x"),)

    @pytest.mark.parametrize("text", ["", "{}", "[]", '{"expression": 1}', 7])
    def test_a_malformed_invariant_is_refused(self, text: Any) -> None:
        schema = StructType((StructField("x", LONG, True, {INVARIANTS: text}),))
        with pytest.raises(InvalidMetadata) as caught:
            plan_constraints(schema, {}, given=["x"])
        assert caught.value.column == "x"

    def test_a_generated_column_is_checked_only_if_the_data_brings_it(self) -> None:
        schema = StructType(
            (StructField("a", LONG), StructField("the b", LONG, True, {GENERATION_EXPRESSION: "a + 1"}))
        )
        assert plan_constraints(schema, {}, given=["a"]).in_task == ()
        (generated,) = plan_constraints(schema, {}, given=["A", "THE B"]).in_task
        assert isinstance(generated, RowCondition)
        assert generated.sql == "`the b` <=> (a + 1)"
        check([{"a": 1, "the b": 2}, {"a": None, "the b": None}], generated, schema=schema)
        with pytest.raises(ConstraintViolation, match="Generated column the b"):
            check([{"a": 1, "the b": 3}], generated, schema=schema)

    def test_what_cannot_be_evaluated_here_is_handed_back_with_the_reason(self) -> None:
        plan = plan_constraints(SCHEMA, {"a": "sin(id) > 0", "b": "id > 0"}, given=["id"])
        assert [c.name for c in plan.in_task if isinstance(c, RowCondition)] == ["b"]
        ((refused),) = plan.in_plan
        assert refused.check.name == "a"
        assert isinstance(refused.reason, UnsupportedExpression)

    def test_constraints_are_json(self) -> None:
        constraints = (NotNull(path=("a", "element")), sql("id > 0"))
        text = msgspec.json.encode(constraints)
        assert msgspec.json.decode(text, type=tuple[Constraint, ...]) == constraints


def test_a_shown_row_is_short() -> None:
    many = pa.RecordBatch.from_pylist([{f"c{n}": "x" * 1000 for n in range(100)}])
    assert len(show_row(many, 0)) < 2500
    far = pa.RecordBatch.from_pydict(
        {"t": pa.array([2**62], pa.timestamp("us")), "d": pa.array([2**30], pa.int32()).cast(pa.date32())}
    )
    assert show_row(far, 0).startswith("{t: ")


def test_schemas_of_arrow_data_are_planned_alike() -> None:
    schema = from_arrow(pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    assert plan_constraints(schema, {}, given=[]).in_task == (NotNull(path=("id",)),)
