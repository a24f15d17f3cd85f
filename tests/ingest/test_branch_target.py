"""Branches as targets: rows are written and judged where nobody on the branch sees them, and merged as a step."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from lakeseal import Repository
from lakeseal.branches.checks import AllowedPaths
from lakeseal.errors import RunFailed
from lakeseal.ingest import BranchTarget, Check, Dataset, Retries
from lakeseal.steps.branch_merge import BranchMergeStep


def to_branch(lake: Any, repo: Repository, **options: Any) -> BranchTarget:
    return BranchTarget(**{"repository": repo.uri, "path": "shop/orders", **options})


def ids(repo: Repository, ref: str = "main") -> Counter[int]:
    return Counter(repo.to_arrow(ref, "shop/orders")["id"].to_pylist())


@pytest.fixture
def repo(lake: Any) -> Repository:
    return Repository.create(f"{lake.place}/repo")


def test_each_row_comes_to_the_branch_once_with_a_merge_as_a_step(lake: Any, repo: Repository) -> None:
    lake.land("1.json", [{"id": 1}, {"id": 2}])
    pipeline = lake.pipeline(Dataset(name="d", source=lake.files(), target=to_branch(lake, repo)))
    result = pipeline.run()
    assert (result.dataset("d").rows, result.dataset("d").steps) == (2, 2)
    lake.land("2.json", [{"id": 3}])
    pipeline.run()
    assert pipeline.run().state == "nothing_new"
    assert ids(repo) == Counter([1, 2, 3])
    assert repo.jobs() == []
    assert '"pipeline":"test"' in repo.log("main")[0].metadata["ingest"]


def test_replace_leaves_the_last_run_on_the_branch(lake: Any, repo: Repository) -> None:
    pipeline = lake.pipeline(Dataset(name="d", source=lake.files(), target=to_branch(lake, repo, mode="replace")))
    for n in (1, 2):
        lake.land(f"{n}.json", [{"id": n}])
        pipeline.run()
    assert ids(repo) == Counter([2])


def test_an_audit_that_fails_leaves_the_branch_and_the_watermarks_as_they_were(lake: Any, repo: Repository) -> None:
    rules = (Check(rule="id > 0", on_fail="fail"),)
    pipeline = lake.pipeline(Dataset(name="d", source=lake.files(), target=to_branch(lake, repo), quality=rules))
    lake.land("1.json", [{"id": 1}])
    pipeline.run()
    head = repo.log("main")[0].id
    lake.land("2.json", [{"id": 2}, {"id": -2, "name": "the bad one"}])
    with pytest.raises(RunFailed, match="the bad one"):
        pipeline.run()
    assert repo.log("main")[0].id == head
    lake.land("2.json", [{"id": 2}])
    pipeline.run()
    assert ids(repo) == Counter([1, 2])


def test_a_merge_that_was_recorded_and_not_done_is_done_by_the_next_run(
    lake: Any, repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = lake.pipeline(Dataset(name="d", source=lake.files(), target=to_branch(lake, repo)))
    lake.land("1.json", [{"id": 1}])
    with monkeypatch.context() as dying:

        def die(_step: BranchMergeStep, _context: Any) -> None:
            raise KeyboardInterrupt

        dying.setattr(BranchMergeStep, "execute", die)
        with pytest.raises(KeyboardInterrupt):
            pipeline.run()
    assert list(pipeline.open_sequences()) == ["d"]
    lake.land("2.json", [{"id": 2}])
    assert pipeline.run().dataset("d").recovered > 0
    assert ids(repo) == Counter([1, 2])


def test_a_branch_whose_own_rules_refuse_the_merge_sets_the_dataset_aside(lake: Any, repo: Repository) -> None:
    pipeline = lake.pipeline(
        Dataset(
            name="d",
            source=lake.files(),
            target=to_branch(lake, repo, mode="replace"),
            retries=Retries(times=0, first_pause_seconds=0),
        )
    )
    lake.land("1.json", [{"id": 1}])
    pipeline.run()
    repo.protect("main", rules=[AllowedPaths(directories=("elsewhere",))])
    lake.land("2.json", [{"id": 2}])
    with pytest.raises(RunFailed):
        pipeline.run()
    assert ids(repo) == Counter([1])
    assert list(pipeline.open_sequences()) == ["d"]
    repo.protect("main", rules=[])
    assert pipeline.run(check=False).dataset("d").state == "set_aside"  # until a person says so
