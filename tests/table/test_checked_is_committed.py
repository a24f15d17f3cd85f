"""What a command has looked at is what its commit builds on: another writer lands between the look and the commit.

`between` forces that: what it is given runs when the next commit has been decided on, just before it is tried. Each
command is tried beside each kind of writer, in both orders, and the table is then asked whether what it promises by its
metadata is true of all of its rows and files.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakeseal
from lakeseal import Table
from lakeseal.commands import vacuum
from lakeseal.commit.clustering import clustered_by
from lakeseal.commit.proposal import Operation
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.errors import (
    AppendOnlyTable,
    ConcurrentAppendException,
    ConcurrentDeleteReadException,
    ConcurrentModification,
    ConstraintViolation,
    DataFileMissing,
    InvalidArgument,
    ProtocolChangedException,
    Refused,
    SchemaMismatch,
    UnsupportedFeature,
)
from lakeseal.protocol.features import required_features, supports
from lakeseal.protocol.schema import LONG, StructField, StructType
from lakeseal.storage.local.store import LocalStore

Act = Callable[[Table], object]
# By which a command, or a writer, may say that it cannot be done beside the other.
_REFUSALS = (
    ConcurrentModification,
    ConstraintViolation,
    InvalidArgument,
    AppendOnlyTable,
    Refused,
    SchemaMismatch,
    UnsupportedFeature,
)


def later() -> None:
    """A vacuum keeps what was removed in this very millisecond."""
    time.sleep(0.002)


@contextmanager
def between(
    act: Callable[[], object],
    monkeypatch: pytest.MonkeyPatch,
    times: int = 1,
    *,
    certainly: bool = True,
    after: int = 0,
) -> Iterator[None]:
    """`act` runs right before each of the next commits is tried; the first ones, `after`, are left alone."""
    commit = OptimisticTransaction.commit
    left, alone = times, after

    def interrupted(self: OptimisticTransaction, *given: Any) -> Any:
        nonlocal left, alone
        if alone:
            alone -= 1
        elif left:
            left -= 1
            with monkeypatch.context() as patched:
                patched.setattr(OptimisticTransaction, "commit", commit)
                act()
        return commit(self, *given)

    with monkeypatch.context() as patched:
        patched.setattr(OptimisticTransaction, "commit", interrupted)
        yield
    assert left == 0 or not certainly, "no commit was made"


def rows(*x: int) -> pa.Table:
    return pa.table({"x": pa.array(x, pa.int64()), "y": pa.array([1] * len(x), pa.int64())})


MAPPED = {"delta.columnMapping.mode": "name"}


@pytest.fixture(params=["file system", "owner"])
def owner(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    return None if request.param == "file system" else f"sqlite:///{tmp_path}/ledger.db"


@pytest.fixture
def make(tmp_path: Path, owner: str | None) -> Callable[..., Table]:
    made = itertools.count()

    def make(*x: int, **properties: str) -> Table:
        named = {f"delta.{name}": value for name, value in properties.items()}
        table = lakeseal.create(tmp_path / f"t{next(made)}", rows().schema, properties=named, owner=owner)
        for one in x:
            table.write(rows(one))
        return table

    return make


def other(table: Table) -> Table:
    """The same table, open elsewhere."""
    return Table(table.uri, owner=table._router._creator)


def test_a_constraint_is_not_added_over_a_row_that_lands_meanwhile(
    make: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(1, 2)
    with between(lambda: other(table).write(rows(-1)), monkeypatch), pytest.raises(ConstraintViolation, match="-1"):
        table.add_constraint("positive", "x > 0")
    assert not table.snapshot().properties.constraints


def test_a_constraint_is_added_on_the_rows_that_are_there_then(
    make: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(1, 2)
    numbers = iter(range(10, 20))
    with between(lambda: other(table).write(rows(next(numbers))), monkeypatch, times=4):
        result = table.add_constraint("positive", "x > 0")
    assert result.version == 7
    assert table.to_arrow().num_rows == 6
    with between(lambda: other(table).delete("x = 1"), monkeypatch):
        table.add_constraint("small", "x < 100")
    assert set(table.snapshot().properties.constraints) == {"positive", "small"}


@pytest.mark.parametrize("level", ["Serializable", "WriteSerializable", "SnapshotIsolation"])
def test_a_constraint_counts_what_others_append_at_every_level(
    make: Callable[..., Table], monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    table = make(1, isolationLevel=level)
    with between(lambda: other(table).write(rows(-1)), monkeypatch), pytest.raises(ConstraintViolation):
        table.add_constraint("positive", "x > 0")


def test_row_tracking_is_not_switched_on_over_a_file_that_lands_meanwhile(
    make: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make()
    with between(lambda: other(table).write(rows(1)), monkeypatch), pytest.raises(InvalidArgument, match="row ids"):
        table.set_properties({"delta.enableRowTracking": "true"})
    assert not table.snapshot().properties.row_tracking
    table.delete()
    table.set_properties({"delta.enableRowTracking": "true"})
    table.write(rows(2))
    check_promises(table)


def test_a_schema_is_not_overwritten_beside_rows_of_the_old_one(
    make: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    new = pa.table({"x": ["text"]})
    for level in ("Serializable", "WriteSerializable", "SnapshotIsolation"):
        table = make(1)
        with between(lambda: other(table).write(rows(2)), monkeypatch), pytest.raises(ConcurrentModification):  # noqa: B023
            table.write(new, mode="overwrite", overwrite_schema=True, isolation_level=level)
        assert sorted(table.to_arrow()["x"].to_pylist()) == [1, 2]


ALTERS: dict[str, tuple[dict[str, str], Act]] = {
    "constraint": ({}, lambda t: t.add_constraint("positive", "x > 0")),
    "row tracking": ({}, lambda t: t.set_properties({"delta.enableRowTracking": "true"})),
    "column mapping": ({}, lambda t: t.set_properties(MAPPED)),
    "deletion vectors": ({}, lambda t: t.set_properties({"delta.enableDeletionVectors": "true"})),
    "change feed": ({}, lambda t: t.set_properties({"delta.enableChangeDataFeed": "true"})),
    "append only": ({}, lambda t: t.set_properties({"delta.appendOnly": "true"})),
    "in-commit timestamps": ({}, lambda t: t.set_properties({"delta.enableInCommitTimestamps": "true"})),
    "add column": ({}, lambda t: t.add_columns(pa.schema({"z": pa.int64()}))),
    "rename column": ({"columnMapping.mode": "name"}, lambda t: t.rename_column("y", "why")),
    "drop column": ({"columnMapping.mode": "name"}, lambda t: t.drop_column("y")),
    "not null": ({}, lambda t: t.set_not_null("y")),
    "wider type": ({"enableTypeWidening": "true"}, lambda t: t.change_type("y", "decimal(20,0)")),
    "cluster by": ({}, lambda t: t.cluster_by(["x"])),
    "drop appendOnly": ({"feature.appendOnly": "supported"}, lambda t: t.drop_feature("appendOnly")),
    "drop checkConstraints": ({"feature.checkConstraints": "supported"}, lambda t: t.drop_feature("checkConstraints")),
    "drop invariants": ({"feature.invariants": "supported"}, lambda t: t.drop_feature("invariants")),
    "restore": ({}, lambda t: t.restore(version=1)),
    "optimize": ({}, lambda t: t.optimize()),
    "checkpoint": ({}, lambda t: (t.checkpoint(), t.set_properties({"delta.checkpointInterval": "7"}))),
    "clone": ({}, lambda t: t.clone(f"{t.uri}-{uuid.uuid4()}").to_arrow()),
    "overwrite schema": (
        {},
        lambda t: t.write(pa.table({"x": pa.array([5], pa.int64())}), mode="overwrite", overwrite_schema=True),
    ),
}
WRITERS: dict[str, Act] = {
    "append": lambda t: t.write(rows(7)),
    "append what breaks": lambda t: t.write(rows(-7)),
    "append with a new column": lambda t: t.write(
        rows(7).append_column("w", pa.array([1], pa.int64())), merge_schema=True
    ),
    "append a null": lambda t: t.write(pa.table({"x": pa.array([7], pa.int64()), "y": pa.array([None], pa.int64())})),
    "set to null": lambda t: t.update({"y": "NULL"}, "x = 1"),
    "constraint": lambda t: t.add_constraint("small", "x < 100"),
    "append only": lambda t: t.set_properties({"delta.appendOnly": "true"}),
    "not null": lambda t: t.set_not_null("x"),
    "delete": lambda t: t.delete("x = 1"),
    "delete a file": lambda t: t.delete("x = 2"),
    "update": lambda t: t.update({"x": "x + 1"}, "x = 1"),
    "overwrite": lambda t: t.write(rows(8), mode="overwrite"),
    "merge": lambda t: t.merge(rows(1, 9), "t.x = s.x").when_matched_update().when_not_matched_insert().execute(),
    "optimize": lambda t: t.optimize(),
    "restore": lambda t: t.restore(version=min(1, t.version())),
}


@pytest.mark.parametrize("owner", [None])
@pytest.mark.parametrize("first", ALTERS)
def test_what_a_table_promises_is_true_after_a_command_beside_a_writer(
    make: Callable[..., Table], monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    properties, command = ALTERS[first]
    pairs = [pair for writer in WRITERS.values() for pair in ((writer, command), (command, writer))]
    for inner, outer in pairs:
        table = make(**properties)
        if first != "row tracking":
            table.write(pa.concat_tables([rows(1), rows(3)]))
            table.write(rows(2))
        with (
            suppress(*_REFUSALS),
            between(lambda: inner(other(table)), monkeypatch, certainly=False),  # noqa: B023
        ):
            outer(table)
        check_promises(table)


@pytest.mark.spark
@pytest.mark.parametrize("owner", [None])
@pytest.mark.parametrize("command", ["constraint", "not null"])
def test_what_spark_has_looked_at_is_true_after_a_command_beside_a_writer(
    spark: Any, make: Callable[..., Table], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    def add(table: Table) -> object:
        if command == "constraint":
            return table.add_constraint("positive", "x > 0", spark=spark)
        return table.set_not_null("y", spark=spark)

    for name in ("append", "append what breaks", "append a null", "set to null", "overwrite", "delete"):
        for inner, outer in ((WRITERS[name], add), (add, WRITERS[name])):
            table = make(1, 2)
            with suppress(*_REFUSALS), between(lambda: inner(other(table)), monkeypatch, certainly=False):  # noqa: B023
                outer(table)
            check_promises(table)


@pytest.mark.parametrize("owner", [None])
@pytest.mark.parametrize("after", range(4))
def test_vectors_that_land_while_their_feature_goes_keep_it(
    make: Callable[..., Table], monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Each of the commits that dropping it takes is tried beside a delete that hides rows."""
    table = make(
        **{
            "enableDeletionVectors": "true",
            "dropFeatureTruncateHistory.retentionDuration": "interval 0 hours",
        }
    )
    table.write(rows(1, 2, 3, 4))
    table.delete("x = 1")
    doomed = iter((2, 3))

    def hide() -> None:
        elsewhere = other(table)
        elsewhere.set_properties({"delta.enableDeletionVectors": "true"})
        elsewhere.delete(f"x = {next(doomed)}")

    with between(hide, monkeypatch, certainly=False, after=after):
        for truncate in (False, True):
            with suppress(*_REFUSALS):
                table.drop_feature("deletionVectors", truncate_history=truncate)
    check_promises(table)
    assert set(table.to_arrow()["x"].to_pylist()) == {2, 3, 4} - ({2} if next(doomed) == 3 else set())


