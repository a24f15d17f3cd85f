"""Histories of random statements in Arrow, with DataFrames and as SQL, in other sessions too, against a dictionary of
rows that Spark evaluates."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import lakeseal
from lakeseal import errors
from oracles.rows import same_rows
from oracles.seeds import case, cases
from oracles.sessions import INTERPRETED, some_session, with_settings
from oracles.statement_model import Refused, after
from oracles.statement_rows import Made
from oracles.statements import Statement, some_history

pytestmark = pytest.mark.spark

_SESSIONS = ("new-york", "ansi-off", "case-sensitive", "aqe-off", "double-quotes", "escaped-literals")
_WITHOUT_A_SESSION = {"session.timeZone": "utc", "ansi.enabled": "true", "caseSensitive": "false"}
_WRITES = ("append", "overwrite", "replace", "dynamic")


@pytest.mark.timeout(36000)
def test_statements_do_to_a_table_what_they_do_to_a_dictionary(spark: Any, tmp_path: Path) -> None:
    for seed in cases(1, 200):
        with case(seed) as chance:
            one_history(spark, chance, tmp_path / str(seed))


def one_history(spark: Any, chance: random.Random, place: Path) -> int:
    """How many statements were compared."""
    name, settings = some_session(chance, *_SESSIONS)
    history = some_history(chance, name)
    adapts = {
        "spark.sql.adaptive.enabled": str(chance.random() < 0.2).lower()
    }  # planned again, small queries take longer
    with with_settings(spark, {**adapts, **settings, **INTERPRETED}):
        return _History(spark, history.made, name, chance, place).run(history.statements)


class _History:
    def __init__(self, spark: Any, made: Made, session: str, chance: random.Random, place: Path) -> None:
        self._spark = spark
        self._made = made
        self._session = session
        self._chance = chance
        self._table = made.table(str(place))
        self._rows = made.rows

    def run(self, statements: tuple[Statement, ...]) -> int:
        for number, statement in enumerate(statements):
            self._step(number, statement)
            if statement.evolves:  # the dictionary knows the first schema only
                return number + 1
        return len(statements)

    def _step(self, number: int, statement: Statement) -> None:
        version = self._table.version()
        way = self._way(statement)
        about = f"{self._session}, statement {number}, {way}: {statement}\nrows: {self._rows}\n{self._made.properties}"
        try:
            wanted = after(self._spark, self._made, self._rows, statement)
        except Refused:
            wanted = None
        try:
            done = self._do(way, statement)
        except errors.LakesealError as error:
            assert self._table.version() == version, about
            # Structs with other fields than their columns have, where the schema does not evolve.
            allowed = isinstance(error, errors.SchemaMismatch) and statement.kind in ("merge", "append")
            assert wanted is None or (allowed and not statement.evolves), f"{about}\nrefused: {error!r}"
            return
        assert wanted is not None, f"{about}\nit must be refused"
        rows = self._table.to_arrow().to_pylist(maps_as_pydicts="strict")
        same_rows(rows, wanted.rows, about)
        for name, count in wanted.counts.items():
            assert int(done.metrics.get(name, 0)) == count, f"{name}: {done.metrics} and not {count}: {about}"
        if self._made.feed and not statement.evolves:
            self._check_feed(version, rows, about)
        self._rows = wanted.rows

    def _way(self, statement: Statement) -> str:
        """How it is said; what runs without a session has a UTC and ANSI of its own."""
        ways = ["frames", "frames" if statement.kind in _WRITES else "sql"]
        if self._session in ("default", "aqe-off") and self._is_utc_and_ansi():
            ways.append("arrow")
        return self._chance.choice(ways)

    def _do(self, way: str, statement: Statement) -> Any:
        source = self._spark.sql(statement.source) if statement.source else None
        if way == "sql":
            if source is not None:
                source.createOrReplaceTempView("src")
            row = lakeseal.sql(str(statement.sql(self._table.uri)), self._spark).collect()[0].asDict()
            return _Told(row)
        if way == "arrow":
            try:
                return statement.run(self._table, None if source is None else source.toArrow(), None)
            except errors.UnsupportedExpression:
                pass  # it is Spark's then
            except errors.InvalidExpression as error:
                if "subquery" not in str(error):
                    raise
        return statement.run(self._table, source, self._spark)

    def _is_utc_and_ansi(self) -> bool:
        """The session of the whole run (`LAKESEAL_TEST_SESSION`) may be another."""
        said = {name: str(self._spark.conf.get(f"spark.sql.{name}")).lower() for name in _WITHOUT_A_SESSION}
        return said == _WITHOUT_A_SESSION

    def _check_feed(self, version: int, rows: list[dict[str, Any]], about: str) -> None:
        """What was there, without what the feed says went, with what it says came, is what is there."""
        came: list[dict[str, Any]] = []
        went: list[dict[str, Any]] = []
        if self._table.version() > version:
            for row in self._table.changes(version + 1).to_pylist(maps_as_pydicts="strict"):
                kind = row.pop("_change_type")
                del row["_commit_version"], row["_commit_timestamp"]
                (came if kind in ("insert", "update_postimage") else went).append(row)
        before = self._table.to_arrow(version=version).to_pylist(maps_as_pydicts="strict")
        same_rows([*before, *came], [*rows, *went], f"feed of {about}")


class _Told:
    """What SQL answers, as a result of the Table API."""

    def __init__(self, metrics: dict[str, Any]) -> None:
        self.metrics = metrics
