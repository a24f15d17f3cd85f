"""What `CommitStepStore` promises, on every implementation."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lakeseal.errors import AlreadyExists, Fenced, InvalidArgument, LakesealError
from lakeseal.steps import CommitSequence, CommitStepStore, SequenceState
from support.published_rows import saying

# Names that sanitising, folding, decoding, sorting or a file system would make the same, or refuse.
NAMES = [
    "a/b",
    "a_b",
    "a:b",
    "A/b",
    "a/b/",
    "..",
    ".",
    "",
    " ",
    "é",
    "e\u0301",
    "ß",
    "ss",
    "名前",
    "😀",
    "a%2Fb",
    "a\nb",
    "x" * 5000,
]


def put(steps: CommitStepStore, sequence: CommitSequence) -> str:
    steps.put(sequence)
    return sequence.record().checksum


def test_a_store_is_created_once_and_can_be_removed_when_it_holds_nothing(steps: CommitStepStore) -> None:
    assert not steps.exists("s")
    assert steps.create("s")
    assert not steps.create("s")
    assert steps.exists("s")
    assert steps.stores() == ["s"]

    assert steps.remove_store("s")

    assert not steps.exists("s")
    assert steps.stores() == []
    assert not steps.remove_store("s")


def test_a_sequence_comes_back_as_it_was_put(steps: CommitStepStore, tmp_path: Path) -> None:
    sequence = saying(tmp_path, "hallo é 😀", epoch=3, store="s", dataset="urn:d")
    sequence_with_output = (
        CommitSequence.builder("s", "urn:e").add(*sequence.steps).then_remove("file:///x", "r/").build()
    )
    steps.put(sequence)
    steps.put(sequence_with_output)

    got = steps.get_commit_sequence("s", "urn:d")
    other = steps.get_commit_sequence("s", "urn:e")

    assert got is not None
    assert other is not None
    assert (got.steps, got.sequence_id, got.epoch, got.created_ms) == (
        sequence.steps,
        sequence.sequence_id,
        3,
        sequence.created_ms,
    )
    assert other.leftovers == sequence_with_output.leftovers
    assert steps.exists("s", "urn:d")
    assert steps.get_commit_sequence("s", "another") is None


def test_a_status_tells_what_is_recorded_without_its_steps(steps: CommitStepStore, tmp_path: Path) -> None:
    checksum = put(steps, saying(tmp_path, "a", epoch=2, store="s", dataset="d"))

    status = steps.status("s", "d")

    assert status is not None
    assert (status.store, status.dataset, status.state) == ("s", "d", SequenceState.OPEN)
    assert (status.epoch, status.count, status.checksum, status.tries, status.reason) == (2, 1, checksum, 0, None)
    assert status.created_ms > 1_600_000_000_000
    assert steps.statuses("s") == [status]
    assert steps.statuses("another") == []


@pytest.mark.field_bug(36)
def test_any_unicode_names_are_kept_apart(steps: CommitStepStore, tmp_path: Path) -> None:
    """Bug 36: names collided after they had been sanitised."""
    for name in NAMES:
        steps.put(saying(tmp_path, repr(name), store="s", dataset=name))
        steps.create(name)

    assert [status.dataset for status in steps.statuses("s")] == sorted(NAMES)
    assert steps.stores() == sorted([*NAMES, "s"])
    for name in NAMES:
        got = steps.get_commit_sequence("s", name)
        assert got is not None
        assert got.steps[0].word == repr(name)  # type: ignore[attr-defined]


def test_a_name_that_is_not_text_is_refused(steps: CommitStepStore, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument):
        steps.put(saying(tmp_path, "a", store="s", dataset="half \ud800"))


def test_putting_the_same_sequence_again_is_fine(steps: CommitStepStore, tmp_path: Path) -> None:
    sequence = saying(tmp_path, "a", store="s")
    steps.put(sequence)
    steps.put(sequence)

    assert len(steps.statuses("s")) == 1


def test_no_second_sequence_is_accepted_while_a_dataset_has_one(steps: CommitStepStore, tmp_path: Path) -> None:
    first = saying(tmp_path, "a", store="s", dataset="d")
    checksum = put(steps, first)

    with pytest.raises(AlreadyExists, match="open"):
        steps.put(saying(tmp_path, "b", store="s", dataset="d"))
    steps.note("s", "d", checksum=checksum, epoch=0, state=SequenceState.SET_ASIDE, tries=3, reason="why")
    with pytest.raises(AlreadyExists, match="set aside"):
        steps.put(saying(tmp_path, "b", store="s", dataset="d"))

    got = steps.get_commit_sequence("s", "d")
    assert got is not None
    assert got.sequence_id == first.sequence_id


def test_a_note_says_what_became_of_a_try(steps: CommitStepStore, tmp_path: Path) -> None:
    checksum = put(steps, saying(tmp_path, "a", store="s", dataset="d"))

    assert steps.note("s", "d", checksum=checksum, epoch=1, state=SequenceState.SET_ASIDE, tries=3, reason="ünd 😀")
    status = steps.status("s", "d")
    assert status is not None
    assert (status.state, status.tries, status.reason, status.epoch) == (SequenceState.SET_ASIDE, 3, "ünd 😀", 1)

    assert steps.note("s", "d", checksum=checksum, epoch=1)
    status = steps.status("s", "d")
    assert status is not None
    assert (status.state, status.tries, status.reason) == (SequenceState.OPEN, 0, None)
    assert steps.get_commit_sequence("s", "d") is not None


def test_removing_names_the_sequence_that_it_means(steps: CommitStepStore, tmp_path: Path) -> None:
    """A late finisher of an old sequence must not remove the one that came after it."""
    old = put(steps, saying(tmp_path, "a", store="s", dataset="d"))
    assert steps.remove("s", "d", checksum=old, epoch=0)
    new = put(steps, saying(tmp_path, "b", store="s", dataset="d"))

    assert not steps.remove("s", "d", checksum=old, epoch=0)
    assert not steps.note("s", "d", checksum=old, epoch=0, state=SequenceState.SET_ASIDE)

    status = steps.status("s", "d")
    assert status is not None
    assert (status.checksum, status.state) == (new, SequenceState.OPEN)


def test_after_removing_a_dataset_has_no_sequence_and_may_get_another(steps: CommitStepStore, tmp_path: Path) -> None:
    for word in "abcde":
        checksum = put(steps, saying(tmp_path, word, store="s", dataset="d"))
        with pytest.raises(AlreadyExists):
            steps.remove_store("s")
        assert steps.remove("s", "d", checksum=checksum, epoch=0)
        assert not steps.exists("s", "d")
        assert steps.statuses("s") == []
        assert not steps.remove("s", "d", checksum=checksum, epoch=0)
    assert steps.remove_store("s")


def test_w8_a_run_with_a_smaller_epoch_is_fenced_and_changes_nothing(steps: CommitStepStore, tmp_path: Path) -> None:
    mine = put(steps, saying(tmp_path, "a", store="s", dataset="d", epoch=5))
    steps.claim("s", ["d", "e"], 6)
    before = steps.status("s", "d")

    with pytest.raises(Fenced):
        steps.claim("s", ["d"], 5)
    with pytest.raises(Fenced):
        steps.put(saying(tmp_path, "b", store="s", dataset="e", epoch=5))
    with pytest.raises(Fenced):
        steps.note("s", "d", checksum=mine, epoch=5, tries=1)
    with pytest.raises(Fenced):
        steps.remove("s", "d", checksum=mine, epoch=5)

    assert steps.status("s", "d") == before
    assert before is not None
    assert before.epoch == 6
    assert not steps.exists("s", "e")


def test_w8_a_claim_keeps_what_an_earlier_run_recorded(steps: CommitStepStore, tmp_path: Path) -> None:
    sequence = saying(tmp_path, "a", store="s", dataset="d", epoch=5)
    checksum = put(steps, sequence)
    steps.claim("s", ["d"], 6)
    steps.claim("s", ["d"], 6)

    got = steps.get_commit_sequence("s", "d")

    assert got is not None
    assert got.sequence_id == sequence.sequence_id
    assert got.checksum == checksum
    assert steps.remove("s", "d", checksum=checksum, epoch=6)


def test_w8_an_epoch_is_remembered_when_the_sequence_is_gone(steps: CommitStepStore, tmp_path: Path) -> None:
    checksum = put(steps, saying(tmp_path, "a", store="s", dataset="d", epoch=7))
    steps.remove("s", "d", checksum=checksum, epoch=7)

    with pytest.raises(Fenced):
        steps.put(saying(tmp_path, "b", store="s", dataset="d", epoch=6))


@pytest.mark.field_bug(36)
def test_of_many_puts_at_once_one_wins(steps: CommitStepStore, tmp_path: Path) -> None:
    """Bug 36: the store checked and then created."""
    wins: list[str] = []
    start = threading.Barrier(6)

    def contend(word: str) -> None:
        sequence = saying(tmp_path, word, store="s", dataset="d")
        start.wait()
        try:
            steps.put(sequence)
        except AlreadyExists:
            return
        wins.append(sequence.sequence_id)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(contend, "abcdef"))

    got = steps.get_commit_sequence("s", "d")
    assert got is not None
    assert wins == [got.sequence_id]


def test_many_rounds_of_puts_and_removals_at_once_lose_nothing(steps: CommitStepStore, tmp_path: Path) -> None:
    """Each of several writers gets its sequences through, one at a time, whatever the others do meanwhile."""
    done: list[str] = []

    def work(name: str) -> None:
        for number in range(4):
            sequence = saying(tmp_path, f"{name}{number}", store="s", dataset="d")
            while True:
                try:
                    steps.put(sequence)
                    break
                except AlreadyExists:
                    continue
            got = steps.get_commit_sequence("s", "d")
            assert got is not None
            assert got.sequence_id == sequence.sequence_id
            done.append(sequence.sequence_id)
            assert steps.remove("s", "d", checksum=got.checksum, epoch=0)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, "abc"))

    assert len(set(done)) == 12
    assert not steps.exists("s", "d")


def test_errors_of_the_store_are_ours(steps: CommitStepStore, tmp_path: Path) -> None:
    with pytest.raises(LakesealError):
        steps.claim("s", ["\ud800"], 1)