@pytest.mark.parametrize("writer", ["append", "overwrite", "merge", "delete", "sync"])
@pytest.mark.parametrize("order", ["writer first", "sync first"])
def test_an_identity_that_is_synced_beside_a_writer_gives_no_number_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: str, order: str
) -> None:
    numbered = pa.schema([("id", pa.int64()), ("x", pa.int64())])
    table = lakeseal.create(tmp_path / "t", numbered, identity={"id": lakeseal.Identity(always=False)})

    def some(*ids: int) -> pa.Table:
        return pa.table({"id": pa.array(ids, pa.int64()), "x": pa.array(ids, pa.int64())})

    table.write(some(41))
    acts: dict[str, Act] = {
        "append": lambda t: t.write(some(43)),
        "overwrite": lambda t: t.write(some(44), mode="overwrite"),
        "merge": lambda t: t.merge(some(41, 45), "t.id = s.id").when_not_matched_insert("*").execute(),
        "delete": lambda t: t.delete("id = 41"),
        "sync": lambda t: t.sync_identity("id"),
    }
    does, sync = acts[writer], acts["sync"]
    inner, outer = (does, sync) if order == "writer first" else (sync, does)
    done = []
    with suppress(*_REFUSALS), between(lambda: inner(other(table)), monkeypatch, certainly=False):
        outer(table)
        done.append(order)
    if order == "sync first" or not done:
        table.sync_identity("id")  # what was brought behind it it does not know
    for _ in range(3):
        table.write(pa.table({"x": pa.array([0, 0], pa.int64())}))
    ids = table.to_arrow()["id"].to_pylist()
    assert None not in ids
    assert len(set(ids)) == len(ids)


