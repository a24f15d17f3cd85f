"""Real Spark has the last word: the same value, both fail, or we say that we do not support it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeseal.errors import EvaluationError, InvalidExpression, UnsupportedExpression
from lakeseal.expr import BoundExpression, bind, evaluate, parse
from lakeseal.protocol.arrow import from_arrow

CORPUS = Path(__file__).with_name("corpus")
CHUNK = 60
SIMPLE = ("b", "h", "i", "l", "f", "d", "c", "e", "n", "t", "ts", "tn", "p", "y", "null")
TARGETS = (
    *("tinyint", "smallint", "int", "bigint", "float", "double", "decimal(12,3)", "string", "binary", "boolean"),
    *("date", "timestamp", "timestamp_ntz"),
)


def pairs(above: str, below: str) -> Iterator[tuple[str, str, str]]:
    """Every two columns: in their order with one operator, in the other order with the other."""
    for n, left in enumerate(SIMPLE):
        for m, right in enumerate(SIMPLE):
            if n <= m:
                yield left, above, right
            if n >= m:
                yield left, below, right


def lines(name: str) -> list[str]:
    return (CORPUS / f"{name}.sql").read_text(encoding="utf-8").splitlines()


TEXTS = {
    "values": lines("values"),
    "failing": lines("failing"),
    "wrong": lines("wrong"),
    "comparisons": [f"{left} {op} {right}" for left, op, right in pairs("<", "<=>")],
    "arithmetic": [f"{left} {op} {right}" for left, op, right in pairs("+", "/")],
    "casts": [f"{cast}({column} as {to})" for column in SIMPLE for to in TARGETS for cast in ("cast", "try_cast")],
    "branches": [f"{function}({left}, {right})" for left, function, right in pairs("coalesce", "nvl")],
}


def ours(rows: pa.Table, text: str) -> tuple[str, Any]:
    """What happens here: "value" with type and values, or the kind of error."""
    try:
        bound: BoundExpression = bind(parse(text), from_arrow(rows.schema))
        return "value", (str(bound.type), evaluate(bound, rows, now=datetime.now(UTC)))
    except UnsupportedExpression:
        return "unsupported", None
    except InvalidExpression:
        return "invalid", None
    except EvaluationError:
        return "fails", None


def fails(frame: Any, text: str) -> bool:
    from pyspark.errors import PySparkException

    conf = frame.sparkSession.conf
    # One expression on eight rows is not worth compiling.
    conf.set("spark.sql.codegen.wholeStage", "false")
    try:
        frame.selectExpr(f"{text}\n as value").write.format("noop").mode("overwrite").save()
    except PySparkException:
        return True
    finally:
        conf.unset("spark.sql.codegen.wholeStage")
    return False


def plain(values: Any) -> list[Any]:
    """As Python values; moments as numbers, because Spark knows more of them than Python."""
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    elif pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    return list(values.to_pylist())


def same(left: Any, right: Any) -> bool:
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    if isinstance(left, float) and isinstance(right, float):
        return (math.isnan(left) and math.isnan(right)) or left == right
    return bool(left == right)


def check(frame: Any, rows: pa.Table, texts: list[str]) -> list[str]:
    """How Spark disagrees with us about each text."""
    wrong: list[str] = []
    values: list[tuple[str, str, pa.Array]] = []
    for text in texts:
        outcome, result = ours(rows, text)
        if outcome == "value":
            values.append((text, *result))
        elif outcome in ("fails", "invalid") and not fails(frame, text):
            wrong.append(f"{text}: {outcome} here, fine in Spark")
    for start in range(0, len(values), CHUNK):
        wrong += compare(frame, values[start : start + CHUNK])
    return wrong


def compare(frame: Any, values: list[tuple[str, str, pa.Array]]) -> list[str]:
    """All at once; if that fails, by halves until the culprit is alone."""
    from pyspark.errors import PySparkException

    try:
        selected = frame.orderBy("id").selectExpr(*(f"{text}\n as v{n}" for n, (text, _, _) in enumerate(values)))
        table = selected.toArrow()
    except PySparkException as error:
        if len(values) == 1:
            return [f"{values[0][0]}: fine here, fails in Spark: {str(error)[:200]}"]
        half = len(values) // 2
        return compare(frame, values[:half]) + compare(frame, values[half:])
    wrong = []
    for (text, mine, here), theirs, there in zip(values, selected.schema, table.columns, strict=True):
        if theirs.dataType.simpleString() != mine:
            wrong.append(f"{text}: type {mine} here, {theirs.dataType.simpleString()} in Spark")
        wrong += [
            f"{text}: row {row} is {left!r} here, {right!r} in Spark"
            for row, (left, right) in enumerate(zip(plain(here), plain(there), strict=True))
            if not same(left, right)
        ]
    return wrong


@pytest.mark.spark
@pytest.mark.parametrize("kind", TEXTS)
def test_spark_gives_the_same_answer(frame: Any, rows: pa.Table, kind: str) -> None:
    wrong = check(frame, rows, TEXTS[kind])
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("kind", "outcome"), [("values", "value"), ("failing", "fails"), ("wrong", "invalid")])
def test_the_corpus_is_answered_here(rows: pa.Table, kind: str, outcome: str) -> None:
    assert {text: found for text in TEXTS[kind] if (found := ours(rows, text)[0]) != outcome} == {}
