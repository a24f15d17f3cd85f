"""Kills a job at every step, one after the other: `python crash_driver.py <directory> <every nth>`.

The steps are all writes to the store (data files included) and all transactions of the ledger. After each death the
destination must be as before the job or as after it, and another job must get through. Prints the number of deaths.
A process of its own, because it forks.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa

from lakeseal import Repository, ledger
from lakeseal.branches import embedded
from lakeseal.storage import StoreSpec
from support.crash_runs import SQLITE, crash_everywhere
from support.crashes import CrashingLedger, CrashingStore, Effects

OLD = pa.table({"n": [1, 2, 3], "p": [1, 2, 3]})
NEW = pa.table({"n": [10, 20, 30, 40], "p": [1, 2, 4, 5]})


def prepare(url: str, directory: Path) -> None:
    Repository.create(directory / "repo", ledger=url).write(OLD, "main", "out", partition_by="p")


def write_new(url: str, directory: Path, effects: Effects) -> None:
    opened = StoreSpec.open
    book = CrashingLedger(ledger.open(url), effects)
    # In a process that ends right after: stores are opened where they are used, in tasks too.
    StoreSpec.open = lambda spec: CrashingStore(opened(spec), effects)  # type: ignore[method-assign,assignment,return-value]
    repo = Repository(embedded.open(directory / "repo", ledger=book))  # type: ignore[arg-type]
    repo.write(NEW, "main", "out", mode="overwrite", partition_by="p", format="csv")


def seen(repo: Repository) -> list[int]:
    return sorted(repo.to_arrow("main", "out")["n"].to_pylist())


def check(url: str, directory: Path) -> None:
    old, new = sorted(OLD["n"].to_pylist()), sorted(NEW["n"].to_pylist())
    repo = Repository.open(directory / "repo", ledger=url)
    found = seen(repo)
    assert found in (old, new), found
    done = [commit for commit in repo.log("main") if commit.metadata.get("lakeseal.format") == "csv"]
    assert bool(done) == (found == new), "the log and the files tell different stories"
    repo.gc(job_grace_hours=0)
    assert seen(repo) == found
    repo.write(OLD, "main", "out", mode="overwrite", partition_by="p")
    assert seen(repo) == old
    repo.gc(job_grace_hours=0)
    assert seen(repo) == old


if __name__ == "__main__":
    root, nth = Path(sys.argv[1]), int(sys.argv[2])
    print(crash_everywhere(root, SQLITE, nth, write_new, check, prepare=prepare, distinct=True))
