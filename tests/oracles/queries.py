"""Random queries over one table, in words that Spark and DuckDB both may know: what they mean to each is not minded."""

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa

_TEXTS = [
    "",
    "a",
    "B",
    " x ",
    "it''s",
    "12",
    "-3",
    "1.5",
    "2024-01-31",
    "true",
    "straße",
    "ÄÖ",
    "a%b",
    "ab" * 9,
    "é",
    "z_",
]
_TYPES = {
    "i": pa.int32(),
    "j": pa.int64(),
    "k": pa.int8(),
    "x": pa.float64(),
    "f": pa.float32(),
    "m": pa.decimal128(10, 2),
    "w": pa.decimal128(30, 10),
    "s": pa.string(),
    "u": pa.string(),
    "b": pa.bool_(),
    "d": pa.date32(),
    "t": pa.timestamp("us", "UTC"),
    "n": pa.timestamp("us"),
    "l": pa.list_(pa.int32()),
    "r": pa.struct([("p", pa.int32())]),
}
_OF = {
    "int": ("i", "j", "k", "r.p", "`a b`"),
    "num": ("i", "j", "k", "x", "f", "m", "w"),
    "text": ("s", "u"),
    "bool": ("b",),
    "date": ("d",),
    "time": ("t", "n"),
    "list": ("l",),
}


def some_rows(chance: random.Random, count: int = 12) -> pa.Table:
    def value(name: str) -> Any:
        if chance.random() < 0.2:
            return None
        match name:
            case "i" | "j":
                return chance.choice([0, 1, -1, 2, 7, chance.randint(-40, 40), 2**31 - 1])
            case "k":
                return chance.choice([0, 1, -1, 5, 127, -128])
            case "x" | "f":
                return chance.choice([0.0, -0.0, 1.5, -2.5, 0.1, math.nan, math.inf, 1e10, chance.uniform(-9, 9)])
            case "m":
                return Decimal(chance.randint(-999, 999)) / 100
            case "w":
                return Decimal(chance.randint(-(10**12), 10**12)).scaleb(-10)
            case "s" | "u":
                return chance.choice(_TEXTS).replace("''", "'")
            case "b":
                return chance.random() < 0.5
            case "d":
                return dt.date(2024, 1, 31) + dt.timedelta(chance.randint(-400, 400))
            case "t" | "n":
                return dt.datetime(2024, 1, 1) + dt.timedelta(
                    hours=chance.randint(-9999, 9999), microseconds=chance.choice((0, 500_000, 7))
                )
            case "l":
                return [chance.choice([1, 2, None]) for _ in range(chance.randint(0, 3))]
        return {"p": chance.choice([1, 2, None])}

    columns = {name: pa.array([value(name) for _ in range(count)], kind) for name, kind in _TYPES.items()}
    return pa.table({"id": pa.array(range(count), pa.int64()), "a b": pa.array(range(count), pa.int32()), **columns})


