"""Work from its start to its end by `lakeseal.sql`, on tables with names, against a dictionary: each step is said in a
session of Spark with settings of its own, without Spark, or by `lakeseal sql` in a new process, and read another way.

DataFrames of earlier steps are kept and collected again behind later ones: they show what they showed.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest

import lakeseal
from lakeseal import Catalog
from oracles.rows import same_rows
from oracles.seeds import case, cases
from oracles.sessions import INTERPRETED, SESSIONS, with_settings, without_connect

pytestmark = pytest.mark.spark

_SESSIONS = ("default", "new-york", "ansi-off", "case-sensitive", "aqe-off", "double-quotes")
_TEXTS = ("x", "it's", "A;", "-- no", None, "WHERE")
_CLOCKS = dt.datetime(2024, 3, 10, 7, tzinfo=dt.UTC)  # New York's go forward
_COLUMNS = ("id", "k", "v", "ts")
_PROPERTIES = "'delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = '{}'"
_CREATION = "CREATE TABLE w.{} (id BIGINT NOT NULL, k STRING DEFAULT 'x', v INT, ts TIMESTAMP) TBLPROPERTIES ({})"
Row = dict[str, Any]


class Way(NamedTuple):
    name: str
    settings: dict[str, str] | None
    """None without Spark."""
    hour: Callable[[dt.datetime], int]


@pytest.mark.timeout(36000)
def test_work_in_several_sessions_and_processes_is_that_on_a_dictionary(spark: Any, tmp_path: Path) -> None:
    steps = 0
    for seed in cases(1, 60):
        with case(seed) as chance:
            place = tmp_path / str(seed)
            place.mkdir()
            steps += _Work(spark, chance, place).run(14)
    print(f"{steps} steps")


class _Work:
    def __init__(self, spark: Any, chance: random.Random, place: Path) -> None:
        self._spark = spark
        self._chance = chance
        self._url = f"sqlite:///{place / 'names.db'}"
        self._catalog = Catalog(self._url)
        self._rows: dict[str, list[Row]] = {}
        self._versions: dict[str, dict[int, list[Row]]] = {}
        self._kept: list[tuple[str, Any, list[Row]]] = []
        self._said: list[str] = []

    def run(self, count: int) -> int:
        for name in ("a", "b"):
            vectors = str(self._chance.random() < 0.5).lower()
            self._say(self._way(), _CREATION.format(name, _PROPERTIES.format(vectors)))
            self._rows[name] = []
            self._note(name)
        for number in range(count):
            name = self._chance.choice(("a", "b"))
            way = self._way()
            self._step(name, way)
            self._note(name)
            self._look(name)
            if number % 4 == 3:
                self._look_again()
        return count

    def _way(self) -> Way:
        roll = self._chance.random()
        if roll < 0.6:
            session = self._chance.choice(_SESSIONS)
            zone = ZoneInfo("America/New_York" if session == "new-york" else "UTC")
            return Way(session, {**SESSIONS[session], **INTERPRETED}, lambda moment: moment.astimezone(zone).hour)
        return Way("process" if roll < 0.7 else "arrow", None, lambda moment: moment.hour)

    def _say(self, way: Way, text: str) -> list[Row]:
        self._said.append(f"{way.name}: {text}")
        if way.settings is not None:
            with with_settings(self._spark, way.settings):
                frame = lakeseal.sql(text, self._spark, self._catalog)
                if "ts" in frame.columns:
                    frame = frame.selectExpr("* EXCEPT (ts)", "unix_micros(ts) AS ts")
                return [_moments(row.asDict()) for row in frame.collect()]
        if way.name == "arrow":
            found: list[Row] = lakeseal.sql(text, catalog=self._catalog).to_pylist()
            return found
        command = [sys.executable, "-m", "lakeseal", "sql", "--catalog", self._url, "--json", text]
        ended = subprocess.run(command, capture_output=True, text=True, env=without_connect(), check=False)
        assert ended.returncode == 0, f"{self._story()}\n{ended.stderr}"
        return [_moments(json.loads(line)) for line in ended.stdout.splitlines()]

    def _story(self) -> str:
        return "\n".join(self._said)

    def _note(self, name: str) -> None:
        version = self._catalog.table(f"w.{name}").version()
        self._versions.setdefault(name, {})[version] = list(self._rows[name])

    def _step(self, name: str, way: Way) -> None:
        rows, chance = self._rows[name], self._chance
        other = "b" if name == "a" else "a"
        kind = chance.choice(
            ("insert", "insert", "insert", "update", "delete", "merge", "merge", "copy", "restore", "keep")
        )
        condition, holds = self._condition(way)
        if kind == "insert":
            new = [self._row() for _ in range(chance.randint(1, 4))]
            self._say(way, f"INSERT INTO w.{name} VALUES {', '.join(_literals(row, way) for row in new)}")
            rows += new
        elif kind == "update":
            self._say(way, f"UPDATE w.{name} SET v = coalesce(v, 0) + 1, k = 'it''s' WHERE {condition}")
            self._rows[name] = [{**row, "v": (row["v"] or 0) + 1, "k": "it's"} if holds(row) else row for row in rows]
        elif kind == "delete":
            self._say(way, f"DELETE FROM w.{name} WHERE {condition}")
            self._rows[name] = [row for row in rows if not holds(row)]
        elif kind == "merge":
            self._merge(name, way)
        elif kind == "copy":
            self._say(way, f"INSERT OVERWRITE w.{name} SELECT * FROM w.{other} WHERE {condition}")
            self._rows[name] = [row for row in self._rows[other] if holds(row)]
        elif kind == "restore":
            version = chance.choice(list(self._versions[name]))
            self._say(way, f"RESTORE TABLE w.{name} TO VERSION AS OF {version}")
            self._rows[name] = list(self._versions[name][version])
        else:
            frame = lakeseal.sql(f"SELECT id, k, v, unix_micros(ts) AS ts FROM w.{name}", self._spark, self._catalog)
            self._kept.append((name, frame, list(rows)))

    def _merge(self, name: str, way: Way) -> None:
        """An upsert by a key that is in each side once."""
        self._say(way, f"DELETE FROM w.{name} WHERE id < 0")
        once = list({row["id"]: row for row in self._rows[name]}.values())
        new = list({row["id"]: row for row in (self._row() for _ in range(3))}.values())
        if len(once) < len(self._rows[name]):
            return
        source = f"(SELECT * FROM VALUES {', '.join(_literals(row, way) for row in new)} AS x(id, k, v, ts))"
        if way.settings is None:  # DuckDB has no names of columns there
            union = " UNION ALL ".join(f"SELECT {_literals(row, way)[1:-1]}" for row in new)
            named = ", ".join(f"{_literal(new[0][one], one, way)} AS {one}" for one in _COLUMNS)
            rest = union.partition(" UNION ALL ")
            source = f"(SELECT {named}{rest[1]}{rest[2]})"
        self._say(
            way,
            f"MERGE INTO w.{name} t USING {source} s ON t.id = s.id WHEN MATCHED AND s.v IS NULL THEN DELETE "
            "WHEN MATCHED THEN UPDATE SET v = s.v, ts = s.ts WHEN NOT MATCHED THEN INSERT *",
        )
        by_id = {row["id"]: row for row in once}
        for row in new:
            if row["id"] not in by_id:
                by_id[row["id"]] = row
            elif row["v"] is None:
                del by_id[row["id"]]
            else:
                by_id[row["id"]] = {**by_id[row["id"]], "v": row["v"], "ts": row["ts"]}
        self._rows[name] = list(by_id.values())

    def _condition(self, way: Way) -> tuple[str, Callable[[Row], bool]]:
        v, text = self._chance.randint(0, 3), self._chance.choice(_TEXTS[:4])
        hour = self._chance.choice((3, 6, 20))
        shown = "'" + str(text).replace("'", "''") + "'"
        return self._chance.choice(
            (
                (f"v > {v}", lambda row: row["v"] is not None and row["v"] > v),
                (f"k = {shown}", lambda row: row["k"] == text),
                (f"NOT (k <> {shown})", lambda row: row["k"] == text),
                (f"hour(ts) < {hour}", lambda row: row["ts"] is not None and way.hour(row["ts"]) < hour),
                ("ts IS NULL OR k IS NULL", lambda row: row["ts"] is None or row["k"] is None),
                (f"ts >= {_literal(_MIDDLE, 'ts', way)}", lambda row: row["ts"] is not None and row["ts"] >= _MIDDLE),
            )
        )

    def _row(self) -> Row:
        chance = self._chance
        moment = _CLOCKS + dt.timedelta(minutes=30 * chance.randint(-20, 20))
        return {
            "id": chance.randint(0, 30),
            "k": chance.choice(_TEXTS),
            "v": chance.choice((None, 0, 1, 2, 3)),
            "ts": None if chance.random() < 0.15 else moment,
        }

    def _look(self, name: str) -> None:
        found = self._say(self._way(), f"SELECT * FROM w.{name}")
        same_rows(found, self._rows[name], self._story())
        version = self._chance.choice(list(self._versions[name]))
        then = self._say(self._way(), f"SELECT id, k, v, ts FROM w.{name} VERSION AS OF {version}")
        same_rows(then, self._versions[name][version], self._story())

    def _look_again(self) -> None:
        for name, frame, rows in self._kept:
            found = [_moments(row.asDict()) for row in frame.collect()]
            same_rows(found, rows, f"{self._story()}\na DataFrame of {name} that was made before")


_MIDDLE = dt.datetime(2024, 3, 10, 6, 30, tzinfo=dt.UTC)


def _moments(row: Row) -> Row:
    value = row.get("ts")
    if isinstance(value, int):
        row["ts"] = dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(microseconds=value)
    elif isinstance(value, str):
        row["ts"] = dt.datetime.fromisoformat(value)
    return row


def _literals(row: Row, way: Way) -> str:
    return f"({', '.join(_literal(row[name], name, way) for name in _COLUMNS)})"


def _literal(value: Any, name: str, way: Way) -> str:
    kind = {"id": "BIGINT", "k": "STRING", "v": "INT", "ts": "TIMESTAMP"}[name]
    match value:
        case None:
            return f"CAST(NULL AS {kind})"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case dt.datetime():
            zone = "" if way.settings is None else "Z"  # which queries without Spark refuse
            return f"TIMESTAMP'{value:%Y-%m-%d %H:%M:%S}{zone}'"
        case _:
            return f"CAST({value} AS {kind})"
