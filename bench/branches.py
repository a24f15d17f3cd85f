"""branches: what a job's commit and merge cost beside the size of the tree they go into.

Repositories on local disk with SQLite, prepared with 1, 10^4 and 10^6 files. What is timed starts in a fresh process,
with nothing read yet, and ends when the ledger has moved the head; every file is fsynced. The destination moves between
the job's start and its merge, so each merge is a real three-way one. Peers of the largest tree are the smaller ones: if
the cost follows the change, their times are alike: within twice that of 10^4.

- `5 merges of 100 files in one directory`: of what jobs write to one place, in five parts of the tree, since ranges are
  of different lengths.
- `5 merges of 100 files all over`: the same number, each in another part of the tree: many ranges change.
- `5 merges of 100 files all over, beside 100 others`: and the destination has changed the same parts meanwhile, so that
  each range has to be merged file by file.
- `4,000 files, commit and merge`: a job with 4,000 partitions, from its first call to its last; and the same as an
  overwrite that has to remove 4,000 files that another job put there meanwhile.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import harness
from harness import Subject, Timer

if TYPE_CHECKING:
    import pyarrow as pa
    from harness import Report

    from lakeseal.branches.embedded.store import EmbeddedBranchStore

PLACES = ("t10", "t30", "t50", "t70", "t90")
BESIDE = "Both sides changed the same ranges, of which the small tree has only 20: each is merged file by file."
SIZES = {"1,000,000": 1_000_000, "10,000": 10_000, "1": 1}


def main(report: Report) -> None:
    folders = {
        name: harness.data_folder(f"branches-format-2-{size}", build, files=size) for name, size in SIZES.items()
    }
    for case, function, arguments in (
        ("5 merges of 100 files in one directory", merge, {"scattered": False}),
        ("5 merges of 100 files all over", merge, {"scattered": True}),
        ("5 merges of 100 files all over, beside 100 others", merge, {"scattered": True, "beside": True}),
        ("4,000 files, commit and merge", job, {"overwrite": False}),
        ("4,000 files over 4,000 others, commit and merge", job, {"overwrite": True}),
    ):
        subjects = [
            Subject(name=f"into {name} files", function=function, arguments={"folder": str(folder), **arguments})
            for name, folder in folders.items()
        ]
        reason = BESIDE if "beside" in case else ""
        report.compare(case, subjects, targets={"into 10,000 files": 0.5}, reason=reason, warm_up=False)


def build(folder: Path, files: int) -> None:
    from lakeseal.branches import embedded
    from lakeseal.branches.values import Changes

    repo = embedded.create(folder / "repo")
    repo.commit("main", Changes(puts=_entries([f"warehouse/{_name(n)}" for n in range(files)], "data/built")))
    repo.close()


def merge(timer: Timer, folder: str, scattered: bool, beside: bool = False) -> dict[str, int]:
    from lakeseal.branches import embedded
    from lakeseal.branches.values import Changes

    added = 0
    for place in PLACES:
        repo = embedded.open(Path(folder) / "repo")
        start = repo.head("main")
        job = repo.begin_job(uuid.uuid4().hex, dest="main", path=f"warehouse/{place}/out")
        names = [f"warehouse/{_name(n * 9973 + 1)}x" if scattered else f"{job.path}/part-{n:05}" for n in range(100)]
        repo.commit(job.branch, Changes(puts=_entries(names, job.data_prefix)), job=job.id)
        if beside:
            repo.commit("main", Changes(puts=_entries([f"{name}y" for name in names], "data/beside")))
        else:
            repo.put("main", f"warehouse/{place}/moved", b"")
        repo.close()

        with timer:
            fresh = embedded.open(Path(folder) / "repo")
            added += fresh.merge(job.branch, "main").added
        _restore(fresh, start)
    return {"added": added}


def job(timer: Timer, folder: str, overwrite: bool) -> dict[str, int]:
    from lakeseal.branches import embedded
    from lakeseal.branches.values import Changes

    repo = embedded.open(Path(folder) / "repo")
    start = repo.head("main")
    jobs = [repo.begin_job(uuid.uuid4().hex, dest="main", path="warehouse/t50/out") for _ in range(2)]
    tables = [_entries([f"{job.path}/p={n}/{job.id}.parquet" for n in range(4000)], job.data_prefix) for job in jobs]
    directories = ("warehouse/t50/out",) if overwrite else ()
    if overwrite:
        repo.commit(jobs[0].branch, Changes(puts=tables[0], directories=directories), job=jobs[0].id)
        repo.merge(jobs[0].branch, "main")
    else:
        repo.put("main", "warehouse/t50/moved", b"")
    repo.close()

    with timer:
        fresh = embedded.open(Path(folder) / "repo")
        fresh.commit(jobs[1].branch, Changes(puts=tables[1], directories=directories), job=jobs[1].id)
        result = fresh.merge(jobs[1].branch, "main")
        fresh.end_job(jobs[1])
    _restore(fresh, start)
    return {"added": result.added, "removed": result.removed}


def _restore(repo: EmbeddedBranchStore, start: str) -> None:
    repo.reset("main", start)
    for job in repo.jobs():
        repo.end_job(job)
    repo.close()


def _name(number: int) -> str:
    return f"t{number % 97:02}/day={number % 365:03}/part-{number % 1_000_003:08}.parquet"


def _entries(paths: list[str], prefix: str) -> pa.Table:
    import hashlib

    import pyarrow as pa

    from lakeseal.branches.values import ENTRIES

    columns: list[Any] = [
        paths,
        [f"{prefix}/{number:08}-0/{uuid.UUID(int=number)}.parquet" for number in range(len(paths))],
        list(range(len(paths))),
        [f"sha256:{hashlib.sha256(path.encode()).hexdigest()}" for path in paths],
        [None] * len(paths),
    ]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, ENTRIES, strict=True)], schema=ENTRIES)
