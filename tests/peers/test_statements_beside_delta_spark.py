"""Histories of random statements by the Table API, with DataFrames and as SQL, beside the same in Delta Spark.

Delta Spark makes the table, and both go on from the same files, in the same session. After each statement both have
the same rows, the same counts and the same feed where it is on, or both have refused it. Versions that Delta Spark made
are read by Lakeseal, which takes a hundredth of the time, and the last of each history by Delta Spark, too.

Lakeseal goes further in eight places, and the table is restored then. Several source rows match a row of the table, and
at most one of them falls under a clause: that is not ambiguous, and Delta Spark refuses it. A DataFrame has a column of
another type: Lakeseal stores it as an INSERT does, and Delta Spark in an INSERT only. A DataFrame lacks a partition
column, which is then null, as any other column would be. A condition has a subquery. A MERGE says DEFAULT, which Delta
Spark does not resolve there. REPLACE WHERE has a condition that Spark cannot hand to a data source. A struct that goes
in by name lacks a field, which is then null. An INSERT WITH SCHEMA EVOLUTION BY NAME has a struct in which fields are
missing and others are new, where Delta Spark finds a column twice. In one place Delta Spark goes further: what
`spark.sql.storeAssignmentPolicy` does not let into a column it casts in UPDATE and MERGE, and Lakeseal refuses it by
the column.
"""

from __future__ import annotations

import json
import random
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import lakeseal
from lakeseal import Table, errors, expr
from oracles.rows import same_rows
from oracles.seeds import case, cases
from oracles.sessions import INTERPRETED, SESSIONS, some_session, with_settings
from oracles.statement_rows import SCHEMA
from oracles.statements import History, Statement, some_history

pytestmark = [pytest.mark.peers, pytest.mark.spark]

_TOGETHER = 6
_GOES_FURTHER = (
    "MULTIPLE_SOURCE_ROW_MATCHING",
    "FAILED_TO_MERGE_FIELDS",
    "CONSTRAINT_DATA_TYPE_MISMATCH",
    "PARTITION_COLUMN_NOT_FOUND",
    "DELTA_UNSUPPORTED_SUBQUERY",
    "[INTERNAL_ERROR] Found the unresolved Cast",
    "Table does not support overwrite by expression",
    "not enough nested fields",
    "cannot translate expression to source filter",
    "OVERWRITE_BY_SUBQUERY",
    "DELTA_DUPLICATE_COLUMNS_FOUND.READ_SCHEMA",
)
_IS_CONSTANT = ("CAST_INVALID_INPUT", "CAST_OVERFLOW")
_FAILS = re.compile(r"CAST\('x' AS INT\)|3000000000|CAST\('2024-13-10' AS DATE\)")
_NEVER = re.compile(r"CAST\(NULL AS BOOLEAN\) AND|AND CAST\(NULL AS BOOLEAN\)")
_UPDATED = {"merge": "numTargetRowsUpdated", "update": "numUpdatedRows"}
_WRITES = ("append", "overwrite", "replace", "dynamic")
_COUNTS = {
    "num_deleted_rows": "numTargetRowsDeleted",
    "num_updated_rows": "numTargetRowsUpdated",
    "num_inserted_rows": "numTargetRowsInserted",
}
_DELTA = """
    import json, pathlib, shutil
    from concurrent.futures import ThreadPoolExecutor

    def said(frame):
        columns = []
        for field in frame.schema.fields:
            kind = field.dataType.simpleString()
            name = f"`{field.name}`"
            columns.append(f"unix_micros({name}) AS {name}" if kind == "timestamp" else name)
        shown = frame.selectExpr(*columns).selectExpr("to_json(struct(*), map('ignoreNullFields', 'false'))")
        return [row[0] for row in shown.collect()]

    def step(session, uri, one):
        if one["source"]:
            session.sql(one["source"]).createOrReplaceTempView("src")
        if one["sql"]:
            if one["kind"] == "dynamic":
                session.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
            try:
                found = session.sql(one["sql"]).collect()
            finally:
                session.conf.unset("spark.sql.sources.partitionOverwriteMode")
            return found[0].asDict() if found else {}
        writer = session.table("src").write.format("delta")
        writer = writer.mode("append" if one["kind"] == "append" else "overwrite")
        if one["evolves"]:
            writer = writer.option("mergeSchema", "true")
        if one["kind"] == "dynamic":
            writer = writer.option("partitionOverwriteMode", "dynamic")
        if one["kind"] == "replace":
            writer = writer.option("replaceWhere", one["where"])
        writer.save(uri)
        return {}

    def version(uri):
        return max(int(path.stem) for path in pathlib.Path(uri, "_delta_log").glob("*.json") if path.stem.isdigit())

    def written(error):
        try:
            return f"{type(error).__name__}: {error}"[:600]
        except Exception:
            return type(error).__name__

    def told(history):
        uri, session, found = history["uri"], spark.newSession(), []
        try:
            for name, value in fixed.items():
                session.conf.set(name, value)
            for text in history["creation"]:
                session.sql(text)
            shutil.copytree(uri, uri + "-ours")
            for name, value in history["settings"].items():
                session.conf.set(name, value)
            for one in history["steps"]:
                answer = {}
                try:
                    answer["counts"] = step(session, uri, one)
                except Exception as error:
                    answer["refused"] = written(error)
                answer["version"] = version(uri)
                found.append(answer)
            found[-1]["rows"] = said(session.read.format("delta").load(uri))
        except Exception as error:
            return {"broken": written(error)}
        return found

    fixed = {
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.databricks.delta.writeChecksumFile.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        **interpreted,
    }
    # Small jobs wait for one another more than for a processor.
    with ThreadPoolExecutor(3) as pool:
        result = list(pool.map(told, todo))
"""


