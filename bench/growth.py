"""growth: what a commit, a merge or a run costs, by the size of what is there already.

Each point is a fresh process that opens what was prepared, does the same small work several times and tells the
median, in time and in CPU time of all of its threads, which other work on the machine disturbs less, and its own peak
of memory. The design says flat for all of them but writers, who share two cores.

- a one-row commit, by the versions in the log and by the table's files: the table is open and its files are known, as
  they are in a job that goes on committing. A checkpoint that comes due is written behind the commits.
- a one-row commit to a managed table, by the tables of its owner; and by writers over HTTP, who commit to 100 tables.
- a merge of 100 files in one place, by the files in a repository's tree.
- a run of a pipeline that finds one new file, by the files in its landing place; and a run over datasets with one new
  file each, for each of them.

`LAKESEAL_BENCH_FULL=1` goes to the sizes that take long to make: 10^5 versions, 10^6 files of a table, 10^5 tables, 256
writers, 10^7 files in a tree, 10^6 in a landing place, 10^3 datasets. Without, each ends a tenth before.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import harness
from harness import Growth, Subject, Timer, data_folder

if TYPE_CHECKING:
    from harness import Report

FULL = bool(os.environ.get("LAKESEAL_BENCH_FULL"))
FLAT = 0.4
"""The least that the smallest size may take of the time of the largest, where the design says flat: an order of
magnitude of what is there may cost a memory access more, not a share of what is there."""
COMMITS = 15
SIZES: dict[str, tuple[int, ...]] = {
    "versions": (100, 1_000, 10_000, 100_000),
    "files": (1_000, 10_000, 100_000, 1_000_000),
    "tables": (10, 1_000, 10_000, 100_000),
    "writers": (1, 4, 16, 64, 256),
    "tree": (10_000, 100_000, 1_000_000, 10_000_000),
    "landing": (1_000, 10_000, 100_000, 1_000_000),
    "datasets": (10, 30, 100, 1_000),
}


def sizes(kind: str) -> tuple[int, ...]:
    return SIZES[kind] if FULL else SIZES[kind][:-1]


def main(report: Report) -> None:
    _grown(
        report,
        "A commit, by versions",
        "versions",
        lambda size: Subject(
            name="versions",
            function=commits,
            arguments={"uri": str(data_folder(f"growth-versions-{size}", build_versions, versions=size))},
        ),
        "The log is listed from its last checkpoint on, and a table that is open reads what is newer.",
        flat=True,
    )
    _grown(
        report,
        "A commit, by files of the table",
        "files",
        lambda size: Subject(
            name="files",
            function=commits,
            arguments={"uri": str(data_folder(f"growth-files-{size}", build_files, files=size))},
        ),
        "An append looks at no file. What grows is memory, about as much as the files take in a checkpoint, and the "
        "checkpoint that comes due among the commits, which takes the interpreter and a core from them.",
    )
    with harness.scratch() as folder:
        _grown(
            report,
            "A commit, by tables of the owner",
            "tables",
            lambda size: Subject(name="tables", function=owned, arguments={"tables": size, "folder": str(folder)}),
            "One row is found by its key.",
            flat=True,
        )
        _grown(
            report,
            "A commit over HTTP, by writers",
            "writers",
            lambda size: Subject(name="writers", function=writing, arguments={"writers": size, "folder": str(folder)}),
            "Writers, the service and the database share the cores, so from two writers on they wait for each other.",
        )
        _grown(
            report,
            "A run that finds one new file, by files in the landing place",
            "landing",
            lambda size: Subject(name="landing", function=landing, arguments={"files": size, "folder": str(folder)}),
            "The place is listed: that follows its files, unless their names only grow (`ordered`).",
        )
        _grown(
            report,
            "A dataset's share of a run, by datasets",
            "datasets",
            lambda size: Subject(name="datasets", function=datasets, arguments={"number": size, "folder": str(folder)}),
            "A run of few datasets has its own cost to share among few.",
            flat=True,
        )
    _grown(
        report,
        "A merge of 100 files, by files in the tree",
        "tree",
        lambda size: Subject(
            name="tree",
            function=merges,
            arguments={"folder": str(data_folder(f"branches-format-2-{size}", build_tree, files=size))},
        ),
        "A merge reads the roots of three trees and what changed.",
        flat=True,
    )


def _grown(
    report: Report, case: str, kind: str, point: Callable[[int], Subject], explained: str, *, flat: bool = False
) -> None:
    """`flat`: the largest may not take more than a small multiple of the smallest."""
    if not report.wants(case):
        return
    series: dict[str, list[tuple[float, float]]] = {"ms": [], "CPU ms": [], "MB": []}
    with report.watched(case):
        for size in sizes(kind):
            found = harness.in_fresh_process(point(size))
            told = {**found["facts"], "MB": found["peak_mb"]}
            for name, points in series.items():
                points.append((size, round(told[name], 3)))
            report.say(f"{case}: {size:,}: {told['ms']:.2f} ms, CPU {told['CPU ms']:.2f} ms, {told['MB']:,.0f} MB")
    report.growth(Growth(case=case, across=kind, up="ms and MB", series=series, explained=explained))
    if flat:
        spent = [one for _, one in series["CPU ms"]]
        name = f"{case}: CPU time from {sizes(kind)[0]:,} to {sizes(kind)[-1]:,}"
        report.target(case, name, min(spent) / spent[-1], FLAT)


def build_versions(folder: Path, versions: int) -> None:
    import log_load

    # Some commits behind the last checkpoint, as there mostly are.
    log_load.build(folder, commits=versions + 5, adds=1, checkpoint_every=max(10, versions // 10))


def build_files(folder: Path, files: int) -> None:
    import log_load

    log_load.build(folder, commits=100, adds=files // 100, checkpoint_every=99, oldest_commit=99)


def commits(timer: Timer, uri: str) -> dict[str, float]:
    import datetime as dt

    import log_load
    import pyarrow as pa

    import lakeseal
    from lakeseal.commit.post_commit import flush

    row = {"id": [1], "at": [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)], "name": ["a"], "amount": [1.0]}
    data = pa.table(row | {"day": [dt.date(2024, 1, 1)]}).cast(
        pa.schema(
            {
                "id": pa.int64(),
                "at": pa.timestamp("us", "UTC"),
                "name": pa.string(),
                "amount": pa.float64(),
                "day": pa.date32(),
            }
        )
    )
    with log_load.own_copy(uri) as copy:
        table = lakeseal.Table(copy)
        assert table.files()
        found = _median(lambda: table.write(data))
        flush()
    return found


def owned(timer: Timer, tables: int, folder: str) -> dict[str, float]:
    import pyarrow as pa

    import lakeseal
    from lakeseal import ledger
    from lakeseal.ledger.schema import tables as rows

    home = tempfile.mkdtemp(dir=folder)
    url = f"sqlite:///{home}/ledger.db"
    table = lakeseal.create(f"{home}/table", pa.schema({"id": pa.int64()}), owner=url)
    others = {"state": "active", "epoch": 0, "latest_version": 100, "latest_timestamp": 100, "backfilled_version": 100}
    with ledger.open(url) as book:
        for start in range(0, tables, 1000):
            named = [f"s3://bucket/lake/table-{n}" for n in range(start, min(tables, start + 1000))]
            filled = [{"table_id": name, **others, "conf": {"batchSize": 10}, "updated": 0} for name in named]
            book.write(lambda tx, filled=filled: tx.insert_many(rows, filled))
    return _median(lambda: table.write(pa.table({"id": [1]})))


def writing(timer: Timer, writers: int, folder: str) -> dict[str, float]:
    import owner

    notes = Path(folder) / uuid.uuid4().hex
    total = max(300, writers * 6)
    owner.http_commits(
        timer, database="postgresql", tables=100, writers=writers, total=total // writers * writers, notes=str(notes)
    )
    spent = sum(json.loads(owner._spent_notes(notes).read_text()).values())
    return {
        "ms": statistics.median(map(float, notes.read_text().split())),
        "CPU ms": 1000 * spent / (total // writers * writers),
    }


def landing(timer: Timer, files: int, folder: str) -> dict[str, float]:
    with _pipeline(folder, 1) as (pipeline, places):
        (place,) = places
        for number in range(files // 1000):
            (place / f"{number:06}").mkdir()
            for one in range(1000):
                (place / f"{number:06}/{one:04}.json").write_text('{"id": 1}\n')
        pipeline.run()

        def run() -> None:
            (place / f"new-{uuid.uuid4().hex}.json").write_text('{"id": 1}\n')
            assert pipeline.run().rows == 1

        return _median(run, times=3)


def datasets(timer: Timer, number: int, folder: str) -> dict[str, float]:
    with _pipeline(folder, number) as (pipeline, places):
        pipeline.run()

        def run() -> None:
            for place in places:
                (place / f"new-{uuid.uuid4().hex}.json").write_text('{"id": 1}\n')
            assert pipeline.run().rows == number

        found = _median(run, times=3)
    return {name: one / number for name, one in found.items()}


@contextmanager
def _pipeline(folder: str, number: int) -> Iterator[tuple[Any, list[Path]]]:
    from lakeseal.ingest import Dataset, DirectoryTarget, FilesSource, Pipeline

    home = Path(tempfile.mkdtemp(dir=folder))
    places, made = [], []
    for one in range(number):
        places.append(home / f"in/{one}")
        places[-1].mkdir(parents=True)
        source = FilesSource(path=str(places[-1]), format="json", schema="id long")
        made.append(Dataset(name=f"d{one}", source=source, target=DirectoryTarget(path=str(home / f"out/{one}"))))
    yield Pipeline(name="growth", ledger=f"sqlite:///{home}/ledger.db", datasets=made), places


def build_tree(folder: Path, files: int) -> None:
    import branches

    branches.build(folder, files)


def merges(timer: Timer, folder: str) -> dict[str, float]:
    import branches

    rounds = [Timer() for _ in range(3)]
    for one in rounds:
        branches.merge(one, folder, scattered=False)
    each = 1000 / len(branches.PLACES)
    return {
        "ms": statistics.median(one.seconds * each for one in rounds),
        "CPU ms": statistics.median(one.cpu_seconds * each for one in rounds),
    }


def _median(do: Callable[[], Any], times: int = COMMITS) -> dict[str, float]:
    """In ms, after one that does not count."""
    rounds = [Timer() for _ in range(times + 1)]
    for one in rounds:
        with one:
            do()
    return {
        "ms": 1000 * statistics.median(one.seconds for one in rounds[1:]),
        "CPU ms": 1000 * statistics.median(one.cpu_seconds for one in rounds[1:]),
    }
