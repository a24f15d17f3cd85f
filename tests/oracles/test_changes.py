"""Deletes, updates and overwrites against Spark's own evaluation of the same texts over bare rows, in any session.

A case is a table of random rows and a few statements. What each statement makes of the rows is computed apart from the
table: all rows as one DataFrame, `where` and `selectExpr` in the same session. Where Spark fails, the statement must
fail with an error of ours and change nothing, unless what fails are rows of files that were rightly left out. Where
Spark does not fail, a statement may be refused by name, but only for reasons that are listed here.
"""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, ParseException, PySparkException

from lakeseal import LakesealError, Table
from lakeseal.errors import SchemaMismatch
from oracles.rows import same_rows
from oracles.seeds import case, cases
from oracles.sessions import SESSIONS, some_session, with_settings

pytestmark = pytest.mark.spark

COLUMNS = {
    "id": "BIGINT",
    "i": "INT",
    "l": "BIGINT",
    "x": "DOUBLE",
    "m": "DECIMAL(10, 2)",
    "b": "BOOLEAN",
    "s": "STRING",
    "t": "STRING",
    "d": "DATE",
    "ts": "TIMESTAMP",
    "tn": "TIMESTAMP_NTZ",
    "st": "STRUCT<a: INT, s: STRING, ts: TIMESTAMP>",
    "ar": "ARRAY<INT>",
    "mp": "MAP<STRING, INT>",
}
SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
NAMES = tuple(COLUMNS)
_WORDS = (
    "",
    "a",
    "b",
    "A",
    "x",
    "it's",
    'say "x"',
    "back\\slash",
    "1",
    "007",
    " 2 ",
    "2024-01-01",
    "null",
    "%",
    "ä",
    "9e9",
)
_NOON = dt.datetime(2024, 3, 10, 5, tzinfo=dt.UTC)  # New York's clocks go forward on that day