@pytest.mark.timeout(36000)
def test_statements_do_what_they_do_in_delta_spark(spark: Any, delta_spark: Any, tmp_path: Path) -> None:
    compare(list(cases(1, 200)), spark, delta_spark, tmp_path)


@pytest.mark.timeout(36000)
def test_statements_in_sql_do_what_they_do_in_delta_spark(spark: Any, delta_spark: Any, tmp_path: Path) -> None:
    """The same text on both, all ten of each history."""
    compare(list(cases(20, 200)), spark, delta_spark, tmp_path, all_in_sql=True)


def compare(every: list[int], spark: Any, delta_spark: Any, tmp_path: Path, *, all_in_sql: bool = False) -> None:
    parts = [every[start : start + _TOGETHER] for start in range(0, len(every), _TOGETHER)]
    compared, wrong = 0, []
    with ThreadPoolExecutor(1) as ahead:
        asked = ahead.submit(histories, delta_spark, parts[0], tmp_path, all_in_sql)
        for part in [*parts[1:], []]:
            told = asked.result()
            asked = ahead.submit(histories, delta_spark, part, tmp_path, all_in_sql)
            for one in told:
                try:
                    compared += one.compare(spark)
                except AssertionError as error:  # the others may have more to tell
                    print(f"DIFFERENT {one.seed}: {error}", flush=True)
                    wrong.append(error)
                print(f"{compared} statements, the last of history {one.seed}", flush=True)
    print(f"{compared} statements in {len(every)} histories")
    if wrong:
        raise ExceptionGroup(f"{len(wrong)} histories differ", wrong)


