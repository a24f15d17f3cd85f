"""Entries whose objects are elsewhere: whoever may commit may name any address, and no reader follows it out of the
repository's own places unless told to. Ten ways to escape."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeseal import LakesealError, Repository, Trust, errors
from lakeseal.branches.store import Changes, Entry
from lakeseal.cli import main

ROWS = pa.table({"x": [1, 2, 3]})


class Place:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.ledger = f"sqlite:///{root}/ledger.db"
        self.repo = Repository.create(root / "repo", ledger=self.ledger)
        for name in ("elsewhere", "repo-2"):
            (root / name).mkdir()
            pq.write_table(ROWS, root / name / "a.parquet")
        (root / "repo" / "link").symlink_to(root / "elsewhere")
        self.data = (root / "elsewhere" / "a.parquet").read_bytes()

    def commit(self, address: str) -> None:
        checksum = f"sha256:{hashlib.sha256(self.data).hexdigest()}"
        entry = Entry(path="in/a.parquet", address=address, size=len(self.data), checksum=checksum)
        self.repo.store.commit("main", Changes(puts=(entry,)))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.repo.store.close()


ADDRESSES = {
    "another directory": "file://{root}/elsewhere/a.parquet",
    "a sibling that begins alike": "file://{root}/repo-2/a.parquet",
    "a link in the repository": "file://{root}/repo/link/a.parquet",
    "a link by a key": "link/a.parquet",
    "dots": "file://{root}/repo/../elsewhere/a.parquet",
    "encoded dots": "file://{root}/repo/%2e%2e/elsewhere/a.parquet",
    "dots by a key": "../elsewhere/a.parquet",
    "another store": "s3://bucket/a.parquet",
    "another kind of store": "memory://elsewhere/a.parquet",
    "an absolute key": "/{root}/elsewhere/a.parquet",
    "a host": "file://localhost{root}/elsewhere/a.parquet",
}
READS: dict[str, Callable[[Place], Any]] = {
    "read": lambda place: place.repo.read("main", "in/a.parquet"),
    "to_arrow": lambda place: place.repo.to_arrow("main", "in"),
    "export": lambda place: place.repo.export("main", "in", place.root / "exported"),
}


def test_there_are_at_least_ten_escapes() -> None:
    assert len(ADDRESSES) >= 10


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("address", ADDRESSES)
def test_an_object_that_is_not_in_the_repositorys_places_is_not_read(address: str, read: str, place: Place) -> None:
    try:
        place.commit(ADDRESSES[address].format(root=place.root))
    except errors.InvalidPath:
        return  # refused even earlier
    with pytest.raises(LakesealError) as caught:
        READS[read](place)
    refused = (errors.UnsafePath, errors.InvalidPath, errors.InvalidUri)
    # An address stands for itself, so there is no such directory.
    assert isinstance(caught.value, errors.ObjectNotFound if address == "encoded dots" else refused)
    assert not (place.root / "exported" / "a.parquet").exists()


@pytest.mark.parametrize("read", READS)
def test_an_object_in_a_place_that_an_argument_names_is_read(read: str, place: Place) -> None:
    place.commit(f"file://{place.root}/elsewhere/a.parquet")
    trust = Trust(places=(f"file://{place.root}/elsewhere",))
    with pytest.raises(errors.UnsafePath) as caught:
        READS[read](place)
    assert "Trust(places" in caught.value.hint
    place.repo.store.close()
    place.repo = Repository.open(place.root / "repo", ledger=place.ledger, trust=trust)
    READS[read](place)
    assert place.repo.to_arrow("main", "in").to_pylist() == ROWS.to_pylist()


def test_an_export_reads_a_place_that_a_flag_names(place: Place, tmp_path: Path) -> None:
    place.commit(f"file://{place.root}/elsewhere/a.parquet")
    asked = ["branch", "export", str(place.root / "repo"), "main", "in", str(tmp_path / "plain")]
    asked += ["--ledger", place.ledger]
    assert main(asked) == 1
    assert main([*asked, "--place", str(place.root / "elsewhere")]) == 0
    assert (tmp_path / "plain" / "a.parquet").exists()


@pytest.mark.parametrize("read", READS)
def test_an_object_in_a_place_that_an_option_names_is_read(
    read: str, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.commit(f"file://{place.root}/elsewhere/a.parquet")
    with pytest.raises(errors.UnsafePath) as caught:
        READS[read](place)
    assert "LAKESEAL_PLACES" in caught.value.hint
    monkeypatch.setenv("LAKESEAL_PLACES", str(place.root / "elsewhere"))
    READS[read](place)
    assert place.repo.to_arrow("main", "in").to_pylist() == ROWS.to_pylist()


@pytest.mark.parametrize("read", READS)
def test_an_absolute_address_in_the_repository_is_its_own(read: str, place: Place) -> None:
    own = place.root / "repo" / "landing"
    own.mkdir()
    (own / "a.parquet").write_bytes(place.data)
    place.commit(f"file://{own}/a.parquet")
    READS[read](place)
    assert place.repo.to_arrow("main", "in").to_pylist() == ROWS.to_pylist()
