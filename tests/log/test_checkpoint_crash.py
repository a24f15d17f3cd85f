"""Stopped between any two writes, a checkpoint or a clean-up leaves a log that reads as before."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakeseal.errors import StorageUnavailable, VersionNotFound
from lakeseal.log.checkpoint_writer import write_checkpoint
from lakeseal.log.cleanup import clean_up_expired_logs
from lakeseal.log.delta_log import DeltaLog
from lakeseal.protocol.actions import Action, AddFile, Metadata, Protocol, RemoveFile
from lakeseal.protocol.paths import LAST_CHECKPOINT, commit_path
from lakeseal.storage import Store, open_store
from lakeseal.testing.faults import CRASHED, Fault, FaultyStore, How
from models.histories import START_MS, Commits, schema, write_history
from models.reference import described, replayed, without_removes

FAR = 4_000_000_000_000
"""In the year 2096: by then everything that is written now has expired."""

ANY_WRITE = "[pcd]*"  # put, put_if_absent, close of a stream, delete


def add(n: int) -> Action:
    return AddFile(
        path=f"f{n}",
        partition_values={},
        size=n + 1,
        modification_time=START_MS,
        data_change=True,
        stats=f'{{"numRecords":{n}}}',
    )


def remove(n: int) -> Action:
    return RemoveFile(path=f"f{n}", data_change=True, deletion_timestamp=FAR)


def history(policy: str, commits: int = 12) -> Commits:
    names = ("v2Checkpoint",)
    protocol = Protocol(min_reader_version=3, min_writer_version=7, reader_features=names, writer_features=names)
    metadata = Metadata(id="m", schema_string=schema().to_json(), configuration={"delta.checkpointPolicy": policy})
    return [
        [protocol, metadata, add(0)],
        *([remove(v // 2), add(v)] if v % 3 == 0 else [add(v)] for v in range(1, commits)),
    ]


def stopped(how: How, prepare: Callable[[], Store], act: Callable[[Store], object]) -> Iterator[Store]:
    """The store after `act` was stopped at its first write, at its second, and so on; at last, not stopped."""
    for nth in range(1, 100):
        store = prepare()
        try:
            act(FaultyStore(store, [Fault(ANY_WRITE, nth=nth, how=how)]))
        except StorageUnavailable:
            yield store
        else:
            assert nth > 2, "too little was written to show anything"
            yield store
            return
    raise AssertionError("it never ended")


def assert_reads(store: Store, commits: Commits, since: int = 0) -> None:
    assert DeltaLog(store).snapshot().version == len(commits) - 1
    for version in range(len(commits)):
        try:
            state = DeltaLog(store).snapshot(version).state
        except VersionNotFound as error:
            assert version < since, error
        else:
            assert described(state) == without_removes(replayed(commits[: version + 1]))


@pytest.mark.parametrize("how", [How.FAIL, How.LOSE_REPLY])
@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_field_bug_20_a_checkpoint_that_was_stopped_anywhere_changes_nothing(policy: str, how: How) -> None:
    commits = history(policy)

    def prepare() -> Store:
        store = open_store(f"memory://{uuid.uuid4().hex}/table")
        write_history(store, commits)
        write_checkpoint(DeltaLog(store), 4, now_ms=START_MS, sidecar_rows=3)
        return store

    def act(store: Store) -> None:
        write_checkpoint(DeltaLog(store), 10, now_ms=START_MS, sidecar_rows=3)

    for store in stopped(how, prepare, act):
        assert_reads(store, commits)
        info = write_checkpoint(DeltaLog(store), 11, now_ms=START_MS, sidecar_rows=3)
        assert info.pointer_moved
        store.delete(commit_path(version) for version in range(11))
        assert described(DeltaLog(store).snapshot().state) == without_removes(replayed(commits))


@pytest.mark.parametrize("how", [How.FAIL, How.LOSE_REPLY])
@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_field_bug_23_a_clean_up_that_was_stopped_anywhere_leaves_what_it_should_and_can_go_on(
    policy: str, how: How
) -> None:
    commits = history(policy)

    def prepare() -> Store:
        store = open_store(f"memory://{uuid.uuid4().hex}/table")
        write_history(store, commits)
        for version in (3, 6, 9):
            write_checkpoint(DeltaLog(store), version, now_ms=START_MS, sidecar_rows=3)
        return store

    def act(store: Store) -> None:
        assert clean_up_expired_logs(DeltaLog(store), now_ms=FAR).oldest_version == 9

    for store in stopped(how, prepare, act):
        assert_reads(store, commits, since=9)
        clean_up_expired_logs(DeltaLog(store), now_ms=FAR)
        assert_reads(store, commits, since=9)
        for version in range(9):
            with pytest.raises(VersionNotFound, match="cleaned up"):
                DeltaLog(store).snapshot(version)


KILLED = """
import sys
from lakeseal.log.checkpoint_writer import write_checkpoint
from lakeseal.log.delta_log import DeltaLog
from lakeseal.storage import open_store
from lakeseal.testing.faults import Fault, FaultyStore, How
uri, how, nth = sys.argv[1:]
store = FaultyStore(open_store(uri), [Fault("[pcd]*", nth=int(nth), how=How[how])])
write_checkpoint(DeltaLog(store), 10, now_ms=0, sidecar_rows=8)
"""


@pytest.mark.parametrize(("how", "nth"), [("CRASH_BEFORE", 1), ("CRASH_AFTER", 1), ("CRASH_BEFORE", 4)])
def test_field_bug_20_a_process_that_is_killed_while_it_writes_a_checkpoint_changes_nothing(
    tmp_path: Path, how: str, nth: int
) -> None:
    commits = history("v2")
    write_history(open_store(tmp_path), commits)
    ended = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), how, str(nth)], check=False)
    assert ended.returncode == CRASHED
    assert not (tmp_path / LAST_CHECKPOINT).exists()
    assert_reads(open_store(tmp_path), commits)