class Beside:
    """A history, and what Delta Spark made of it."""

    def __init__(self, seed: int, root: Path, all_in_sql: bool) -> None:
        self.seed = seed
        with case(seed) as chance:
            self.session, settings = some_session(chance, *SESSIONS)
            self.settings = {**settings, **INTERPRETED}
            self.history = some_history(chance, self.session, fails=0.1, foreign=0.15, evolves=0.1)
        self.uri = str(root / str(seed))
        self.told: Any = None
        chance = random.Random(f"ways of {seed}")
        self._ways = ["sql" if all_in_sql else self._way(chance, one) for one in self.history.statements]
        said = zip(self._ways, self.history.statements, strict=True)
        self._texts = [self._text(chance, way, one) for way, one in said]

    def todo(self) -> dict[str, Any]:
        made = self.history.made
        return {
            "uri": self.uri,
            "creation": made.creation(self.uri),
            "settings": self.settings,
            "feed": made.feed,
            "steps": [
                {
                    "source": one.source,
                    "sql": None if text is None else text.replace("{t}", f"delta.`{self.uri}`"),
                    "kind": one.kind,
                    "where": one.where,
                    "evolves": one.evolves,
                }
                for one, text in zip(self.history.statements, self._texts, strict=True)
            ],
        }

    def compare(self, spark: Any) -> int:
        """How many statements were compared."""
        with case(self.seed), with_settings(spark, self.settings):
            assert "broken" not in self.told, (self.told, self.history)
            table, theirs = Table(self.uri + "-ours"), Table(self.uri)
            same_rows(_shown(theirs.to_arrow()), [json.loads(row) for row in self.told[-1]["rows"]], "read by both")
            before = table.version()
            for number, (statement, told) in enumerate(zip(self.history.statements, self.told, strict=True)):
                if not self._compare(spark, table, theirs, number, statement, {**told, "before": before}):
                    return number
                before = told["version"]
            return len(self.told)

    def _compare(
        self, spark: Any, table: Table, theirs: Table, number: int, statement: Statement, told: dict[str, Any]
    ) -> bool:
        """Whether the two tables are still the same."""
        refused = told.get("refused")
        way, text = self._ways[number], self._texts[number]
        about = f"{self.session}, statement {number}, {way}: {statement}\n{text}\n{_said(self.history)}"
        version = table.version()
        try:
            counts = _run(spark, statement, table, way, text)
        except errors.LakesealError as error:
            assert table.version() == version, about
            if refused is None and isinstance(error, errors.SchemaMismatch) and "into a column of type" in str(error):
                return False
            # Delta Spark holds no row against a condition in which its planner leaves no column.
            if refused is None and statement.kind == "replace" and isinstance(error, errors.ConstraintViolation):
                where = statement.where or ""
                assert _NEVER.search(where) or not expr.parse(where).columns, f"{about}\nrefused: {error!r}"
                return False
            assert refused is not None, f"{about}\nrefused: {error!r}"
            return True
        if refused is not None and self._goes_further(statement, refused, counts):
            table.restore(version)
            return True
        assert refused is None, f"{about}\nDelta Spark refuses it: {refused}"
        same_rows(_shown(table.to_arrow()), _shown(theirs.to_arrow(version=told["version"])), about)
        for name, ours in _COUNTS.items():
            if name in told["counts"]:
                assert int(counts.get(ours, 0)) == told["counts"][name], f"{about}\n{counts}, {told['counts']}"
        if statement.kind in ("delete", "update"):
            affected = counts.get("numDeletedRows", counts.get("numUpdatedRows", 0))
            assert int(affected) == told["counts"]["num_affected_rows"], f"{about}\n{counts}, {told['counts']}"
        if self.history.made.feed:
            found = _feed(table, version, table.version())
            same_rows(found, _without_rewrites(_feed(theirs, told["before"], told["version"])), f"feed of {about}")
        return True

    def _goes_further(self, statement: Statement, refused: str, counts: dict[str, Any]) -> bool:
        """Whether we rightly do what Delta Spark refuses."""
        text = str(statement.sql(self.uri)) if statement.kind in _UPDATED else ""
        if text and any(one in refused for one in _IS_CONSTANT):
            # It computes a constant though no row comes to where it stands. Here none did that counts for it, or else
            # nothing can be said: another clause of the kind may have counted.
            inserts, updates = int(counts.get("numTargetRowsInserted", 0)), int(counts.get(_UPDATED[statement.kind], 0))
            is_inserted = any("INSERT" in part and _FAILS.search(part) for part in text.split("WHEN "))
            is_updated = any("INSERT" not in part and _FAILS.search(part) for part in text.split("WHEN "))
            several = text.count("THEN UPDATE") > 1 or text.count("THEN INSERT") > 1
            return several or not ((is_inserted and inserts) or (is_updated and updates))
        return (
            any(one in refused for one in _GOES_FURTHER)
            or ("DEFAULT" in text and "DELTA_MERGE_UNRESOLVED_EXPRESSION" in refused)
            # Of `s.b <=> k OR k < 'x'` it keeps the second half. Rows that the source took by the condition fit it.
            or ("REPLACE_WHERE_MISMATCH" in refused and str(statement.source).endswith(f" WHERE {statement.where}"))
            # A generated column whose base is not given is computed of its null.
            or (statement.kind in _WRITES and self.history.made.extras and "name `id` cannot be resolved" in refused)
        )

    def _way(self, chance: random.Random, statement: Statement) -> str:
        """What runs without a session has a UTC and ANSI of its own."""
        ways = ["frames", "sql"]
        if self.session in ("default", "aqe-off"):
            ways.append("arrow")
        return chance.choice(ways)

    def _text(self, chance: random.Random, way: str, statement: Statement) -> str | None:
        """What Delta Spark is told; None where it is told by a DataFrame."""
        if statement.kind not in _WRITES:
            return statement.sql("{uri}").replace("delta.`{uri}`", "{t}")
        return statement.insertion(chance, tuple(SCHEMA.names)) if way == "sql" else None


