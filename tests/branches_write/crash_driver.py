"""Kills a job at every step, one after the other: `python crash_driver.py <directory> <every nth>`.

The steps are all writes to the store (data files included) and all transactions of the ledger. After each death the
destination must be as before the job or as after it, and another job must get through. Prints the number of deaths.
A process of its own, because it forks.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from lakeseal import Repository, ledger
from lakeseal.branches import embedded
from lakeseal.storage import StoreSpec
from lakeseal.testing.crashes import CrashingLedger, CrashingStore, Effects, When

OLD = pa.table({"n": [1, 2, 3], "p": [1, 2, 3]})
NEW = pa.table({"n": [10, 20, 30, 40], "p": [1, 2, 4, 5]})


def write_new(directory: Path, effects: Effects) -> None:
    opened = StoreSpec.open
    book = CrashingLedger(ledger.open(f"sqlite:///{directory}/ledger.db"), effects)
    # In a process that ends right after: stores are opened where they are used, in tasks too.
    StoreSpec.open = lambda spec: CrashingStore(opened(spec), effects)  # type: ignore[method-assign,assignment,return-value]
    repo = Repository(embedded.open(directory / "repo", ledger=book))  # type: ignore[arg-type]
    repo.write(NEW, "main", "out", mode="overwrite", partition_by="p", format="csv")


def in_child(do: Callable[[], None]) -> int:
    """How it ended: 0, or the signal that killed it."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        do()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def seen(directory: Path) -> list[int]:
    repo = Repository.open(directory / "repo", ledger=f"sqlite:///{directory}/ledger.db")
    return sorted(repo.to_arrow("main", "out")["n"].to_pylist())


def check(directory: Path, was_last: bool) -> None:
    old, new = sorted(OLD["n"].to_pylist()), sorted(NEW["n"].to_pylist())
    found = seen(directory)
    assert found in (old, new), found
    repo = Repository.open(directory / "repo", ledger=f"sqlite:///{directory}/ledger.db")
    done = [commit for commit in repo.log("main") if commit.metadata.get("lakeseal.format") == "csv"]
    assert bool(done) == (found == new), "the log and the files tell different stories"
    repo.gc(job_grace_hours=0)
    assert seen(directory) == found
    repo.write(OLD, "main", "out", mode="overwrite", partition_by="p")
    assert seen(directory) == old
    repo.gc(job_grace_hours=0)
    assert seen(directory) == old


def main(root: Path, every: int) -> int:
    template = root / "template"
    template.mkdir()

    def prepare() -> None:
        made = Repository.create(template / "repo", ledger=f"sqlite:///{template}/ledger.db")
        made.write(OLD, "main", "out", partition_by="p")

    assert in_child(prepare) == 0
    deaths, step = 0, 0
    while True:
        step += every
        for when in (When.BEFORE, When.INSIDE, When.AFTER):
            directory = root / "case"
            shutil.copytree(template, directory)
            ended = in_child(lambda: write_new(directory, Effects(at=step, when=when)))  # noqa: B023
            if ended == 0:
                assert seen_in_child(directory) == 0
                return deaths
            assert ended == -signal.SIGKILL, f"step {step}, {when}: ended with {ended}"
            assert in_child(lambda: check(directory, False)) == 0, f"step {step}, {when}"  # noqa: B023
            deaths += 1
            shutil.rmtree(directory)


def seen_in_child(directory: Path) -> int:
    def whole() -> None:
        assert seen(directory) == sorted(NEW["n"].to_pylist())

    return in_child(whole)


if __name__ == "__main__":
    print(main(Path(sys.argv[1]), int(sys.argv[2])))
