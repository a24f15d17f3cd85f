"""Every function that is known here, called with random arguments: Spark gives the same answer, or fails too."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from expr.test_spark import SIMPLE, check, ours
from lakeseal.expr.functions import FUNCTIONS
from oracles.seeds import case, cases

_NOW = ("current_date", "curdate", "current_timestamp", "now", "current_timezone")
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


def calls(chance: random.Random, rows: pa.Table, count: int) -> list[str]:
    """Mostly such as have a value here."""
    found: dict[str, None] = {}
    while len(found) < count:
        name = chance.choice(sorted(set(FUNCTIONS) - set(_NOW)))
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
    function = FUNCTIONS[name]
    most = function.least + 2 if function.most is None else function.most
    args = [_argument(chance) for _ in range(chance.randint(function.least, most))]
    if name in _LENGTHS:
        args[_LENGTHS[name]] = chance.choice(("0", "1", "-1", "2", "5", "NULL", "'12'", "1.5D", "q", "ar", "X''"))
    return f"{name}({', '.join(args)})"


def _argument(chance: random.Random) -> str:
    return chance.choice(_COLUMNS if chance.random() < 0.6 else _LITERALS)
