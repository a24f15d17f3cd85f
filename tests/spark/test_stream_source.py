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
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxFiles

import lakeseal
from lakeseal import Table
from lakeseal.commit.filesystem_owner import FilesystemOwner
from lakeseal.commit.proposal import Operation
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.errors import InvalidArgument, SourceChanged, VersionNotFound
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.files import add_actions
from lakeseal.protocol.actions import RemoveFile
from lakeseal.protocol.paths import commit_path
from lakeseal.spark.batch_read import BatchRead
from lakeseal.spark.read_options import ReadOptions
from lakeseal.spark.stream_offsets import ReadLimits, StreamOffset
from lakeseal.spark.stream_source import StreamSource
from lakeseal.storage import StoreSpec, open_store
from lakeseal.testing.rows import rows
from lakeseal.write.runner import InProcessRunner
from lakeseal.write.transactional_write import WriteOptions
from lakeseal.write.write_command import WriteCommand, run

CHANGE_FEED = {"delta.enableChangeDataFeed": "true"}


class Engine:
    """Does with a source what Spark does: plans batches from the last offset on, reads them, remembers the offset."""

    def __init__(self, uri: Path, offset: dict[str, Any] | None = None, **options: Any) -> None:
        self.options = {"path": str(uri), **{name: str(value) for name, value in options.items()}}
        self.offset = offset
        self.source = self.new_source()

    def new_source(self) -> StreamSource:
        options = ReadOptions.from_options(self.options)
        streamed = msgspec.structs.replace(
            options,
            starting_version=0 if options.read_change_feed else None,
            starts_at_latest=False,
            starting_timestamp=None,
        )
        schema = BatchRead(streamed).task().schema
        return StreamSource(options, schema)

    def restart(self) -> None:
        self.source = self.new_source()

    def plan(self, limit: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        start = json.loads(json.dumps(self.offset or self.source.initialOffset()))
        end = self.source.latestOffset(start, limit or self.source.getDefaultReadLimit())
        return start, json.loads(json.dumps(end))

    def batch(self, limit: Any = None) -> pa.Table | None:
        """The next batch, or None if there is nothing new."""
        start, end = self.plan(limit)
        self.offset = end
        return None if start == end else self.read(start, end)

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> pa.Table:
        return read(self.source, self.source.partitions(start, end))

    def drain(self, limit: Any = None) -> list[pa.Table]:
        return list(iter(lambda: self.batch(limit), None))


def read(source: StreamSource, partitions: list[InputPartition]) -> pa.Table:
    # As on an executor, which has only what was pickled.
    there = pickle.loads(cloudpickle.dumps(source))
    batches = [batch for part in partitions for batch in there.read(pickle.loads(cloudpickle.dumps(part)))]
    return pa.Table.from_batches(batches) if batches else pa.table({"id": pa.array([], pa.int64())})


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


def compact(table: Table) -> None:
    """All rows in new files, without changing any."""
    command = WriteCommand(mode="overwrite", options=WriteOptions(data_change=False), operation="OPTIMIZE")
    run(command, begin(table), table.to_arrow(), runner=InProcessRunner(1), store=StoreSpec(uri=table.uri))


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
    assert offset.behind(1, 2).to_json() == {"tableId": "t", "version": 3, "index": 1, "isInitial": True}
    assert offset.behind(2, 2).to_json() == {"tableId": "t", "version": 4, "index": 0, "isInitial": False}


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
    start, end = engine.plan()
    assert start == end
    assert engine.source.partitions(start, end) == []
    assert engine.source.reportLatestOffset() == end


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
    engine.offset = engine.source.initialOffset()
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
    for option in ("ignoreDeletes", "skipChangeCommits"):
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


def test_a_new_column_stops_the_stream_and_a_restart_goes_on_with_it(table: Table) -> None:
    append(table, 1)
    engine = Engine(table.uri, maxFilesPerTrigger=1)
    assert ids(engine.batch()) == [0]
    table.write(pa.table({"id": [2], "name": ["b"]}), merge_schema=True)
    assert ids(engine.batch()) == [1]
    with pytest.raises(SourceChanged, match="it has a column name") as caught:
        engine.batch()
    assert "Start the query again" in caught.value.hint
    engine.restart()
    batch = engine.batch()
    assert batch is not None
    assert batch.to_pylist() == [{"id": 2, "name": "b"}]


def test_a_restart_reads_versions_older_than_its_schema_with_nulls(table: Table) -> None:
    engine = Engine(table.uri, maxFilesPerTrigger=1)
    engine.offset = engine.source.initialOffset()
    table.set_properties({"note": "x"})
    append(table, 1)
    table.write(pa.table({"id": [2], "name": ["b"]}), merge_schema=True)
    table.write(pa.table({"id": [3], "name": ["c"], "more": [True]}), merge_schema=True)
    engine.restart()
    found = [row for batch in engine.drain() for row in batch.to_pylist()]
    assert found == [
        {"id": 0, "name": None, "more": None},
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
        with pytest.raises(InvalidArgument, match="stream"):
            StreamSource(options, BatchRead(ReadOptions(uri=table.uri)).task().schema)


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
    engine.offset = engine.source.initialOffset()
    append(table, 2)
    remove_files(table)
    table.write(numbers(9), mode="overwrite")
    assert rows(pa.concat_tables(engine.drain())) == rows(table.changes(0))


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


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(steps=STEPS, limit=st.integers(1, 4), changes=st.booleans())
def test_every_row_comes_once_whatever_is_committed_and_however_often_it_restarts(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], limit: int, changes: bool
) -> None:
    table = Table(tmp_path_factory.mktemp("t") / "source")
    table.write(numbers(0), properties=CHANGE_FEED)
    engine = Engine(table.uri, maxFilesPerTrigger=limit, readChangeFeed=str(changes).lower())
    engine.offset = engine.source.initialOffset()
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
            start, end = engine.plan()
            first = ids(engine.read(start, end))
            engine.restart()
            assert ids(engine.read(start, end)) == first
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
    query = stream(session, table.uri, tmp_path, maxFilesPerTrigger=3)
    assert query.awaitTermination(120)
    assert [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]] == [3, 1]
    append(table, 4)
    query = stream(session, table.uri, tmp_path, maxFilesPerTrigger=3)
    assert query.awaitTermination(120)
    assert [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]] == [1]
    assert read_out(session, tmp_path) == list(range(5))


@pytest.mark.spark
def test_spark_shows_why_a_stream_stopped(session: Any, table: Table, tmp_path: Path) -> None:
    assert stream(session, table.uri, tmp_path).awaitTermination(120)
    table.write(numbers(1), mode="overwrite")
    query = stream(session, table.uri, tmp_path)
    with pytest.raises(Exception, match=r"SourceChanged: Rows of the source were changed or replaced"):
        query.awaitTermination(120)


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
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
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
