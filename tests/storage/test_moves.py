"""What `base.MovesObjects` promises, on every store that has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeseal.errors import ObjectNotFound, UnsafePath
from lakeseal.storage import MovesObjects, Store, open_store

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
