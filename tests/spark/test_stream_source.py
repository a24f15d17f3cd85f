"""The stream source: offsets and limits by themselves, the source driven as Spark drives it, then Spark itself."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxFiles
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

import lakeseal
from lakeseal import Table
from lakeseal.commands.running import run
from lakeseal.commands.transactional_write import WriteOptions
from lakeseal.commands.write import Write, WriteCommand
from lakeseal.commit.filesystem_owner import FilesystemOwner
from lakeseal.commit.proposal import Operation
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.errors import InvalidArgument, SourceChanged, VersionNotFound
from lakeseal.jobs.in_process import InProcessEngine
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.files import add_actions
from lakeseal.protocol.actions import RemoveFile
from lakeseal.protocol.paths import commit_path
from lakeseal.spark.batch_read import declared
from lakeseal.spark.datasource import LakesealDataSource
from lakeseal.spark.failures import recovered
from lakeseal.spark.options import GivenTable
from lakeseal.spark.read_options import ReadOptions
from lakeseal.spark.stream_offsets import ReadLimits, StreamOffset
from lakeseal.spark.stream_source import StreamSource
from lakeseal.storage import StoreSpec, open_store
from oracles.sessions import without_connect
from oracles.stream_engine import Engine, read
from support.examples import examples
from support.rows import rows

CHANGE_FEED = {"delta.enableChangeDataFeed": "true"}


def ids(tables: list[pa.Table] | pa.Table | None) -> list[int]:
    tables = [tables] if isinstance(tables, pa.Table) else tables or []
    return sorted(n for table in tables for n in table["id"].to_pylist())


def numbers(first: int, count: int = 1) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + count), pa.int64())})


def append(table: Table, first: int, count: int = 1) -> None:
    table.write(numbers(first, count))


def begin(table: Table) -> OptimisticTransaction:
    store = open_store(table.uri)
    return OptimisticTransaction.begin(DeltaLog(store), FilesystemOwner(store))


def remove_files(table: Table, count: int = 1) -> None:
    txn = begin(table)
    gone = list(add_actions(txn.filter_files()))[:count]
    removes = [RemoveFile(path=a.path, data_change=True, deletion_timestamp=1, size=a.size) for a in gone]
    txn.commit(removes, Operation(name="DELETE"))


def later(table: Table, moment: datetime) -> None:
    """The newest commit is of that moment."""
    path = Path(table.uri.removeprefix("file://")) / commit_path(table.version())
    os.utime(path, (moment.timestamp(), moment.timestamp()))


def compact(table: Table) -> None:
    """All rows in new files, without changing any."""
    command = WriteCommand(mode="overwrite", options=WriteOptions(data_change=False), operation="OPTIMIZE")
    write = Write(asked=command, data=table.to_arrow())
    run(write, begin(table), engine=InProcessEngine(1), store=StoreSpec(uri=table.uri))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    found = Table(tmp_path / "source")
    append(found, 0)
    return found


# Offsets and limits


def test_an_offset_survives_json_and_what_is_not_one_is_refused() -> None:
    offset = StreamOffset(table_id="t", version=3, index=2, is_initial=True)
    assert StreamOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset
    for broken in ({}, {"version": 1}, {**offset.to_json(), "more": 1}, {**offset.to_json(), "version": "x"}):
        with pytest.raises(InvalidArgument, match="checkpoint"):
            StreamOffset.from_json(broken)


def test_an_offset_behind_the_last_file_of_a_page_is_the_next_version() -> None:
    offset = StreamOffset(table_id="t", version=3, index=0, is_initial=True)
    assert offset.behind(1, 2) == StreamOffset(table_id="t", version=3, index=1, is_initial=True)
    assert offset.behind(2, 2) == StreamOffset(table_id="t", version=4)


@pytest.mark.parametrize(
    ("limits", "before", "admitted"),
    [
        (ReadLimits(), (0, 0), 4),
        (ReadLimits(max_files=3), (0, 0), 3),
        (ReadLimits(max_files=3), (2, 0), 1),
        (ReadLimits(max_files=3), (3, 0), 0),
        (ReadLimits(max_bytes=25), (0, 0), 2),
        (ReadLimits(max_bytes=20), (0, 0), 2),
        (ReadLimits(max_bytes=25), (1, 10), 1),
        (ReadLimits(max_bytes=25), (2, 20), 0),
        (ReadLimits(max_bytes=1), (0, 0), 1),
        (ReadLimits(max_files=1, max_bytes=1000), (0, 0), 1),
    ],
)
def test_a_batch_takes_what_its_limits_allow_and_never_nothing(
    limits: ReadLimits, before: tuple[int, int], admitted: int
) -> None:
    assert limits.admitted(np.array([10, 10, 10, 10]), *before) == admitted


# The source, driven by hand


def test_the_snapshot_comes_first_oldest_files_first_then_the_commits(table: Table) -> None:
    append(table, 1)
    engine = Engine(table.uri, maxFilesPerTrigger=1)
    assert ids(engine.batch()) == [0]
    append(table, 2)
    assert ids(engine.batch()) == [1]
    assert ids(engine.batch()) == [2]
    assert engine.batch() is None
    append(table, 3)
    assert ids(engine.batch()) == [3]


def test_a_source_without_new_data_gives_the_offset_back_that_it_was_given(table: Table) -> None:
    engine = Engine(table.uri)
    engine.drain()
    start, end = engine.offset, engine.source.latestOffset(engine.offset, ReadAllAvailable())
    assert json.dumps(start) == json.dumps(end)
    assert engine.source.partitions(end, end) == []
    assert StreamOffset.from_json(engine.source.reportLatestOffset()).place == StreamOffset.from_json(end).place


def test_versions_without_rows_make_no_batches(table: Table) -> None:
    engine = Engine(table.uri)
    engine.drain()
    compact(table)
    table.set_properties({"note": "x"})
    assert engine.batch() is None
    append(table, 1)
    assert ids(engine.batch()) == [1]


def test_an_idle_stream_moves_on_before_the_log_is_cleaned_up_behind_it(table: Table) -> None:
    engine = Engine(table.uri)
    engine.drain()
    before = engine.offset
    assert before is not None
    for n in range(101):
        table.set_properties({"note": str(n)})
    batch = engine.batch()
    assert batch is not None
    assert batch.num_rows == 0
    assert engine.offset is not None
    assert engine.offset["version"] > before["version"] + 100


def test_moving_rows_around_is_not_new_data(table: Table) -> None:
    append(table, 1)
    engine = Engine(table.uri, maxFilesPerTrigger=1)
    assert ids(engine.batch()) == [0]
    compact(table)
    append(table, 2)
    assert [ids(batch) for batch in engine.drain()] == [[1], [2]]


def test_a_stream_may_start_at_a_version_a_moment_or_now(table: Table) -> None:
    append(table, 1)
    moment = table.history()[0]["timestamp"]
    append(table, 2)
    assert ids(Engine(table.uri, startingVersion=1).drain()) == [1, 2]
    assert ids(Engine(table.uri, startingVersion=3).drain()) == []
    assert ids(Engine(table.uri, startingTimestamp=moment).drain()) == [1, 2]
    engine = Engine(table.uri, startingVersion="latest")
    assert ids(engine.batch()) == []
    append(table, 3)
    assert ids(engine.drain()) == [3]
    with pytest.raises(VersionNotFound, match="not there yet"):
        Engine(table.uri, startingVersion=9).batch()


def test_limits_of_files_and_bytes_cut_batches_and_a_trigger_for_everything_ignores_them(table: Table) -> None:
    for n in range(1, 6):
        append(table, n)
    size = table.files()["size"][0].as_py()
    by_files = Engine(table.uri, maxFilesPerTrigger=4)
    assert isinstance(by_files.source.getDefaultReadLimit(), ReadMaxFiles)
    assert [len(ids(batch)) for batch in by_files.drain()] == [4, 2]
    by_bytes = Engine(table.uri, maxBytesPerTrigger=2 * size)
    assert isinstance(by_bytes.source.getDefaultReadLimit(), ReadMaxBytes)
    assert [len(ids(batch)) for batch in by_bytes.drain()] == [2, 2, 2]
    tiny = Engine(table.uri, maxBytesPerTrigger=1)
    assert [len(ids(batch)) for batch in tiny.drain()] == [1] * 6
    both = Engine(table.uri, maxBytesPerTrigger="1g", maxFilesPerTrigger=5)
    assert [len(ids(batch)) for batch in both.drain()] == [5, 1]
    assert [len(ids(batch)) for batch in Engine(table.uri, maxFilesPerTrigger=1).drain(ReadAllAvailable())] == [6]


def test_a_thousand_files_are_the_limit_by_default(table: Table) -> None:
    assert Engine(table.uri).source.getDefaultReadLimit() == ReadMaxFiles(1000)


def test_available_now_stops_at_what_was_there_when_it_started(table: Table) -> None:
    append(table, 1)
    engine = Engine(table.uri, maxFilesPerTrigger=1)
    engine.source.prepareForTriggerAvailableNow()
    append(table, 2)
    assert ids(engine.drain()) == [0, 1]
    engine.restart()
    assert ids(engine.drain()) == [2]


def test_deletes_stop_the_stream_unless_they_are_ignored(table: Table) -> None:
    append(table, 1)
    first = Engine(table.uri)
    first.drain()
    append(table, 2)
    remove_files(table)
    append(table, 3)
    # What lies before the delete is still delivered.
    assert ids(first.batch()) == [2]
    with pytest.raises(SourceChanged, match="deleted") as caught:
        first.batch()
    assert (caught.value.version, caught.value.table) == (3, table.uri)
    assert "ignoreDeletes" in caught.value.hint
    for option in ("ignoreDeletes", "ignoreChanges", "skipChangeCommits"):
        assert ids(Engine(table.uri, first.offset, **{option: "true"}).drain()) == [3]


def test_changes_stop_the_stream_unless_their_commits_are_skipped(table: Table) -> None:
    engine = Engine(table.uri)
    engine.drain()
    table.write(numbers(10), mode="overwrite")
    append(table, 11)
    with pytest.raises(SourceChanged, match="changed or replaced") as caught:
        engine.batch()
    assert "skipChangeCommits" in caught.value.hint
    with pytest.raises(SourceChanged):
        Engine(table.uri, engine.offset, ignoreDeletes="true").batch()
    assert ids(Engine(table.uri, engine.offset, skipChangeCommits="true").drain()) == [11]
    assert ids(Engine(table.uri, engine.offset, ignoreChanges="true").drain()) == [10, 11]
    table.write(numbers(20, 2))
    table.delete("id = 20")  # what stays of the file comes again, as with Delta
    assert ids(Engine(table.uri, engine.offset, ignoreChanges="true").drain()) == [10, 11, 20, 21, 21]


def test_a_new_column_stops_the_stream_and_a_restart_goes_on_with_it(table: Table) -> None:
    append(table, 1)
    engine = Engine(table.uri, maxFilesPerTrigger=1)
    assert ids(engine.batch()) == [0]
    table.write(pa.table({"id": [2], "name": ["b"]}), merge_schema=True)
    assert ids(engine.batch()) == [1]
    with pytest.raises(SourceChanged, match="it has a column name") as caught:
        engine.batch()
    assert "start the query again" in caught.value.hint
    engine.restart()
    batch = engine.batch()
    assert batch is not None
    assert batch.to_pylist() == [{"id": 2, "name": "b"}]


def test_a_restart_reads_versions_older_than_its_schema_with_nulls(table: Table) -> None:
    append(table, 9)
    engine = Engine(table.uri, maxFilesPerTrigger=1)
    assert ids(engine.batch()) == [0]
    table.set_properties({"note": "x"})
    append(table, 1)
    table.write(pa.table({"id": [2], "name": ["b"]}), merge_schema=True)
    table.write(pa.table({"id": [3], "name": ["c"], "more": [True]}), merge_schema=True)
    engine.restart()
    found = [row for batch in engine.drain() for row in batch.to_pylist()]
    assert found == [
        {"id": 9, "name": None, "more": None},
        {"id": 1, "name": None, "more": None},
        {"id": 2, "name": "b", "more": None},
        {"id": 3, "name": "c", "more": True},
    ]


def test_a_column_that_was_dropped_meanwhile_needs_a_new_checkpoint(tmp_path: Path) -> None:
    table = Table(tmp_path / "source")
    first = pa.table({"id": [0], "name": ["a"]})
    table.write(first, properties={"delta.columnMapping.mode": "name"})
    engine = Engine(table.uri)
    engine.drain()
    table.write(first)
    table.drop_column("name")
    assert ids(engine.batch()) == [0]
    with pytest.raises(SourceChanged, match="no longer has a column name"):
        engine.batch()
    older = Engine(table.uri, startingVersion=1)
    with pytest.raises(SourceChanged, match="has a column name") as caught:
        older.batch()
    assert "new checkpoint" in caught.value.hint


def test_a_renamed_column_stops_the_stream_and_a_restart_has_the_new_name(tmp_path: Path) -> None:
    table = Table(tmp_path / "source")
    table.write(numbers(0), properties={"delta.columnMapping.mode": "name"})
    engine = Engine(table.uri)
    engine.drain()
    table.rename_column("id", "number")
    table.write(pa.table({"number": [1]}))
    with pytest.raises(SourceChanged, match="is called number"):
        engine.batch()
    engine.restart()
    batch = engine.batch()
    assert batch is not None
    assert batch.to_pylist() == [{"number": 1}]


def found_in(engine: Engine) -> list[dict[str, Any]]:
    """All rows up to the newest version; started again wherever the schema changes."""
    rows: list[dict[str, Any]] = []
    while True:
        try:
            batch = engine.batch()
        except SourceChanged as error:
            assert "new schema is noted" in (error.hint or "")
            with pytest.raises(SourceChanged):
                engine.source = engine.new_source()
                engine.batch()  # the same DataFrame has the old schema
            engine.restart()
            continue
        if batch is None:
            return rows
        rows += batch.to_pylist()


@pytest.mark.parametrize("files", [1, 1000])
@pytest.mark.parametrize("option", ["schemaTrackingLocation", "schemaLocation"])
def test_a_stream_that_keeps_its_schema_goes_on_through_every_change_of_it(
    tmp_path: Path, option: str, files: int
) -> None:
    table = Table(tmp_path / "source")
    mapped = {"delta.columnMapping.mode": "name", "delta.enableTypeWidening": "true"}
    table.write(pa.table({"id": pa.array([0], pa.int32()), "name": ["a"]}), properties=mapped)
    engine = Engine(table.uri, maxFilesPerTrigger=files, **{option: tmp_path / "schemas"})
    assert engine.batch() is not None
    table.write(pa.table({"id": pa.array([1], pa.int32()), "name": ["b"]}))
    table.drop_column("name")
    table.write(pa.table({"id": pa.array([2], pa.int32())}))
    table.rename_column("id", "number")
    table.change_type("number", "bigint")
    table.write(pa.table({"number": [3]}))
    table.write(pa.table({"number": [4], "name": ["again"]}), merge_schema=True)
    engine.restart()  # as after a stop: the schema is the one that it had
    assert found_in(engine) == [
        {"id": 1, "name": "b"},
        {"id": 2},
        {"number": 3},
        {"number": 4, "name": "again"},
    ]
    assert engine.source.latestOffset(engine.offset, ReadMaxFiles(10)) == engine.offset


def test_a_stream_from_a_version_on_begins_in_its_schema(tmp_path: Path) -> None:
    table = Table(tmp_path / "source")
    table.write(pa.table({"id": [0], "name": ["a"]}), properties={"delta.columnMapping.mode": "name"})
    table.drop_column("name")
    table.write(pa.table({"id": [1]}))
    engine = Engine(table.uri, startingVersion=0, schemaTrackingLocation=tmp_path / "schemas")
    assert found_in(engine) == [{"id": 0, "name": "a"}, {"id": 1}]


def test_a_batch_that_was_planned_before_a_change_is_run_again_in_its_own_schema(tmp_path: Path) -> None:
    table = Table(tmp_path / "source")
    table.write(pa.table({"id": [0], "name": ["a"]}), properties={"delta.columnMapping.mode": "name"})
    engine = Engine(table.uri, schemaTrackingLocation=tmp_path / "schemas")
    assert engine.plan()
    table.drop_column("name")
    engine.restart()
    assert engine.run().to_pylist() == [{"id": 0, "name": "a"}]


def test_a_kept_schema_is_for_streams_of_its_table(tmp_path: Path) -> None:
    one, other = Table(tmp_path / "one"), Table(tmp_path / "other")
    append(one, 0)
    append(other, 1)
    Engine(one.uri, schemaTrackingLocation=tmp_path / "schemas").drain()
    with pytest.raises(SourceChanged, match="of another table"):
        Engine(other.uri, schemaTrackingLocation=tmp_path / "schemas")
    for wrong in ({"schemaTrackingLocation": " "}, {"schemaTrackingLocation": "/a", "schemaLocation": "/b"}):
        with pytest.raises(InvalidArgument, match="schemaTrackingLocation"):
            Engine(one.uri, **wrong)
    options = {"path": one.uri, "schemaTrackingLocation": str(tmp_path / "schemas")}
    with pytest.raises(InvalidArgument, match="is for streams"):
        ReadOptions.from_options(options).pinned(DeltaLog(open_store(one.uri)))


def test_another_partitioning_stops_the_stream_for_good(tmp_path: Path) -> None:
    table = Table(tmp_path / "source")
    data = pa.table({"id": [0], "p": ["x"]})
    table.write(data)
    engine = Engine(table.uri, skipChangeCommits="true")
    engine.drain()
    table.write(data, mode="overwrite", overwrite_schema=True, partition_by="p")
    with pytest.raises(SourceChanged, match="partitioned by"):
        engine.batch()


def test_a_table_that_was_made_anew_is_not_taken_for_the_old_one(table: Table) -> None:
    engine = Engine(table.uri)
    engine.drain()
    shutil.rmtree(table.uri.removeprefix("file://"))
    append(Table(table.uri), 100)
    with pytest.raises(SourceChanged, match="made anew"):
        engine.batch()
    with pytest.raises(SourceChanged, match="not the one"):
        Engine(table.uri, engine.offset).batch()


def test_commits_that_are_gone_from_the_log_stop_the_stream_unless_loss_is_allowed(table: Table) -> None:
    engine = Engine(table.uri)
    engine.drain()
    for n in range(1, 6):
        append(table, n)
    table.checkpoint()
    append(table, 6)
    open_store(table.uri).delete([commit_path(v) for v in range(3)])
    append(table, 7)
    with pytest.raises(VersionNotFound, match="no longer has") as caught:
        Engine(table.uri, engine.offset).batch()
    assert caught.value.version == 1
    assert "failOnDataLoss" in caught.value.hint
    # Versions 3 to 5 can be read, though not as a snapshot: only their own rows are wanted.
    assert set(ids(Engine(table.uri, engine.offset, failOnDataLoss="false").drain())) >= {6, 7}


def test_a_snapshot_that_can_no_longer_be_made_stops_the_stream(table: Table) -> None:
    append(table, 1)
    engine = Engine(table.uri, maxFilesPerTrigger=1)
    engine.batch()
    append(table, 2)
    table.checkpoint()
    open_store(table.uri).delete([commit_path(0), commit_path(1)])
    with pytest.raises(VersionNotFound, match="no longer has"):
        Engine(table.uri, engine.offset).batch()
    assert ids(Engine(table.uri, engine.offset, failOnDataLoss="false").drain()) == [2]


def test_options_that_are_for_batches_are_refused(table: Table) -> None:
    for name, value in {"versionAsOf": 0, "timestampAsOf": "2024-01-01", "endingVersion": 1}.items():
        options = ReadOptions.from_options({"path": table.uri, name: str(value)})
        with pytest.raises(InvalidArgument, match=f"{name} is for batches"):
            StreamSource(options, declared(ReadOptions(table=GivenTable(uri=table.uri)))[1]).initialOffset()


def test_options_that_are_for_streams_of_rows_are_refused_in_streams_of_changes_and_in_batches(table: Table) -> None:
    for name in ("ignoreDeletes", "skipChangeCommits"):
        with pytest.raises(InvalidArgument, match="streams of rows"):
            Engine(table.uri, readChangeFeed="true", **{name: "true"}).batch()
    for name, value in {"maxFilesPerTrigger": 1, "ignoreDeletes": "true", "failOnDataLoss": "false"}.items():
        source = LakesealDataSource({"path": table.uri, name: str(value)})
        with pytest.raises(InvalidArgument, match=f"{name} is for streams"):
            source.reader(source.schema())


def test_streams_of_branches_are_refused(table: Table) -> None:
    schema = StructType([StructField("id", LongType())])
    with pytest.raises(InvalidArgument, match="A stream reads tables"):
        LakesealDataSource({"path": table.uri, "ref": "main"}).streamReader(schema)
    with pytest.raises(InvalidArgument, match="A stream writes tables"):
        LakesealDataSource({"path": table.uri, "branch": "main"}).streamWriter(schema, overwrite=False)


def test_options_of_a_sink_that_are_for_overwriting_are_refused_where_rows_are_added(table: Table) -> None:
    schema = StructType([StructField("id", LongType())])
    options = {"replaceWhere": "id = 1", "partitionOverwriteMode": "dynamic", "overwriteSchema": "true"}
    for name, value in {**options, "txnVersion": "1", "maxFilesPerTrigger": "1"}.items():
        with pytest.raises(InvalidArgument):
            LakesealDataSource({"path": table.uri, name: value}).streamWriter(schema, overwrite=False)


# The first batch


def test_a_commit_between_planning_and_running_the_first_batch_comes_once(table: Table) -> None:
    engine = Engine(table.uri)
    assert engine.plan()
    append(table, 1)
    assert [ids(batch) for batch in engine.drain()] == [[0], [1]]


def test_a_first_batch_that_is_run_again_after_a_crash_has_the_same_rows(table: Table) -> None:
    append(table, 1)
    engine = Engine(table.uri, maxFilesPerTrigger=1)
    assert engine.plan()
    assert ids(engine.run()) == [0]
    append(table, 2)
    compact(table)
    engine.restart()
    assert [ids(batch) for batch in engine.drain()] == [[0], [1], [2]]


def test_starting_at_the_latest_version_loses_none_that_is_committed_while_the_first_batch_is_planned(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(table.uri, startingVersion="latest")
    initial = StreamSource.initialOffset

    def busy(source: StreamSource) -> dict[str, Any]:
        found = initial(source)
        append(table, Table(table.uri).version() + 1)
        return found

    monkeypatch.setattr(StreamSource, "initialOffset", busy)
    engine.plan()
    first = Table(table.uri).version() + 1
    found = ids(engine.drain())
    assert found == list(range(first, first + len(found)))
    assert found


def test_a_moment_to_come_gives_no_commit_from_before_it_and_all_from_then_on(table: Table) -> None:
    moment = datetime.now(UTC) + timedelta(hours=1)
    engine = Engine(table.uri, startingTimestamp=moment.isoformat())
    assert ids(engine.batch()) == []
    append(table, 1)
    assert engine.batch() is None
    engine.restart()
    append(table, 2)
    later(table, moment)
    append(table, 3)
    later(table, moment + timedelta(seconds=1))
    assert engine.plan()
    assert ids(engine.run()) == [2, 3]
    engine.restart()
    append(table, 4)
    later(table, moment + timedelta(seconds=2))
    assert [ids(batch) for batch in engine.drain()] == [[2, 3], [4]]


def test_a_moment_from_before_the_log_was_cleaned_up_is_refused_unless_loss_is_allowed(table: Table) -> None:
    for n in range(1, 4):
        append(table, n)
    table.checkpoint()
    append(table, 4)
    open_store(table.uri).delete([commit_path(v) for v in range(3)])
    with pytest.raises(VersionNotFound, match="no longer has"):
        Engine(table.uri, startingTimestamp="2001-01-01").batch()
    assert ids(Engine(table.uri, startingTimestamp="2001-01-01", failOnDataLoss="false").drain()) == [3, 4]


def test_the_snapshot_of_a_stream_of_changes_comes_once_beside_a_busy_writer(tmp_path: Path) -> None:
    table = Table(tmp_path / "source")
    table.write(numbers(0, 2), properties=CHANGE_FEED)
    engine = Engine(table.uri, readChangeFeed="true")
    assert engine.plan()
    append(table, 2)
    engine.restart()
    assert rows(pa.concat_tables(engine.drain())) == rows(table.changes(0))


def test_a_batch_that_starts_behind_its_end_is_an_error(table: Table) -> None:
    append(table, 1)
    source = Engine(table.uri).source
    here = StreamOffset(table_id=table.snapshot().metadata.id, version=1)
    for start, end in (
        (here.at(2), here),
        (msgspec.structs.replace(here, index=1), here),
        (here, here.at(1, is_initial=True)),
        (here.at(1, is_initial=True), here),
        (here, source_beginning(source)),
        (source_beginning(source), here),
    ):
        with pytest.raises(InvalidArgument, match="new checkpoint"):
            source.partitions(start.to_json(), end.to_json())


def source_beginning(source: StreamSource) -> StreamOffset:
    return StreamOffset.from_json(source.initialOffset())


def test_a_checkpoint_of_rows_is_not_gone_on_with_as_changes(tmp_path: Path) -> None:
    table = Table(tmp_path / "source")
    table.write(numbers(0), properties=CHANGE_FEED)
    for first, then in (("false", "true"), ("true", "false")):
        engine = Engine(table.uri, readChangeFeed=first)
        engine.drain()
        with pytest.raises(SourceChanged, match="stream of"):
            Engine(table.uri, engine.offset, readChangeFeed=then).batch()


# DataFrames that are older than the table's schema


def test_a_frame_made_before_a_new_column_is_refused_and_a_new_one_goes_on_with_the_column(table: Table) -> None:
    engine = Engine(table.uri)
    engine.drain()
    table.write(pa.table({"id": [1], "name": ["b"]}), merge_schema=True)
    with pytest.raises(SourceChanged, match="it has a column name"):
        engine.batch()
    engine.source = engine.new_source()
    with pytest.raises(SourceChanged, match="since this DataFrame was made: new is name string") as caught:
        engine.batch()
    assert ".schema()" in caught.value.hint
    engine.restart()
    assert [row for batch in engine.drain() for row in batch.to_pylist()] == [{"id": 1, "name": "b"}]


def test_a_frame_whose_columns_the_user_named_goes_on_with_these(table: Table) -> None:
    table.write(pa.table({"id": [1], "name": ["b"]}), merge_schema=True)
    named = StructType([StructField("id", LongType())])
    source = LakesealDataSource({"path": table.uri}).streamReader(named)
    end = source.latestOffset(source.initialOffset(), ReadAllAvailable())
    assert read(source, source.partitions(source.initialOffset(), end)).to_pylist() == [{"id": 0}, {"id": 1}]


def test_tasks_read_by_the_table_as_their_batch_was_planned_not_as_the_frame_was_first_read(tmp_path: Path) -> None:
    table = Table(tmp_path / "source")
    table.write(numbers(0), properties={"delta.columnMapping.mode": "name"})
    named = StructType([StructField("id", LongType())])
    frame = LakesealDataSource({"path": table.uri})
    # Spark makes what tasks read by once for a DataFrame, when it is first read.
    reading = pickle.loads(cloudpickle.dumps(frame.streamReader(named)))
    table.rename_column("id", "old")
    table.write(pa.table({"old": pa.array([1], pa.int64()), "id": pa.array([7], pa.int64())}), merge_schema=True)
    source = frame.streamReader(named)
    partitions = source.partitions(source.initialOffset(), source.latestOffset(source.initialOffset()))
    found = [batch.to_pylist() for part in partitions for batch in reading.read(part)]
    assert sorted(str(row["id"]) for batch in found for row in batch) == ["7", "None"]


def test_a_schema_that_says_not_null_is_refused_by_the_column(table: Table) -> None:
    table.write(pa.table({"id": [1], "tags": [["a"]]}), merge_schema=True)
    strict = StructType([StructField("id", LongType(), nullable=False)])
    inside = StructType([StructField("tags", ArrayType(StringType(), containsNull=False))])
    for schema, column in ((strict, "id"), (inside, "tags.element")):
        with pytest.raises(InvalidArgument, match="NOT NULL") as caught:
            LakesealDataSource({"path": table.uri}).reader(schema)
        assert caught.value.column == column
        source = LakesealDataSource({"path": table.uri}).streamReader(schema)
        with pytest.raises(InvalidArgument, match="NOT NULL"):
            source.latestOffset(source.initialOffset())


# As Spark 4.1 asks: without a start and a limit


def test_a_spark_that_gives_no_start_is_served_from_where_it_last_planned(table: Table) -> None:
    for n in range(1, 5):
        append(table, n)
    source = Engine(table.uri, maxFilesPerTrigger=2).source
    start, found = source.initialOffset(), []
    while (end := source.latestOffset()) != start:
        found.append(ids(read(source, source.partitions(start, end))))
        start = end
    assert found == [[0, 1], [2, 3], [4]]
    append(table, 5)
    again = Engine(table.uri, maxFilesPerTrigger=2).source
    again.partitions(start, start)  # how it tells a source where a restarted query stands
    end = again.latestOffset()
    assert ids(read(again, again.partitions(start, end))) == [5]


def test_a_spark_that_gives_no_limit_gets_everything_unless_the_user_set_one(table: Table) -> None:
    source = Engine(table.uri).source
    start = source.initialOffset()
    for n in range(1, 5):
        append(table, n)
    assert ids(read(source, source.partitions(start, source.latestOffset()))) == list(range(5))


# Changes


def test_a_stream_of_changes_starts_with_inserts_and_goes_on_with_what_commits_did(tmp_path: Path) -> None:
    table = Table(tmp_path / "source")
    table.write(numbers(0, 2), properties=CHANGE_FEED)
    engine = Engine(table.uri, readChangeFeed="true")
    first = engine.batch()
    append(table, 2)
    remove_files(table)
    table.write(numbers(9), mode="overwrite")
    assert rows(pa.concat_tables([first, *engine.drain()])) == rows(table.changes(0))


def test_a_stream_of_changes_from_a_version_on_is_the_change_feed(tmp_path: Path) -> None:
    table = Table(tmp_path / "source")
    table.write(numbers(0, 2), properties=CHANGE_FEED)
    append(table, 2)
    remove_files(table)
    table.write(numbers(9), mode="overwrite")
    engine = Engine(table.uri, readChangeFeed="true", startingVersion=1, maxFilesPerTrigger=1)
    batches = engine.drain()
    assert len(batches) > 2
    assert rows(pa.concat_tables(batches)) == rows(table.changes(1))


def test_a_stream_of_changes_needs_the_feed_to_be_on(table: Table) -> None:
    with pytest.raises(InvalidArgument, match="was not on"):
        Engine(table.uri, readChangeFeed="true", startingVersion=0).batch()


# Every row once, whatever happens

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 4)),
        st.tuples(st.sampled_from(["compact", "note", "checkpoint", "restart", "batch", "replay"]), st.just(0)),
    ),
    max_size=25,
)


@examples(15, 150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(steps=STEPS, limit=st.integers(1, 4), changes=st.booleans())
def test_every_row_comes_once_whatever_is_committed_and_however_often_it_restarts(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], limit: int, changes: bool
) -> None:
    table = Table(tmp_path_factory.mktemp("t") / "source")
    table.write(numbers(0), properties=CHANGE_FEED)
    engine = Engine(table.uri, maxFilesPerTrigger=limit, readChangeFeed=str(changes).lower())
    given_rows, next_id = [], 1
    for step, count in steps:
        if step == "append":
            for _ in range(count):
                append(table, next_id)
                next_id += 1
        elif step == "compact":
            compact(table)
        elif step == "note":
            table.set_properties({"note": str(next_id)})
        elif step == "checkpoint":
            table.checkpoint()
        elif step == "restart":
            engine.restart()
        elif step == "replay":
            # Planned and read, then the driver died before it noted that; Spark reads the same range again.
            if engine.plan():
                first = ids(engine.run())
                engine.restart()
                assert ids(engine.run()) == first
        else:
            given_rows += ids(engine.batch())
    given_rows += ids(engine.drain())
    assert sorted(given_rows) == list(range(next_id))


# With Spark


def stream(spark: Any, uri: str, place: Path, **options: Any) -> Any:
    reader = spark.readStream.format("lakeseal")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return (
        reader.load(uri)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(place / "out"))
    )


def read_out(spark: Any, place: Path) -> list[int]:
    return sorted(row.id for row in spark.read.parquet(str(place / "out")).collect())


@pytest.fixture(scope="module")
def session(spark: Any) -> Any:
    lakeseal.register(spark)
    return spark


@pytest.mark.spark
def test_spark_reads_in_batches_of_the_limit_and_a_restart_reads_only_what_is_new(
    session: Any, table: Table, tmp_path: Path
) -> None:
    for n in range(1, 4):
        append(table, n)
    batches = Batches(tmp_path / "out")

    def run() -> None:
        batches.run(session.readStream.format("lakeseal").option("maxFilesPerTrigger", 3).load(table.uri))

    run()
    assert batches.sizes() == [3, 1]
    append(table, 4)
    run()
    assert batches.sizes() == [3, 1, 1]
    assert batches.ids() == list(range(5))


@pytest.mark.spark
def test_spark_shows_why_a_stream_stopped(session: Any, table: Table, tmp_path: Path) -> None:
    assert stream(session, table.uri, tmp_path).awaitTermination(120)
    table.write(numbers(1), mode="overwrite")
    query = stream(session, table.uri, tmp_path)
    with pytest.raises(Exception, match=r"SourceChanged: Rows of the source were changed or replaced"):
        query.awaitTermination(120)


def recorded(calls: Path) -> type[LakesealDataSource]:
    """Our source under the name `recorded`, which notes what is asked of it; for `busy` tables every question for an
    offset also makes a commit."""

    class Recorded(StreamSource):
        def note(self, name: str, *arguments: Any) -> None:
            with calls.open("a") as file:
                file.write(json.dumps([name, *arguments]) + "\n")
            if name != "partitions" and self._options.table.uri.endswith("busy"):
                busy = Table(self._options.table.uri)
                busy.write(pa.table({"id": pa.array([busy.version() + 1], pa.int64())}))

        def initialOffset(self) -> dict[str, Any]:  # noqa: N802
            found = super().initialOffset()
            self.note("initialOffset")
            return found

        def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
            found = super().latestOffset(start, limit)
            self.note("latestOffset", start)
            return found

        def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
            self.note("partitions", start, end)
            return super().partitions(start, end)

    class RecordedDataSource(LakesealDataSource):
        @classmethod
        def name(cls) -> str:
            return "recorded"

        def streamReader(self, schema: StructType) -> StreamSource:  # noqa: N802
            source = super().streamReader(schema)
            source.__class__ = Recorded
            return source

    return RecordedDataSource


class Batches:
    """The rows of each batch by its number: as files, so that it does not matter where Spark runs the function."""

    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir(exist_ok=True)

    def writer(self, rows: Any) -> Any:
        place = str(self.place)

        def note(batch: Any, number: int) -> None:
            found = [row.asDict() for row in batch.collect()]
            (Path(place) / str(number)).write_text(json.dumps(found, default=str))

        return rows.writeStream.foreachBatch(note).option("checkpointLocation", f"{place}-checkpoint")

    def run(self, rows: Any) -> None:
        with recovered():
            assert self.writer(rows).trigger(availableNow=True).start().awaitTermination(120)

    def forget(self, number: int) -> None:
        """As if the driver had died after the batch, before it noted that."""
        commits = Path(f"{self.place}-checkpoint") / "commits"
        (commits / str(number)).unlink()
        (commits / f".{number}.crc").unlink()

    def each(self) -> list[list[dict[str, Any]]]:
        files = sorted(self.place.iterdir(), key=lambda file: int(file.name))
        return [json.loads(file.read_text()) for file in files]

    def rows(self) -> list[dict[str, Any]]:
        return [row for batch in self.each() for row in batch]

    def sizes(self) -> list[int]:
        """Of the batches that have rows: Spark may run one without."""
        return [len(batch) for batch in self.each() if batch]

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.rows())


@pytest.mark.spark
def test_spark_calls_a_source_as_these_tests_do(session: Any, table: Table, tmp_path: Path) -> None:
    append(table, 1)
    calls, batches = tmp_path / "calls", Batches(tmp_path / "out")
    made = recorded(calls)
    session.dataSource.register(made)
    frame = session.readStream.format("recorded").option("maxFilesPerTrigger", 1).load(table.uri)
    batches.run(frame)
    batches.forget(1)
    batches.run(frame)
    by_spark = [json.loads(line) for line in calls.read_text().splitlines()]
    calls.unlink()

    engine = Engine(table.uri, maxFilesPerTrigger=1)
    engine.frame = (cloudpickle.dumps(made(engine.options)), engine.frame[1])
    engine.source = engine.new_source()
    engine.source.prepareForTriggerAvailableNow()
    engine.batch()
    before = engine.offset
    assert engine.plan()
    planned = engine.planned
    engine.drain()
    engine.offset, engine.planned = before, planned
    engine.source = engine.new_source()
    engine.drain()
    assert [json.loads(line) for line in calls.read_text().splitlines()] == by_spark
    assert batches.ids() == [0, 1]


@pytest.mark.spark
@pytest.mark.parametrize(
    "start", [{}, {"startingVersion": "latest"}, {"startingTimestamp": "2001-01-01"}, {"startingVersion": 1}]
)
@pytest.mark.parametrize("changes", [False, True], ids=["rows", "changes"])
def test_beside_a_writer_that_commits_at_every_step_each_row_comes_once_also_if_the_first_batch_is_repeated(
    session: Any, tmp_path: Path, start: dict[str, Any], changes: bool
) -> None:
    table = Table(tmp_path / "busy")
    table.write(numbers(0), properties=CHANGE_FEED)
    append(table, 1)
    append(table, 2)
    session.dataSource.register(recorded(tmp_path / "calls"))
    reader = session.readStream.format("recorded").options(maxFilesPerTrigger=2, readChangeFeed=changes, **start)
    frame, batches = reader.load(table.uri), Batches(tmp_path / "out")
    query = batches.writer(frame).trigger(processingTime="0 seconds").start()
    wait_for(lambda: (batches.place / "1").exists(), query)
    query.stop()
    for name in ("offsets", "commits"):
        for file in (tmp_path / "out-checkpoint" / name).iterdir():
            if file.name not in ("0", ".0.crc"):
                file.unlink()
    for file in batches.place.iterdir():
        file.unlink()
    batches.forget(0)
    origin = origin_in(tmp_path / "out-checkpoint" / "offsets" / "0")
    if "startingVersion" in start or "startingTimestamp" in start:
        assert not origin["isInitial"]
    else:
        assert origin["isInitial"]
    newest = table.version()
    batches.run(frame)
    # A version's row has its number.
    first = 0 if origin["isInitial"] else origin["version"]
    assert batches.ids() == list(range(first, newest + 1))
    if start.get("startingVersion") == "latest":
        assert 2 < first <= newest - 2
    else:
        assert first == start.get("startingVersion", 0)


def origin_in(file: Path) -> dict[str, Any]:
    """Where the stream began, as the end of its first batch in Spark's checkpoint says it."""
    found: dict[str, Any] = json.loads(file.read_text().splitlines()[-1])["origin"]
    return found