class Queries:
    """Texts, in which `@t` stands for the table."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def query(self) -> str:
        c = self._chance
        items = [self.any(2) for _ in range(c.randint(1, 3))]
        listed = ", ".join(f"{text} AS c{n}" for n, text in enumerate(items))
        one = self.column()
        where = f" WHERE {self.bool(2)}" if c.random() < 0.5 else ""
        return c.choice(
            (
                f"SELECT id, {listed} FROM @t{where}",
                f"SELECT id, {listed} FROM @t{where}",
                f"SELECT id, {listed} FROM @t{where}",
                f"SELECT {items[0]} AS g, count(*) AS n, {self.aggregate()} AS a FROM @t{where} GROUP BY {items[0]}",
                f"SELECT {one} AS g, {self.aggregate()} AS a, {self.aggregate()} AS z FROM @t{where} GROUP BY {one}",
                f"SELECT {self.aggregate()} AS a, {self.aggregate()} AS z FROM @t{where}",
                f"SELECT DISTINCT {items[0]} AS v FROM @t{where}",
                f"SELECT id, {one} AS v FROM @t{where} ORDER BY {one} {c.choice(('', 'ASC', 'DESC'))}, id",
                f"SELECT id FROM @t{where} ORDER BY {items[0]}, id LIMIT {c.randint(1, 5)}",
                f"SELECT id, {self.window()} AS v FROM @t{where}",
                f"SELECT {items[0]} AS v FROM @t UNION ALL SELECT {items[-1]} FROM @t{where}",
                f"SELECT {items[0]} AS v FROM @t EXCEPT SELECT {self.any(1)} FROM @t{where}",
                f"SELECT y.id AS p, z.id AS q FROM @t y JOIN @t z ON y.{self._plain()} = z.{self._plain()}",
                f"SELECT id FROM @t WHERE {self.num(1)} IN (SELECT {self.num(1)} FROM @t)",
                f"WITH q AS (SELECT {items[0]} AS v, id FROM @t{where}) SELECT v, count(*) AS n FROM q GROUP BY v",
                "SELECT i AS d, d AS i FROM @t WHERE i > 1 ORDER BY i, d, id",
            )
        )

    def column(self) -> str:
        return self._chance.choice(self._chance.choice(list(_OF.values())))

    def _plain(self) -> str:
        return self._chance.choice([name for name in _TYPES if name not in "lr"])

    def any(self, depth: int) -> str:
        return self._chance.choice((self.num, self.num, self.text, self.bool, self.date, self.time))(depth)

    def _some(self, kind: str, depth: int) -> str:
        """An operand of this kind, and now and then of another."""
        if self._chance.random() < 0.07:
            return self.any(depth)
        if self._chance.random() < 0.04:
            return "NULL"
        return {
            "num": self.num,
            "text": self.text,
            "bool": self.bool,
            "date": self.date,
            "time": self.time,
            "int": self.int,
        }[kind](depth)

    def int(self, depth: int) -> str:
        c = self._chance
        if depth <= 0 or c.random() < 0.5:
            return c.choice((*_OF["int"], str(c.randint(-3, 9)), str(c.randint(0, 3))))
        n, t, d = (
            (lambda: self._some("int", depth - 1)),
            (lambda: self._some("text", depth - 1)),
            (lambda: self._when(depth - 1)),
        )
        return c.choice(
            (
                f"length({t()})",
                f"instr({t()}, {t()})",
                f"year({d()})",
                f"month({d()})",
                f"day({d()})",
                f"hour({d()})",
                f"minute({d()})",
                f"second({d()})",
                f"quarter({d()})",
                f"dayofweek({d()})",
                f"weekday({d()})",
                f"dayofyear({d()})",
                f"weekofyear({d()})",
                f"extract({c.choice(('YEAR', 'DAY', 'DOW', 'WEEK', 'SECOND', 'HOUR'))} FROM {d()})",
                f"datediff({d()}, {d()})",
                f"({n()} + {n()})",
                f"({n()} - {n()})",
                f"({n()} * {n()})",
                f"({n()} % {n()})",
                f"mod({n()}, {n()})",
                f"abs({n()})",
                f"({n()} & {n()})",
                f"({n()} | {n()})",
                f"CAST({self.any(depth - 1)} AS {c.choice(('INT', 'BIGINT', 'TINYINT'))})",
                f"coalesce({n()}, {n()})",
                f"greatest({n()}, {n()}, {n()})",
                f"l[{n()}]",
                f"ascii({t()})",
                f"char_length({t()})",
                f"octet_length({t()})",
                f"bit_length({t()})",
                f"ceil({self.num(depth - 1)})",
                f"floor({self.num(depth - 1)})",
                f"nullif({n()}, {n()})",
                f"-{n()}",
                f"TRY_CAST({t()} AS INT)",
            )
        )

    def num(self, depth: int) -> str:
        c = self._chance
        if depth <= 0 or c.random() < 0.3:
            return c.choice((*_OF["num"], *_OF["num"], str(c.randint(-3, 9)), "1.5", "0.1", "2e0", "0.00"))
        if c.random() < 0.3:
            return self.int(depth)
        n = lambda: self._some("num", depth - 1)  # noqa: E731
        op = c.choice("+-*/%^")
        kind = c.choice(("DOUBLE", "FLOAT", "DECIMAL(12,3)", "DECIMAL(38,18)", "INT"))
        return c.choice(
            (
                f"({n()} {op} {n()})",
                f"{n()} {op} {n()}",
                f"round({n()})",
                f"round({n()}, {c.randint(-1, 3)})",
                f"abs({n()})",
                f"sign({n()})",
                f"sqrt({n()})",
                f"pow({n()}, {n()})",
                f"exp({n()})",
                f"ln({n()})",
                f"log({n()})",
                f"log10({n()})",
                f"CAST({self.any(depth - 1)} AS {kind})",
                f"coalesce({n()}, {n()})",
                f"greatest({n()}, {n()})",
                f"least({n()}, {n()})",
                f"CASE WHEN {self.bool(depth - 1)} THEN {n()} ELSE {n()} END",
                f"if({self.bool(depth - 1)}, {n()}, {n()})",
                f"cbrt({n()})",
                f"degrees({n()})",
                f"atan2({n()}, {n()})",
                f"nullif({n()}, {n()})",
                f"(-{n()})",
                f"(SELECT max({c.choice(_OF['num'])}) FROM @t)",
            )
        )

    def text(self, depth: int) -> str:
        c = self._chance
        if depth <= 0 or c.random() < 0.4:
            return c.choice((*_OF["text"], *(f"'{one}'" for one in _TEXTS)))
        t, n = (lambda: self._some("text", depth - 1)), (lambda: self._some("int", depth - 1))
        return c.choice(
            (
                f"({t()} || {t()})",
                f"concat({t()}, {t()})",
                f"concat({t()}, {n()}, {t()})",
                f"concat_ws('-', {t()}, {t()})",
                f"upper({t()})",
                f"lower({t()})",
                f"trim({t()})",
                f"ltrim({t()})",
                f"rtrim({t()})",
                f"substring({t()}, {n()})",
                f"substring({t()}, {n()}, {n()})",
                f"substr({t()}, {n()}, {n()})",
                f"left({t()}, {n()})",
                f"right({t()}, {n()})",
                f"replace({t()}, {t()}, {t()})",
                # Spark makes a text of two billion letters where one is asked for, and ends.
                f"lpad({t()}, ({n()}) % 40, {t()})",
                f"rpad({t()}, ({n()}) % 40, {t()})",
                f"repeat({t()}, {c.randint(-1, 3)})",
                f"CAST({self.any(depth - 1)} AS STRING)",
                f"coalesce({t()}, {t()})",
                f"CASE WHEN {self.bool(depth - 1)} THEN {t()} ELSE {t()} END",
                f"md5({t()})",
                f"trim(BOTH 'x' FROM {t()})",
                f"reverse({t()})",
                f"nullif({t()}, {t()})",
                f"greatest({t()}, {t()})",
                f"{t()} || {t()} || {t()}",
                f"regexp_replace({t()}, 'a', 'b')",
                f"split({t()}, 'a')",
            )
        )

    def bool(self, depth: int) -> str:
        c = self._chance
        if depth <= 0 or c.random() < 0.15:
            return c.choice(("b", "true", "false", "i > 1", "s = 'a'", "d > '2024-01-31'", "t < '2024-01-01 00:00:00'"))
        kind = c.choice(("num", "num", "text", "date", "time", "int", "bool"))
        v = lambda: self._some(kind, depth - 1)  # noqa: E731
        op = c.choice(("=", "<", ">", "<=", ">=", "<>", "IS DISTINCT FROM", "=="))
        sub = lambda: self.bool(depth - 1)  # noqa: E731
        return c.choice(
            (
                f"({v()} {op} {v()})",
                f"{v()} {op} {v()}",
                f"({v()} {op} {v()})",
                f"{v()} IN ({v()}, {v()})",
                f"{v()} NOT IN ({v()}, {v()}, NULL)",
                f"{v()} BETWEEN {v()} AND {v()}",
                f"({v()} IS NULL)",
                f"{v()} IS NOT NULL",
                f"({sub()} AND {sub()})",
                f"({sub()} OR {sub()})",
                f"NOT {sub()}",
                f"{self.text(depth - 1)} LIKE '{c.choice(('a%', '%b%', '_', '%', 'a!%b', 's_r%'))}'",
                f"{self.text(depth - 1)} LIKE 'a!%%' ESCAPE '!'",
                f"contains({self.text(depth - 1)}, {self.text(depth - 1)})",
                f"CAST({self.any(depth - 1)} AS BOOLEAN)",
                f"(NOT {sub()} = {sub()})",
                f"(i = '{c.choice(('1', '1.0', ' 1', '007', 'x'))}')",
                f"(d = '{c.choice(('2024-01-31', '2024-1-31', '2024', 'x'))}')",
                f"(x > '{c.choice(('1', '1.5', 'NaN'))}')",
            )
        )

    def date(self, depth: int) -> str:
        c = self._chance
        if depth <= 0 or c.random() < 0.5:
            return c.choice(("d", "d", "DATE '2024-02-29'", "DATE '1999-12-31'"))
        d, n = (lambda: self._some("date", depth - 1)), (lambda: self._some("int", depth - 1))
        return c.choice(
            (
                f"date_add({d()}, {n()})",
                f"date_sub({d()}, {n()})",
                f"({d()} + {n()})",
                f"({d()} - {n()})",
                f"last_day({d()})",
                f"CAST({self.any(depth - 1)} AS DATE)",
                f"make_date(2024, {c.randint(1, 12)}, {c.randint(1, 30)})",
                f"({d()} - {d()})",
                f"({d()} + INTERVAL '1' DAY)",
                f"greatest({d()}, {d()})",
                f"coalesce({d()}, {self.time(0)})",
            )
        )

    def time(self, depth: int) -> str:
        c = self._chance
        if depth <= 0 or c.random() < 0.5:
            return c.choice(("t", "t", "n", "TIMESTAMP '2024-02-29 12:34:56.789'"))
        t = lambda: self._some("time", depth - 1)  # noqa: E731
        unit = c.choice(("year", "month", "week", "day", "hour", "quarter", "x"))
        return c.choice(
            (
                f"date_trunc('{unit}', {self._when(depth - 1)})",
                f"CAST({self.any(depth - 1)} AS TIMESTAMP)",
                f"({t()} + INTERVAL '1' MONTH)",
                f"({t()} - INTERVAL '25' HOUR)",
                f"({t()} - {t()})",
                f"coalesce({t()}, {t()})",
                f"({t()} + INTERVAL 1 DAY)",
                f"least({t()}, {t()})",
            )
        )

    def _when(self, depth: int) -> str:
        return self._some(self._chance.choice(("date", "time")), depth)

    def aggregate(self) -> str:
        c = self._chance
        n, v = self.num(1), self.any(1)
        return c.choice(
            (
                f"sum({n})",
                f"avg({n})",
                f"min({v})",
                f"max({v})",
                f"count({v})",
                f"count(DISTINCT {v})",
                f"sum(DISTINCT {n})",
                f"stddev({n})",
                f"var_pop({n})",
                f"count_if({self.bool(1)})",
                f"bool_and({self.bool(1)})",
                f"median({n})",
                f"bit_or({self.int(1)})",
                f"sum({n}) FILTER (WHERE {self.bool(1)})",
                f"sum({n}) / count(*)",
                f"max({n}) - min({n})",
                f"any_value({v})",
                "count(*)",
                f"skewness({n})",
                f"round(avg({n}), 2)",
                f"CAST(sum({n}) AS INT)",
                f"mode({v})",
                f"variance({n})",
            )
        )

    def window(self) -> str:
        c = self._chance
        by, v = self._plain(), self.any(1)
        over = f"({c.choice(('', f'PARTITION BY {self.column()} '))}ORDER BY {by}{c.choice(('', ' DESC'))}, id)"
        return c.choice(
            (
                f"row_number() OVER {over}",
                f"rank() OVER {over}",
                f"lag({v}) OVER {over}",
                f"lead({v}, 2) OVER {over}",
                f"sum({self.num(1)}) OVER {over}",
                f"first_value({v}) OVER {over}",
                f"last_value({v}) OVER {over}",
                f"count({v}) OVER (PARTITION BY {self.column()})",
                f"ntile(3) OVER {over}",
                f"max({v}) OVER {over}",
                f"nth_value({v}, 2) OVER {over}",
                f"cume_dist() OVER {over}",
                f"avg({self.num(1)}) OVER {over}",
            )
        )
