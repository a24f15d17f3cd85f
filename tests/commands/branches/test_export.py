from __future__ import annotations

import shutil
from pathlib import Path
from typing import Literal

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from lakeseal import Repository
from lakeseal.errors import BrokenDataFile, CorruptTable, InvalidArgument, LakesealError, ObjectNotFound
from lakeseal.repository_export import COPYING, MANIFEST, Manifest, export
from lakeseal.storage import open_store
from lakeseal.testing.faults import Fault, FaultyStore

ON_S3 = True

ROWS = pa.table({"n": [1, 2, 3], "p": ["a", "b/c", "é"]})


def manifest(directory: Path) -> Manifest:
    return msgspec.json.decode((directory / MANIFEST).read_bytes(), type=Manifest)


def rows(directory: Path) -> list[int]:
    paths = [str(directory / file.path) for file in manifest(directory).files]
    found: list[int] = sorted(ds.dataset(paths, format="parquet").to_table()["n"].to_pylist())
    return found


def test_an_export_is_plain_files_and_a_manifest_of_one_commit(repo: Repository, tmp_path: Path) -> None:
    repo.write(ROWS, "main", "out/orders", partition_by="p")
    out = tmp_path / "plain"
    report = repo.export("main", "out/orders", out)
    assert (report.files, report.copied, report.deleted) == (3, 3, 0)
    told = manifest(out)
    assert (told.commit, told.ref, told.path) == (repo.store.head("main"), "main", "out/orders")
    assert rows(out) == [1, 2, 3]
    assert sorted(p.parent.name for p in out.rglob("*.parquet")) == ["p=a", "p=b%2Fc", "p=é"]


def test_an_export_that_is_run_again_copies_what_is_new_and_deletes_what_is_gone(
    repo: Repository, tmp_path: Path
) -> None:
    out = tmp_path / "plain"
    repo.write(ROWS, "main", "orders", partition_by="p")
    repo.export("main", "orders", out)
    (out / "mine.txt").write_text("not the repository's")
    repo.write(ROWS.slice(0, 1), "main", "orders", partition_by="p")
    report = repo.export("main", "orders", out)
    assert (report.copied, report.kept, report.deleted) == (1, 3, 0)
    assert rows(out) == [1, 1, 2, 3]
    repo.write(ROWS.slice(0, 1), "main", "orders", mode="overwrite", partition_by="p")
    report = repo.export("main", "orders", out)
    assert (report.copied, report.kept, report.deleted) == (1, 0, 4)
    assert len(list(out.rglob("*.parquet"))) == 1
    assert (out / "mine.txt").exists()


def test_a_file_that_was_damaged_or_lost_in_between_is_copied_again(repo: Repository, tmp_path: Path) -> None:
    out = tmp_path / "plain"
    repo.write(ROWS, "main", "orders", partition_by="p")
    repo.export("main", "orders", out)
    first, second, _ = sorted(out.rglob("*.parquet"))
    first.unlink()
    second.write_bytes(b"short")
    assert repo.export("main", "orders", out).copied == 2
    assert rows(out) == [1, 2, 3]


def test_an_export_that_fails_leaves_the_manifest_before_it(repo: Repository, tmp_path: Path) -> None:
    out = tmp_path / "plain"
    repo.write(ROWS, "main", "orders", partition_by="p")
    repo.export("main", "orders", out)
    before = manifest(out)
    repo.write(ROWS, "main", "orders", mode="overwrite", partition_by="p")
    failing = FaultyStore(open_store(out), [Fault("close", "*", nth=2)])
    with pytest.raises(Exception, match="injected"):
        export(repo.store, "main", "orders", failing)
    assert manifest(out) == before
    assert rows(out) == [1, 2, 3]
    repo.export("main", "orders", out)
    assert manifest(out).commit == repo.store.head("main")


def plain(directory: Path) -> list[int]:
    """What somebody reads who knows of no manifest."""
    found: list[int] = sorted(ds.dataset(directory, format="parquet").to_table()["n"].to_pylist())
    return found


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_an_export_that_fails_midway_leaves_no_rows_twice(repo: Repository, tmp_path: Path, nth: int) -> None:
    out = tmp_path / "plain"
    repo.write(ROWS, "main", "orders", partition_by="p")
    repo.export("main", "orders", out)
    repo.write(ROWS, "main", "orders", mode="overwrite", partition_by="p")
    failing = FaultyStore(open_store(out), [Fault("close", "*", nth=nth)])
    with pytest.raises(Exception, match="injected"):
        export(repo.store, "main", "orders", failing)
    assert plain(out) == [1, 2, 3]


