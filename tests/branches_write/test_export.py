from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from lakeseal import Repository
from lakeseal.errors import CorruptTable, InvalidArgument, ObjectNotFound
from lakeseal.repository_export import MANIFEST, Manifest
from lakeseal.storage import open_store
from lakeseal.testing.faults import Fault, FaultyStore

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
    from lakeseal.repository_export import export

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


def test_bad_exports_are_refused(repo: Repository, tmp_path: Path) -> None:
    repo.write(ROWS, "main", "orders")
    with pytest.raises(ObjectNotFound):
        repo.export("main", "nothing", tmp_path / "plain")
    with pytest.raises(InvalidArgument, match="own directory"):
        repo.export("main", "orders", tmp_path / "repo" / "inside")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / MANIFEST).write_text("{")
    with pytest.raises(CorruptTable):
        repo.export("main", "orders", tmp_path / "broken")
