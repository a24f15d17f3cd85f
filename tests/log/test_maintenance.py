from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.maintenance import checkpoint_is_due, maintain
from lakeseal.protocol.actions import Action, AddFile, Metadata, Protocol
from lakeseal.protocol.paths import LAST_CHECKPOINT, checkpoint_path, checksum_path, commit_path
from lakeseal.storage import open_store
from lakeseal.testing.faults import FaultyStore
from models.histories import schema, write_history

NOW = 1_800_000_000_000
DAY = 86_400_000


def history(commits: int, interval: int = 3) -> list[list[Action]]:
    protocol = Protocol(min_reader_version=1, min_writer_version=2)
    metadata = Metadata(
        id="m", schema_string=schema().to_json(), configuration={"delta.checkpointInterval": str(interval)}
    )
    adds = [
        AddFile(path=f"f{n}", partition_values={}, size=n, modification_time=n, data_change=True)
        for n in range(commits)
    ]
    made: list[list[Action]] = [[add] for add in adds]
    return [[protocol, metadata, *made[0]], *made[1:]]


def test_every_version_gets_a_checksum_and_every_third_a_checkpoint(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = DeltaLog(store)
    for version, actions in enumerate(history(7)):
        write_history(store, [actions], start=version)
        report = maintain(log, log.snapshot(), now_ms=int(time.time() * 1000))
        assert report.checksum_written
        assert (report.checkpoint is not None) == (version in (3, 6))
        assert (report.cleanup is not None) == (version in (3, 6))
    names = set(store.list_keys("_delta_log/"))
    assert names == {
        *(commit_path(version) for version in range(7)),
        *(checksum_path(version) for version in range(7)),
        checkpoint_path(3),
        checkpoint_path(6),
        LAST_CHECKPOINT,
    }


def test_a_clean_up_follows_a_checkpoint(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    write_history(store, history(7))
    for version in range(7):
        os.utime(tmp_path / commit_path(version), ((NOW - 90 * DAY) / 1000 + version,) * 2)
    log = DeltaLog(store)
    report = maintain(log, log.snapshot(), now_ms=NOW)
    assert report.cleanup is not None
    assert report.cleanup.oldest_version == 6
    assert DeltaLog(store).snapshot().files.num_rows == 7


def test_between_checkpoints_it_costs_one_write_and_no_reading(tmp_path: Path) -> None:
    recording = FaultyStore(open_store(tmp_path))
    write_history(recording, history(5))
    log = DeltaLog(recording)
    snapshot = log.snapshot()
    recording.calls.clear()
    maintain(log, snapshot, now_ms=NOW)
    assert [(call.name, call.keys) for call in recording.calls] == [("put_if_absent", (checksum_path(4),))]


@pytest.mark.parametrize(("version", "due"), [(0, False), (1, False), (3, True), (4, False), (6, True)])
def test_when_a_checkpoint_is_due(tmp_path: Path, version: int, due: bool) -> None:
    store = open_store(tmp_path)
    write_history(store, history(version + 1))
    assert checkpoint_is_due(DeltaLog(store).snapshot()) is due


def test_doing_it_twice_changes_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    write_history(store, history(4))
    log = DeltaLog(store)
    maintain(log, log.snapshot(), now_ms=NOW)
    before = {key: store.get(key) for key in store.list_keys("_delta_log/")}
    assert not maintain(log, log.snapshot(), now_ms=NOW).checksum_written
    assert {key: store.get(key) for key in store.list_keys("_delta_log/")} == before