def check_promises(table: Table) -> None:
    """That all rows and files are as the metadata says."""
    snapshot = Table(table.uri, owner=table._router._creator).snapshot()
    properties = snapshot.properties
    found = table.to_arrow()
    assert found.schema.names == list(snapshot.schema.names)
    for condition in properties.constraints.values():
        assert table.to_arrow(where=f"NOT coalesce(({condition}), false)").num_rows == 0, condition
    for field in snapshot.schema.fields:
        assert field.nullable or found[field.name].null_count == 0, f"nulls in {field.name}"
    lacking = [name for name in required_features(snapshot.metadata) if not supports(snapshot.protocol, name)]
    assert not lacking
    assert not clustered_by(snapshot) or supports(snapshot.protocol, "clustering")
    vectors = snapshot.files["deletionVector"]
    assert vectors.null_count == len(vectors) or supports(snapshot.protocol, "deletionVectors")
    if properties.row_tracking:
        assert snapshot.files["baseRowId"].null_count == 0, "files without row ids"
    for entry in table.history():
        at = table.snapshot(version=entry["version"])
        if at.properties.in_commit_timestamps:
            assert entry.get("inCommitTimestamp") is not None
        if at.properties.change_data_feed and entry["version"] > 0:
            before = table.snapshot(version=entry["version"] - 1)
            if before.properties.change_data_feed:
                changes = table.changes(entry["version"], entry["version"])
                inserted = sum(kind in ("insert", "update_postimage") for kind in changes["_change_type"].to_pylist())
                gone = changes.num_rows - inserted
                there = table.to_arrow(version=entry["version"]).num_rows
                assert there == table.to_arrow(version=entry["version"] - 1).num_rows + inserted - gone