def wait_for(done: Any, query: Any) -> None:
    deadline = time.monotonic() + 120
    while not done():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, "the stream made no progress"
        time.sleep(0.02)


@pytest.mark.spark
@pytest.mark.parametrize(
    "options",
    [
        {"startingVersion": 1},
        {"startingVersion": "latest"},
        {"startingVersion": 3},
        {"startingTimestamp": "2001-01-01"},
        {"startingTimestamp": "2999-01-01"},
        {"readChangeFeed": True},
        {"readChangeFeed": True, "startingVersion": 3},
        {"readChangeFeed": True, "startingTimestamp": "2999-01-01"},
        {"readChangeFeed": True, "startingVersion": "latest"},
    ],
    ids=str,
)
def test_spark_takes_every_start_without_a_schema(session: Any, tmp_path: Path, options: dict[str, Any]) -> None:
    table = Table(tmp_path / "source")
    table.write(numbers(0), properties=CHANGE_FEED)
    append(table, 1)
    append(table, 2)
    batches = Batches(tmp_path / "out")
    reader = session.readStream.format("lakeseal").options(**options)
    batches.run(reader.load(table.uri))
    start = options.get("startingVersion", options.get("startingTimestamp"))
    before = {1: [1, 2], "2001-01-01": [0, 1, 2], None: [0, 1, 2]}.get(start, [])
    assert batches.ids() == before
    append(table, 3)
    batches.run(reader.load(table.uri))
    assert batches.ids() == (before if start == "2999-01-01" else [*before, 3])


