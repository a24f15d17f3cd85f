"""Broken tables: each kind of damage has an error of its own, which names the table, the place, and what to do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeseal import LakesealError, Table, Trust, errors
from lakeseal.log.checksum import ChecksumWarning

PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
SCHEMA = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
METADATA = {
    "metaData": {
        "id": "0",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(SCHEMA),
        "partitionColumns": [],
        "configuration": {},
    }
}


def add(path: str) -> dict[str, Any]:
    return {"add": {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}}


class Log:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def commit(self, version: int, *actions: dict[str, Any]) -> Log:
        self.write(f"{version:020d}.json", "".join(json.dumps(action) + "\n" for action in actions))
        return self

    def write(self, name: str, text: str | bytes) -> Log:
        file = self.folder / "_delta_log" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return self


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def refused(log: Log, expected: type[LakesealError], *said: str, read: bool = False) -> LakesealError:
    table = Table(log.folder)
    with pytest.raises(expected) as raised:
        table.to_arrow() if read else table.snapshot()
    error = raised.value
    assert error.table == table.uri
    assert error.hint
    for text in said:
        assert text in str(error)
    return error


def test_a_folder_without_a_log_is_no_table(log: Log) -> None:
    refused(log, errors.TableNotFound)


def test_a_log_without_commits_is_empty(log: Log) -> None:
    log.write("notes.txt", "nothing here")
    refused(log, errors.EmptyLog)


def test_a_missing_commit_in_the_middle_is_a_gap(log: Log) -> None:
    log.commit(0, PROTOCOL, METADATA).commit(2, add("a.parquet"))
    refused(log, errors.LogGap, "Commit 1", "version 2")


def test_a_log_that_starts_above_zero_without_a_checkpoint_is_a_gap(log: Log) -> None:
    log.commit(3, PROTOCOL, METADATA)
    refused(log, errors.LogGap, "starts at version 3")


def test_a_log_without_a_protocol_says_so(log: Log) -> None:
    log.commit(0, METADATA)
    refused(log, errors.MissingProtocol)


def test_a_log_without_metadata_says_so(log: Log) -> None:
    log.commit(0, PROTOCOL)
    refused(log, errors.MissingMetadata)


def test_broken_json_in_the_middle_names_file_and_line(log: Log) -> None:
    text = "\n".join([json.dumps(PROTOCOL), '{"add": {"path": ', json.dumps(METADATA)])
    log.write(f"{0:020d}.json", text)
    refused(log, errors.BrokenCommit, "Line 2", f"{0:020d}.json", "version 0")


def test_a_torn_last_line_names_file_and_line(log: Log) -> None:
    whole = "".join(json.dumps(action) + "\n" for action in (PROTOCOL, METADATA, add("a.parquet")))
    log.write(f"{0:020d}.json", whole[:-30])
    refused(log, errors.BrokenCommit, "Line 3", "version 0")


def test_a_commit_of_no_bytes_is_broken_not_empty(log: Log) -> None:
    log.commit(0, PROTOCOL, METADATA).write(f"{1:020d}.json", b"")
    refused(log, errors.BrokenCommit, f"{1:020d}.json")


@pytest.mark.parametrize(
    "broken",
    [
        {"add": {"path": "a", "partitionValues": {}, "size": "big", "modificationTime": 1, "dataChange": True}},
        {"add": {"path": "a", "partitionValues": {}, "size": 2**70, "modificationTime": 1, "dataChange": True}},
        {"add": {"partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}},
        {"protocol": {"minReaderVersion": "one", "minWriterVersion": 2}},
        {"metaData": {"id": 7}},
        {"txn": {"appId": "a"}},
        {"add": 5},
        {},
        {**PROTOCOL, **METADATA},
    ],
)
def test_an_action_of_the_wrong_shape_is_a_broken_commit(log: Log, broken: dict[str, Any]) -> None:
    log.commit(0, PROTOCOL, METADATA).commit(1, broken)
    refused(log, errors.BrokenCommit, "Line 1", "version 1")


def test_a_multi_part_checkpoint_with_a_missing_part_is_not_used_and_named(log: Log) -> None:
    log.write(f"{5:020d}.checkpoint.{1:010d}.{2:010d}.parquet", b"x").commit(6, add("a.parquet"))
    error = refused(log, errors.LogGap)
    assert "parts" in error.hint


def test_a_checkpoint_that_is_not_parquet_is_named_when_nothing_else_is_there(log: Log) -> None:
    log.write(f"{5:020d}.checkpoint.parquet", b"not parquet").commit(6, add("a.parquet"))
    refused(log, errors.BrokenCheckpoint, f"{5:020d}.checkpoint.parquet")


def test_a_missing_sidecar_is_named_when_nothing_else_is_there(log: Log) -> None:
    checkpoint = [
        {"checkpointMetadata": {"version": 5}},
        PROTOCOL,
        METADATA,
        {"sidecar": {"path": "gone.parquet", "sizeInBytes": 1, "modificationTime": 1}},
    ]
    name = f"{5:020d}.checkpoint.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json"
    log.write(name, "\n".join(map(json.dumps, checkpoint)))
    refused(log, errors.BrokenCheckpoint, "_sidecars/gone.parquet")


@pytest.mark.parametrize("path", ["../outside.parquet", "a/../../outside.parquet", "%2e%2e/outside.parquet"])
def test_a_path_outside_of_the_table_is_refused(log: Log, path: str) -> None:
    log.commit(0, PROTOCOL, METADATA, add(path))
    refused(log, errors.UnsafePath, path, read=True)


def test_a_data_file_that_is_gone_is_named(log: Log) -> None:
    log.commit(0, PROTOCOL, METADATA, add("gone.parquet"))
    refused(log, errors.DataFileMissing, "gone.parquet", read=True)


def test_a_data_file_that_is_not_parquet_is_named(log: Log) -> None:
    log.commit(0, PROTOCOL, METADATA, add("odd.parquet"))
    (log.folder / "odd.parquet").write_bytes(b"PAR1 of a sort")
    refused(log, errors.BrokenDataFile, "odd.parquet", read=True)


def test_an_unknown_reader_feature_is_named(log: Log) -> None:
    protocol = {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["timeMachine"],
            "writerFeatures": ["timeMachine"],
        }
    }
    log.commit(0, protocol, METADATA)
    refused(log, errors.UnsupportedFeature, "timeMachine")


def test_an_unknown_writer_feature_forbids_writing_only(log: Log) -> None:
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["timeMachine"]}}
    log.commit(0, protocol, METADATA)
    table = Table(log.folder)
    assert table.to_arrow().num_rows == 0
    with pytest.raises(errors.UnsupportedFeature, match="timeMachine"):
        table.write(pa.table({"id": [1]}))
    assert table.version() == 0


@pytest.mark.parametrize(
    ("schema", "error"),
    [
        ('{"type": "struct"', errors.InvalidMetadata),
        ('{"type": "array"}', errors.InvalidMetadata),
        (json.dumps(SCHEMA).replace("long", "interval day to second"), errors.UnsupportedType),
        (json.dumps(SCHEMA).replace("long", "quaternion"), errors.UnsupportedType),
    ],
)
def test_a_schema_that_cannot_be_understood_is_refused_by_name(log: Log, schema: str, error: type) -> None:
    metadata = {"metaData": {**METADATA["metaData"], "schemaString": schema}}
    log.commit(0, PROTOCOL, metadata)
    refused(log, error, read=True)


def test_a_table_whose_checksum_does_not_fit_its_log_is_read_and_written_with_a_warning(log: Log) -> None:
    table = Table(log.folder)
    table.write(pa.table({"id": [1, 2]}))
    log.write(f"{0:020d}.crc", json.dumps({"tableSizeBytes": 1, "numFiles": 2, "numMetadata": 1, "numProtocol": 1}))
    with pytest.warns(ChecksumWarning, match=r"number of files is 1 in the log and 2.*00000\.crc"):
        assert Table(log.folder).to_arrow()["id"].to_pylist() == [1, 2]
    Table(log.folder).write(pa.table({"id": [3]}))
    assert sorted(Table(log.folder).to_arrow()["id"].to_pylist()) == [1, 2, 3]


def test_a_table_whose_checksum_does_not_fit_its_log_is_refused_by_a_reader_that_insists(log: Log) -> None:
    Table(log.folder).write(pa.table({"id": [1, 2]}))
    log.write(f"{0:020d}.crc", json.dumps({"tableSizeBytes": 1, "numFiles": 2, "numMetadata": 1, "numProtocol": 1}))
    with pytest.raises(errors.ChecksumMismatch, match="number of files"):
        Table(log.folder, trust=Trust(insist_on_checksums=True)).to_arrow()


def test_a_checksum_file_of_garbage_proves_nothing(log: Log) -> None:
    log.commit(0, PROTOCOL, METADATA).write(f"{0:020d}.crc", b"\xff\x00 garbage")
    assert Table(log.folder).version() == 0


@pytest.mark.parametrize(
    "hint",
    [b"", b"{", b'{"version": 1', b'{"version": 99, "size": 1}', b'{"version":0,"size":1,"checksum":"0"}', b"\xff"],
)
def test_a_pointer_to_the_last_checkpoint_is_only_a_hint(log: Log, hint: bytes) -> None:
    log.commit(0, PROTOCOL, METADATA).commit(1, add("a.parquet")).write("_last_checkpoint", hint)
    assert Table(log.folder).version() == 1


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (lambda t: t.snapshot(7), errors.VersionNotFound),
        (lambda t: t.snapshot(-1), errors.VersionNotFound),
        (lambda t: t.snapshot(timestamp="1970-01-01"), errors.VersionNotFound),
        (lambda t: t.snapshot(timestamp="yesterday"), errors.InvalidArgument),
        (lambda t: t.snapshot(version=0, timestamp="2024-01-01"), errors.InvalidArgument),
        (lambda t: t.to_arrow(columns=["nope"]), errors.InvalidArgument),
        (lambda t: t.to_arrow(where="nope = 1"), errors.InvalidExpression),
        (lambda t: t.to_arrow(where="id ="), errors.InvalidExpression),
        (lambda t: t.changes(0), errors.InvalidArgument),
    ],
)
def test_a_wrong_question_is_the_callers_error(
    log: Log, ask: Callable[[Table], Any], error: type[LakesealError]
) -> None:
    log.commit(0, PROTOCOL, METADATA)
    with pytest.raises(error):
        ask(Table(log.folder))


def test_a_deletion_vector_with_a_wrong_checksum_is_refused(shared_tables: Path, tmp_path: Path) -> None:
    folder = tmp_path / "table"
    shutil.copytree(shared_tables / "golden" / "dv-with-columnmapping" / "delta", folder)
    vectors = sorted(folder.rglob("deletion_vector_*.bin"))
    assert vectors
    for file in vectors:
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.chmod(0o644)
        file.write_bytes(content)
    with pytest.raises(errors.BrokenDeletionVector) as raised:
        Table(folder).to_arrow()
    assert raised.value.table
    assert raised.value.file
    assert raised.value.hint
