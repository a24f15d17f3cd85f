"""Every function that is known here, called with random arguments: Spark gives the same answer, or fails too."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from expr.test_spark import SIMPLE, check, ours
from lakeseal.expr.bind_lambdas import LAMBDA_FUNCTIONS
from lakeseal.expr.functions import FUNCTIONS
from oracles.seeds import case, cases

_NOW = ("current_date", "curdate", "current_timestamp", "now", "current_timezone", "localtimestamp")
_COLUMNS = (*SIMPLE, "s", "x", "w", "k", "g", "st", "ar", "m", "q")
_LITERALS = (
    *("0", "1", "-1", "2", "5", "16", "NULL", "2147483648L", "3Y", "1.5D", "-0.0D", "double('NaN')", "1.25BD", "100BD"),
    *("''", "'a'", "'b'", "'abc'", "'_'", "','", "' '", "'12'", "'1.5'", "'Q'", "'ß'", "'2024-02-29'", "'yyyy-MM-dd'"),
    *("'MONTH'", "'[a-c]'", "'(.)b'", "'%s-%d'", "'utf-8'", "'Mon'", "'America/New_York'"),
    *("X'61ff'", "X''", "X'6162'", "true", "false", "date'2024-02-29'", "timestamp'2024-03-10 07:30:00Z'"),
    *("timestamp_ntz'2024-12-31 23:59:59.5'", "array(1, 2, NULL)", "array('b', 'a')", "array()", "map('k', 1)"),
)
_LENGTHS = {"lpad": 1, "rpad": 1, "repeat": 1, "space": 0, "array_repeat": 1, "sequence": 1}
"""Where a function takes how long a value is to be: of two thousand million, Spark's process has no memory left."""

_ONCE_WRONG = (
    *("substring('1.5', int('-2147483648'))", "substring('1.5', i)", "substr(m, NULL)", "trim(m, NULL)"),
    *("regexp_extract(ar, NULL)", "element_at(array(1, 2, NULL), NULL)", "sort_array(ar, q)", "nanvl(1L, 'MONTH')"),
    *("get_json_object(ts, '$.a')", "get_json_object(NULL, X'')", "concat_ws(array('b', 'a'), 'Mon')"),
)


@pytest.mark.spark
def test_calls_that_were_answered_otherwise_are_answered_as_spark_does(frame: Any, rows: pa.Table) -> None:
    assert not check(frame, rows, list(_ONCE_WRONG))


@pytest.mark.spark
@pytest.mark.timeout(36000)
def test_spark_gives_the_same_answer_to_random_calls(frame: Any, rows: pa.Table) -> None:
    wrong = []
    for seed in cases(1, 100):
        with case(seed) as chance:
            wrong += [f"{one} (seed {seed})" for one in check(frame, rows, calls(chance, rows, 80))]
    assert not wrong, "\n".join(wrong)


_ARRAYS = (
    *("ar", "ar", "array('b', 'a', s)", "array(d, 1.5D, double('NaN'))", "array(k, i, null)", "split(s, ' ')"),
    *(
        "array(t, date'2024-02-29')",
        "array(st)",
        "array(array(1, 2), ar)",
        "filter(ar, x -> x > 1)",
        "array(c, 1.25BD)",
    ),
)
_BODIES = (
    *("x", "x is null", "x > k", "x = 1", "k / x > 1", "coalesce(x, l)", "concat(x, s)", "x.a", "id", "struct(x, id)"),
    *("x between 1 and i", "x in (1, 5)", "case when x > 2 then x else k end", "exists(ar, y -> y = x)", "x * 2 - id"),
    *(
        "transform(ar, y -> x + y)",
        "x = x",
        "cast(x as string)",
        "hash(x)",
        "size(x) > 0",
        "x >= '2020-01-01'",
        "p or x > 1",
    ),
)


def _with_lambda(chance: random.Random, name: str) -> str:
    array, body = chance.choice(_ARRAYS), chance.choice(_BODIES)
    if name.startswith(("map_", "transform_")):
        value = chance.choice(("k", "v", "v > 1", "concat(k, s)", "v + id", "upper(k)", "k = s", "coalesce(v, 0) > i"))
        return f"{name}({chance.choice(('m', 'm', 'map(s, k)'))}, (k, v) -> {value})"
    if name == "zip_with":
        both = chance.choice(("x", "y", "x + y", "x = y", "concat(x, y)", "struct(x, y, id)", "coalesce(x, y)"))
        return f"zip_with({array}, {chance.choice(_ARRAYS)}, (x, y) -> {both})"
    if name in ("aggregate", "reduce"):
        zero = chance.choice(("0", "1L", "''", "double('0')", "k", "false"))
        merge = chance.choice(
            ("a + x", "a", "concat(a, x)", "a or x > 1", "coalesce(a + x, a)", "greatest(a, x)", "a * id")
        )
        finish = chance.choice(("", "", ", a -> a = a", ", a -> concat(a, s)", ", a -> a + id"))
        return f"{name}({array}, {zero}, (a, x) -> {merge}{finish})"
    places = name in ("transform", "filter") and chance.random() < 0.3
    if places:
        return f"{name}({array}, (x, n) -> {chance.choice((body, 'n > 0', 'x + n'))})"
    return f"{name}({array}, x -> {body})"


def calls(chance: random.Random, rows: pa.Table, count: int) -> list[str]:
    """Mostly such as have a value here."""
    found: dict[str, None] = {}
    while len(found) < count:
        name = chance.choice(sorted((set(FUNCTIONS) | LAMBDA_FUNCTIONS) - set(_NOW)))
        for _ in range(chance.choice((1, 6, 12, 25))):
            text = _call(chance, name)
            outcome, result = ours(rows, text)
            if outcome == "value" and result[0] != "void":  # of which Spark makes no Arrow where it is never null
                found[text] = None
                break
        else:
            if outcome != "value":
                found[text] = None
    return list(found)


def _call(chance: random.Random, name: str) -> str:
    if name in LAMBDA_FUNCTIONS:
        return _with_lambda(chance, name)
    function = FUNCTIONS[name]
    most = function.least + 2 if function.most is None else function.most
    args = [_argument(chance) for _ in range(chance.randint(function.least, most))]
    if name in _LENGTHS:
        args[_LENGTHS[name]] = chance.choice(("0", "1", "-1", "2", "5", "NULL", "'12'", "1.5D", "q", "ar", "X''"))
    return f"{name}({', '.join(args)})"


def _argument(chance: random.Random) -> str:
    return chance.choice(_COLUMNS if chance.random() < 0.6 else _LITERALS)
