"""Histories of statements that make tables and say what they are, the same text here and in Delta Spark.

We go first, with a session or without one, so that each statement is made for the columns that the tables have then;
Delta Spark says the same to tables of its own. After each statement both have done it or both have refused it, and the
tables have the same columns, partitions, properties, constraints and rows. At the end Delta Spark reads both. What we
refuse by name (`UnsupportedFeature`, `UnsupportedExpression`) Delta Spark is not asked; what only Spark can evaluate is
said with a session in any case.
"""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

import lakeseal
from lakeseal import Table, errors
from oracles.definitions import TABLES, Definitions, told
from oracles.rows import same_rows
from oracles.seeds import case, cases

pytestmark = [pytest.mark.peers, pytest.mark.spark, pytest.mark.stress]

_TOGETHER = 4
_LENGTH = 12
_REFUSED_BY_NAME = (errors.UnsupportedFeature, errors.UnsupportedExpression)
_DELTA = """
    import pathlib, re
    from concurrent.futures import ThreadPoolExecutor

    def written(error):
        try:
            return f"{type(error).__name__}: {error}"[:400]
        except Exception:
            return type(error).__name__

    def version(uri):
        log = pathlib.Path(uri, "_delta_log").glob("*.json")
        return max((int(path.stem) for path in log if path.stem.isdigit()), default=-1)

    def read(session, uri):
        try:
            frame = session.read.format("delta").load(uri)
            shown = frame.selectExpr("to_json(struct(*), map('ignoreNullFields', 'false'))")
            kinds = [[field.name, field.dataType.simpleString(), field.nullable] for field in frame.schema.fields]
            return [kinds, sorted(row[0] for row in shown.collect())]
        except Exception as error:
            return written(error)

    def told(history):
        root, session, found, versions = history["root"], spark.newSession(), [], {}
        for name, value in fixed.items():
            session.conf.set(name, value)
        for number, text in enumerate(history["texts"]):
            for name in "abc":
                text = text.replace("{" + name + "}", f"delta.`{root}/theirs/{name}`")
            text = re.sub(r"\\{v(\\d+)\\}", lambda match: str(versions.get(int(match[1]), 0)), text)
            answer = {"refused": None}
            try:
                session.sql(text).collect()
            except Exception as error:
                answer["refused"] = written(error)
            answer["versions"] = {name: version(f"{root}/theirs/{name}") for name in "abc"}
            versions[number] = answer["versions"][history["about"][number]]
            found.append(answer)
        sides = ("ours", "theirs")
        return [found, {name: [read(session, f"{root}/{one}/{name}") for one in sides] for name in history["there"]}]

    fixed = {
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.databricks.delta.writeChecksumFile.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    with ThreadPoolExecutor(3) as pool:
        result = list(pool.map(told, todo))
"""


@pytest.mark.timeout(36000)
def test_definitions_do_what_they_do_in_delta_spark(spark: Any, delta_spark: Any, tmp_path: Path) -> None:
    every = list(cases(12, 200))
    compared, unasked, wrong = 0, 0, []
    for start in range(0, len(every), _TOGETHER):
        found = [Beside(seed, tmp_path / str(seed), spark) for seed in every[start : start + _TOGETHER]]
        answers = delta_spark.run(_DELTA, todo=[one.todo() for one in found])
        for one, (steps, reads) in zip(found, answers, strict=True):
            unasked += one.unasked
            try:
                compared += one.compare(steps, reads)
            except AssertionError as error:  # the others may have more to tell
                print(f"DIFFERENT {one.seed}: {error}", flush=True)
                wrong.append(error)
        print(f"{compared} statements, the last of history {found[-1].seed}", flush=True)
    print(f"{compared} statements in {len(every)} histories, {unasked} refused by name")
    if wrong:
        raise ExceptionGroup(f"{len(wrong)} histories differ", wrong)


