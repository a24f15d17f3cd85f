"""Histories of SQL in every spelling, the same text here and in Delta Spark, in the same session.

Delta Spark goes first, on tables of its own, and we on ours. After each statement both have done it or both have
refused it, the tables have the same rows and columns, a query has the same answer, and where the feed is on it tells
the same. At the end of a history Delta Spark reads what we made. A statement that needs no session is said without one
half of the time, and where that is refused by name, with it.

Where only one of the two did a statement, our table takes its state from Delta Spark's, and the history goes on. What
may be so is told in `_goes_further` and `_is_refused_here`; all else fails. What Delta Spark refuses for a subquery it
is told by another text.
"""

from __future__ import annotations

import json
import random
import re
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import lakeseal
from lakeseal import Table, errors
from oracles.rows import same_rows
from oracles.seeds import case, cases
from oracles.sentences import Sentence, Sentences
from oracles.sessions import INTERPRETED, SESSIONS, some_session, with_settings

pytestmark = [pytest.mark.peers, pytest.mark.spark]

_TOGETHER = 2
_LENGTH = 14
_TABLES = ("a", "b", "c")
_REFUSED_BY_NAME = (errors.UnsupportedFeature, errors.UnsupportedExpression)
_GOES_FURTHER = (
    "MULTIPLE_SOURCE_ROW_MATCHING",
    "[INTERNAL_ERROR] Found the unresolved Cast",
    "Table does not support overwrite by expression",
    "not enough nested fields",
    "cannot translate expression to source filter",
    "OVERWRITE_BY_SUBQUERY",
    "DELTA_DUPLICATE_COLUMNS_FOUND.READ_SCHEMA",
    "missing 'ON'",  # the source of a MERGE at a version
    "COLUMN_ALIASES_NOT_ALLOWED",  # of the source of a MERGE
)
_DYNAMIC = {"spark.sql.sources.partitionOverwriteMode": "dynamic"}
_DELTA = """
    import pathlib, re
    from concurrent.futures import ThreadPoolExecutor

    def said(frame):
        shown = frame.selectExpr("to_json(struct(*), map('ignoreNullFields', 'false'))")
        return sorted(row[0] for row in shown.collect())

    def version(uri):
        log = pathlib.Path(uri, "_delta_log").glob("*.json")
        return max((int(path.stem) for path in log if path.stem.isdigit()), default=-1)

    def written(error):
        try:
            return f"{type(error).__name__}: {error}"[:700]
        except Exception:
            return type(error).__name__

    def told(history):
        root, session, found, versions = history["root"], spark.newSession(), [], {}
        for name, value in {**fixed, **history["settings"]}.items():
            session.conf.set(name, value)

        def put(text):
            for name in "abc":
                text = text.replace("{" + name + ".path}", f"{root}/theirs/{name}")
            return re.sub(r"\\{v(\\d+)\\}", lambda match: str(versions.get(int(match[1]), 0)), text)

        for number, one in enumerate(history["steps"]):
            answer = {"refused": None}
            try:
                if one["dynamic"] is not None:
                    session.conf.set("spark.sql.sources.partitionOverwriteMode", one["dynamic"])
                frame = session.sql(put(one["text"]))
                if one["query"]:
                    answer["rows"], answer["columns"] = said(frame), frame.columns
                else:
                    counted = frame.collect()
                    answer["counts"] = json_able(counted[0].asDict()) if counted else {}
            except Exception as error:
                answer["refused"] = written(error)
                if one["meant"] is not None and "SUBQUERY" in answer["refused"]:
                    try:
                        session.conf.set("spark.sql.sources.partitionOverwriteMode", "static")
                        session.sql(put(one["meant"]))
                        answer["refused"], answer["counts"] = None, {}
                        answer["otherwise"] = True
                    except Exception as another:
                        answer["refused"] = written(another)
            finally:
                session.conf.unset("spark.sql.sources.partitionOverwriteMode")
            answer["versions"] = {name: version(f"{root}/theirs/{name}") for name in "abc"}
            versions[number] = answer["versions"]["a"]
            found.append(answer)
        return found

    def json_able(counts):
        return {name: value for name, value in counts.items() if isinstance(value, int)}

    fixed = {
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.databricks.delta.writeChecksumFile.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        **interpreted,
    }
    with ThreadPoolExecutor(2) as pool:
        result = list(pool.map(told, todo))
"""
_READ = """
    def read(uri):
        try:
            frame = spark.read.format("delta").load(uri)
            return sorted(row[0] for row in frame.selectExpr("to_json(struct(*))").collect())
        except Exception as error:
            return str(error)[:600]

    result = [[read(one), read(other)] for one, other in pairs]
"""


