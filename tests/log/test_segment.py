from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeseal.errors import EmptyLog, LogGap, VersionNotFound
from lakeseal.log.ratified_commit import RatifiedCommit, Told
from lakeseal.log.segment import choose, sort_out
from lakeseal.protocol.paths import (
    LOG_DIR,
    checkpoint_path,
    checksum_path,
    commit_path,
    compacted_path,
    staged_commit_path,
    v2_checkpoint_path,
)

UUID = "3a0d65cd-4056-49b8-937b-95f9e3ee90e5"
OTHER_UUID = "9e3d4f7e-960c-4281-b47a-6474182b1420"
TOLD = RatifiedCommit(version=2, key=staged_commit_path(2, UUID))


def commits(first: int, last: int) -> list[str]:
    return [commit_path(version) for version in range(first, last + 1)]


def part(version: int, n: int, count: int) -> str:
    return f"{LOG_DIR}{version:020d}.checkpoint.{n:010d}.{count:010d}.parquet"


def keys(names: list[str], version: int | None = None, excluded: frozenset[str] = frozenset()) -> list[str]:
    """What is read, in order."""
    segment = choose(sort_out(names), version, excluded=excluded)
    return [file.key for file in segment.checkpoint] + [key for _, key in segment.commits]


class TestChoice:
    def test_without_a_checkpoint_every_commit_from_the_first(self) -> None:
        assert keys(commits(0, 3)) == commits(0, 3)

    def test_the_newest_is_taken_unless_a_version_is_named(self) -> None:
        assert choose(sort_out(commits(0, 3))).version == 3
        assert keys(commits(0, 3), 1) == commits(0, 1)

    def test_the_newest_checkpoint_at_or_below_the_version(self) -> None:
        log = [*commits(0, 9), checkpoint_path(3), checkpoint_path(6)]
        assert keys(log, 9) == [checkpoint_path(6), *commits(7, 9)]
        assert keys(log, 6) == [checkpoint_path(6)]
        assert keys(log, 5) == [checkpoint_path(3), *commits(4, 5)]
        assert keys(log, 2) == commits(0, 2)

    def test_an_excluded_checkpoint_is_not_used(self) -> None:
        log = [*commits(0, 4), checkpoint_path(2)]
        assert keys(log, excluded=frozenset({checkpoint_path(2).removeprefix(LOG_DIR)})) == commits(0, 4)

    def test_of_two_checkpoints_of_a_version_the_second_is_used_when_the_first_is_excluded(self) -> None:
        second = v2_checkpoint_path(2, UUID, "json")
        log = [*commits(2, 4), checkpoint_path(2), second]
        assert keys(log)[0] == checkpoint_path(2)
        assert keys(log, excluded=frozenset({checkpoint_path(2).removeprefix(LOG_DIR)}))[0] == second

    def test_every_reader_takes_the_same_of_several_v2_checkpoints(self) -> None:
        some = [v2_checkpoint_path(2, uuid, "parquet") for uuid in (OTHER_UUID, UUID)]
        assert keys([*commits(0, 2), *some])[0] == keys([*commits(0, 2), *reversed(some)])[0]

    def test_a_multi_part_checkpoint_counts_only_with_all_its_parts(self) -> None:
        parts = [part(2, n, 3) for n in (1, 2, 3)]
        assert keys([*commits(0, 3), *reversed(parts)]) == [*parts, commit_path(3)]
        assert keys([*commits(0, 3), *parts[:2]]) == commits(0, 3)

    def test_parts_of_two_writers_with_different_counts_are_not_mixed(self) -> None:
        log = [*commits(0, 3), part(2, 1, 2), part(2, 1, 3), part(2, 2, 3)]
        assert keys(log) == commits(0, 3)
        assert keys([*log, part(2, 2, 2)])[:2] == [part(2, 1, 2), part(2, 2, 2)]

    def test_names_of_others_do_not_matter(self) -> None:
        others = ["_last_checkpoint", "00000000000000000009.json.tmp", "9.json", "_sidecars/x.parquet", "x.crc"]
        assert keys([*commits(0, 1), *(LOG_DIR + name for name in others)]) == commits(0, 1)


