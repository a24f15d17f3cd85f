"""What `base.MovesObjects` promises, on every store that has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeseal.errors import ObjectNotFound, UnsafePath
from lakeseal.storage import HasDirectories, MovesObjects, Store, open_store

KEYS = ["a=1%3A2/b c#?é&+.parquet", "100%", "ひらがな/漢字/深い", "emoji 😀"]


def test_objects_are_at_their_new_keys_only_after_a_move(store: Store) -> None:
    assert isinstance(store, MovesObjects)
    for key in KEYS:
        store.put(f"from/{key}", key.encode())

    left = store.move([(f"from/{key}", f"to/{key}/new") for key in KEYS], store)

    assert left == []
    assert [meta.key for meta in store.list(recursive=True)] == sorted(f"to/{key}/new" for key in KEYS)
    assert [store.get(f"to/{key}/new") for key in KEYS] == [key.encode() for key in KEYS]


def test_a_move_replaces_what_is_at_the_target(store: Store) -> None:
    assert isinstance(store, MovesObjects)
    store.put("from", b"new")
    store.put("to", b"old and longer")

    store.move([("from", "to")], store)

    assert store.get("to") == b"new"


def test_a_move_of_what_is_not_there_says_so(store: Store) -> None:
    assert isinstance(store, MovesObjects)
    with pytest.raises(ObjectNotFound):
        store.move([("absent", "to/it")], store)


def test_a_move_does_not_leave_the_root(store: Store) -> None:
    assert isinstance(store, MovesObjects)
    store.put("a", b"1")
    with pytest.raises(UnsafePath):
        store.move([("a", "../a")], store)


def test_a_store_does_not_move_to_another_kind_of_store(store: Store, tmp_path: Path) -> None:
    assert isinstance(store, MovesObjects)
    store.put("a", b"1")
    other = open_store("memory://elsewhere" if store.uri.startswith("file:") else tmp_path / "elsewhere")

    assert store.move([("a", "b")], other) == [("a", "b")]
    assert store.get("a") == b"1"


def test_a_disk_moves_between_two_roots(tmp_path: Path) -> None:
    one, other = open_store(tmp_path / "one"), open_store(tmp_path / "other")
    assert isinstance(one, MovesObjects)
    one.put("d/a", b"1")

    assert one.move([("d/a", "e/b")], other) == []

    assert other.get("e/b") == b"1"
    assert list(one.list(recursive=True)) == []


def test_a_disk_removes_directories_that_hold_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    assert isinstance(store, HasDirectories)
    for key in ("job/a/b/1", "job/a/2", "job/c/3", "other/4"):
        store.put(key, b"x")
    store.delete(["job/a/b/1", "job/c/3", "other/4"])

    store.prune("job/")

    assert sorted(path.name for path in tmp_path.rglob("*")) == ["2", "a", "job", "other"]
    store.delete(["job/a/2"])
    store.prune("job/")
    store.prune("job/")
    assert [path.name for path in tmp_path.rglob("*")] == ["other"]
    store.put("job/a/b/1", b"again")
    assert store.get("job/a/b/1") == b"again"