@pytest.mark.timeout(36000)
def test_texts_do_what_they_do_in_delta_spark(spark: Any, delta_spark: Any, tmp_path: Path) -> None:
    every = list(cases(6, 150))
    parts = [every[start : start + _TOGETHER] for start in range(0, len(every), _TOGETHER)]
    counted: Counter[str] = Counter()
    wrong: list[AssertionError] = []
    with ThreadPoolExecutor(1) as ahead:
        asked = ahead.submit(histories, delta_spark, parts[0], tmp_path)
        for part in [*parts[1:], []]:
            told = asked.result()
            for one in told:
                one.compare(spark, counted, wrong)
                print(f"{one.seed}: {dict(counted)}", flush=True)
            pairs = [pair for one in told for pair in one.pairs()]
            for (ours, _), (one, other) in zip(pairs, delta_spark.run(_READ, pairs=pairs), strict=True):
                if one != other:
                    wrong.append(AssertionError(f"Delta Spark reads {ours} as {one}\nand its own as {other}"))
            for one in told:
                one.gone()
            asked = ahead.submit(histories, delta_spark, part, tmp_path)
    print(f"{dict(counted)} in {len(every)} histories")
    if wrong:
        raise ExceptionGroup(f"{len(wrong)} statements differ", wrong)


class Beside:
    """A history, and what Delta Spark made of it."""

    def __init__(self, seed: int, root: Path) -> None:
        self.seed, self.root = seed, root
        with case(seed) as chance:
            self.session, settings = some_session(chance, *SESSIONS)
            self.settings = {**settings, **INTERPRETED}
            made = Sentences(chance, self.session)
            self.steps = [Sentence(kind="create", text=_tables(text)) for text in made.creation()]
            while len(self.steps) < _LENGTH + 4:
                self.steps.append(made.next(len(self.steps)))
        self.dynamic = chance.random() < 0.3
        self.told: Any = None
        self._chance = random.Random(f"ways of {seed}")
        self._versions: dict[int, int] = {}

    def todo(self) -> dict[str, Any]:
        steps = [
            {
                "text": one.text,
                "query": one.is_query,
                "meant": None if one.meant is None else _tables(one.meant),
                "dynamic": self._mode(one),
            }
            for one in self.steps
        ]
        return {"root": str(self.root), "settings": self.settings, "steps": steps}

    def _mode(self, one: Sentence) -> str | None:
        return "dynamic" if one.dynamic and self.dynamic else None

    def tables(self, side: str) -> dict[str, Table]:
        return {name: Table(str(self.root / side / name)) for name in _TABLES}

    def pairs(self) -> list[tuple[str, str]]:
        return [
            (str(self.root / "ours" / name), str(self.root / "theirs" / name))
            for name in _TABLES
            if self.tables("ours")[name].exists()
        ]

    def gone(self) -> None:
        shutil.rmtree(self.root)

    def compare(self, spark: Any, counted: Counter[str], wrong: list[AssertionError]) -> None:
        with with_settings(spark, self.settings):
            for number in range(len(self.steps)):
                try:
                    counted[self._step(spark, number)] += 1
                except AssertionError as error:
                    error.add_note(f"seed {self.seed}: see it again with LAKESEAL_SEED={self.seed}")
                    print(f"DIFFERENT {self.seed}: {str(error)[str(error).find('-->') :]}", flush=True)
                    wrong.append(error)
                    counted["different"] += 1
                    self._realign(number)

    def _step(self, spark: Any, number: int) -> str:
        sentence, told = self.steps[number], self.told[number]
        before = {name: table.version() for name, table in self.tables("ours").items() if table.exists()}
        way, refused, answer = "none", None, None
        text = self._put(sentence.text)
        about = self._about(number, text)
        if text is None:
            self._realign(number)
            return "not asked"
        mode = _DYNAMIC if self._mode(sentence) else {}
        with with_settings(spark, mode):
            try:
                way, answer = self._say(spark, sentence, text)
            except _REFUSED_BY_NAME as error:
                refused = error
            except errors.LakesealError as error:
                refused = error
        theirs = told["refused"]
        if refused is not None:
            now = {name: table.version() for name, table in self.tables("ours").items() if table.exists()}
            assert now == before, about
            if theirs is None:
                assert self._is_refused_here(sentence, refused), f"{about}\nrefused: {refused!r}"
                print(f"{self.seed}: {text}\n  refused by name: {refused!r}")
                self._realign(number)
                return "refused here"
            self._versions[number] = before.get("a", 0)
            return "refused by both"
        if theirs is not None:
            assert self._goes_further(sentence, theirs), f"{about}\nDelta Spark refuses it: {theirs}"
            self._realign(number)
            return "refused there"
        self._same(number, sentence, about, answer, before)
        return f"{sentence.kind} {way}"

    def _say(self, spark: Any, sentence: Sentence, text: str) -> tuple[str, Any]:
        plain = self.session in ("default", "aqe-off") and not sentence.is_query and not self._mode(sentence)
        if plain and self._chance.random() < 0.5:
            try:
                return "alone", lakeseal.sql(text)
            except _REFUSED_BY_NAME:
                pass
            except errors.LakesealError as error:
                if "subquery" not in str(error) and "DuckDB" not in str(error):
                    raise
        try:
            found = lakeseal.sql(text, spark)
            if sentence.is_query:
                shown = found.selectExpr("to_json(struct(*), map('ignoreNullFields', 'false'))")
                return "spark", (sorted(row[0] for row in shown.collect()), found.columns)
            return "spark", found
        except errors.LakesealError:
            raise
        except Exception as error:
            if not sentence.is_query:
                raise AssertionError(f"{text}\nnot an error of ours: {error!r}"[:3000]) from error
            raise errors.InvalidExpression(f"Spark says: {error}"[:2000]) from error

    def _same(self, number: int, sentence: Sentence, about: str, answer: Any, before: dict[str, int]) -> None:
        told = self.told[number]
        if sentence.is_query:
            rows, columns = answer
            assert columns == told["columns"], f"{about}\n{columns}\nand not {told['columns']}"
            # to_json writes some types otherwise by where they come from: as values they are the same.
            same_rows(map(_loaded, rows), map(_loaded, told["rows"]), about)
        ours, theirs = self.tables("ours"), self.tables("theirs")
        for name, version in told["versions"].items():
            assert ours[name].exists() == (version >= 0), f"{about}\n{name} is there on one side only"
            if version < 0 or sentence.is_query:
                continue
            one, other = ours[name].to_arrow(), theirs[name].to_arrow(version=version)
            assert _kinds(one) == _kinds(other), f"{about}\n{name}: {one.schema}\nand not {other.schema}"
            same_rows(_rows(one), _rows(other), f"{about}\n{name}")
        self._versions[number] = ours["a"].version() if ours["a"].exists() else 0
        if sentence.is_query or not before.get("a") or "otherwise" in told:
            return
        feed = theirs["a"].snapshot(told["versions"]["a"]).metadata.configuration.get("delta.enableChangeDataFeed")
        earlier = self.told[number - 1]["versions"]["a"]
        if feed == "true" and sentence.kind != "restore":
            found = _feed(ours["a"], before["a"], self._versions[number])
            wanted = _feed(theirs["a"], earlier, told["versions"]["a"])
            same_rows(found, _without_rewrites(wanted), f"feed of {about}")

    def _put(self, text: str) -> str | None:
        """None where it travels to a version that our table does not have."""
        for name in _TABLES:
            text = text.replace("{" + name + ".path}", str(self.root / "ours" / name))
        asked = [int(one) for one in re.findall(r"\{v(\d+)\}", text)]
        if any(one not in self._versions for one in asked):
            return None
        return re.sub(r"\{v(\d+)\}", lambda match: str(self._versions[int(match[1])]), text)

    def _about(self, number: int, text: str | None) -> str:
        before = "\n".join(one.text for one in self.steps[:number])
        return f"{before}\n--> {self.session}, statement {number}: {text}"

    def _realign(self, number: int) -> None:
        """Our tables are as Delta Spark's are behind this step, and what was before cannot be travelled to."""
        told = self.told[number]
        for name, table in self.tables("ours").items():
            if self._is_same(name, table, told["versions"][name]):
                continue
            shutil.rmtree(self.root / "ours" / name, ignore_errors=True)
            if told["versions"][name] >= 0:
                source = Table(str(self.root / "theirs" / name))
                source.clone(str(self.root / "ours" / name), version=told["versions"][name])
            if name == "a":
                self._versions.clear()
        if told["versions"]["a"] >= 0:
            self._versions[number] = Table(str(self.root / "ours" / "a")).version()

    def _is_same(self, name: str, table: Table, version: int) -> bool:
        if not table.exists() or version < 0:
            return table.exists() == (version >= 0)
        one, other = table.to_arrow(), Table(str(self.root / "theirs" / name)).to_arrow(version=version)
        try:
            same_rows(_rows(one), _rows(other))
        except AssertionError:
            return False
        return _kinds(one) == _kinds(other)

    def _goes_further(self, sentence: Sentence, refused: str) -> bool:
        """Whether we rightly do what Delta Spark refuses."""
        return any(one in refused for one in _GOES_FURTHER) or ("DELTA_UNSUPPORTED_SUBQUERY" in refused)

    def _is_refused_here(self, sentence: Sentence, error: errors.LakesealError) -> bool:
        """Whether Delta Spark may do what we refuse."""
        return isinstance(error, _REFUSED_BY_NAME) or (
            isinstance(error, errors.SchemaMismatch) and "into a column of type" in str(error)
        )


