from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeseal.branches import embedded
from lakeseal.branches.store import BranchStore
from lakeseal.errors import HeadChanged
from lakeseal.ledger import Ledger
from lakeseal.steps import CommitSequence, StepContext, step
from lakeseal.steps.branch_merge import BranchMergeStep
from lakeseal.steps.ledger_store import LedgerStepStore
from lakeseal.steps.recovery import RecoveryOutcome, recover


@pytest.fixture(params=["own ledger", "shared ledger"])
def repo(request: pytest.FixtureRequest, tmp_path: Path, sqlite_ledger: Ledger) -> Iterator[BranchStore]:
    ledger = sqlite_ledger if request.param == "shared ledger" else None
    store = embedded.create(tmp_path / "repo", ledger=ledger)
    store.put("main", "a", b"1")
    store.create_branch("job")
    store.put("job", "out/x", b"x")
    yield store
    store.close()


def paths(repo: BranchStore) -> list[str]:
    return [entry.path for entry in repo.list("main")]


def test_a_commit_is_merged_once_whatever_comes_after(repo: BranchStore, sqlite_ledger: Ledger) -> None:
    context = StepContext(ledger=sqlite_ledger, owners={})
    merge = BranchMergeStep.of(repo, "job", "main")
    repo.put("job", "out/later", b"not part of it")
    assert not merge.verify(context)

    again = step.decode(step.encode(merge))
    again.execute(context)
    assert paths(repo) == ["a", "out/x"]
    head = repo.head("main")
    merge.execute(context)
    assert repo.head("main") == head
    repo.put("main", "b", b"2")

    assert merge.verify(context)
    assert paths(repo) == ["a", "b", "out/x"]


def test_others_may_move_the_branch_before(repo: BranchStore, sqlite_ledger: Ledger) -> None:
    context = StepContext(ledger=sqlite_ledger, owners={})
    merge = BranchMergeStep.of(repo, "job", "main")
    repo.put("main", "b", b"2")

    merge.execute(context)

    assert paths(repo) == ["a", "b", "out/x"]


def test_a_merge_for_one_head_is_made_onto_no_other(repo: BranchStore, sqlite_ledger: Ledger) -> None:
    context = StepContext(ledger=sqlite_ledger, owners={})
    merge = BranchMergeStep.of(repo, "job", "main", only_onto_head=True)
    repo.put("main", "b", b"2")

    with pytest.raises(HeadChanged):
        merge.execute(context)

    assert paths(repo) == ["a", "b"]


def test_a_conflict_sets_the_dataset_aside(repo: BranchStore, sqlite_ledger: Ledger) -> None:
    context = StepContext(ledger=sqlite_ledger, owners={})
    merge = BranchMergeStep.of(repo, "job", "main")
    repo.put("main", "out/x", b"other")
    steps = LedgerStepStore(sqlite_ledger)
    steps.put(CommitSequence.builder("s", "d").add(merge).build())

    result = recover(steps, "s", context, sleep=lambda _: None).datasets[0]

    assert result.outcome is RecoveryOutcome.SET_ASIDE
    assert "out/x" in (result.reason or "")
    assert repo.read("main", "out/x") == b"other"