class TestCompactions:
    def test_one_stands_in_for_its_commits(self) -> None:
        log = [*commits(0, 5), compacted_path(1, 3)]
        assert keys(log) == [commit_path(0), compacted_path(1, 3), *commits(4, 5)]

    def test_the_longest_that_fits_is_taken(self) -> None:
        log = [*commits(0, 5), compacted_path(1, 2), compacted_path(1, 4), compacted_path(1, 9)]
        assert keys(log) == [commit_path(0), compacted_path(1, 4), commit_path(5)]

    def test_one_that_goes_beyond_the_version_is_not_used(self) -> None:
        assert keys([*commits(0, 5), compacted_path(1, 3)], 2) == commits(0, 2)

    def test_one_that_starts_below_the_checkpoint_is_not_used(self) -> None:
        log = [*commits(0, 5), checkpoint_path(2), compacted_path(1, 4)]
        assert keys(log) == [checkpoint_path(2), *commits(3, 5)]

    def test_it_counts_as_its_last_version(self) -> None:
        segment = choose(sort_out([*commits(0, 3), compacted_path(1, 3)]))
        assert segment.commits == ((0, commit_path(0)), (3, compacted_path(1, 3)))

    def test_an_excluded_one_is_not_used(self) -> None:
        name = compacted_path(1, 3).removeprefix(LOG_DIR)
        assert keys([*commits(0, 3), compacted_path(1, 3)], excluded=frozenset({name})) == commits(0, 3)

    def test_one_alone_is_no_version(self) -> None:
        with pytest.raises(EmptyLog):
            choose(sort_out([compacted_path(0, 3)]))


class TestUnbackfilled:
    def test_commits_of_an_owner_come_beside_the_listing(self) -> None:
        staged = staged_commit_path(2, UUID)
        segment = choose(sort_out(commits(0, 1), Told(commits={2: RatifiedCommit(version=2, key=staged)})))
        assert segment.commits[-1] == (2, RatifiedCommit(version=2, key=staged))

    def test_the_listings_copy_is_taken_where_both_have_it(self) -> None:
        segment = choose(sort_out(commits(0, 2), Told(commits={2: TOLD})))
        assert segment.commits[-1] == (2, commit_path(2))

    def test_a_catalogs_word_counts_where_both_have_it_and_nothing_above_its_latest(self) -> None:
        listing = sort_out([*commits(0, 4), compacted_path(1, 3)], Told(commits={2: TOLD}, up_to=2))
        assert choose(listing).commits == ((0, commit_path(0)), (1, commit_path(1)), (2, TOLD))

    def test_m4_a_staged_commit_that_no_owner_named_is_not_read(self) -> None:
        assert keys([*commits(0, 1), staged_commit_path(2, UUID)]) == commits(0, 1)


class TestRefusals:
    def test_an_empty_log(self) -> None:
        with pytest.raises(EmptyLog):
            choose(sort_out([]))

    def test_a_log_with_nothing_but_half_a_checkpoint_names_the_half(self) -> None:
        with pytest.raises(EmptyLog) as caught:
            choose(sort_out([part(2, 1, 2)]))
        assert caught.value.file == part(2, 1, 2).removeprefix(LOG_DIR)

    def test_a_version_that_is_not_there_yet(self) -> None:
        with pytest.raises(VersionNotFound, match="not there yet") as caught:
            choose(sort_out(commits(0, 3)), 4)
        assert "newest version is 3" in caught.value.hint

    def test_a_version_from_before_the_log_was_cleaned_up(self) -> None:
        with pytest.raises(VersionNotFound, match="cleaned up") as caught:
            choose(sort_out([checkpoint_path(5), *commits(5, 7)]), 3)
        assert "oldest version that can be read is 5" in caught.value.hint

    def test_a_gap(self) -> None:
        with pytest.raises(LogGap, match="Commit 2 is missing, though the log goes on to 4"):
            choose(sort_out([*commits(0, 1), *commits(3, 4)]))

    def test_a_gap_below_a_checkpoint_does_not_matter(self) -> None:
        log = [*commits(0, 1), *commits(3, 4), checkpoint_path(3)]
        assert keys(log) == [checkpoint_path(3), commit_path(4)]

    def test_a_log_without_its_first_commit_and_without_a_checkpoint(self) -> None:
        with pytest.raises(LogGap, match="starts at version 2"):
            choose(sort_out(commits(2, 4)))

    def test_a_gap_where_half_a_checkpoint_would_have_helped_says_so(self) -> None:
        with pytest.raises(LogGap) as caught:
            choose(sort_out([*commits(0, 1), *commits(4, 5), part(4, 1, 2)]))
        assert part(4, 1, 2).removeprefix(LOG_DIR) in caught.value.hint


@given(st.data(), st.integers(0, 20))
def test_a_segment_reaches_its_version_without_a_gap_and_without_reading_anything_twice(
    data: st.DataObject, last: int
) -> None:
    versions = st.integers(0, last)
    ranges = data.draw(st.lists(st.tuples(versions, versions), max_size=5))
    names = [
        *commits(0, last),
        *(checkpoint_path(version) for version in data.draw(st.sets(versions, max_size=4))),
        *(compacted_path(first, end) for first, end in ranges if first < end),
        *(checksum_path(version) for version in data.draw(st.sets(versions, max_size=4))),
    ]
    wanted = data.draw(versions)
    segment = choose(sort_out(data.draw(st.permutations(names))), wanted)
    covered = list(range(segment.checkpoint_version + 1))
    for end, key in segment.commits:
        first = int(key.removeprefix(LOG_DIR)[:20])
        covered += range(first, end + 1)
    assert covered == list(range(wanted + 1))
