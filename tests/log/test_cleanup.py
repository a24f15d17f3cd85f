from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeseal.errors import UnsupportedFeature, VersionNotFound
from lakeseal.log.checkpoint_writer import write_checkpoint
from lakeseal.log.cleanup import CleanupReport, clean_up_expired_logs, plan
from lakeseal.log.compaction import compact
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.segment import choose, sort_out
from lakeseal.protocol.actions import Action, AddFile, CommitInfo, Metadata, Protocol
from lakeseal.protocol.paths import (
    LOG_DIR,
    SIDECARS_DIR,
    checkpoint_path,
    checksum_path,
    commit_path,
    compacted_path,
    parse,
)
from lakeseal.storage import Store, open_store
from lakeseal.testing.faults import FaultyStore
from models.histories import schema, write_history
from support.examples import examples

DAY = 86_400_000
HOUR = 3_600_000
MIDNIGHT = int(datetime(2024, 6, 15, tzinfo=UTC).timestamp() * 1000)
NOW = MIDNIGHT + 30 * DAY + 10 * HOUR
"""The cut of a table with the default retention of 30 days is then MIDNIGHT."""

FEATURES = ("v2Checkpoint",)


def history(
    commits: int, configuration: Mapping[str, str] = {}, info: Mapping[int, CommitInfo] = {}
) -> list[list[Action]]:
    protocol = Protocol(min_reader_version=3, min_writer_version=7, reader_features=FEATURES, writer_features=FEATURES)
    metadata = Metadata(id="m", schema_string=schema().to_json(), configuration=dict(configuration))
    adds = [
        AddFile(path=f"f{n}", partition_values={}, size=1, modification_time=n, data_change=True)
        for n in range(commits)
    ]
    made: list[list[Action]] = [[add] for add in adds]
    made[0] = [protocol, metadata, adds[0]]
    return [[info[n], *actions] if n in info else actions for n, actions in enumerate(made)]


def age(path: Path, key: str, ms: int) -> None:
    os.utime(path / key, (ms / 1000, ms / 1000))


def table(path: Path, times: Mapping[int, int], checkpoints: tuple[int, ...] = (), **more: object) -> Store:
    """A table whose version n was committed at `times[n]`."""
    store = open_store(path)
    write_history(store, history(len(times), **more))  # type: ignore[arg-type]
    for version in checkpoints:
        write_checkpoint(DeltaLog(store), version, now_ms=times[version], sidecar_rows=2)
    for version, ms in times.items():
        age(path, commit_path(version), ms)
    return store


def days_before(commits: int, last: int = MIDNIGHT - HOUR) -> dict[int, int]:
    """Versions a day apart, the last one an hour before the cut."""
    return {version: last - (commits - 1 - version) * DAY for version in range(commits)}


def clean_up(store: Store, **options: bool) -> CleanupReport:
    return clean_up_expired_logs(DeltaLog(store), now_ms=NOW, **options)


def left(store: Store) -> set[str]:
    return {name.removeprefix(LOG_DIR) for name in store.list_keys(LOG_DIR)} - {"_last_checkpoint"}


def names(*keys: str) -> set[str]:
    return {key.removeprefix(LOG_DIR) for key in keys}


def commits(first: int, last: int) -> list[str]:
    return [commit_path(version) for version in range(first, last + 1)]


def readable(store: Store, latest: int) -> list[int]:
    found = []
    for version in range(latest + 1):
        try:
            assert DeltaLog(store).snapshot(version).files.num_rows == version + 1
            found.append(version)
        except VersionNotFound:
            continue
    return found