@pytest.mark.parametrize("back", [False, True])
def test_what_an_export_that_was_killed_left_is_removed_by_the_next_one(
    repo: Repository, tmp_path: Path, back: bool
) -> None:
    out = tmp_path / "plain"
    repo.write(ROWS, "main", "orders", partition_by="p")
    repo.export("main", "orders", out)
    repo.write(ROWS, "main", "orders", mode="overwrite", partition_by="p")
    # Nothing can be deleted any more: as little as after a kill.
    killed = FaultyStore(open_store(out), [Fault("close", "*", nth=3), Fault("delete", "*", times=99)])
    with pytest.raises(Exception, match="injected"):
        export(repo.store, "main", "orders", killed)
    assert len(plain(out)) > 3
    repo.write(ROWS.slice(0, 2), "main", "orders", mode="overwrite", partition_by="p")
    report = repo.export("main~2" if back else "main", "orders", out)
    assert plain(out) == rows(out) == ([1, 2, 3] if back else [1, 2])
    assert report.files == len(list(out.rglob("*.parquet")))
    assert not (out / COPYING).exists()


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_wherever_an_export_was_killed_the_next_one_leaves_its_commit_alone(
    repo: Repository, tmp_path: Path, mode: Literal["append", "overwrite"]
) -> None:
    repo.write(ROWS, "main", "orders", partition_by="p")
    repo.write(ROWS.slice(0, 1), "main", "orders", mode=mode, partition_by="p")
    repo.export("main", "orders", tmp_path / "before")
    for nth in range(1, 100):
        out = tmp_path / f"plain{nth}"
        shutil.copytree(tmp_path / "before", out)
        # From some call on none comes through any more: as after a kill.
        killed = FaultyStore(open_store(out), [Fault(nth=nth, times=1000)])
        try:
            export(repo.store, "main~1", "orders", killed)
        except LakesealError:
            pass
        else:
            break
        repo.export("main~1", "orders", out)
        assert plain(out) == rows(out) == [1, 2, 3], nth
        assert not (out / COPYING).exists()
    assert nth > 4


def test_a_file_that_a_failed_export_replaced_is_copied_again(repo: Repository, tmp_path: Path) -> None:
    out = tmp_path / "plain"
    for n, texts in enumerate(((b"old", b"old"), (b"new", b"new"))):
        for name, text in zip("ab", texts, strict=True):
            repo.put("main", f"notes/{name}.txt", text)
        if n == 0:
            repo.tag("before", "main")
            repo.export("main", "notes", out)
    failing = FaultyStore(open_store(out), [Fault("close", "*b.txt")])
    with pytest.raises(Exception, match="injected"):
        export(repo.store, "main", "notes", failing)
    repo.export("before", "notes", out)
    assert [(out / f"{name}.txt").read_bytes() for name in "ab"] == [b"old", b"old"]


@pytest.mark.parametrize("damaged", [b"What was committed", b"what was"], ids=["a bit", "cut"])
def test_what_is_not_what_was_committed_is_not_exported(damaged: bytes, tmp_path: Path, shared_ledger: str) -> None:
    repo, out = Repository.create(tmp_path / "repo", ledger=shared_ledger), tmp_path / "plain"
    repo.put("main", "notes/a.txt", b"before")
    repo.export("main", "notes", out)
    before = manifest(out)
    repo.put("main", "notes/b.txt", b"what was committed")
    address = next(entry.address for entry in repo.list("main", "notes") if entry.path == "notes/b.txt")
    open_store(tmp_path / "repo").put(address, damaged)
    with pytest.raises(BrokenDataFile, match=r"notes/b\.txt"):
        repo.export("main", "notes", out)
    assert manifest(out) == before
    assert not (out / "b.txt").exists()


def test_bad_exports_are_refused(repo: Repository, tmp_path: Path) -> None:
    repo.write(ROWS, "main", "orders")
    with pytest.raises(ObjectNotFound):
        repo.export("main", "nothing", tmp_path / "plain")
    with pytest.raises(InvalidArgument, match="own directory"):
        repo.export("main", "orders", f"{repo.store.uri}/inside")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / MANIFEST).write_text("{")
    with pytest.raises(CorruptTable):
        repo.export("main", "orders", tmp_path / "broken")