@pytest.mark.spark
def test_spark_shows_that_a_range_is_not_for_batches(session: Any, table: Table) -> None:
    for name, value in {"startingVersion": 0, "startingTimestamp": "2001-01-01", "readChangeFeed": True}.items():
        with pytest.raises(InvalidArgument), recovered():
            session.read.format("lakeseal").option(name, value).load(table.uri).count()


@pytest.mark.spark
def test_after_a_new_column_the_same_frame_is_refused_or_has_it_and_a_new_frame_gets_every_row_with_it(
    session: Any, table: Table, tmp_path: Path
) -> None:
    def load() -> Any:
        return session.readStream.format("lakeseal").load(table.uri)

    batches, frame = Batches(tmp_path / "out"), load()
    batches.run(frame)
    table.write(pa.table({"id": [1], "name": ["b"]}), merge_schema=True)
    with suppress(SourceChanged):
        batches.run(frame)
        assert not hasattr(session, "_jvm"), "only Connect loads the table anew by itself"
    batches.run(load())
    assert batches.rows() == [{"id": 0}, {"id": 1, "name": "b"}]


@pytest.mark.spark
def test_the_same_frame_of_chosen_columns_reads_a_column_that_took_the_name_of_another(
    session: Any, tmp_path: Path
) -> None:
    table = Table(tmp_path / "source")
    table.write(numbers(0), properties={"delta.columnMapping.mode": "name"})
    frame = session.readStream.format("lakeseal").schema("id bigint").load(table.uri)
    Batches(tmp_path / "before").run(frame)
    table.rename_column("id", "old")
    table.write(pa.table({"old": pa.array([1], pa.int64()), "id": pa.array([7], pa.int64())}), merge_schema=True)
    batches = Batches(tmp_path / "after")
    batches.run(frame)
    assert sorted(str(row["id"]) for row in batches.rows()) == ["7", "None"]


