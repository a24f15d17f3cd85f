"""Which version a moment saw: the same for ever, whoever owns the table and whatever it keeps."""

from __future__ import annotations

import datetime as dt
import time
import uuid
from pathlib import Path

import pyarrow as pa
import pytest

import lakeseal
from lakeseal import Table
from lakeseal.errors import VersionNotFound
from lakeseal.log.timestamps import to_ms

OFF = {"delta.enableInCommitTimestamps": "false"}
ON = {"delta.enableInCommitTimestamps": "true"}


def rows(*x: int) -> pa.Table:
    return pa.table({"x": pa.array(x, pa.int64())})


@pytest.fixture(params=["memory", "local"])
def managed(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    """Six versions, none of which is in the log under its own name before the release."""
    uri = f"memory://{uuid.uuid4().hex}/t" if request.param == "memory" else str(tmp_path / "t")
    owner = lakeseal.owner.config.OwnerConfig(url=f"sqlite:///{tmp_path}/ledger.db", batch_size=100)
    table = lakeseal.create(uri, rows().schema, owner=owner)
    for number in range(5):
        time.sleep(0.02)
        table.write(rows(number))
    time.sleep(0.05)
    return table


def moments(table: Table) -> dict[int, int]:
    return {entry["version"]: to_ms(dt.datetime.fromisoformat(entry["timestamp"])) for entry in table.history()}


def check_times(table: Table, told: dict[int, int]) -> None:
    for version, moment in told.items():
        assert table.snapshot(timestamp=moment).version == version
        if version:
            assert table.snapshot(timestamp=moment - 1).version == version - 1
            assert table.to_arrow(timestamp=moment - 1).num_rows == version - 1
    with pytest.raises(VersionNotFound):
        table.snapshot(timestamp=min(told.values()) - 1)


def test_a_moment_sees_the_same_version_after_release_and_without_in_commit_timestamps(managed: Table) -> None:
    told = moments(managed)
    check_times(managed, told)
    managed.release()
    released = Table(managed.uri)
    check_times(released, told)
    released.set_properties(OFF)
    released.write(rows(9))
    check_times(released, told)
    newest = moments(released)
    assert sorted(newest.values()) == [newest[version] for version in sorted(newest)]
    assert {version: newest[version] for version in told} == told
    for version in (6, 7, 8):
        assert released.snapshot(timestamp=newest[version]).version == version
        assert released.snapshot(timestamp=newest[version] - 1).version == version - 1


def test_a_moment_sees_the_same_version_when_they_are_switched_on_again(managed: Table) -> None:
    told = moments(managed)
    managed.release()
    table = Table(managed.uri)
    table.set_properties(OFF)
    table.write(rows(9))
    time.sleep(0.02)
    off = moments(table)
    table.set_properties(ON)
    table.write(rows(10))
    check_times(table, told)
    for version in (7, 8):
        assert table.snapshot(timestamp=off[version]).version == version


def test_a_moment_sees_the_same_version_when_an_owner_comes_back(managed: Table, tmp_path: Path) -> None:
    told = moments(managed)
    managed.release()
    table = Table(managed.uri)
    table.set_properties(OFF)
    time.sleep(0.02)
    table.take_over(f"sqlite:///{tmp_path}/other.db")
    table.write(rows(10))
    check_times(table, told)


def test_changes_since_a_moment_are_the_same_without_in_commit_timestamps(tmp_path: Path) -> None:
    feed = {"delta.enableChangeDataFeed": "true"}
    uri = f"memory://{uuid.uuid4().hex}/t"
    table = lakeseal.create(uri, rows().schema, properties=feed, owner=f"sqlite:///{tmp_path}/ledger.db")
    for number in range(3):
        time.sleep(0.02)
        table.write(rows(number))
    told = moments(table)
    since = dt.datetime.fromtimestamp(told[2] / 1000, dt.UTC)
    before = table.changes(since).to_pylist()
    table.release()
    table.set_properties(OFF)
    assert table.changes(since).to_pylist() == before
