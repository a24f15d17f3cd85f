"""SQL on one table that goes on elsewhere all the time: in sessions of Spark with other settings that take turns, in
two of them at once, in processes without Spark, and in processes that are killed in the middle.

A dictionary of rows is what the table must be, by expressions that Spark evaluates in the session whose turn it was.
What was acknowledged is there; of what was under way when a process was killed all is there, or nothing. Of two
statements at once, one was first, or one was refused for the other.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import lakeseal
from lakeseal import Table, errors
from oracles.rows import same_rows
from oracles.seeds import case, cases
from oracles.sessions import INTERPRETED, SESSIONS, without_connect
from oracles.statement_model import Refused, after
from oracles.statement_rows import SCHEMA, Made, Row
from oracles.statements import Statement, some_history

pytestmark = pytest.mark.spark

_SESSIONS = ("default", "new-york", "ansi-off", "case-sensitive", "double-quotes", "escaped-literals")
_KINDS = ("delete", "update", "merge", "append", "overwrite", "replace")
_NO_PLAN_FOR_IT = (errors.UnsupportedExpression, errors.UnsupportedFeature)
_CHILD = """
import json, sys
import lakeseal
from lakeseal import errors

asked = json.load(sys.stdin)
spark = None
if asked["settings"] is not None:
    from lakeseal.spark.local_session import local_session

    plain = {"spark.ui.enabled": "false", "spark.driver.memory": "512m"}
    spark = local_session("a child", master="local[1]", settings={**plain, **asked["settings"]})
print(json.dumps("ready"), flush=True)
for text in asked["texts"]:
    try:
        lakeseal.sql(text, spark)
        said = "done"
    except (errors.UnsupportedExpression, errors.UnsupportedFeature):
        said = "unsupported"
    except errors.InvalidExpression as error:
        said = "unsupported" if "subquery" in str(error) or "DuckDB" in str(error) else f"refused: {error!r}"
    except errors.LakesealError as error:
        said = f"refused: {error!r}"
    print(json.dumps(said), flush=True)
