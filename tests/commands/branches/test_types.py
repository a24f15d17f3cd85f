"""An append whose types contradict the files that are there is refused: every later read of them would fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeseal import Repository, errors

ON_S3 = True

INTS = pa.table({"x": pa.array([1, 2], pa.int64()), "p": ["a", "b"]})
TEXTS = pa.table({"x": ["one", "two"], "p": ["a", "b"]})


@pytest.fixture
def repo(tmp_path: Path) -> Iterator[Repository]:
    repo = Repository.create(tmp_path / "repo", ledger=f"sqlite:///{tmp_path}/ledger.db")
    yield repo
    repo.store.close()


@pytest.mark.parametrize("format", ["parquet", "json", "csv", "orc"])
def test_an_append_of_another_type_is_refused_and_the_directory_stays_readable(repo: Repository, format: str) -> None:
    repo.write(INTS, "main", "out", format=format)
    head = repo.store.head("main")
    with pytest.raises(errors.SchemaMismatch, match="another type") as caught:
        repo.write(TEXTS, "main", "out", format=format)
    assert (caught.value.column, caught.value.file) == ("x", "out")
    assert repo.store.head("main") == head
    assert repo.to_arrow("main", "out").sort_by("x").to_pylist() == INTS.to_pylist()


def test_files_that_no_job_wrote_count_too(repo: Repository, tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(INTS, file)
    repo.put("main", "out/a.parquet", file.read_bytes())
    with pytest.raises(errors.SchemaMismatch):
        repo.write(TEXTS, "main", "out")
    repo.write(INTS, "main", "out")
    assert repo.to_arrow("main", "out").num_rows == 4


def test_other_columns_and_an_overwrite_are_fine(repo: Repository) -> None:
    repo.write(INTS, "main", "out")
    repo.write(pa.table({"y": [1.5], "p": ["c"]}), "main", "out")
    repo.write(TEXTS, "main", "out", mode="overwrite")
    repo.write(TEXTS, "main", "out")
    assert repo.to_arrow("main", "out").num_rows == 4


def test_a_dynamic_overwrite_must_fit_the_partitions_that_stay(repo: Repository) -> None:
    repo.write(INTS, "main", "out", partition_by="p")
    with pytest.raises(errors.SchemaMismatch):
        repo.write(TEXTS.slice(0, 1), "main", "out", mode="overwrite", partition_overwrite="dynamic", partition_by="p")


def test_whoever_insists_appends_and_reads_with_a_schema(repo: Repository) -> None:
    repo.write(INTS, "main", "out")
    repo.write(TEXTS, "main", "out", mixed_types=True)
    with pytest.raises(errors.SchemaMismatch):
        repo.to_arrow("main", "out")
    repo.write(INTS, "main", "out", mixed_types=True)


def test_a_type_that_was_appended_meanwhile_is_seen_at_the_merge(repo: Repository) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield from TEXTS.to_batches()
        repo.write(INTS, "main", "out")  # while the job writes

    reader = pa.RecordBatchReader.from_batches(TEXTS.schema, rows())
    with pytest.raises(errors.SchemaMismatch):
        repo.write(reader, "main", "out")
    assert repo.to_arrow("main", "out").num_rows == 2


@pytest.mark.parametrize("format", ["parquet", "json", "csv", "orc"])
def test_of_files_that_are_partitioned_in_several_ways_each_has_its_own_values(repo: Repository, format: str) -> None:
    for partitions in ("p", "x", ()):
        repo.write(INTS, "main", "out", format=format, partition_by=partitions)
    found = repo.to_arrow("main", "out").select(["x", "p"]).sort_by("x").to_pylist()
    assert found == [row for row in INTS.to_pylist() for _ in range(3)]