def test_files_with_deletion_vectors_do_not_come_back_to_a_table_that_gave_them_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lakeseal.create(tmp_path / "t", rows().schema, properties={"delta.enableDeletionVectors": "true"})
    table.write(rows(1, 2))
    table.delete("x = 1")
    table.set_properties({"delta.enableDeletionVectors": "false"})
    table.write(rows(5), mode="overwrite")

    def give_up() -> None:
        """As another client does, by a commit of the protocol alone."""
        route = table._router.route()
        txn = OptimisticTransaction.begin(route.log, route.owner)
        left = tuple(name for name in txn.protocol.writer_features or () if name != "deletionVectors")
        txn.update_protocol(msgspec.structs.replace(txn.protocol, reader_features=(), writer_features=left))
        txn.commit([], Operation(name="DROP FEATURE"))

    with between(give_up, monkeypatch), pytest.raises(ProtocolChangedException):
        table.restore(version=2)
    assert "deletionVectors" not in (table.snapshot().protocol.writer_features or ())
    assert table.to_arrow()["x"].to_pylist() == [5]


def test_a_vacuum_spares_what_a_restore_brings_back_meanwhile(
    make: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(1)
    table.write(rows(2), mode="overwrite")
    table.write(rows(3), mode="overwrite")
    later()
    with between(lambda: other(table).restore(version=1), monkeypatch):
        report = table.vacuum(0, enforce_retention_duration=False)
    assert table.to_arrow()["x"].to_pylist() == [1]
    assert len(report.deleted) == 1, "the second version's file"


def test_a_restore_does_not_bring_back_what_a_vacuum_takes_meanwhile(
    make: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(1)
    table.write(rows(2), mode="overwrite")
    later()
    with (
        between(lambda: other(table).vacuum(0, enforce_retention_duration=False), monkeypatch),
        pytest.raises(ConcurrentDeleteReadException, match="Run it again"),
    ):
        table.restore(version=1)
    with pytest.raises(DataFileMissing):
        table.restore(version=1)
    assert table.to_arrow()["x"].to_pylist() == [2]


def test_a_vacuum_keeps_to_a_retention_that_was_made_longer_meanwhile(
    make: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(1, deletedFileRetentionDuration="interval 0 hours")
    table.write(rows(2), mode="overwrite")
    later()
    longer = {"delta.deletedFileRetentionDuration": "interval 1 days"}
    with between(lambda: other(table).set_properties(longer), monkeypatch):
        assert table.vacuum().deleted == ()
    assert table.to_arrow(version=1)["x"].to_pylist() == [1]


def test_a_long_vacuum_spares_what_is_brought_back_while_it_deletes(
    make: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(1)
    table.write(rows(2), mode="overwrite")
    table.write(rows(3), mode="overwrite")
    delete = LocalStore.delete
    kept: list[int] = []

    def deleted(self: LocalStore, keys: Any) -> None:
        delete(self, keys)
        if not kept:
            kept.append(next(version for version in (1, 2) if is_readable(table, version)))
            other(table).restore(version=kept[0])

    monkeypatch.setattr(vacuum, "_AT_ONCE", 1)
    monkeypatch.setattr(LocalStore, "delete", deleted)
    later()
    report = table.vacuum(0, enforce_retention_duration=False)
    assert len(report.deleted) == 1
    assert table.to_arrow()["x"].to_pylist() == kept


def is_readable(table: Table, version: int) -> bool:
    try:
        return table.to_arrow(version=version).num_rows > 0
    except DataFileMissing:
        return False


def test_a_directory_is_not_converted_over_a_table_that_was_created_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d").mkdir()
    pq.write_table(rows(1), tmp_path / "d" / "a.parquet")
    with (
        between(lambda: Table(tmp_path / "d").write(pa.table({"other": [1]})), monkeypatch),
        pytest.raises(ConcurrentModification, match="created the table"),
    ):
        lakeseal.convert(tmp_path / "d")
    assert Table(tmp_path / "d").to_arrow().to_pylist() == [{"other": 1}]


@pytest.mark.parametrize("key", ["delta.generationExpression", "delta.invariants"])
def test_a_column_that_says_something_of_every_row_is_not_added_to_rows_that_have_none(
    tmp_path: Path, key: str
) -> None:
    table = Table(tmp_path / "t")
    table.write(rows(1))
    double = StructField("double", LONG, True, {key: "x * 2"})
    with pytest.raises(InvalidArgument, match="rows that are there"):
        table.add_columns(StructType((double,)))
    assert table.version() == 0


def test_a_restore_has_the_level_that_is_asked_for(make: Callable[..., Table], monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(1, 2)
    with (
        between(lambda: other(table).write(rows(3)), monkeypatch),
        pytest.raises(ConcurrentAppendException),
    ):
        table.restore(version=1, isolation_level="Serializable")
    assert table.to_arrow().num_rows == 3
    with between(lambda: other(table).write(rows(4)), monkeypatch):
        table.restore(version=1)
    assert sorted(table.to_arrow()["x"].to_pylist()) == [1, 4]


def test_an_optimize_has_the_level_that_is_asked_for(make: Callable[..., Table]) -> None:
    table = make(1, 2)
    table.optimize(isolation_level="Serializable")
    assert table.history(1)[0]["isolationLevel"] == "Serializable"
    table.write(rows(3))
    table.optimize()
    assert table.history(1)[0]["isolationLevel"] == "SnapshotIsolation"
    with pytest.raises(InvalidArgument, match="isolation level"):
        table.optimize(isolation_level="Loose")


@pytest.mark.parametrize("level", ["Serializable", "WriteSerializable", "SnapshotIsolation"])
@pytest.mark.parametrize("clustered", [False, True])
def test_an_optimize_depends_at_every_level_on_the_files_that_it_takes_and_on_no_others(
    make: Callable[..., Table], monkeypatch: pytest.MonkeyPatch, level: str, clustered: bool
) -> None:
    """What lands beside it is as if it had come behind it, so no level makes a conflict of that."""
    table = make(1, 2)
    if clustered:
        table.cluster_by(["x"])
    with between(lambda: other(table).write(rows(5)), monkeypatch):
        table.optimize(isolation_level=level)
    assert table.history(1)[0]["isolationLevel"] == level
    with between(lambda: other(table).delete("x = 1"), monkeypatch), pytest.raises(ConcurrentDeleteReadException):
        table.optimize(isolation_level=level, full=clustered)
    assert sorted(table.to_arrow()["x"].to_pylist()) == [2, 5]
