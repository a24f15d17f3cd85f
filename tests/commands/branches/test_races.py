"""Many overwriters of one path at once: one job's files afterwards (G3), and every job in the log (G2, G5)."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

from lakeseal import Repository

WRITERS = 16


def race(repo_path: Path, ledger: str, rounds: int, writers: int = WRITERS) -> None:
    repos = [Repository.open(repo_path, ledger=ledger) for _ in range(writers)]
    acknowledged: set[str] = set()
    for number in range(rounds):
        failures: list[BaseException] = []
        jobs: list[str] = []
        start = threading.Barrier(writers)

        def write(
            repo: Repository,
            mark: int,
            start: threading.Barrier = start,
            jobs: list[str] = jobs,
            failures: list[BaseException] = failures,
        ) -> None:
            # Files of every writer have different names, and some have equal content under different names.
            rows = pa.table(
                {"p": list(range(mark % 4 + 1)), "mark": [mark] * (mark % 4 + 1), "same": [0] * (mark % 4 + 1)}
            )
            start.wait()
            try:
                jobs.append(repo.write(rows, "main", "out", format="json", mode="overwrite", partition_by="p").job)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=write, args=(repo, number * writers + n)) for n, repo in enumerate(repos)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(jobs) == writers
        acknowledged |= set(jobs)
        found = [entry.path for entry in repos[0].list("main", "out") if "/part-" in entry.path]
        owners = {path.rpartition("/part-00000-")[2].removesuffix("-c000.json") for path in found}
        assert len(owners) == 1, owners
        assert owners <= set(jobs)
        marks = set(repos[0].to_arrow("main", "out")["mark"].to_pylist())
        assert len(marks) == 1
        assert len(found) == marks.pop() % 4 + 1
    merged = {commit.job for commit in repos[0].log("main") if len(commit.parents) == 2}
    assert acknowledged <= merged
    assert repos[0].jobs() == []


def test_sixteen_overwriters_of_one_path_leave_one_jobs_files_each_round(tmp_path: Path) -> None:
    ledger = f"sqlite:///{tmp_path}/ledger.db"
    Repository.create(tmp_path / "repo", ledger=ledger)
    race(tmp_path / "repo", ledger, rounds=3)


@pytest.mark.stress
def test_sixteen_overwriters_of_one_path_leave_one_jobs_files_in_each_of_fifty_rounds(tmp_path: Path) -> None:
    ledger = f"sqlite:///{tmp_path}/ledger.db"
    Repository.create(tmp_path / "repo", ledger=ledger)
    race(tmp_path / "repo", ledger, rounds=50)