class Beside:
    """A history as it went here."""

    def __init__(self, seed: int, root: Path, spark: Any) -> None:
        self.seed, self.root = seed, root
        self.texts: list[str] = []
        self.about: list[str] = []
        self.states: list[dict[str, Any]] = []
        self.refused: list[str | None] = []
        self.unasked = 0
        with case(seed) as chance:
            self._spark = spark
            self._session = spark if chance.random() < 0.25 else None
            self._go(chance)

    def _go(self, chance: random.Random) -> None:
        tables = self.tables("ours")
        made = Definitions(chance, tables)
        versions: dict[int, int] = {}
        while len(self.texts) < _LENGTH:
            text = made.next() if tables["a"].exists() else made.first()
            name = re.search(r"\{([abc])\}", text)
            assert name is not None
            try:
                self._say(text, versions)
                refused = None
            except _REFUSED_BY_NAME as error:
                print(f"{self.seed}: {text}: {error}")
                self.unasked += 1
                continue
            except errors.LakesealError as error:
                refused = repr(error)
            self.texts.append(text)
            self.about.append(name[1])
            self.refused.append(refused)
            self.states.append(_states(tables))
            if tables[name[1]].exists():
                versions[len(self.texts) - 1] = tables[name[1]].version()
                if refused is None:
                    made.changed(len(self.texts) - 1, text)

    def _say(self, text: str, versions: dict[int, int]) -> None:
        for name in TABLES:
            text = text.replace("{" + name + "}", f"delta.`{self.root}/ours/{name}`")
        text = re.sub(r"\{v(\d+)\}", lambda match: str(versions[int(match[1])]), text)
        try:
            lakeseal.sql(text, self._session)
        except errors.UnsupportedExpression:
            if self._session is not None:
                raise
            lakeseal.sql(text, self._spark)

    def tables(self, side: str) -> dict[str, Table]:
        return {name: Table(str(self.root / side / name)) for name in TABLES}

    def todo(self) -> dict[str, Any]:
        there = [name for name, table in self.tables("ours").items() if table.exists()]
        return {"root": str(self.root), "texts": self.texts, "about": self.about, "there": there}

    def compare(self, steps: list[dict[str, Any]], reads: dict[str, list[Any]]) -> int:
        """How many statements were compared."""
        with case(self.seed):
            for number, (text, step) in enumerate(zip(self.texts, steps, strict=True)):
                before = "\n".join(self.texts[:number])
                about = f"{before}\n--> {text}\n{'with Spark' if self._session else 'without Spark'}"
                ours, theirs = self.refused[number], step["refused"]
                assert (ours is None) == (theirs is None), f"{about}\nours: {ours}\ntheirs: {theirs}"
                self._compare(number, step, about)
            for name, (one, other) in reads.items():
                assert one == other, f"{self.texts}\nDelta Spark reads {name} as\n{one}\nand its own as\n{other}"
            return len(self.texts)

    def _compare(self, number: int, step: dict[str, Any], about: str) -> None:
        theirs = self.tables("theirs")
        for name, state in self.states[number].items():
            version = step["versions"][name]
            assert (version >= 0) == (state is not None), f"{about}\n{name} is there on one side only"
            if state is None:
                continue
            said = told(theirs[name], version)
            made = self.texts[: number + 1]
            if any("CLONE" in text or (not self._session and "AS SELECT" in text) for text in made):
                said, state["told"] = _without_comments(said), _without_comments(state["told"])
            assert said == state["told"], f"{about}\n{name} is here\n{state['told']}\nand there\n{said}"
            same_rows(state["rows"], _rows(theirs[name], version), f"{about}\n{name}")


def _without_comments(said: Any) -> Any:
    """A query without Spark knows none, and a clone of Delta Spark's has not that of its table."""
    if isinstance(said, dict):
        return {key: _without_comments(value) for key, value in said.items() if key != "comment"}
    return [_without_comments(one) for one in said] if isinstance(said, list) else said


def _states(tables: dict[str, Table]) -> dict[str, Any]:
    return {
        name: {"told": told(table), "rows": _rows(table)} if table.exists() else None for name, table in tables.items()
    }


def _rows(table: Table, version: int | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.to_arrow(version=version).to_pylist(maps_as_pydicts="strict")
    return found