class Rows:
    """Random values of every column's type."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def row(self, number: int) -> tuple[Any, ...]:
        chance = self._chance

        def maybe(value: Any) -> Any:
            return None if chance.random() < 0.15 else value

        moment = self._moment()
        return (
            number,
            maybe(chance.choice((0, 1, 2, -1, 7, 2147483647, -2147483648))),
            maybe(chance.choice((0, 1, 3, -5, 3_000_000_000, 9223372036854775807))),
            maybe(chance.choice((0.0, -0.0, 1.5, -2.25, 1e300, float("nan"), float("inf")))),
            maybe(Decimal(chance.choice(("0.00", "1.50", "-3.25", "99999999.99")))),
            maybe(chance.random() < 0.5),
            maybe(chance.choice(_WORDS)),
            maybe(chance.choice(_WORDS)),
            maybe(moment.date()),
            maybe(moment),
            maybe(self._moment().replace(tzinfo=None)),
            maybe((maybe(chance.randint(0, 3)), maybe(chance.choice(_WORDS)), maybe(self._moment()))),
            maybe([maybe(chance.randint(0, 3)) for _ in range(chance.randint(0, 3))]),
            maybe({word: maybe(chance.randint(0, 3)) for word in chance.sample(("a", "b", "c"), chance.randint(0, 2))}),
        )

    def _moment(self) -> dt.datetime:
        return _NOON + dt.timedelta(hours=self._chance.randint(-60, 60), minutes=self._chance.choice((0, 30)))


class Texts:
    """Random SQL over these columns."""

    def __init__(self, chance: random.Random, session: str) -> None:
        self._chance = chance
        self._quotes = session in ("double-quotes", "escaped-literals")

    def condition(self, depth: int = 2) -> str:
        chance = self._chance
        if depth and chance.random() < 0.6:
            left, right = self.condition(depth - 1), self.condition(depth - 1)
            return chance.choice((f"({left} AND {right})", f"({left} OR {right})", f"NOT ({left})"))
        return chance.choice((self._compared, self._compared, self._null, self._listed, self._like, self._other))()

    def value(self, column: str) -> str:
        return self._chance.choice(self._values(column))

    def _number(self) -> str:
        return self._chance.choice(
            ("i", "l", "m", "x", "id", "0", "1", "2", "1.5", "-1", "2147483647", "i + 1", "l * 2", "i / 2", "m - 1",
             "length(s)", "st.a", "size(ar)", "ar[0]", "mp['a']", "CAST(s AS INT)", "try_cast(t AS INT)", "year(ts)",
             "hour(ts)", "abs(i)", "i % 2", "id % 3", "coalesce(i, 0)", "CAST(x AS INT)", "round(m)", "floor(x)")
        )  # fmt: skip

    def _moment(self) -> str:
        return self._chance.choice(
            ("ts", "d", "tn", "st.ts", "'2024-03-10'", "'2024-03-10 02:30:00'", "DATE'2024-03-10'",
             "TIMESTAMP'2024-03-10 03:00:00'", "TIMESTAMP'2024-03-10 03:00:00Z'", "CAST(ts AS DATE)",
             "CAST(d AS TIMESTAMP)", "CAST(tn AS TIMESTAMP)", "date_trunc('DAY', ts)", "d + 1", "to_date(ts)",
             "ts + INTERVAL 1 DAY", "timestamp('2024-03-10 01:00:00')")
        )  # fmt: skip

    def _string(self) -> str:
        words = ["s", "t", "st.s", "'a'", "'x'", "'it''s'", "''", "'1'", "upper(s)", "trim(s)", "concat(s, '!')",
                 "CAST(ts AS STRING)", "CAST(i AS STRING)", "CAST(d AS STRING)", "substring(s, 1, 2)",
                 "CAST(b AS STRING)",
                 "date_format(ts, 'yyyy-MM-dd HH')", "reverse(t)", "'it\\'s'", '"a"', "'back\\\\slash'"]  # fmt: skip
        if self._quotes:
            words += ['"s"', '"t"', "'a\\b'"] * 3
        return self._chance.choice(words)

    def _compared(self) -> str:
        chance = self._chance
        kind = chance.choice((self._number, self._moment, self._string))
        op = chance.choice(("=", "<>", "<", "<=", ">", ">=", "<=>"))
        if chance.random() < 0.15:
            return f"{kind()} BETWEEN {kind()} AND {kind()}"
        if chance.random() < 0.08:  # of two kinds
            return f"{kind()} {op} {chance.choice((self._number, self._moment, self._string))()}"
        return f"{kind()} {op} {kind()}"

    def _null(self) -> str:
        return f"{self._chance.choice(NAMES)} IS {self._chance.choice(('', 'NOT '))}NULL"

    def _listed(self) -> str:
        kind = self._chance.choice((self._number, self._moment, self._string))
        listed = ", ".join(kind() for _ in range(self._chance.randint(1, 3)))
        return f"{kind()} {self._chance.choice(('', 'NOT '))}IN ({listed})"

    def _like(self) -> str:
        pattern = self._chance.choice(("a%", "%x%", "_", "it%", "%\\\\%", '%"%'))
        return f"{self._chance.choice(('s', 't', 'st.s'))} {self._chance.choice(('', 'NOT '))}LIKE '{pattern}'"

    def _other(self) -> str:
        return self._chance.choice(
            ("b", "NOT b", "true", "false", "NULL", "id < 4", "array_contains(ar, 1)", "exists(ar, e -> e > 1)",
             "CASE WHEN b THEN i > 0 ELSE s = 'a' END", "if(b, ts > d, NULL)", "isnan(x)", "ID = 3", "I > 0",
             "id IN (SELECT explode(array(1L, 3L, 5L)))", "s RLIKE '^[a-c]'", "nullif(i, 1) = 2", "10 / i > 1")
        )  # fmt: skip

    def _values(self, column: str) -> tuple[str, ...]:
        any_text = (self._string(), self._string(), "CAST(ts AS STRING)", "ts", "d", "i", "b", "m", "NULL")
        number = (self._number(), self._number(), "l", "m", "x", "NULL", "s")
        moment = (self._moment(), self._moment(), "ts", "d", "tn", "NULL")
        return {
            "i": number, "l": number, "x": number, "m": number, "s": any_text, "t": any_text,
            "d": moment, "ts": moment, "tn": moment, "b": (self.condition(1), "NULL"),
            "st": ("named_struct('s', s, 'a', i, 'ts', d)", "named_struct('a', l, 's', i, 'ts', ts)", "NULL"),
            "ar": ("array(i, st.a)", "transform(ar, e -> e + 1)", "array(l)"),
            "mp": ("map('k', i)", "map(s, l)"),
        }[column]  # fmt: skip


class Model:
    """Rows as Spark has them, apart from any table."""

    def __init__(self, spark: Any, rows: list[Any]) -> None:
        self._spark = spark
        self.rows = rows

    def frame(self) -> Any:
        return self._spark.createDataFrame(self.rows, SCHEMA)

    def deleted(self, where: str) -> list[Any]:
        gone = {row.id for row in self.frame().where(where).select("id").collect()}
        return [row for row in self.rows if row.id not in gone]

    def deleted_one_by_one(self, where: str) -> list[Any]:
        """Without rows that Spark selects when it sees no others; one that it fails on stays."""
        stay = []
        for row in self.rows:
            try:
                gone = self._spark.createDataFrame([row], SCHEMA).where(where).count()
            except PySparkException:
                gone = 0
            if not gone:
                stay.append(row)
        return stay

    def updated(self, values: dict[str, str], where: str, casts: dict[str, str]) -> list[Any]:
        frame = self.frame()
        chosen = {row.id for row in frame.where(where).select("id").collect()}
        columns = [f"{casts.get(name, name)} AS {name}" for name in NAMES]
        changed = {row.id: row for row in frame.where(where).selectExpr(*columns).collect()} if values else {}
        return [changed[row.id] if row.id in chosen else row for row in self.rows]


def stored(column: str, sql: str, frame: Any, session: str) -> str | None:
    """The value as its column stores it, in Spark's own words; None for what the policy refuses."""
    if column == "st":
        parts = {"a": "INT", "s": "STRING", "ts": "TIMESTAMP"}
        if sql == "NULL":
            return "CAST(NULL AS STRUCT<a: INT, s: STRING, ts: TIMESTAMP>)"
        fields = ", ".join(f"'{name}', CAST(({sql}).{name} AS {kind})" for name, kind in parts.items())
        return f"named_struct({fields})"
    return f"CAST(({sql}) AS {COLUMNS[column]})"


