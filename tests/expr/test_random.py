"""Random expressions over random rows: against a plain evaluator of one row; pruning against the rows themselves."""

from __future__ import annotations

import datetime as dt
import fnmatch
import math
import operator
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakeseal.expr import bind_predicate, column, equal, evaluate, filter_batch, literal, parse, prune
from lakeseal.protocol.arrow import from_arrow
from support.examples import examples

Row = dict[str, Any]
Value = Any


class Expr(NamedTuple):
    """SQL text and what it means for one row."""

    sql: str
    of: Callable[[Row], Value]


TYPES = {
    "a": pa.int64(),
    "b": pa.int64(),
    "f": pa.float64(),
    "g": pa.float64(),
    "s": pa.string(),
    "u": pa.string(),
    "d": pa.date32(),
    "ts": pa.timestamp("us", "UTC"),
    "p": pa.string(),
    "q": pa.int64(),
}
SCHEMA = from_arrow(pa.schema(list(TYPES.items())))
KINDS = {"int": "abq", "float": "fg", "text": "sup", "date": "d", "time": ("ts",)}
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

LONG = "x" * 30
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-4, 4),
    "float": st.sampled_from([0.0, -0.0, 1.5, -2.5, math.nan, math.inf, -math.inf, 3.0]),
    "text": st.sampled_from(
        ["", "a", "ab", "abc", "b", "B", "é", "a_c", "a%", LONG + "aaa", LONG + "aab", LONG + "zé\U0001f600"]
    ),
    "date": st.integers(0, 6).map(lambda n: dt.date(2024, 2, 26) + dt.timedelta(n)),
    "time": st.integers(-3, 3).map(lambda n: EPOCH + dt.timedelta(microseconds=n * 700 + 1_709_164_800_000_000)),
}
KIND_OF = {name: kind for kind, names in KINDS.items() for name in names}
ROWS = st.fixed_dictionaries({name: st.none() | VALUES[KIND_OF[name]] for name in TYPES})


