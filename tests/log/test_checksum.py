from __future__ import annotations

import uuid
from typing import Any

import msgspec
import pytest

from lakeseal.errors import ChecksumMismatch
from lakeseal.log.checksum import ChecksumWarning, VersionChecksum, verify, write_checksum
from lakeseal.log.delta_log import DeltaLog
from lakeseal.protocol.actions import Action, AddFile, CommitInfo, Metadata, Protocol, RemoveFile
from lakeseal.protocol.paths import checksum_path
from lakeseal.storage import Store, open_store
from lakeseal.trust import Trust
from models.histories import schema, write_history

PROTOCOL = Protocol(
    min_reader_version=1, min_writer_version=7, writer_features=("appendOnly", "inCommitTimestamp", "domainMetadata")
)
METADATA = Metadata(
    id="m", schema_string=schema().to_json(), configuration={"delta.enableInCommitTimestamps": "true"}, created_time=5
)


def add(path: str, size: int) -> AddFile:
    return AddFile(path=path, partition_values={}, size=size, modification_time=1, data_change=True)


@pytest.fixture
def store() -> Store:
    return open_store(f"memory://{uuid.uuid4().hex}/table")


@pytest.fixture
def log(store: Store) -> DeltaLog:
    history: list[list[Action]] = [
        [CommitInfo(in_commit_timestamp=7), PROTOCOL, METADATA, add("f", 10), add("g", 20)],
        [CommitInfo(in_commit_timestamp=8, txn_id="t"), RemoveFile(path="f", data_change=True), add("h", 300)],
    ]
    write_history(store, history)
    return DeltaLog(store)


def test_it_sums_up_the_version(log: DeltaLog) -> None:
    assert write_checksum(log, log.snapshot())
    said = msgspec.json.decode(log.store.get(checksum_path(1)))
    assert said == {
        "tableSizeBytes": 320,
        "numFiles": 2,
        "numMetadata": 1,
        "numProtocol": 1,
        "metadata": METADATA.to_json(),
        "protocol": PROTOCOL.to_json(),
        "txnId": "t",
        "inCommitTimestampOpt": 8,
    }


def test_it_is_never_overwritten(log: DeltaLog) -> None:
    log.store.put(checksum_path(1), b"first")
    assert not write_checksum(log, DeltaLog(log.store).snapshot())
    assert log.store.get(checksum_path(1)) == b"first"


def test_a_version_that_fits_its_checksum_is_read(log: DeltaLog) -> None:
    write_checksum(log, log.snapshot())
    assert DeltaLog(log.store).snapshot().files.num_rows == 2


def stated(log: DeltaLog, **changes: Any) -> bytes:
    return msgspec.json.encode({**msgspec.json.decode(VersionChecksum.of(log.snapshot()).to_bytes()), **changes})


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"numFiles": 3}, "the number of files is 2 in the log and 3 in the checksum"),
        ({"tableSizeBytes": 1}, "the size in bytes is 320 in the log and 1"),
        ({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, "the protocol differs"),
        ({"metadata": {**METADATA.to_json(), "id": "other"}}, "the metadata differs"),
    ],
)
def test_the_log_is_read_past_one_that_says_something_else_with_one_warning(
    log: DeltaLog, changes: dict[str, Any], difference: str
) -> None:
    log.store.put(checksum_path(1), stated(log, **changes))
    with pytest.warns(ChecksumWarning, match=difference) as told:
        snapshot = DeltaLog(log.store).snapshot()
    assert snapshot.files["path"].to_pylist() == ["g", "h"]
    assert len(told) == 1
    assert DeltaLog(log.store).snapshot().version == 1  # told once: warnings are errors in tests


@pytest.mark.parametrize("by_environment", [False, True])
def test_one_that_says_something_else_than_the_log_stops_a_reader_that_insists(
    log: DeltaLog, by_environment: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.store.put(checksum_path(1), stated(log, numFiles=3))
    if by_environment:
        monkeypatch.setenv("LAKESEAL_INSIST_ON_CHECKSUMS", "1")
    insisting = DeltaLog(log.store, trust=None if by_environment else Trust(insist_on_checksums=True))
    with pytest.raises(ChecksumMismatch, match="2 in the log and 3") as caught:
        insisting.snapshot()
    assert (caught.value.version, caught.value.file) == (1, checksum_path(1))


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol": {**PROTOCOL.to_json(), "writerFeatures": ["domainMetadata", "inCommitTimestamp", "appendOnly"]}},
        {"metadata": {**METADATA.to_json(), "createdTime": 9, "name": "renamed"}},
        {"protocol": {"minReaderVersion": "one"}},
        {"metadata": {"id": 7}},
        {"protocol": None, "metadata": None},
        {"allFiles": [], "histogramOpt": {}},
    ],
)
def test_what_makes_no_difference_is_no_mismatch(log: DeltaLog, changes: dict[str, Any]) -> None:
    verify(log.snapshot(), stated(log, **changes))


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b'{"numFiles":3}', b"\xff", b'{"numFiles":"3"}'])
def test_one_that_proves_nothing_is_ignored(log: DeltaLog, data: bytes) -> None:
    log.store.put(checksum_path(1), data)
    assert DeltaLog(log.store).snapshot().version == 1
