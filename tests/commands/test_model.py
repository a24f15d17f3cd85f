"""Any sequence of commands against a plain list of rows: content, time travel and the change feed agree with it, and
another client reads the same at the end."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from lakeseal import Table
from lakeseal.commands.command import NothingToDo
from lakeseal.commit.post_commit import flush
from lakeseal.commit.transaction import CommitResult
from lakeseal.log.cleanup import clean_up_expired_logs
from oracles.bare import bare

Row = dict[str, Any]
BASE = ("id", "v", "p")
TYPES = {"id": pa.int64(), "v": pa.int64(), "p": pa.string(), "extra": pa.int32()}
# Every commit is synced to disk, and there are thousands of them.
SCRATCH = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.integers(0, 20),
            "v": st.none() | st.integers(-3, 3),
            "p": st.sampled_from(["a", "b/ü %", None]),
        }
    ),
    max_size=6,
)
CONDITIONS: dict[str, Callable[[Row, int], bool]] = {
    "id < {k}": lambda row, k: row["id"] < k,
    "id % 3 = {k} % 3": lambda row, k: row["id"] % 3 == k % 3,
    "p = 'a' AND id > {k}": lambda row, k: row["p"] == "a" and row["id"] > k,
    "v IS NULL": lambda row, k: row["v"] is None,
    "v > {k} - 10": lambda row, k: row["v"] is not None and row["v"] > k - 10,
    "p IS NULL OR id = {k}": lambda row, k: row["p"] is None or row["id"] == k,
    "true": lambda row, k: True,
}
WHERE = st.tuples(st.sampled_from(sorted(CONDITIONS)), st.integers(0, 20))


def counted(rows: list[Row], columns: tuple[str, ...] = BASE) -> Counter[Any]:
    return Counter(tuple(row.get(name) for name in columns) for row in rows)


class Version:
    def __init__(self, rows: list[Row], columns: tuple[str, ...], feed: Counter[Any] | None) -> None:
        self.rows, self.columns, self.feed = rows, columns, feed


class Model(RuleBasedStateMachine):
    spark: Any = None
    """Whose tasks do the work, if it is not done in this process."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(dir=SCRATCH, prefix="lakeseal-model-"))
        self.uri = str(self.root / "table")
        self.table = Table(self.uri)
        self.versions: list[Version] = []
        self.oldest = 0
        """The first version that can be read."""
        self.vacuumed = 0
        """Changes up to here may be gone."""

    @property
    def rows(self) -> list[Row]:
        return self.versions[-1].rows

    @property
    def columns(self) -> tuple[str, ...]:
        return self.versions[-1].columns

    def became(self, rows: list[Row], feed: Counter[Any] | None = None, columns: tuple[str, ...] | None = None) -> None:
        """One more version; `feed` is None where only the net change is defined."""
        self.versions.append(Version(rows, columns or self.columns, feed))
        assert self.table.version() == len(self.versions) - 1
        self.check(None)

    def check(self, version: int | None) -> None:
        expected = self.versions[-1 if version is None else version]
        found = self.table.to_arrow(version=version)
        assert tuple(found.column_names) == expected.columns
        assert counted(found.to_pylist(), expected.columns) == counted(expected.rows, expected.columns)

    def data(self, rows: list[Row], columns: tuple[str, ...] | None = None) -> Any:
        schema = pa.schema([(name, TYPES[name]) for name in columns or self.columns])
        table = pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema=schema)
        return table if self.spark is None else bare(self.spark, table)

    @initialize(rows=ROWS, vectors=st.booleans(), partitioned=st.booleans())
    def start(self, rows: list[Row], vectors: bool, partitioned: bool) -> None:
        properties = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": vectors}
        self.table.write(self.data(rows, BASE), partition_by=["p"] if partitioned else None, properties=properties)
        self.became(rows, counted_feed(("insert", rows)), BASE)

    @rule(rows=ROWS)
    def append(self, rows: list[Row]) -> None:
        self.table.write(self.data(rows))
        self.became([*self.rows, *rows], counted_feed(("insert", rows)))

    @rule(rows=ROWS)
    def overwrite(self, rows: list[Row]) -> None:
        self.table.write(self.data(rows), mode="overwrite")
        self.became(rows)

    @rule(where=WHERE)
    def delete(self, where: tuple[str, int]) -> None:
        holds = condition(where)
        gone = [row for row in self.rows if holds(row)]
        result = self.table.delete(where[0].format(k=where[1]), spark=self.spark)
        assert result.metrics["numDeletedRows"] == len(gone)
        if self.committed(result):
            self.became([row for row in self.rows if not holds(row)], counted_feed(("delete", gone)))

    @rule(where=WHERE, move=st.booleans())
    def update(self, where: tuple[str, int], move: bool) -> None:
        holds = condition(where)
        before = [row for row in self.rows if holds(row)]
        values: Any = {"v": "coalesce(v, 0) + 1"} | ({"p": "'moved'"} if move else {})
        after = [row | {"v": (row["v"] or 0) + 1} | ({"p": "moved"} if move else {}) for row in before]
        result = self.table.update(values, where[0].format(k=where[1]), spark=self.spark)
        assert result.metrics["numUpdatedRows"] == len(before)
        if self.committed(result):
            stay = [row for row in self.rows if not holds(row)]
            self.became([*stay, *after], counted_feed(("update_preimage", before), ("update_postimage", after)))

    @rule(source=ROWS, kind=st.sampled_from(["upsert", "replace", "conditional", "insert"]))
    def merge(self, source: list[Row], kind: str) -> None:
        unique = list({row["id"]: row for row in source}.values())
        by_id = {row["id"]: row for row in unique}
        there = {row["id"] for row in self.rows}
        fresh = [row for row in unique if row["id"] not in there]
        merge = self.table.merge(self.data(unique, BASE), "t.id = s.id")
        values = {name: f"s.{name}" for name in BASE}
        deleted: list[Row] = []
        changed: list[tuple[Row, Row]] = []
        stay = [row for row in self.rows if row["id"] not in by_id]
        matched = [row for row in self.rows if row["id"] in by_id]
        match kind:
            case "upsert":
                merge = merge.when_matched_update(values).when_not_matched_insert(values)
                changed = [(row, row | by_id[row["id"]]) for row in matched]
            case "replace":
                merge = merge.when_matched_delete().when_not_matched_insert(values)
                deleted = matched
            case "conditional":
                merge = (
                    merge.when_matched_update({"v": "s.v"}, "s.v > t.v")
                    .when_not_matched_insert(values, "s.id > 5")
                    .when_not_matched_by_source_delete("t.id > 15")
                )
                for row in matched:
                    new = by_id[row["id"]]["v"]
                    if new is not None and row["v"] is not None and new > row["v"]:
                        changed.append((row, row | {"v": new}))
                    else:
                        stay.append(row)
                fresh = [row for row in fresh if row["id"] > 5]
                deleted = [row for row in stay if row["id"] > 15 and row["id"] not in by_id]
                stay = [row for row in stay if row["id"] <= 15 or row["id"] in by_id]
            case "insert":
                merge = merge.when_not_matched_insert(values)
                stay = self.rows
        if self.committed(merge.execute()):
            self.became(
                [*stay, *(after for _, after in changed), *fresh],
                counted_feed(
                    ("delete", deleted),
                    ("insert", fresh),
                    ("update_preimage", [before for before, _ in changed]),
                    ("update_postimage", [after for _, after in changed]),
                ),
            )
        else:
            assert not deleted
            assert not changed
            assert not fresh

    @rule(zorder=st.booleans())
    def optimize(self, zorder: bool) -> None:
        columns = ["id", "v"] if zorder else None
        if self.committed(self.table.optimize(zorder_by=columns, spark=self.spark)):
            self.became(self.rows, Counter())

    @precondition(lambda self: self.versions)
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        last = len(self.versions) - 1
        version = data.draw(st.integers(max(self.oldest, self.vacuumed), last))
        if self.committed(self.table.restore(version)):
            then = self.versions[version]
            self.became(then.rows, None, then.columns)

    @rule()
    def vacuum(self) -> None:
        report = self.table.vacuum(0, enforce_retention_duration=False)
        if report.deleted:
            self.oldest = self.vacuumed = len(self.versions) - 1
            self.versions += [Version(self.rows, self.columns, Counter())] * 2
        self.check(None)

    @precondition(lambda self: "extra" not in self.columns)
    @rule()
    def add_column(self) -> None:
        self.table.add_columns(pa.schema([("extra", TYPES["extra"])]))
        self.became(self.rows, Counter(), (*self.columns, "extra"))

    @rule(vectors=st.booleans())
    def switch_vectors(self, vectors: bool) -> None:
        self.table.set_properties({"delta.enableDeletionVectors": vectors})
        self.became(self.rows, Counter())

    @rule()
    def checkpoint(self) -> None:
        assert self.table.checkpoint() == len(self.versions) - 1

    @precondition(lambda self: len(self.versions) - self.oldest > 2)
    @rule()
    def compact_log(self) -> None:
        self.table.compact_log(len(self.versions) - 2, len(self.versions) - 1)

    @rule()
    def clean_up(self) -> None:
        report = clean_up_expired_logs(self.table._log, now_ms=2_500_000_000_000)
        if report.oldest_version is not None:
            self.oldest = max(self.oldest, report.oldest_version)

    @rule()
    def reopen(self) -> None:
        self.table = Table(self.uri)
        self.check(None)

    @precondition(lambda self: self.versions)
    @rule(data=st.data())
    def travel(self, data: st.DataObject) -> None:
        self.check(data.draw(st.integers(self.oldest, len(self.versions) - 1)))

    def committed(self, result: CommitResult | NothingToDo) -> bool:
        if isinstance(result, NothingToDo):
            self.check(None)
            return False
        return True

    def teardown(self) -> None:
        flush()
        try:
            if self.versions:
                self.check_end()
        finally:
            shutil.rmtree(self.root)

    def check_end(self) -> None:
        last = len(self.versions) - 1
        for version in range(self.oldest, last + 1):
            self.check(version)
        self.check_feed(max(self.oldest, self.vacuumed) + 1, last)
        query = QueryBuilder().register("t", DeltaTable(self.uri)).execute("SELECT * FROM t").read_all()
        assert counted(pa.table(query).to_pylist(), self.columns) == counted(self.rows, self.columns)

    def check_feed(self, first: int, last: int) -> None:
        if first > last:
            return
        found: dict[int, Counter[Any]] = {version: Counter() for version in range(first, last + 1)}
        for row in self.table.changes(first, last).to_pylist():
            found[row["_commit_version"]][row["_change_type"], *(row[name] for name in BASE)] += 1
        for version, changes in found.items():
            before, after = counted(self.versions[version - 1].rows), counted(self.versions[version].rows)
            net = Counter(before)
            for (kind, *row), count in changes.items():
                net[tuple(row)] += count if kind in ("insert", "update_postimage") else -count
            assert +net == after, f"version {version}"
            assert not -net
            expected = self.versions[version].feed
            assert expected is None or changes == expected, f"version {version}"


def condition(where: tuple[str, int]) -> Callable[[Row], bool]:
    text, k = where
    return lambda row: CONDITIONS[text](row, k)


def counted_feed(*changes: tuple[str, list[Row]]) -> Counter[Any]:
    return Counter((kind, *(row[name] for name in BASE)) for kind, rows in changes for row in rows)


def run(examples: int, steps: int, model: type[Model] = Model) -> None:
    class Test(model.TestCase):  # type: ignore[misc, name-defined]
        settings = settings(max_examples=examples, stateful_step_count=steps)

    Test("runTest").runTest()


def on_spark(session: Any) -> type[Model]:
    class OnSpark(Model):
        spark = session

    return OnSpark


def test_any_sequence_of_commands_agrees_with_a_list_of_rows() -> None:
    run(60, 10)


@pytest.mark.spark
def test_any_sequence_agrees_when_spark_does_the_work(spark: Any) -> None:
    run(8, 5, on_spark(spark))


@pytest.mark.stress
@pytest.mark.spark
def test_longer_sequences_agree_when_spark_does_the_work(spark: Any) -> None:
    run(50, 20, on_spark(spark))


@pytest.mark.stress
def test_longer_sequences_agree_too() -> None:
    run(300, 40)