def key(value: Value) -> Any:
    """Spark's order: NaN above all numbers, strings by their bytes."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    if isinstance(value, int) and not isinstance(value, bool):
        return (False, value)
    return value.encode() if isinstance(value, str) else value


COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def strict(function: Callable[..., Value], *args: Expr) -> Callable[[Row], Value]:
    def of(row: Row) -> Value:
        values = [arg.of(row) for arg in args]
        return None if None in values else function(*values)

    return of


def column_of(name: str) -> Expr:
    return Expr(column(name).text, lambda row: row[name])


def constant(value: Value) -> Expr:
    return Expr(literal(value).text, lambda row: value)


def columns_of(kind: str) -> st.SearchStrategy[Expr]:
    return st.sampled_from(list(KINDS[kind])).map(column_of)


def leaf(kind: str) -> st.SearchStrategy[Expr]:
    return columns_of(kind) | VALUES[kind].map(constant)


def choose(condition: Expr, yes: Expr, no: Expr) -> Expr:
    sql = f"CASE WHEN {condition.sql} THEN {yes.sql} ELSE {no.sql} END"
    return Expr(sql, lambda row: yes.of(row) if condition.of(row) is True else no.of(row))


def first_of(one: Expr, other: Expr) -> Expr:
    return Expr(f"coalesce({one.sql}, {other.sql})", lambda row: other.of(row) if one.of(row) is None else one.of(row))


def scalar(kind: str, depth: int) -> st.SearchStrategy[Expr]:
    """An expression of a kind that is no condition."""
    if depth == 0:
        return leaf(kind)
    inner = scalar(kind, depth - 1)
    options = [
        leaf(kind),
        st.builds(first_of, inner, inner),
        st.builds(choose, condition(depth - 1), inner, inner),
        st.builds(lambda a, b: Expr(f"greatest({a.sql}, {b.sql})", lambda row: extreme(max, a, b, row)), inner, inner),
    ]
    if kind == "int":
        for sign, function in (("+", operator.add), ("-", operator.sub), ("*", operator.mul)):
            options.append(
                st.builds(
                    lambda a, b, sign=sign, function=function: Expr(
                        f"({a.sql} {sign} {b.sql})", strict(function, a, b)
                    ),
                    inner,
                    inner,
                )
            )
        options.append(inner.map(lambda a: Expr(f"(-({a.sql}))", strict(operator.neg, a))))
        options.append(scalar("date", depth - 1).map(lambda a: Expr(f"day({a.sql})", strict(lambda v: v.day, a))))
    if kind == "text":
        options.append(inner.map(lambda a: Expr(f"upper({a.sql})", strict(str.upper, a))))
        options.append(inner.map(lambda a: Expr(f"left({a.sql}, 2)", strict(lambda v: v[:2], a))))
        options.append(st.builds(lambda a, b: Expr(f"({a.sql} || {b.sql})", strict(operator.add, a, b)), inner, inner))
    if kind == "date":
        times = scalar("time", depth - 1)
        options.append(times.map(lambda a: Expr(f"date({a.sql})", strict(lambda v: v.date(), a))))
        options.append(
            inner.map(lambda a: Expr(f"({a.sql} + interval 1 day)", strict(lambda v: v + dt.timedelta(1), a)))
        )
    return st.one_of(options)


def extreme(function: Callable[..., Value], one: Expr, other: Expr, row: Row) -> Value:
    values = [value for value in (one.of(row), other.of(row)) if value is not None]
    return function(values, key=key) if values else None


def compared(op: str, left: Expr, right: Expr) -> Expr:
    return Expr(f"({left.sql} {op} {right.sql})", strict(lambda a, b: COMPARE[op](key(a), key(b)), left, right))


def null_safe(left: Expr, right: Expr) -> Expr:
    def of(row: Row) -> bool:
        one, other = left.of(row), right.of(row)
        return one is other if one is None or other is None else key(one) == key(other)

    return Expr(f"({left.sql} <=> {right.sql})", of)


def among(value: Expr, items: list[Value], negated: bool) -> Expr:
    def of(row: Row) -> Value:
        found = value.of(row)
        if found is None:
            return None
        if any(item is not None and key(item) == key(found) for item in items):
            return not negated
        return None if None in items else negated

    words = "NOT IN" if negated else "IN"
    return Expr(f"({value.sql} {words} ({', '.join(literal(item).text for item in items)}))", of)


def between(value: Expr, low: Expr, high: Expr) -> Expr:
    both = conjunction([compared(">=", value, low), compared("<=", value, high)])
    return Expr(f"({value.sql} BETWEEN {low.sql} AND {high.sql})", both.of)


def like(value: Expr, pattern: str) -> Expr:
    regex = re.compile("".join({"%": ".*", "_": "."}.get(c, re.escape(c)) for c in pattern), re.DOTALL)
    return Expr(f"({value.sql} LIKE {literal(pattern).text})", strict(lambda v: bool(regex.fullmatch(v)), value))


def conjunction(parts: list[Expr]) -> Expr:
    def of(row: Row) -> Value:
        values = [part.of(row) for part in parts]
        return False if False in values else None if None in values else True

    return Expr(f"({' AND '.join(part.sql for part in parts)})", of)


def disjunction(parts: list[Expr]) -> Expr:
    def of(row: Row) -> Value:
        values = [part.of(row) for part in parts]
        return True if True in values else None if None in values else False

    return Expr(f"({' OR '.join(part.sql for part in parts)})", of)


def condition(depth: int) -> st.SearchStrategy[Expr]:
    kinds = st.sampled_from(list(KINDS))
    down = max(0, depth - 1)
    operators = st.sampled_from(list(COMPARE))
    plain = kinds.flatmap(lambda kind: st.builds(compared, operators, columns_of(kind), VALUES[kind].map(constant)))
    atoms = st.one_of(
        plain,
        plain,
        kinds.flatmap(lambda kind: st.builds(compared, operators, scalar(kind, down), scalar(kind, down))),
        kinds.flatmap(lambda kind: st.builds(null_safe, scalar(kind, down), scalar(kind, down))),
        kinds.flatmap(
            lambda kind: st.builds(
                among, scalar(kind, down), st.lists(st.none() | VALUES[kind], min_size=1, max_size=4), st.booleans()
            )
        ),
        kinds.flatmap(lambda kind: st.builds(between, scalar(kind, 0), leaf(kind), leaf(kind))),
        kinds.flatmap(lambda kind: scalar(kind, down)).map(
            lambda a: Expr(f"({a.sql} IS NULL)", lambda row: a.of(row) is None)
        ),
        st.builds(
            like,
            columns_of("text") | scalar("text", down),
            st.sampled_from(["a%", "%b", "a_c", "%", "", "ab", "x%", LONG + "a%", "_"]),
        ),
    )
    if depth == 0:
        return atoms
    inner = condition(depth - 1)
    return st.one_of(
        atoms,
        st.lists(inner, min_size=2, max_size=3).map(conjunction),
        st.lists(inner, min_size=2, max_size=3).map(disjunction),
        inner.map(lambda a: Expr(f"(NOT {a.sql})", strict(operator.not_, a))),
        inner.map(lambda a: Expr(f"({a.sql} IS TRUE)", lambda row: a.of(row) is True)),
        inner.map(lambda a: Expr(f"({a.sql} IS NOT FALSE)", lambda row: a.of(row) is not False)),
    )


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    arrays = [pa.array([row[name] for row in rows], arrow) for name, arrow in TYPES.items()]
    return pa.RecordBatch.from_arrays(arrays, list(TYPES))


@examples(100, 2000)
@given(condition(2), st.lists(ROWS, max_size=6))
def test_an_expression_means_for_each_row_what_it_means_for_one(expr: Expr, rows: list[Row]) -> None:
    parsed = parse(expr.sql)
    bound = bind_predicate(parsed, SCHEMA)
    expected = [expr.of(row) for row in rows]
    assert evaluate(bound, batch_of(rows)).to_pylist() == expected
    assert filter_batch(bound, batch_of(rows)).num_rows == expected.count(True)
    again = parse(parsed.sql)
    assert again.sql == parsed.sql
    assert evaluate(bind_predicate(again, SCHEMA), batch_of(rows)).to_pylist() == expected


class File(NamedTuple):
    rows: list[Row]
    deleted: list[bool]
    hidden: dict[str, bool]
    """Which parts of the statistics the writer left out."""


PARTS = ("numRecords", "minValues", "maxValues", "nullCount", "a mark that text was cut")


@st.composite
def files(draw: st.DrawFn) -> File:
    constant_values = {name: draw(st.none() | VALUES[KIND_OF[name]]) for name in ("p", "q")}
    rows = [row | constant_values for row in draw(st.lists(ROWS, min_size=1, max_size=4))]
    deleted = draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)) | st.just([False] * len(rows)))
    return File(rows, deleted, {part: draw(st.sampled_from([False, False, False, True])) for part in PARTS})


def cut_low(value: Value) -> Value:
    if isinstance(value, str):
        return value[:32]
    return value.replace(microsecond=value.microsecond // 1000 * 1000) if isinstance(value, dt.datetime) else value


def cut_high(value: Value, mark: str) -> Value:
    return value[:32] + mark if isinstance(value, str) and len(value) > 32 else cut_low(value)


def stats_of(file: File) -> dict[str, Any]:
    """What a writer says of a file, rows that were deleted later included."""
    lows, highs, nulls = {}, {}, {}
    mark = "" if file.hidden["a mark that text was cut"] else "\U0010ffff"
    for name in TYPES:
        if name in ("p", "q"):
            continue
        values = [row[name] for row in file.rows if row[name] is not None]
        finite = [value for value in values if not (isinstance(value, float) and math.isnan(value))]
        lows[name] = cut_low(min(finite, key=key)) if finite else None
        highs[name] = cut_high(max(finite, key=key), mark) if finite else None
        nulls[name] = len(file.rows) - len(values)
    stats = {"numRecords": len(file.rows), "minValues": lows, "maxValues": highs, "nullCount": nulls}
    return {part: None if file.hidden[part] else value for part, value in stats.items()}


DATA = [(name, arrow) for name, arrow in TYPES.items() if name not in ("p", "q")]
STATS = pa.struct(
    [
        ("numRecords", pa.int64()),
        ("minValues", pa.struct(DATA)),
        ("maxValues", pa.struct(DATA)),
        ("nullCount", pa.struct([(name, pa.int64()) for name, _ in DATA])),
    ]
)
PARTITIONS = pa.struct([(name, TYPES[name]) for name in ("p", "q")])


@examples(30, 600)
@given(
    st.lists(condition(0) | condition(1) | condition(2), min_size=4, max_size=12),
    st.lists(files(), min_size=2, max_size=10),
    st.sampled_from([(True, True), (True, False), (False, True)]),
)
def test_pruning_never_loses_a_row_and_never_claims_one(
    conditions: list[Expr], written: list[File], given_parts: tuple[bool, bool]
) -> None:
    partitions = pa.array([{name: file.rows[0][name] for name in ("p", "q")} for file in written], PARTITIONS)
    stats = pa.array([stats_of(file) for file in written], STATS)
    left = [[row for row, gone in zip(file.rows, file.deleted, strict=True) if not gone] for file in written]
    batches = [batch_of(rows) for rows in left]
    for expr in conditions:
        bound = bind_predicate(parse(expr.sql), SCHEMA)
        match = prune(bound, partitions=partitions if given_parts[0] else None, stats=stats if given_parts[1] else None)
        for batch, may, every in zip(batches, match.may.to_pylist(), match.all.to_pylist(), strict=True):
            values = evaluate(bound, batch).to_pylist()
            assert may or True not in values, (expr.sql, batch.to_pylist())
            assert not every or all(value is True for value in values), (expr.sql, batch.to_pylist())


@given(st.text(alphabet="ab_%\\", max_size=6), st.text(alphabet="ab_%\n", max_size=5))
def test_like_matches_as_a_plain_reading_of_its_pattern_does(pattern: str, value: str) -> None:
    escaped = pattern.replace("\\", "")
    shell = "".join({"%": "*", "_": "?"}.get(c, c) for c in escaped)
    batch = pa.RecordBatch.from_pydict({"s": pa.array([value])})
    bound = bind_predicate(parse(f"s LIKE {literal(escaped).text}"), from_arrow(batch.schema))
    assert evaluate(bound, batch).to_pylist() == [fnmatch.fnmatchcase(value, shell)]


@given(st.sampled_from(list(TYPES)).flatmap(lambda name: st.tuples(st.just(name), st.none() | VALUES[KIND_OF[name]])))
def test_equal_finds_the_rows_that_hold_the_value(case: tuple[str, Value]) -> None:
    name, value = case
    rows = [dict.fromkeys(TYPES), dict.fromkeys(TYPES) | {name: value}]
    bound = bind_predicate(equal((name,), value), SCHEMA)
    kept = filter_batch(bound, batch_of(rows)).column(name).to_pylist()
    assert len(kept) == (2 if value is None else 1)