@pytest.mark.spark
def test_spark_says_by_the_column_that_a_schema_may_not_say_not_null(
    session: Any, table: Table, tmp_path: Path
) -> None:
    frame = session.readStream.format("lakeseal").schema("id bigint not null").load(table.uri)
    with pytest.raises(InvalidArgument, match=r"NOT NULL.*column id"):
        Batches(tmp_path / "out").run(frame)


@pytest.mark.spark
@pytest.mark.parametrize("way", ["partitionBy", "list", "start", "other format first"])
def test_a_stream_is_partitioned_as_its_writer_was_told(session: Any, tmp_path: Path, way: str) -> None:
    source, target = Table(tmp_path / "source"), Table(tmp_path / "target")
    source.write(pa.table({"id": [1, 2], "p": ["a", "b"], "q": ["c", "d"]}))
    writer = session.readStream.format("lakeseal").load(source.uri).writeStream
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    if way == "start":
        query = writer.start(target.uri, "lakeseal", "append", ["p", "q"])
    elif way == "list":
        query = writer.partitionBy(["p", "q"]).format("lakeseal").start(target.uri)
    elif way == "partitionBy":
        query = writer.format("lakeseal").partitionBy("p", "q").start(target.uri)
    else:
        query = writer.format("parquet").partitionBy("p", "q").start(target.uri, format="lakeseal")
    assert query.awaitTermination(120)
    assert target.snapshot().partition_columns == ("p", "q")
    append_more = writer.format("lakeseal").partitionBy("q")
    source.write(pa.table({"id": [3], "p": ["a"], "q": ["c"]}))
    with pytest.raises(InvalidArgument, match="partitioned by"), recovered():
        append_more.start(target.uri).awaitTermination(120)


