"""Tasks write to every kind of store alike: small files side by side, large ones as streams, none after a failure."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeseal.errors import OutOfSpace, StorageUnavailable
from lakeseal.files.file_schema import FileSchema
from lakeseal.files.parquet_file import Compression
from lakeseal.files.partition_split import PartitionSplit
from lakeseal.files.uploads import Uploads
from lakeseal.jobs.delayed_commit_protocol import DelayedCommitProtocol
from lakeseal.jobs.file_commit_protocol import TaskContext
from lakeseal.jobs.job import CommitProtocolSpec, WriteJobSpec, new_protocol, run_task
from lakeseal.jobs.rolling_files import Limits
from lakeseal.jobs.task_writer import TaskWriter
from lakeseal.protocol.arrow import from_arrow
from lakeseal.protocol.schema import StructType
from lakeseal.storage import Store, StoreSpec, open_store
from lakeseal.testing.faults import Fault, FaultyStore
from lakeseal.testing.s3 import S3Server

TASK = TaskContext(job_id="delta", split=0)
NAMES = ["a/b", "a?b", "100%", "x:y", "k=v", "#", "é", "a b", "%3A", "x" * 256]


@pytest.fixture(params=["local", "memory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> StoreSpec:
    if request.param == "local":
        return StoreSpec(uri=str(tmp_path / "t"))
    if request.param == "memory":
        return StoreSpec(uri=f"memory://{uuid.uuid4().hex}/t")
    server: S3Server = request.getfixturevalue("s3")
    return StoreSpec(uri=server.uri(uuid.uuid4().hex), storage_options=server.storage_options)


def rows_in(store: Store) -> int:
    return sum(pq.ParquetFile(store.open_read(meta.key)).metadata.num_rows for meta in store.list(recursive=True))


def job(place: StoreSpec, data: pa.Table, *by: str) -> WriteJobSpec:
    return WriteJobSpec(
        store=place,
        protocol=CommitProtocolSpec(path=place.uri),
        schema=from_arrow(data.schema).to_json(),
        partition_columns=by,
        compression=Compression("none"),
    )


def test_many_small_partitions_and_awkward_names_arrive(place: StoreSpec) -> None:
    data = pa.table({"id": range(3000), "p": [NAMES[n % 10] + str(n % 60) for n in range(3000)]})
    spec = job(place, data, "p")
    message = run_task(WriteJobSpec.from_json(spec.to_json()), TASK, data.to_batches())
    driver = new_protocol(spec)
    assert isinstance(driver, DelayedCommitProtocol)
    driver.commit_job([message])
    assert {add.partition_values["p"] for add in driver.added_statuses} == set(data["p"].to_pylist())
    store = place.open()
    assert rows_in(store) == 3000
    assert sum(meta.size for meta in store.list(recursive=True)) == sum(add.size for add in driver.added_statuses)


def test_a_large_file_arrives_as_a_stream(place: StoreSpec) -> None:
    data = pa.table({"b": [os.urandom(1000) for _ in range(25_000)]})
    spec = job(place, data)
    message = run_task(spec, TASK, data.to_batches(max_chunksize=1000))
    (entry,) = message.entries
    store = place.open()
    assert store.head(entry["add"]["path"]).size == entry["add"]["size"] > 20 * 2**20
    assert rows_in(store) == 25_000


def writer(store: Store, data: pa.Table, by: str | None) -> TaskWriter:
    schema = from_arrow(data.schema)
    protocol = DelayedCommitProtocol(path=store.uri)
    protocol.setup_task(TASK)
    column = schema.field(by) if by else None
    return TaskWriter(
        protocol=protocol,
        task=TASK,
        uploads=Uploads(store),
        schema=FileSchema(schema, [by] if by else [], mapped=False),
        split=PartitionSplit([column] if column else [], mapped=False),
        indexed=StructType(),
        compression=Compression("none"),
        limits=Limits(),
    )


@pytest.mark.parametrize("error", [StorageUnavailable, OutOfSpace])
@pytest.mark.parametrize("nth", [1, 20, 60])
def test_one_failing_upload_of_many_fails_the_task_and_leaves_nothing(
    error: type[StorageUnavailable], nth: int
) -> None:
    store = open_store(f"memory://{uuid.uuid4().hex}")
    faulty = FaultyStore(store, [Fault("put", nth=nth, error=error)])
    data = pa.table({"id": range(600), "p": [str(n % 60) for n in range(600)]})
    made = writer(faulty, data, "p")
    made.write(data.to_batches()[0])
    with pytest.raises(error):
        made.finish()
    made.abort()
    assert list(store.list(recursive=True)) == []


@pytest.mark.parametrize("call", ["open_write", "close"])
def test_a_failing_stream_fails_the_task_and_leaves_nothing(call: str) -> None:
    store = open_store(f"memory://{uuid.uuid4().hex}")
    data = pa.table({"b": [os.urandom(1000) for _ in range(10_000)]})
    made = writer(FaultyStore(store, [Fault(call)]), data, None)
    made.write(data.combine_chunks().to_batches()[0])
    with pytest.raises(StorageUnavailable):
        made.finish()
    made.abort()
    assert list(store.list(recursive=True)) == []
