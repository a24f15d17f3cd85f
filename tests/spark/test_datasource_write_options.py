"""Options of `format("lakeseal")` when writing; no session is needed."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

import lakeseal
from lakeseal.errors import InvalidArgument, InvalidUri, SchemaMismatch
from lakeseal.spark.datasource import LakesealDataSource
from lakeseal.spark.sink_options import SinkOptions

SCHEMA = StructType([StructField("id", LongType())])


def command(**options: str):  # type: ignore[no-untyped-def]
    return SinkOptions.from_options({"path": "/tmp/t", **options}).command(overwrite=False)


def test_every_option_reaches_the_command() -> None:
    options = SinkOptions.from_options(
        {
            "PATH": "s3://bucket/t",
            "PARTITIONBY": "a, b",
            "mergeschema": "True",
            "txnappid": "app",
            "txnversion": "7",
            "usermetadata": "note",
            "maxrecordsperfile": "10",
            "targetfilesize": "1000",
            "compression": "ZSTD",
            "delta.appendonly": "true",
            "storage.timeout": "5s",
            "aws_region": "eu",
            "checkpointlocation": "/c",
            "queryname": "q",
        }
    )
    write = options.command(overwrite=False)
    assert (write.mode, write.partition_by, write.txn, write.user_metadata) == (
        "append",
        ("a", "b"),
        ("app", 7),
        "note",
    )
    assert (write.options.merge_schema, write.options.max_records_per_file) == (True, 10)
    assert (write.options.target_file_size, write.options.compression) == (1000, "zstd")
    assert options.store.storage_options == {"timeout": "5s", "aws_region": "eu"}


def test_overwriting_takes_its_own_options() -> None:
    options = SinkOptions.from_options({"path": "/tmp/t", "replaceWhere": "a = 1"})
    assert options.command(overwrite=True).replace_where == "a = 1"
    dynamic = SinkOptions.from_options({"path": "/tmp/t", "partitionOverwriteMode": "DYNAMIC"})
    assert dynamic.command(overwrite=True).is_dynamic


@pytest.mark.parametrize(
    ("text", "columns"),
    [("a", ("a",)), (" a ,b", ("a", "b")), ('["a, b", "c"]', ("a, b", "c")), ("", ()), ("[]", ())],
)
def test_columns_to_partition_by_are_a_list_of_names(text: str, columns: tuple[str, ...]) -> None:
    assert command(partitionBy=text).partition_by == columns


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mergeShema": "true"}, "Did you mean mergeSchema"),
        ({"overwrite": "true"}, "Did you mean overwriteSchema"),
        ({"mergeSchema": "maybe"}, "'maybe'"),
        ({"maxRecordsPerFile": "0"}, "'0'"),
        ({"txnVersion": "1.5"}, "'1.5'"),
        ({"txnAppId": "a"}, "go together"),
        ({"txnVersion": "1"}, "go together"),
        ({"partitionBy": "[1]"}, "partitionBy"),
        ({"partitionOverwriteMode": "sometimes"}, "'sometimes'"),
        ({"replaceWhere": "a = 1"}, "replace_where is for mode 'overwrite'"),
        ({"compression": "rar"}, "'rar'"),
        ({"path": ""}, "location is missing"),
    ],
)
def test_a_wrong_option_is_refused_by_name(options: dict[str, str], message: str, tmp_path: Path) -> None:
    source = LakesealDataSource({"path": str(tmp_path / "t"), **options})
    with pytest.raises(InvalidArgument, match=message):
        source.writer(SCHEMA, overwrite=False)


def test_secrets_in_options_are_not_in_errors(tmp_path: Path) -> None:
    source = LakesealDataSource({"path": "s3://key:hunter2@bucket/t"})
    with pytest.raises(InvalidUri) as caught:
        source.writer(SCHEMA, overwrite=False)
    assert "hunter2" not in str(caught.value) + str(caught.value.__notes__)


def test_a_stream_numbers_its_own_transactions(tmp_path: Path) -> None:
    source = LakesealDataSource({"path": str(tmp_path / "t"), "txnAppId": "a", "txnVersion": "1"})
    with pytest.raises(InvalidArgument, match="txnVersion"):
        source.streamWriter(SCHEMA, overwrite=False)


def test_a_writer_is_planned_before_it_travels_and_refuses_then(tmp_path: Path) -> None:
    lakeseal.create(tmp_path / "t", pa.schema({"other": pa.int64()}))
    with pytest.raises(SchemaMismatch):
        LakesealDataSource({"path": str(tmp_path / "t")}).writer(SCHEMA, overwrite=False)
    planned = LakesealDataSource({"path": str(tmp_path / "u")}).writer(SCHEMA, overwrite=False)
    assert len(pickle.dumps(planned)) < 10_000


def test_a_batch_without_a_task_makes_the_table_or_changes_nothing(tmp_path: Path) -> None:
    source = LakesealDataSource({"path": str(tmp_path / "t")})
    for batch in range(2):
        source.streamWriter(SCHEMA, overwrite=False).commit([], batch)
    table = lakeseal.Table(tmp_path / "t")
    assert (table.version(), table.schema().names) == (0, ["id"])
    table.write(pa.table({"id": [1, 2]}))
    source.streamWriter(SCHEMA, overwrite=True).commit([], 2)
    assert table.to_arrow().num_rows == 0


def test_the_owner_that_is_named_manages_the_table_that_is_made(tmp_path: Path) -> None:
    owner = f"sqlite:///{tmp_path / 'ledger.db'}"
    source = LakesealDataSource({"path": str(tmp_path / "t"), "owner": owner})
    for batch in range(3):
        source.streamWriter(SCHEMA, overwrite=True).commit([], batch)
    table = lakeseal.Table(tmp_path / "t", owner=owner)
    assert table.version() == 2
    assert table.snapshot().properties.managed_commit_owner_name
    with pytest.raises(InvalidArgument, match="no owner 'nobody'"):
        LakesealDataSource({"path": str(tmp_path / "t"), "owner": "nobody"}).writer(SCHEMA, overwrite=False)
