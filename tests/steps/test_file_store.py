"""What only files have: numbered entries, replies that are lost, and somebody who comes very late."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lakeseal.errors import AlreadyExists, Fenced, StorageUnavailable
from lakeseal.steps import FileStepStore
from lakeseal.storage import Store, open_store
from lakeseal.testing.faults import Fault, FaultyStore, How
from support.published_rows import saying


def entries(store: Store) -> list[str]:
    return [meta.key.rpartition("/")[2] for meta in store.list(recursive=True) if meta.key.endswith(".entry")]


def cycle(steps: FileStepStore, directory: Path, word: str, *, epoch: int = 0) -> None:
    """A sequence that is recorded and finished."""
    sequence = saying(directory, word, store="s", dataset="d", epoch=epoch)
    steps.put(sequence)
    steps.remove("s", "d", checksum=sequence.record().checksum, epoch=epoch)


def test_a_dataset_keeps_one_entry_however_many_sequences_it_had(tmp_path: Path) -> None:
    store = open_store(tmp_path / "steps")
    steps = FileStepStore(store)
    for number in range(10):
        cycle(steps, tmp_path, str(number))

    assert len(entries(store)) == 1
    steps.put(saying(tmp_path, "last", store="s", dataset="d"))
    steps.claim("s", ["d"], 3)
    steps.claim("s", ["d"], 4)
    assert len(entries(store)) == 2, "how it is now, and the steps"


def test_bug_36_a_lost_reply_is_settled_by_looking(tmp_path: Path) -> None:
    store = FaultyStore(open_store(tmp_path / "steps"), [Fault("put_if_absent", "*.entry", how=How.LOSE_REPLY)])
    steps = FileStepStore(store)

    steps.put(saying(tmp_path, "a", store="s", dataset="d"))

    assert steps.exists("s", "d")
    with pytest.raises(AlreadyExists):
        steps.put(saying(tmp_path, "b", store="s", dataset="d"))


def test_a_record_that_lands_after_its_writer_gave_up_is_whole_and_open(tmp_path: Path) -> None:
    store = FaultyStore(open_store(tmp_path / "steps"), [Fault("put_if_absent", "*.entry", how=How.LAND_LATE, later=3)])
    steps = FileStepStore(store)
    sequence = saying(tmp_path, "a", store="s", dataset="d")

    with pytest.raises(StorageUnavailable):
        steps.put(sequence)
    store.settle()

    got = steps.get_commit_sequence("s", "d")
    assert got is not None
    assert got.sequence_id == sequence.sequence_id


class Late(FaultyStore):
    """Before its first entry is put, something else happens."""

    def __init__(self, store: Store, meanwhile: Callable[[], object]) -> None:
        super().__init__(store)
        self._meanwhile: Callable[[], object] | None = meanwhile

    def put_if_absent(self, key: str, data: bytes) -> bool:
        if key.endswith(".entry") and self._meanwhile is not None:
            meanwhile, self._meanwhile = self._meanwhile, None
            meanwhile()
        return super().put_if_absent(key, data)


def test_a_number_that_is_free_again_is_not_won_by_who_comes_late(tmp_path: Path) -> None:
    store = open_store(tmp_path / "steps")
    steps = FileStepStore(store)
    cycle(steps, tmp_path, "first")
    open_one = saying(tmp_path, "open", store="s", dataset="d")

    def meanwhile() -> None:
        for number in range(5):
            cycle(steps, tmp_path, str(number))
        steps.put(open_one)

    late = FileStepStore(Late(store, meanwhile))

    with pytest.raises(AlreadyExists):
        late.put(saying(tmp_path, "late", store="s", dataset="d"))

    got = steps.get_commit_sequence("s", "d")
    assert got is not None
    assert got.sequence_id == open_one.sequence_id
    assert len(entries(store)) == 1


def test_w8_a_number_that_is_free_again_does_not_get_a_zombie_past_its_epoch(tmp_path: Path) -> None:
    store = open_store(tmp_path / "steps")
    steps = FileStepStore(store)
    steps.claim("s", ["d"], 1)

    def meanwhile() -> None:
        steps.claim("s", ["d"], 2)
        cycle(steps, tmp_path, "x", epoch=2)

    zombie = FileStepStore(Late(store, meanwhile))

    with pytest.raises(Fenced):
        zombie.put(saying(tmp_path, "late", store="s", dataset="d", epoch=1))

    assert not steps.exists("s", "d")


def test_who_is_overtaken_at_once_has_still_won(tmp_path: Path) -> None:
    """A recoverer claims the record before its writer has looked whether it counts."""
    store = open_store(tmp_path / "steps")
    steps = FileStepStore(store)
    sequence = saying(tmp_path, "a", store="s", dataset="d")

    class Overtaken(FaultyStore):
        def list_keys(self, prefix: str = "", *, after: str | None = None) -> list[str]:
            if any(call.name == "put_if_absent" and call.keys[0].endswith(".entry") for call in self.calls):
                steps.claim("s", ["d"], 5)
            return super().list_keys(prefix, after=after)

    FileStepStore(Overtaken(store)).put(sequence)

    status = steps.status("s", "d")
    assert status is not None
    assert (status.checksum, status.epoch) == (sequence.record().checksum, 5)


def test_who_is_overtaken_several_times_has_still_won(tmp_path: Path) -> None:
    """Others have built on the removal, and tidied up behind each other, before it has looked whether it counts."""
    store = open_store(tmp_path / "steps")
    steps = FileStepStore(store)
    sequence = saying(tmp_path, "a", store="s", dataset="d")
    steps.put(sequence)

    class Overtaken(FaultyStore):
        def list_keys(self, prefix: str = "", *, after: str | None = None) -> list[str]:
            if any(call.name == "put_if_absent" and call.keys[0].endswith(".entry") for call in self.calls):
                cycle(steps, tmp_path, f"another {len(self.calls)}")
            return super().list_keys(prefix, after=after)

    checksum = sequence.record().checksum
    assert FileStepStore(Overtaken(store)).remove("s", "d", checksum=checksum, epoch=0)
    assert not steps.remove("s", "d", checksum=checksum, epoch=0)


def test_files_of_others_in_the_directory_do_not_matter(tmp_path: Path) -> None:
    store = open_store(tmp_path / "steps")
    steps = FileStepStore(store)
    steps.put(saying(tmp_path, "a", store="s", dataset="d"))
    (entry,) = [meta.key for meta in store.list(recursive=True) if meta.key.endswith(".entry")]
    for name in ("99999999999999999999.json", "x.entry", "-1.entry", "9.entry", ".hidden", "README"):
        store.put(f"{entry.rpartition('/')[0]}/{name}", b"?")

    assert len(steps.statuses("s")) == 1
    assert steps.get_commit_sequence("s", "d") is not None