"""


@pytest.mark.timeout(36000)
def test_work_that_goes_on_elsewhere_is_that_on_a_dictionary(spark: Any, tmp_path: Path) -> None:
    done: Counter[str] = Counter()
    for seed in cases(1, 100):
        with case(seed) as chance:
            place = tmp_path / str(seed)
            place.mkdir()
            done += _Work(spark, chance, place).run(4)
    print(dict(done))


class _Work:
    def __init__(self, spark: Any, chance: random.Random, place: Path) -> None:
        self._chance = chance
        self._place = place
        self._made = Made.of(chance)
        self._table = self._made.table(str(place / "t"))
        self._first = self._table.version()
        self._rows = self._made.rows
        self._versions: dict[int, list[Row]] = {self._first: self._rows}
        self._sessions = {name: _session(spark, SESSIONS[name]) for name in self._chance.sample(_SESSIONS, 3)}
        self._plain = _session(spark, SESSIONS["default"])
        self._story: list[str] = [f"{self._made}"]
        self._done: Counter[str] = Counter()

    def run(self, rounds: int) -> Counter[str]:
        ways = [(6, self._in_a_session), (3, self._beside), (4, self._killed), (0.6, self._killed_with_spark)]
        for _ in range(rounds):
            (way,) = self._chance.choices([one for _, one in ways], [weight for weight, _ in ways])
            way()
            self._look()
        self._look_at_the_feed()
        return self._done

    def _in_a_session(self) -> None:
        name = self._chance.choice(list(self._sessions))
        for _ in range(self._chance.randint(1, 3)):
            statement = self._statement(name)
            text = self._text(statement, self._sessions[name])
            wanted = self._after(self._sessions[name], self._rows, statement)
            self._story.append(f"{name}: {text}")
            said = self._say(text, name)
            self._is_right(said, wanted, statement)
            self._done["in sessions"] += 1
            self._note()

    def _say(self, text: str | None, name: str) -> errors.LakesealError | None:
        if text is None:
            return errors.InvalidExpression("The source is none")
        # It need not be the session that Spark takes for the active one.
        self._plain.createDataFrame([(1,)], "x int").collect()
        try:
            lakeseal.sql(text, self._sessions[name])
            return None
        except errors.LakesealError as error:
            return error

    def _is_right(self, refused: errors.LakesealError | None, wanted: list[Row] | None, statement: Statement) -> None:
        if refused is None:
            assert wanted is not None, f"{self._told()}\nit must be refused"
            self._rows = wanted
            return
        allowed = isinstance(refused, errors.SchemaMismatch) and statement.kind in ("merge", "append")
        assert wanted is None or allowed, f"{self._told()}\nrefused: {refused!r}"

    def _beside(self) -> None:
        """Two sessions at once."""
        one, other = self._chance.sample(list(self._sessions), 2)
        statements = {name: self._statement(name) for name in (one, other)}
        texts = {name: self._text(statements[name], self._sessions[name]) for name in statements}
        self._story.append(f"at once: {texts}")
        with ThreadPoolExecutor(2) as pool:
            asked = {name: pool.submit(self._say, texts[name], name) for name in texts}
            refused = {name: found.result() for name, found in asked.items()}
        for error in refused.values():
            is_typed = isinstance(error, errors.ConcurrentModification | errors.InvalidInput | errors.Refused | None)
            assert is_typed, f"{self._told()}\n{error!r}"
        possible = []
        for order in ((one, other), (other, one)):
            rows: list[Row] | None = self._rows
            for name in order:
                if refused[name] is None and rows is not None:
                    rows = self._after(self._sessions[name], rows, statements[name])
            if rows is not None:
                possible.append(rows)
        self._rows = self._one_of(possible, f"{self._told()}\n{refused}")
        self._done["at once"] += 2
        self._note()

    def _one_of(self, possible: list[list[Row]], about: str) -> list[Row]:
        found = self._table.to_arrow().to_pylist(maps_as_pydicts="strict")
        for number, rows in enumerate(possible):
            try:
                same_rows(found, rows, about)
                return rows
            except AssertionError:
                if number == len(possible) - 1:
                    raise
        raise AssertionError(f"{about}\nboth were done, and no order of them can be")

    def _killed(self) -> None:
        self._run_child(None, self._plain, "default", 6)

    def _killed_with_spark(self) -> None:
        name = self._chance.choice(list(self._sessions))
        self._run_child({**SESSIONS[name], **INTERPRETED}, self._sessions[name], name, 4)

    def _run_child(self, settings: dict[str, str] | None, session: Any, name: str, count: int) -> None:
        """A process that is killed behind some statement, or within the next one."""
        statements, texts = [], []
        while len(texts) < count:
            statement = self._statement(name)
            text = self._text(statement, session)
            if text is not None:
                statements.append(statement)
                texts.append(text)
        left = self._chance.randint(0, count)
        patience = self._chance.choice((0.0, 0.002, 0.01, 0.03, 0.1, 0.5)) * (1 if settings is None else 5)
        self._story += [f"a process in {name}, killed behind {left}, {patience} s: {text}" for text in texts]
        child = subprocess.Popen(
            [sys.executable, "-c", _CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=without_connect(),
            start_new_session=True,
        )
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps({"settings": settings, "texts": texts}))
        child.stdin.close()
        told = [json.loads(child.stdout.readline() or '"died"') for _ in range(left + 1)]
        time.sleep(patience)
        os.killpg(child.pid, signal.SIGKILL)
        told += [json.loads(line) for line in child.stdout if line.endswith("\n")]
        child.stdout.close()
        child.wait()
        assert "died" not in told, f"{self._told()}\n{told}"
        said = told[1:]
        self._story.append(f"it said {said}")
        for answer, statement in zip(said, statements, strict=False):
            if answer == "unsupported":
                self._done["refused by name"] += 1
                continue
            wanted = self._after(session, self._rows, statement)
            self._is_right(None if answer == "done" else _as_error(answer), wanted, statement)
            self._done["in processes"] += 1
        if len(said) < count:
            whole = self._after(session, self._rows, statements[len(said)])
            self._rows = self._one_of([self._rows, *([] if whole is None else [whole])], self._told())
            self._done["kills"] += 1
        self._note()

    def _statement(self, session: str) -> Statement:
        history = some_history(self._chance, session, kinds=_KINDS, length=1, evolves=0)
        return history.statements[0]

    def _text(self, statement: Statement, session: Any) -> str | None:
        """One that any process can say: its source is a table, too. None if its source is none in this session."""
        if not statement.source:
            return statement.sql(self._table.uri)
        rows = Table(str(self._place / f"source-{self._chance.getrandbits(48):x}"))
        try:
            rows.write(session.sql(statement.source))
        except Exception:
            return None
        there = f"delta.`{rows.uri}`"
        merge = statement.sql(self._table.uri)
        if merge is not None:
            return merge.replace(" USING src q ", f" USING {there} q ")
        table = f"delta.`{self._table.uri}`"
        if statement.kind == "replace":
            return f"INSERT INTO {table} REPLACE WHERE {statement.where} SELECT {', '.join(SCHEMA.names)} FROM {there}"
        into = "INSERT OVERWRITE" if statement.kind == "overwrite" else "INSERT INTO"
        return f"{into} {table} BY NAME SELECT * FROM {there}"

    def _after(self, session: Any, rows: list[Row], statement: Statement) -> list[Row] | None:
        """None if it must be refused."""
        try:
            return after(session, self._made, rows, statement).rows
        except Refused:
            return None

    def _note(self) -> None:
        self._versions[self._table.version()] = self._rows

    def _look(self) -> None:
        found = Table(self._table.uri).to_arrow().to_pylist(maps_as_pydicts="strict")
        same_rows(found, self._rows, self._told())
        version = self._chance.choice(list(self._versions))
        name = self._chance.choice(list(self._sessions))
        frame = lakeseal.sql(f"SELECT * FROM delta.`{self._table.uri}` VERSION AS OF {version}", self._sessions[name])
        seen = frame.toArrow().to_pylist(maps_as_pydicts="strict")
        same_rows(seen, self._versions[version], f"{self._told()}\nversion {version} in {name}")

    def _look_at_the_feed(self) -> None:
        """What was there, without what the feed says went, with what it says came, is what is there."""
        last = self._table.version()
        if not self._made.feed or last == self._first:
            return
        came: list[Row] = []
        went: list[Row] = []
        for row in self._table.changes(self._first + 1, last).to_pylist(maps_as_pydicts="strict"):
            kind = row.pop("_change_type")
            del row["_commit_version"], row["_commit_timestamp"]
            (came if kind in ("insert", "update_postimage") else went).append(row)
        same_rows([*self._made.rows, *came], [*self._rows, *went], f"{self._told()}\nfeed")

    def _told(self) -> str:
        return "\n".join(self._story)


def _as_error(said: str) -> errors.LakesealError:
    kind = errors.SchemaMismatch if "SchemaMismatch" in said else errors.InvalidInput
    return kind(said)


def _session(spark: Any, settings: dict[str, str]) -> Any:
    """One of its own, with the tables and the JVM of the others."""
    found = spark.newSession()
    for name, value in {**settings, **INTERPRETED, "spark.sql.adaptive.enabled": "false"}.items():
        found.conf.set(name, value)
    return found