class TestWhatStays:
    def test_the_newest_checkpoint_before_the_cut_with_its_commit_and_everything_above(self, tmp_path: Path) -> None:
        store = table(tmp_path, days_before(12), checkpoints=(2, 5, 8))
        report = clean_up(store)
        assert report.oldest_version == 8
        assert report.cut_ms == MIDNIGHT
        assert left(store) == names(checkpoint_path(8), *commits(8, 11))
        assert set(report.deleted) == {checkpoint_path(2), checkpoint_path(5), *commits(0, 7)}
        assert readable(store, 11) == [8, 9, 10, 11]

    def test_versions_since_the_cut_can_all_be_read(self, tmp_path: Path) -> None:
        times = {version: MIDNIGHT - 5 * DAY + version * DAY for version in range(12)}  # version 5 is at the cut
        store = table(tmp_path, times, checkpoints=(3, 6, 9))
        assert clean_up(store).oldest_version == 3
        assert readable(store, 11) == list(range(3, 12))

    def test_the_cut_is_at_midnight_not_at_the_hour(self, tmp_path: Path) -> None:
        expired = NOW - 30 * DAY - HOUR  # an hour too old, but of the day of the cut
        store = table(tmp_path, dict.fromkeys(range(6), expired), checkpoints=(3,))
        assert clean_up(store) == CleanupReport(cut_ms=MIDNIGHT)
        assert readable(store, 5) == list(range(6))

    def test_a_checkpoint_of_a_version_at_the_cut_is_not_the_one_that_stays_alone(self, tmp_path: Path) -> None:
        times = {0: MIDNIGHT - DAY, 1: MIDNIGHT - 1, 2: MIDNIGHT, 3: MIDNIGHT + DAY}
        store = table(tmp_path, times, checkpoints=(1, 2))
        assert clean_up(store).oldest_version == 1
        assert readable(store, 3) == [1, 2, 3]

    def test_nothing_goes_without_a_checkpoint(self, tmp_path: Path) -> None:
        store = table(tmp_path, days_before(4))
        assert clean_up(store) == CleanupReport(cut_ms=MIDNIGHT)
        assert readable(store, 3) == [0, 1, 2, 3]

    def test_field_bug_23_a_broken_checkpoint_is_not_relied_on(self, tmp_path: Path) -> None:
        store = table(tmp_path, days_before(12), checkpoints=(2, 5, 8))
        data = store.get(checkpoint_path(8))
        store.put(checkpoint_path(8), data[: len(data) // 2])
        assert clean_up(store).oldest_version == 5
        assert readable(store, 11) == list(range(5, 12))

    def test_field_bug_23_the_newest_checkpoint_stays_however_old_it_is(self, tmp_path: Path) -> None:
        store = table(tmp_path, days_before(4, last=MIDNIGHT - 400 * DAY), checkpoints=(3,))
        clean_up(store)
        assert left(store) == names(checkpoint_path(3), commit_path(3))
        assert clean_up(store).deleted == ()
        assert readable(store, 3) == [3]

    def test_a_checkpoint_whose_commit_is_not_in_the_log_is_not_relied_on(self, tmp_path: Path) -> None:
        store = table(tmp_path, days_before(8), checkpoints=(3, 6))
        store.delete([commit_path(6)])
        assert clean_up(store).oldest_version == 3
        assert readable(store, 7) == [3, 4, 5, 6, 7]

    def test_files_of_others_are_not_touched(self, tmp_path: Path) -> None:
        store = table(tmp_path, days_before(6), checkpoints=(5,))
        others = {
            f"{LOG_DIR}00000000000000000001.json.tmp",
            f"{LOG_DIR}_commits/00000000000000000001.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json",
            f"{LOG_DIR}_staged_commits/00000000000000000001.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json",
            f"{LOG_DIR}notes.txt",
            "f0",
        }
        for key in others:
            store.put(key, b"x")
            age(tmp_path, key, MIDNIGHT - 100 * DAY)
        assert not others & set(clean_up(store).deleted)
        assert all(store.get(key) == b"x" for key in others)

    def test_checksums_and_compactions_below_go_and_one_that_reaches_above_stays(self, tmp_path: Path) -> None:
        store = table(tmp_path, days_before(10), checkpoints=(6,))
        for version in (1, 6, 9):
            store.put(checksum_path(version), b"{}")
        for first, last in ((0, 3), (2, 5), (4, 8)):
            compact(DeltaLog(store), first, last)
        clean_up(store)
        assert left(store) == names(
            checkpoint_path(6), *commits(6, 9), checksum_path(6), checksum_path(9), compacted_path(4, 8)
        )
        assert readable(store, 9) == [6, 7, 8, 9]

    def test_parts_of_an_unfinished_checkpoint_go_with_their_version(self, tmp_path: Path) -> None:
        store = table(tmp_path, days_before(8), checkpoints=(5,))
        below, above = (f"{LOG_DIR}{v:020d}.checkpoint.0000000001.0000000002.parquet" for v in (3, 6))
        store.put(below, b"x")
        store.put(above, b"x")
        assert below in clean_up(store).deleted
        assert above.removeprefix(LOG_DIR) in left(store)

    def test_a_dry_run_says_what_would_go_and_deletes_nothing(self, tmp_path: Path) -> None:
        store = table(tmp_path, days_before(12), checkpoints=(2, 8))
        before = left(store)
        report = clean_up(store, dry_run=True)
        assert left(store) == before
        assert report.dry_run
        assert set(clean_up(store).deleted) == set(report.deleted)


def test_on_most_days_there_is_nothing_to_do_and_that_is_found_out_cheaply(tmp_path: Path) -> None:
    store = table(tmp_path, days_before(40, last=NOW), checkpoints=(5, 15, 25, 35))
    assert clean_up(store).oldest_version == 5
    recording = FaultyStore(store)
    log = DeltaLog(recording)
    log.snapshot()
    recording.calls.clear()
    assert clean_up_expired_logs(log, now_ms=NOW).deleted == ()
    upkeep = [call.name for call in recording.calls if call.keys not in ((commit_path(39),), (commit_path(40),))]
    assert upkeep == ["get", "list_keys", "head"]


class TestTimes:
    def test_a_file_time_that_goes_back_counts_as_after_the_one_before(self, tmp_path: Path) -> None:
        times = days_before(8)
        times[1] = MIDNIGHT + DAY  # copied later, or a clock was wrong: then all that follow are later still
        store = table(tmp_path, times, checkpoints=(5,))
        assert clean_up(store).oldest_version is None
        assert readable(store, 7) == list(range(8))

    def test_in_commit_timestamps_count_and_file_times_do_not(self, tmp_path: Path) -> None:
        stamps = days_before(10)
        stamps |= {8: MIDNIGHT, 9: MIDNIGHT + DAY}
        info = {version: CommitInfo(in_commit_timestamp=ms) for version, ms in stamps.items()}
        store = table(
            tmp_path,
            dict.fromkeys(range(10), NOW),
            checkpoints=(4, 7, 8),
            configuration={"delta.enableInCommitTimestamps": "true"},
            info=info,
        )
        assert clean_up(store).oldest_version == 7
        assert readable(store, 9) == [7, 8, 9]

    def test_before_in_commit_timestamps_were_enabled_file_times_count(self, tmp_path: Path) -> None:
        info = {version: CommitInfo(in_commit_timestamp=MIDNIGHT + version * DAY) for version in range(6, 9)}
        store = table(
            tmp_path,
            days_before(9),
            checkpoints=(2, 5, 7),
            configuration={
                "delta.enableInCommitTimestamps": "true",
                "delta.inCommitTimestampEnablementVersion": "6",
                "delta.inCommitTimestampEnablementTimestamp": str(MIDNIGHT + 6 * DAY),
            },
            info=info,
        )
        assert clean_up(store).oldest_version == 5

    def test_a_clean_up_that_left_holes_behind_does_not_stop_the_next_one(self, tmp_path: Path) -> None:
        stamps = days_before(12)
        store = table(
            tmp_path,
            stamps,
            checkpoints=(4, 10),
            configuration={"delta.enableInCommitTimestamps": "true"},
            info={version: CommitInfo(in_commit_timestamp=ms) for version, ms in stamps.items()},
        )
        store.delete([checkpoint_path(4), *(commit_path(version) for version in (0, 2, 5, 6))])
        clean_up(store)
        assert left(store) == names(checkpoint_path(10), *commits(10, 11))


class TestTablesThatAreLeftAlone:
    @pytest.mark.parametrize(
        ("configuration", "reason"),
        [
            ({"delta.enableExpiredLogCleanup": "false"}, "enableExpiredLogCleanup"),
            ({"delta.requireCheckpointProtectionBeforeVersion": "3"}, "checkpointProtection"),
        ],
    )
    def test_by_a_property(self, tmp_path: Path, configuration: dict[str, str], reason: str) -> None:
        store = table(tmp_path, days_before(8), checkpoints=(5,), configuration=configuration)
        report = clean_up(store)
        assert report.skipped is not None
        assert reason in report.skipped
        assert readable(store, 7) == list(range(8))

    def test_by_the_feature_that_protects_checkpoints(self, tmp_path: Path) -> None:
        store = table(tmp_path, days_before(8), checkpoints=(5,))
        features = (*FEATURES, "checkpointProtection")
        protocol = Protocol(
            min_reader_version=3, min_writer_version=7, reader_features=FEATURES, writer_features=features
        )
        write_history(store, [[protocol]], start=8)
        assert "checkpointProtection" in (clean_up(store).skipped or "")

    def test_by_a_feature_that_nobody_here_knows(self, tmp_path: Path) -> None:
        store = table(tmp_path, days_before(8), checkpoints=(5,))
        protocol = Protocol(
            min_reader_version=3,
            min_writer_version=7,
            reader_features=FEATURES,
            writer_features=(*FEATURES, "fromTheFuture"),
        )
        write_history(store, [[protocol]], start=8)
        with pytest.raises(UnsupportedFeature, match="fromTheFuture"):
            clean_up(store)


V2 = {"delta.checkpointPolicy": "v2"}


class TestSidecars:
    def sidecars(self, store: Store) -> set[str]:
        return set(store.list_keys(SIDECARS_DIR))

    def of(self, store: Store, path: Path, version: int, ms: int) -> set[str]:
        before = self.sidecars(store)
        write_checkpoint(DeltaLog(store), version, now_ms=ms, sidecar_rows=2)
        made = self.sidecars(store) - before
        for key in made:
            age(path, key, ms)
        return made

    def test_those_of_deleted_checkpoints_go_and_those_of_kept_ones_stay(self, tmp_path: Path) -> None:
        times = days_before(9)
        store = table(tmp_path, times, configuration=V2)
        older, kept, newer = (self.of(store, tmp_path, version, times[version]) for version in (3, 6, 8))
        assert len(older) == 2
        report = clean_up(store)
        assert report.oldest_version == 8
        assert self.sidecars(store) == newer
        assert older | kept < set(report.deleted)
        assert readable(store, 8) == [8]

    def test_those_of_a_checkpoint_that_is_being_written_stay(self, tmp_path: Path) -> None:
        store = table(tmp_path, days_before(9), checkpoints=(5,), configuration=V2)
        young, old = f"{SIDECARS_DIR}young.parquet", f"{SIDECARS_DIR}old.parquet"
        for key, ms in ((young, NOW - HOUR), (old, MIDNIGHT - HOUR)):
            store.put(key, b"x")
            age(tmp_path, key, ms)
        clean_up(store)
        assert young in self.sidecars(store)
        assert old not in self.sidecars(store)

    def test_a_day_is_left_to_finish_a_checkpoint_even_if_logs_are_not_kept_at_all(self, tmp_path: Path) -> None:
        store = table(
            tmp_path,
            dict.fromkeys(range(4), NOW - 3 * DAY),
            checkpoints=(3,),
            configuration={**V2, "delta.logRetentionDuration": "interval 0 days"},
        )
        key = f"{SIDECARS_DIR}being-written.parquet"
        store.put(key, b"x")
        age(tmp_path, key, NOW - 11 * HOUR)  # of yesterday, so before the cut
        assert clean_up(store).oldest_version == 3
        assert key in self.sidecars(store)

    def test_none_goes_while_some_checkpoint_cannot_say_which_it_needs(self, tmp_path: Path) -> None:
        times = days_before(9)
        store = table(tmp_path, times, configuration=V2)
        older = self.of(store, tmp_path, 3, times[3])
        self.of(store, tmp_path, 6, times[6])
        store.put(f"{LOG_DIR}{8:020d}.checkpoint.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.parquet", b"torn")
        assert clean_up(store).oldest_version == 6
        assert older < self.sidecars(store)

    def test_a_sidecar_that_two_checkpoints_share_stays_with_the_second(self, tmp_path: Path) -> None:
        times = days_before(5)
        store = table(tmp_path, times, configuration=V2)
        self.of(store, tmp_path, 4, times[4])
        shared = self.sidecars(store)
        top = next(file for name in store.list_keys(LOG_DIR) if (file := parse(name)) and file.is_checkpoint)
        store.put(top.key.replace(f"{4:020d}", f"{2:020d}"), store.get(top.key))
        clean_up(store)
        assert self.sidecars(store) == shared
        assert readable(store, 4) == [4]


@examples(40, 400)
@given(st.data(), st.integers(2, 25))
def test_whatever_part_of_the_plan_was_done_newer_versions_read_and_older_ones_read_or_are_refused(
    data: st.DataObject, last: int
) -> None:
    """Purely by names: a store may stop after any step, and within a step after any of its keys."""
    checkpoints = data.draw(st.lists(st.integers(1, last), min_size=1, max_size=5, unique=True))
    ranges = data.draw(st.lists(st.tuples(st.integers(0, last), st.integers(0, last)), max_size=4))
    log = [
        *commits(0, last),
        *(checkpoint_path(version) for version in checkpoints),
        *(compacted_path(first, end) for first, end in ranges if first < end),
        *(checksum_path(version) for version in range(0, last, 3)),
    ]
    keep = data.draw(st.sampled_from(checkpoints))
    steps = plan(log, keep)
    at = data.draw(st.integers(0, len(steps)))
    gone = {key for step in steps[:at] for key in step}
    if at < len(steps):
        gone |= data.draw(st.sets(st.sampled_from(steps[at])))
    after = sort_out(name for name in log if name not in gone)
    assert after.latest == last
    for version in range(last + 1):
        try:
            choose(after, version)
        except VersionNotFound:
            assert version < keep
    assert plan([name for name in log if name not in gone], keep) or gone >= {key for step in steps for key in step}
