"""F5: reading a version equals replaying the log up to it, whatever lies beside the commits, whole or broken."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeseal.errors import CorruptTable, LakesealError, VersionNotFound
from lakeseal.log.checkpoint_rows import CheckpointRows, other_rows
from lakeseal.log.checkpoint_writer import write_checkpoint
from lakeseal.log.compaction import compact
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.last_checkpoint import LastCheckpoint
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol.paths import LAST_CHECKPOINT, LOG_DIR, SIDECARS_DIR, commit_path, parse
from lakeseal.storage import Store, open_store
from models.histories import START_MS, Commits, histories, write_history
from models.reference import described, replayed, without_removes
from support.examples import examples

CLASSIC = {"delta.checkpointPolicy": "classic"}
V2 = {"delta.checkpointPolicy": "v2"}
STATS = [
    {},
    {"delta.checkpoint.writeStatsAsJson": "false"},
    {"delta.checkpoint.writeStatsAsStruct": "false"},
]

Place = Callable[[Store, int, int], None]
"""Puts something into a log, at one or between two of its versions."""


def memory() -> Store:
    return open_store(f"memory://{uuid.uuid4().hex}/table")


def checkpoint(store: Store, version: int, other: int) -> None:
    write_checkpoint(
        DeltaLog(store),
        version,
        now_ms=START_MS,
        sidecar_rows=1 + other % 5,
        v2_format="json" if other % 2 else "parquet",
    )


def multi_part(store: Store, version: int, other: int) -> None:
    """As older clients wrote it; nobody writes them any more."""
    log = DeltaLog(store)
    rows = CheckpointRows(Snapshot.of(log.table, log.state(version, with_removes=True)), now_ms=START_MS)
    others = other_rows(rows.others, ("txn", "metaData", "protocol", "domainMetadata"))
    files = pa.Table.from_batches(rows.file_batches(), rows.files_schema)
    whole = pa.concat_tables([others, files], promote_options="default")
    count = 1 + other % 4
    for part in range(count):
        content = io.BytesIO()
        pq.write_table(whole.take(pa.array(range(part, whole.num_rows, count), pa.int64())), content)
        store.put(f"{LOG_DIR}{version:020d}.checkpoint.{part + 1:010d}.{count:010d}.parquet", content.getvalue())


def compaction(store: Store, version: int, other: int) -> None:
    if version != other:
        compact(DeltaLog(store), min(version, other), max(version, other))


def truncated(store: Store, version: int, other: int) -> None:
    for key in checkpoints(store, version):
        data = store.get(key)
        store.put(key, data[: len(data) * (other % 4) // 4])


def missing(store: Store, version: int, other: int) -> None:
    """Of the files that checkpoints are made of, one is gone: a part, a sidecar, or the whole."""
    found = sorted([*checkpoints(store, version), *store.list_keys(SIDECARS_DIR)])
    if found:
        store.delete([found[other % len(found)]])


def garbage_compaction(store: Store, version: int, other: int) -> None:
    if version != other:
        first, last = sorted((version, other))
        content = [b"", b'{"add":{"path":', b"\x00\xff", b'{"remove":{"path":"x"}}\n'][other % 4]
        store.put(f"{LOG_DIR}{first:020d}.{last:020d}.compacted.json", content)


def pointer(store: Store, version: int, other: int) -> None:
    whole = LastCheckpoint(version=version, size=7).to_bytes()
    store.put(
        LAST_CHECKPOINT,
        [whole, b"", whole[: len(whole) // 2], whole.replace(b'"size":7', b'"size":8'), b"null", b'{"version":-1}'][
            other % 6
        ],
    )


def checkpoints(store: Store, version: int) -> list[str]:
    files = [file for name in store.list_keys(LOG_DIR) if (file := parse(name))]
    return [file.key for file in files if file.is_checkpoint and file.version == version]


GOOD: list[Place] = [checkpoint, checkpoint, multi_part, compaction]
BAD: list[Place] = [truncated, missing, garbage_compaction, pointer]

places = st.lists(st.tuples(st.sampled_from([*GOOD, *BAD]), st.integers(0, 50), st.integers(0, 50)), max_size=10)


def assert_every_version_reads_as_replayed(store: Store, commits: Commits) -> None:
    for version in range(len(commits)):
        expected = replayed(commits[: version + 1])
        assert described(DeltaLog(store).snapshot(version).state) == without_removes(expected), f"version {version}"
        assert described(DeltaLog(store).state(version, with_removes=True)) == expected, f"version {version}"
    assert DeltaLog(store).snapshot().version == len(commits) - 1


@examples(12, 200)
@given(st.data(), st.sampled_from([CLASSIC, V2]), st.sampled_from(STATS), places)
def test_every_version_reads_as_replayed_whatever_lies_beside_the_commits(
    data: st.DataObject, policy: dict[str, str], stats: dict[str, str], beside: list[tuple[Place, int, int]]
) -> None:
    commits = data.draw(histories(configuration={**policy, **stats}))
    store = memory()
    write_history(store, commits)
    for place, version, other in beside:
        place(store, version % len(commits), other % len(commits))
    assert_every_version_reads_as_replayed(store, commits)


@examples(15, 200)
@given(histories(), st.data())
def test_a_log_that_stays_open_reads_as_one_that_is_opened_anew(commits: Commits, data: st.DataObject) -> None:
    store = memory()
    log = DeltaLog(store)
    at = 0
    while at < len(commits):
        more = data.draw(st.integers(1, 5))
        write_history(store, commits[at : at + more], start=at)
        at = min(at + more, len(commits))
        if data.draw(st.booleans()):
            write_checkpoint(log, at - 1, now_ms=START_MS)
        assert described(log.snapshot().state) == without_removes(replayed(commits[:at]))


@examples(15, 200)
@given(st.data(), st.sampled_from([CLASSIC, V2]), st.sampled_from(STATS), st.integers(0, 30), st.integers(0, 30))
def test_without_the_older_commits_versions_from_the_checkpoint_on_are_equal_and_the_others_refused(
    data: st.DataObject, policy: dict[str, str], stats: dict[str, str], version: int, other: int
) -> None:
    commits = data.draw(histories(configuration={**policy, **stats}))
    store, version = memory(), version % len(commits)
    write_history(store, commits)
    checkpoint(store, version, other)
    store.delete(commit_path(v) for v in range(version))
    for at in range(len(commits)):
        if at >= version:
            assert described(DeltaLog(store).state(at, with_removes=True)) == replayed(commits[: at + 1])
        else:
            with pytest.raises(VersionNotFound, match="cleaned up"):
                DeltaLog(store).snapshot(at)


@examples(20, 200)
@given(st.data(), st.sampled_from([CLASSIC, V2]), st.sampled_from(BAD), st.integers(0, 30), st.integers(0, 30))
def test_with_nothing_else_to_read_a_broken_checkpoint_is_a_typed_error_or_still_the_answer(
    data: st.DataObject, policy: dict[str, str], damage: Place, version: int, other: int
) -> None:
    commits = data.draw(histories(configuration=policy))
    store, version = memory(), version % len(commits)
    write_history(store, commits)
    checkpoint(store, version, other)
    store.delete(commit_path(v) for v in range(version))
    damage(store, version, other)
    for at in range(version, len(commits)):
        try:
            state = DeltaLog(store).snapshot(at).state
        except LakesealError as error:
            assert isinstance(error, CorruptTable | VersionNotFound), repr(error)
            assert error.table == store.uri
            assert error.hint
        else:
            assert described(state) == without_removes(replayed(commits[: at + 1]))