def histories(delta_spark: Any, seeds: list[int], root: Path) -> list[Beside]:
    found = [Beside(seed, root / str(seed)) for seed in seeds]
    if found:
        answers = delta_spark.run(_DELTA, todo=[one.todo() for one in found], interpreted=INTERPRETED)
        for one, told in zip(found, answers, strict=True):
            one.told = told
    return found


def _tables(text: str) -> str:
    for name in _TABLES:
        text = text.replace("{" + name + "}", f"delta.`{{{name}.path}}`")
    return text


def _kinds(table: Any) -> list[tuple[str, str]]:
    return [(field.name, str(field.type)) for field in table.schema]


def _rows(table: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.to_pylist(maps_as_pydicts="strict")
    return found


def _loaded(row: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(row)
    return found


def _feed(table: Table, before: int, version: int) -> list[dict[str, Any]]:
    found = _rows(table.changes(before + 1, version)) if version > before else []
    for row in found:
        del row["_commit_version"], row["_commit_timestamp"]
    return found


def _without_rewrites(feed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A merge of Delta Spark's that changes nothing may rewrite a file without a change file, whose rows are then told
    as deleted and inserted."""
    left = {repr(row): row for row in feed}
    for text, row in list(left.items()):
        again = repr({**row, "_change_type": "insert"})
        if row["_change_type"] == "delete" and again in left:
            del left[text], left[again]
    return list(left.values()) if len(left) < len({repr(row) for row in feed}) else feed
