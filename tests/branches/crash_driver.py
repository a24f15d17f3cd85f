"""Kills a user of a repository at every write to store and ledger, one after the other, and lets a survivor go on:
`python crash_driver.py <ledger URL or "sqlite"> <directory> <every nth>`.

Prints the number of crashes; what is wrong is an exception. A process of its own, because it forks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from contracts.branch_contract import content, run_job, write
from lakeseal import ledger
from lakeseal.branches import embedded
from lakeseal.branches.embedded.store import EmbeddedBranchStore
from lakeseal.branches.tree.ranges import TreeShape
from lakeseal.branches.tree.writer import TreeWriter
from lakeseal.branches.values import Changes, Job
from lakeseal.errors import AlreadyExists, HistoryExpired, RepositoryNotFound
from lakeseal.storage import open_store
from support.crash_runs import crash_everywhere
from support.crashes import CrashingLedger, CrashingStore, Effects

SHAPE = TreeShape(cut=3, longest=5, node_cut=2, node_longest=2)
TreeWriter.largest = 2_000
"""So that commits have further files."""


class Script:
    """A bit of everything that moves a branch or removes something. `main` goes through known states."""

    def __init__(self, url: str, directory: Path, effects: Effects) -> None:
        self.effects = effects
        self.place = directory / "repo"
        self.done = directory / "done"
        self.store = CrashingStore(open_store(self.place), effects)
        self.ledger = CrashingLedger(ledger.open(url), effects)

    def run(self) -> None:
        self.step(0, lambda: embedded.create(self.place, ledger=self.ledger, store=self.store, shape=SHAPE))  # type: ignore[arg-type]
        repo = embedded.open(self.place, ledger=self.ledger, store=self.store)  # type: ignore[arg-type]
        for number, step in enumerate(STEPS, start=1):
            self.step(number, lambda step=step: step(repo))  # type: ignore[misc]

    def step(self, number: int, do: Callable[[], object]) -> None:
        do()
        with self.done.open("a") as out:
            out.write(f"{number}\n")


FIRST = {f"out/{n}": b"first" for n in range(8)}


def many(repo: EmbeddedBranchStore) -> None:
    job = repo.begin_job("first", dest="main", path="out")
    repo.commit("main", Changes(puts=write(repo, job, FIRST)), job=job.id)
    repo.end_job(job)


def overwrite(repo: EmbeddedBranchStore) -> Job:
    return run_job(repo, "second", "out", {"a": b"second", "b": b"second", "c": b"second"}, overwrite=True)


def publish(repo: EmbeddedBranchStore) -> None:
    job = repo.job("second", "out")
    repo.put("main", "beside", b"beside")
    repo.merge(job.branch, "main")
    repo.end_job(job)


def on_a_branch(repo: EmbeddedBranchStore) -> None:
    repo.create_branch("exp")
    repo.put("exp", "exp", b"exp")
    repo.put("main", "beside", b"changed")
    repo.create_tag("v1", "exp")


def give_up(repo: EmbeddedBranchStore) -> None:
    abandoned = run_job(repo, "abandoned", "else", {"x": b"x"}, overwrite=True)
    repo.end_job(abandoned)
    repo.create_branch("waste")
    repo.put("waste", "waste", b"waste")
    repo.delete_branch("waste")


STEPS: list[Callable[[EmbeddedBranchStore], object]] = [
    many,
    overwrite,
    publish,
    on_a_branch,
    lambda repo: repo.merge("exp", "main"),
    give_up,
    lambda repo: repo.gc(job_grace_ms=0),
    lambda repo: repo.revert("main", "main~1"),
    lambda repo: repo.reset("main", "v1"),
    lambda repo: repo.gc(job_grace_ms=0, history_ms=0),
]

SECOND = {"out/a": b"second", "out/b": b"second", "out/c": b"second"}
# What `main` may show while each step is under way; the last is what it shows after it.
STATES: list[list[dict[str, bytes]]] = [
    [{}],
    [{}, FIRST],
    [FIRST],
    [FIRST, FIRST | {"beside": b"beside"}, SECOND | {"beside": b"beside"}],
    [SECOND | {"beside": b"beside"}, SECOND | {"beside": b"changed"}],
    [SECOND | {"beside": b"changed"}, SECOND | {"beside": b"changed", "exp": b"exp"}],
    [SECOND | {"beside": b"changed", "exp": b"exp"}],
    [SECOND | {"beside": b"changed", "exp": b"exp"}],
    [SECOND | {"beside": b"changed", "exp": b"exp"}, SECOND | {"beside": b"beside", "exp": b"exp"}],
    [SECOND | {"beside": b"beside", "exp": b"exp"}],
    [SECOND | {"beside": b"beside", "exp": b"exp"}],
]


def survive(url: str, directory: Path) -> None:
    """What must hold after a crash, before and after somebody goes on."""
    done = [int(line) for line in (directory / "done").read_text().split()] if (directory / "done").exists() else []
    step = len(done)
    with ledger.open(url) as book:
        try:
            repo = embedded.open(directory / "repo", ledger=book)
        except RepositoryNotFound:
            assert not done, "a repository that was made is not there"
            repo = embedded.create(directory / "repo", ledger=book, shape=SHAPE)
        if not done:
            try:
                embedded.create(directory / "repo", ledger=book)
            except AlreadyExists:
                pass
            else:
                raise AssertionError("a repository was made twice")
        before = [STATES[step - 1][-1]] if step else [{}]
        allowed = STATES[step] if step < len(STATES) else before
        assert content(repo, "main") in before + allowed, f"G2: {content(repo, 'main')} while step {step} was under way"
        expired = step >= len(STEPS)
        whole(repo, expired)
        repo.gc()
        whole(repo, expired)
        repo.put("main", "survivor", b"survivor")
        job = run_job(repo, "survivor", "out", {"survivor": b"survivor"}, overwrite=True)
        repo.merge(job.branch, "main", strategy="source-wins")
        repo.end_job(job)
        assert content(repo, "main", "out") == {"out/survivor": b"survivor"}, "G3"
        report = repo.gc(job_grace_ms=0)
        assert repo.jobs() == []
        assert repo.gc(job_grace_ms=0, dry_run=True).objects == 0, report
        whole(repo, expired)


def whole(repo: EmbeddedBranchStore, expired: bool) -> None:
    """Everything that a branch, tag or job leads to is there, but for history that was given up."""
    for ref in [*repo.branches(), *repo.tags()]:
        content(repo, ref.name)
        for commit in repo.log(ref.name):
            try:
                list(repo.list(commit.id))
            except HistoryExpired:
                assert expired
    for job in repo.jobs():
        content(repo, job.branch)


def main(ledger_url: str, directory: str, nth: str) -> None:
    crashes = crash_everywhere(
        Path(directory),
        ledger_url,
        int(nth),
        lambda url, home, effects: Script(url, home, effects).run(),
        survive,
        distinct=True,
        # What is old history to the last collection depends on the clock, and so does what it deletes.
        may_end=lambda left: left < 5,
    )
    print(crashes)


if __name__ == "__main__":
    main(*sys.argv[1:])