def run(spark: Any, table: Table, model: Model, chance: random.Random, session: str) -> None:
    texts = Texts(chance, session)
    kind = chance.choice(("delete", "delete", "update", "update", "replace", "overwrite"))
    where = texts.condition()
    version = table.version()
    values: dict[str, str] = {}
    expected: list[Any] | None
    try:
        if kind == "delete":
            expected = model.deleted(where)
        elif kind == "update":
            column = chance.choice(NAMES[1:])
            values = {column: texts.value(column)}
            casts = {name: str(stored(name, sql, model.frame(), session)) for name, sql in values.items()}
            expected = model.updated(values, where, casts)
        else:
            where = where if kind == "replace" else "true"
            expected = model.deleted(where)
    except (PySparkException, AnalysisException, ParseException):
        expected = None
    about = f"{session}: {kind} {values} WHERE {where}"
    try:
        if kind == "delete":
            table.delete(where, spark=spark)
        elif kind == "update":
            table.update(values, where, spark=spark)
        else:
            fresh = model.frame().where(where).limit(2) if expected is not None else model.frame().limit(0)
            kept = fresh.collect() if expected is not None else []
            table.write(
                spark.createDataFrame(kept, SCHEMA),
                mode="overwrite",
                replace_where=where if kind == "replace" else None,
            )
            expected = None if expected is None else [*expected, *kept]
    except LakesealError as error:
        assert table.version() == version, about
        if expected is not None:
            refused(error, about, values, session)
        return
    if expected is None:
        expected = model.deleted_one_by_one(where) if kind == "delete" else None
    assert expected is not None, f"{about}: Spark refuses it"
    model.rows = expected
    same_rows(table.to_spark(spark).collect(), expected, about)


def refused(error: LakesealError, about: str, values: dict[str, str], session: str) -> None:
    """That there is a reason, and one that is known."""
    # What a column takes is less than what a cast does.
    if values and isinstance(error, SchemaMismatch):
        return
    # A value that does not fit is refused by the policy where the session's own cast is not.
    if values and session == "ansi-off" and "does not fit" in str(error):
        return
    raise AssertionError(f"{about}: Spark does it, and it was refused: {error}") from error


@pytest.mark.parametrize("kind", ["plain", "vectors", "feed"])
def test_statements_do_to_a_table_what_spark_does_to_its_rows(spark: Any, tmp_path: Path, kind: str) -> None:
    properties = {
        "plain": {},
        "vectors": {"delta.enableDeletionVectors": "true"},
        "feed": {"delta.enableChangeDataFeed": "true"},
    }[kind]
    for seed in cases(1, 100):
        with case(seed) as chance:
            session, settings = some_session(chance, *(name for name in SESSIONS if name != "aqe-off"))
            rows = [Rows(chance).row(number) for number in range(12)]
            with with_settings(spark, settings):
                table = Table(tmp_path / f"{kind}{seed}")
                frame = spark.createDataFrame(rows, SCHEMA)
                table.write(frame.where("id < 7"), properties=properties)
                table.write(frame.where("id >= 7"))
                model = Model(spark, frame.collect())
                for _ in range(4):
                    run(spark, table, model, chance, session)
                    if len(model.rows) < 4:
                        break