def histories(delta_spark: Any, seeds: list[int], root: Path, all_in_sql: bool) -> list[Beside]:
    found = [Beside(seed, root, all_in_sql) for seed in seeds]
    if found:
        answers = delta_spark.run(_DELTA, todo=[one.todo() for one in found], interpreted=INTERPRETED)
        for one, told in zip(found, answers, strict=True):
            one.told = told
    return found


def _said(history: History) -> str:
    made = history.made
    return f"{made.properties}, partitioned {made.partitioned}, checked {made.checked}, extras {made.extras}"


def _feed(table: Table, before: int, version: int) -> list[dict[str, Any]]:
    found = _shown(table.changes(before + 1, version)) if version > before else []
    for row in found:
        del row["_commit_version"], row["_commit_timestamp"]
    return found


def _without_rewrites(feed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A merge of Delta Spark's that changes nothing may rewrite a file without a change file, whose rows are then told
    as deleted and inserted."""
    # By their texts: NaN is not equal to itself.
    left = {repr(row): row for row in feed}
    for text, row in list(left.items()):
        again = repr({**row, "_change_type": "insert"})
        if row["_change_type"] == "delete" and again in left:
            del left[text], left[again]
    return list(left.values()) if len(left) < len({repr(row) for row in feed}) else feed


def _shown(table: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pylist(maps_as_pydicts="strict")
    for row in rows:
        if row.get("ts") is not None:
            row["ts"] = round(row["ts"].timestamp() * 1_000_000)
        if row.get("d") is not None:
            row["d"] = str(row["d"])
        if row.get("x") == float("inf") or row.get("x") == -float("inf"):
            row["x"] = "Infinity" if row["x"] > 0 else "-Infinity"
    return rows


def _run(spark: Any, statement: Statement, table: Table, way: str, text: str | None) -> dict[str, Any]:
    """What it counted."""
    try:
        source = spark.sql(statement.source) if statement.source else None
    except Exception as error:
        raise errors.InvalidExpression("The source is none") from error
    if way == "sql":
        if source is not None:
            source.createOrReplaceTempView("src")
        dynamic = {"spark.sql.sources.partitionOverwriteMode": "dynamic"} if statement.kind == "dynamic" else {}
        with with_settings(spark, dynamic):
            answer = lakeseal.sql(str(text).replace("{t}", f"delta.`{table.uri}`"), spark)
        found: dict[str, Any] = answer.collect()[0].asDict()
        return found
    if way == "arrow":
        try:
            return dict(statement.run(table, None if source is None else source.toArrow(), None).metrics)
        except errors.UnsupportedExpression:
            pass  # it is Spark's then
        except errors.InvalidExpression as error:
            if "subquery" not in str(error):
                raise
    return dict(statement.run(table, source, spark).metrics)