@pytest.mark.spark
@pytest.mark.parametrize("way", ["clusterBy", "list", "option"])
def test_a_stream_creates_a_table_that_is_clustered_as_its_writer_was_told(
    session: Any, tmp_path: Path, way: str
) -> None:
    source, target = Table(tmp_path / "source"), Table(tmp_path / "target")
    source.write(pa.table({"id": [1, 2], "p": ["a", "b"], "q": ["c", "d"]}))
    writer = session.readStream.format("lakeseal").load(source.uri).writeStream.format("lakeseal")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    if way == "clusterBy":
        writer = writer.clusterBy("q", "id")
    elif way == "list":
        writer = writer.clusterBy(["q", "id"])
    else:
        writer = writer.option("clusterBy", "q,id")
    assert writer.start(target.uri).awaitTermination(120)
    assert target.detail()["clusteringColumns"] == ["q", "id"]
    assert target.snapshot().partition_columns == ()
    source.write(pa.table({"id": [3], "p": ["a"], "q": ["c"]}))
    assert writer.start(target.uri).awaitTermination(120)
    assert sorted(target.to_arrow()["id"].to_pylist()) == [1, 2, 3]
    other = writer.option("clusterBy", "p") if way == "option" else writer.clusterBy("p")
    source.write(pa.table({"id": [4], "p": ["a"], "q": ["c"]}))
    with pytest.raises(InvalidArgument, match="clustered"), recovered():
        other.start(target.uri).awaitTermination(120)


