"""JSON that nobody would write, read and written here and by Spark: the same, or refused by name."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from contextlib import suppress
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest

from expr.test_spark import ours, plain
from lakeseal.errors import UnsupportedExpression
from lakeseal.expr import bind, evaluate, parse, row_json
from lakeseal.protocol.arrow import from_arrow
from oracles.seeds import case, cases

_PATHS = (
    *("$", "$.a", "$['a']", "$[0]", "$[1]", "$.a[0]", "$.a.b", "$.a.a", "$[0].a", "$.é", "$.😀", "$.a b", "$['a b']"),
    *("$.", "$..a", "a", "$[", "$[-1]", "$.a[00]", "$['']", "$.a]", "$.$", '$."a"', ""),
)
_SCHEMAS = (
    *("a int", "a bigint, b string", "a double", "a boolean, c date", "a array<int>", "A int", "a tinyint"),
    *("a array<string>, b struct<a: int, b: string>", "array<int>", "map<string, string>", "array<struct<a: int>>"),
)
_NAMES = ('"a"', '"a"', '"b"', '"c"', '"a b"', '""', '"é"', '"😀"', r'"\u0061"', r'"a\"b"', '"A"')
_LETTERS = (
    *("a", "é", "😀", "'", " ", "\t", "\x01", "\x7f", "\u2028"),
    *(r"\n", r"\b", r"\"", r"\\", r"\/", r"\u00e9", r"\ud83d\ude00", r"\u0000", r"\u001f", r"\ud800"),
)
_SCALARS = (
    *(
        "null",
        "true",
        "false",
        "0",
        "-0",
        "1",
        "-7",
        "127",
        "2147483648",
        "9223372036854775808",
        "12345678901234567890",
    ),
    *(
        "12345678901234567890",
        "1.5",
        "-0.0",
        "1.50",
        "100.0",
        "1e5",
        "1E-3",
        "0.001",
        "0.0009",
        "1234567.12345678",
        "12345678.1",
        "2.675",
    ),
    *('"x"', '""', '"2024-02-29"', '"2023-02-29"', '"0000-01-01"', '"12"'),
)
_PIECES = (*"{}[],:\"0.-+e t\\'/#", "\ufeff", "\xa0", "\x0b", "NaN", "null", "01", r"\u12", r"\x", "//")
_EDGES = (
    *("", " ", "null", "[null]", '{"a":[null]}', "nul", "1 x", '"a" b', "{} {}", '{"a":1} x', '{"a":1,}', "[,1]"),
    *("{'a':1}", "{a:1}", '{"a":01}', '{"a":.5}', '{"a":1.}', "\ufeff{}", "[" * 1100 + "]" * 1100, "[" * 1100),
    *('{"a":' + "1" * 1001 + "}", '{"b":1.' + "1" * 1001 + ',"a":1}', '{"a":1,"a":2}', '{"a":null,"a":2}'),
    *('{"a":1,"x":"\t"}', '{"x":"\x00","a":1}', '["\n"]', r'{"b":{"b":"\u000"}}'),
)


def value(chance: random.Random, depth: int) -> str:
    kind = chance.randrange(12)
    if depth and kind < 5:
        count = chance.randrange(4)
        fields = (
            f"{chance.choice(_NAMES)}{chance.choice((':', ' : '))}{value(chance, depth - 1)}" for _ in range(count)
        )
        return f"{{{','.join(fields)}}}"
    if depth and kind < 8:
        return f"[{', '.join(value(chance, depth - 1) for _ in range(chance.randrange(4)))}]"
    if kind < 10:
        return chance.choice(_SCALARS)
    return f'"{"".join(chance.choice(_LETTERS) for _ in range(chance.randrange(4)))}"'


def text(chance: random.Random) -> str:
    """Half of them with a piece too much or too little."""
    found = value(chance, chance.randrange(4))
    at = chance.randrange(len(found) + 1)
    match chance.randrange(6):
        case 0:
            return found[:at]
        case 1:
            return found[:at] + found[at + 1 :]
        case 2:
            return found[:at] + chance.choice(_PIECES) + found[at:]
    return found


def quoted(literal: str) -> str:
    return "'" + literal.replace("\\", "\\\\").replace("'", "\\'") + "'"


@pytest.mark.spark
def test_hostile_json_is_read_as_spark_reads_it(spark: Any) -> None:
    calls = [f"get_json_object(t, {quoted(path)})" for path in _PATHS]
    calls += [f"from_json(t, {quoted(schema)})" for schema in _SCHEMAS]
    calls += ["json_array_length(t)", "json_object_keys(t)"]
    schema = from_arrow(pa.schema([("t", pa.string())]))
    for seed in cases(1, 100):
        with case(seed) as chance:
            texts = [*_EDGES, *(text(chance) for _ in range(150))]
            rows = pa.table({"id": range(len(texts)), "t": texts})
            theirs = spark.createDataFrame(rows).coalesce(1).orderBy("id").selectExpr(*calls).toArrow()
            answered = 0
            for call, right in zip(calls, theirs.columns, strict=True):
                bound = bind(parse(call), schema)
                for n, written in enumerate(texts):
                    with suppress(UnsupportedExpression):
                        found = evaluate(bound, pa.record_batch({"t": [written]}))
                        assert plain(found) == plain(right.slice(n, 1)), (call, written)
                        answered += 1
            assert answered > len(texts) * len(calls) / 2


def some_type(chance: random.Random, depth: int) -> pa.DataType:
    kind = chance.randrange(14)
    if depth and kind < 3:
        return pa.list_(some_type(chance, depth - 1))
    if depth and kind < 6:
        names = chance.sample(["a", "b", "a b", "é", "😀", 'q"', "A1"], chance.randrange(1, 4))
        return pa.struct([(name, some_type(chance, depth - 1)) for name in names])
    if depth and kind < 8:
        return pa.map_(chance.choice([pa.string(), pa.int32(), pa.int64()]), some_type(chance, depth - 1))
    return chance.choice(list(_VALUES))


_MOMENTS = ("0001-01-01", "9999-12-31 23:59:59.999999", "1582-10-10", "1969-12-31 23:59:59.999999", "2024-03-10 07:30")
_VALUES: dict[pa.DataType, tuple[Any, ...]] = {
    pa.int8(): (0, -128, 127),
    pa.int64(): (0, -(1 << 63), (1 << 63) - 1),
    pa.bool_(): (True, False),
    pa.string(): ("", "é😀", 'a"\\/', "\x00\x1f\x7f\n", "\u2028'"),
    pa.binary(): (b"", b"\xff\x00", b"abc", b"abcd"),
    pa.date32(): tuple(dt.datetime.fromisoformat(text).date() for text in _MOMENTS),
    pa.timestamp("us", "UTC"): tuple(dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC) for text in _MOMENTS),
    pa.decimal128(10, 2): (Decimal("0.00"), Decimal("-1.50"), Decimal("99999999.99")),
    pa.decimal128(38, 18): tuple(Decimal(n).scaleb(-18, Context(prec=60)) for n in (0, 1, 1 - 10**38)),
}


_PARTED: tuple[Callable[[pa.DataType], pa.DataType], ...] = (
    pa.list_,
    lambda inner: pa.struct([("x", inner)]),
    lambda inner: pa.map_(pa.string(), inner),
)


def some_value(chance: random.Random, arrow: pa.DataType) -> Any:
    if chance.random() < 0.2:
        return None
    if pa.types.is_map(arrow):
        keys = ["a", "😀", 'q"'] if arrow.key_type == pa.string() else [0, -1, 7]
        return [(key, some_value(chance, arrow.item_type)) for key in chance.sample(keys, chance.randrange(4))]
    if pa.types.is_list(arrow):
        return [some_value(chance, arrow.value_type) for _ in range(chance.randrange(3))]
    if pa.types.is_struct(arrow):
        return {field.name: some_value(chance, field.type) for field in arrow.fields}
    return chance.choice(_VALUES[arrow])


@pytest.mark.spark
def test_values_of_any_type_become_the_json_that_spark_writes(spark: Any) -> None:
    for seed in cases(1, 100):
        with case(seed) as chance:
            types = [chance.choice(_PARTED)(some_type(chance, 2)) for _ in range(12)]
            columns = {f"c{n}": pa.array([some_value(chance, t) for _ in range(12)], t) for n, t in enumerate(types)}
            rows = pa.table({"id": range(12), **columns})
            calls = [f"to_json({name})" for name in columns]
            theirs = spark.createDataFrame(rows).coalesce(1).orderBy("id").selectExpr(*calls).toArrow()
            for call, right, arrow in zip(calls, theirs.columns, types, strict=True):
                outcome, found = ours(rows, call)
                assert outcome == "value", (seed, call, arrow)
                assert plain(found[1]) == plain(right), (seed, call, arrow)


@pytest.mark.parametrize("path", ["$[*]", "$.*", "$.a[*].b", "$. a", "$[ 0 ]"])
def test_a_path_to_several_values_or_with_blanks_between_its_steps_is_refused(path: str) -> None:
    with pytest.raises(UnsupportedExpression, match="path"):
        row_json.steps(path)
