"""Many writers of one table: every acknowledged commit is there once, and versions have no gap."""

from __future__ import annotations

import multiprocessing
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeseal import Table, errors
from lakeseal.commit.post_commit import flush
from lakeseal.log.maintenance import maintain
from lakeseal.testing.s3 import S3Server

WRITERS = 8
# Children are forked from a process without threads that has everything loaded.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["support.loaded", "lakeseal.table"])


@pytest.fixture(params=[("local", 20), ("s3", 8)], ids=["local", "s3"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, str], int]:
    """Where a table is, with which options, and how often each writer appends to it."""
    kind, commits = request.param
    if kind == "local":
        return str(tmp_path / "contended"), {}, commits
    s3: S3Server = request.getfixturevalue("s3")
    return s3.uri(f"{uuid.uuid4().hex}/contended"), dict(s3.storage_options), commits


def _append(uri: str, options: dict[str, str], writer: int, commits: int) -> list[int]:
    table = Table(uri, storage_options=options)
    rows = (pa.table({"writer": [writer], "number": [number]}) for number in range(commits))
    versions = [table.write(row).version for row in rows]
    flush()
    return versions


def test_every_append_of_eight_processes_is_a_version_and_is_there_once(
    location: tuple[str, dict[str, str], int],
) -> None:
    uri, options, commits = location
    Table(uri, storage_options=options).write(pa.table({"writer": [-1], "number": [-1]}))
    with SERVER.Pool(WRITERS) as pool:
        tasks = [pool.apply_async(_append, (uri, options, writer, commits)) for writer in range(WRITERS)]
        versions = [version for task in tasks for version in task.get(timeout=500)]
    assert sorted(versions) == list(range(1, WRITERS * commits + 1))
    table = Table(uri, storage_options=options)
    assert table.version() == WRITERS * commits
    found = sorted(zip(*table.to_arrow().select(["writer", "number"]).to_pydict().values(), strict=True))
    assert found == [(-1, -1)] + [(w, n) for w in range(WRITERS) for n in range(commits)]


def numbers(*values: int, day: str = "d") -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64()), "day": pa.array([day] * len(values), pa.string())})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Table(tmp_path / "table").write(numbers(1, day="a"), partition_by="day")
    Table(tmp_path / "table").write(numbers(2, day="b"))
    return tmp_path / "table"


class Meanwhile:
    """Data that lets somebody else commit after the transaction began and before it commits."""

    def __init__(self, rows: pa.Table, act: Any) -> None:
        self._rows, self._act = rows, act

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        def batches() -> Iterator[pa.RecordBatch]:
            self._act()
            yield from self._rows.to_batches()

        return pa.RecordBatchReader.from_batches(self._rows.schema, batches()).__arrow_c_stream__()


def ids(folder: Path) -> list[int]:
    return sorted(Table(folder).to_arrow()["id"].to_pylist())


def test_an_append_during_an_append_is_no_conflict(folder: Path) -> None:
    Table(folder).write(Meanwhile(numbers(4), lambda: Table(folder).write(numbers(3))))
    assert ids(folder) == [1, 2, 3, 4]


@pytest.mark.field_bug(11)
def test_an_overwrite_during_an_overwrite_is_a_conflict(folder: Path) -> None:
    with pytest.raises(errors.ConcurrentModification):
        Table(folder).write(
            Meanwhile(numbers(4), lambda: Table(folder).write(numbers(3), mode="overwrite")), mode="overwrite"
        )
    assert ids(folder) == [3]


@pytest.mark.field_bug(11)
def test_two_overwrites_of_an_empty_table_do_not_both_count(tmp_path: Path) -> None:
    folder = tmp_path / "table"
    Table(folder).write(numbers())
    with pytest.raises(errors.ConcurrentModification):
        Table(folder).write(
            Meanwhile(numbers(2), lambda: Table(folder).write(numbers(1), mode="overwrite")), mode="overwrite"
        )
    assert ids(folder) == [1]


@pytest.mark.field_bug(11)
@pytest.mark.parametrize(("level", "conflict"), [("Serializable", True), ("WriteSerializable", False)])
def test_a_blind_append_during_an_overwrite_counts_as_after_it_unless_serializable(
    folder: Path, level: str, conflict: bool
) -> None:
    data = Meanwhile(numbers(4), lambda: Table(folder).write(numbers(3)))
    if conflict:
        with pytest.raises(errors.ConcurrentAppendException):
            Table(folder).write(data, mode="overwrite", isolation_level=level)
        assert ids(folder) == [1, 2, 3]
    else:
        Table(folder).write(data, mode="overwrite", isolation_level=level)
        assert ids(folder) == [3, 4]


def test_replacing_different_partitions_is_no_conflict(folder: Path) -> None:
    Table(folder).write(
        Meanwhile(
            numbers(10, day="a"),
            lambda: Table(folder).write(numbers(20, day="b"), mode="overwrite", replace_where="day = 'b'"),
        ),
        mode="overwrite",
        replace_where="day = 'a'",
        isolation_level="Serializable",
    )
    assert ids(folder) == [10, 20]


def test_replacing_the_same_partition_is_a_conflict(folder: Path) -> None:
    with pytest.raises(errors.ConcurrentModification):
        Table(folder).write(
            Meanwhile(
                numbers(10, day="a"),
                lambda: Table(folder).write(numbers(11, day="a"), mode="overwrite", partition_overwrite="dynamic"),
            ),
            mode="overwrite",
            partition_overwrite="dynamic",
        )
    assert ids(folder) == [2, 11]


def test_a_schema_change_during_an_append_is_a_conflict(folder: Path) -> None:
    with pytest.raises(errors.MetadataChangedException):
        Table(folder).write(
            Meanwhile(numbers(4), lambda: Table(folder).add_columns(pa.schema([("extra", pa.int32())])))
        )
    assert ids(folder) == [1, 2]


def test_two_creators_make_one_table(tmp_path: Path) -> None:
    folder = tmp_path / "table"
    with pytest.raises(errors.ConcurrentModification):
        Table(folder).write(Meanwhile(numbers(2), lambda: Table(folder).write(numbers(1))))
    assert ids(folder) == [1]


def test_upkeep_runs_beside_writers_without_harm(folder: Path) -> None:
    table = Table(folder)
    for number in range(3, 25):
        table.write(numbers(number))
        maintain(table._log, table.snapshot(), now_ms=1_900_000_000_000)
    flush()
    assert ids(folder) == list(range(1, 25))