@pytest.mark.spark
def test_a_partitioned_stream_of_another_format_is_left_alone(session: Any, tmp_path: Path) -> None:
    source = Table(tmp_path / "source")
    source.write(pa.table({"id": [1], "p": ["a"]}))
    writer = session.readStream.format("lakeseal").load(source.uri).writeStream.format("parquet").partitionBy("p")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    assert writer.start(str(tmp_path / "out")).awaitTermination(120)
    assert [path.name for path in (tmp_path / "out").glob("p=*")] == ["p=a"]


KILLED = """
import sys
import lakeseal
from lakeseal.spark.local_session import local_session

uri, place = sys.argv[1:]
spark = local_session("killed", settings={"spark.local.dir": place + "/local"})
lakeseal.register(spark)
query = (
    spark.readStream.format("lakeseal").option("maxFilesPerTrigger", 2).load(uri)
    .writeStream.format("parquet").option("checkpointLocation", place + "/checkpoint")
    .trigger(availableNow=True).start(place + "/out")
)
query.awaitTermination()
"""


@pytest.mark.spark
@pytest.mark.stress  # `test_pipe` kills a stream with this source too
def test_after_sigkill_a_restart_gives_every_row_once(session: Any, table: Table, tmp_path: Path) -> None:
    for n in range(1, 12):
        append(table, n)
    script = tmp_path / "stream.py"
    script.write_text(KILLED)
    offsets = tmp_path / "checkpoint" / "offsets"
    with subprocess.Popen(
        [sys.executable, str(script), table.uri, str(tmp_path)],
        env=without_connect(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            deadline = time.monotonic() + 300
            while not (offsets / "1").exists():
                assert process.poll() is None, "the stream ended before it was killed"
                assert time.monotonic() < deadline, "the stream made no progress"
                time.sleep(0.02)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert not (offsets / "5").exists()
    assert stream(session, table.uri, tmp_path, maxFilesPerTrigger=2).awaitTermination(300)
    assert read_out(session, tmp_path) == list(range(12))
