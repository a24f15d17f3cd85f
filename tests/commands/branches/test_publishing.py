"""Write, audit, publish; what others do meanwhile; who else is writing."""

from __future__ import annotations

import logging

import pyarrow as pa
import pytest

from lakeseal import Repository
from lakeseal.branches.checks import RequiredMetadata
from lakeseal.branches.store import MergeProposal
from lakeseal.errors import BranchProtected, CheckRefused, InvalidArgument, MergeConflict, StorageUnavailable

ON_S3 = True

ROWS = pa.table({"n": [1, 2, 3]})


def test_write_audit_publish_is_three_lines(repo: Repository) -> None:
    repo.create_branch("audit", "main")
    repo.write(ROWS, "audit", "orders", mode="overwrite")
    assert repo.to_arrow("audit", "orders")["n"].null_count == 0
    repo.merge("audit", "main")
    assert repo.to_arrow("main", "orders").num_rows == 3


def test_a_write_that_its_check_refuses_leaves_the_branch_as_it_was(repo: Repository) -> None:
    repo.write(ROWS, "main", "orders")
    head = repo.store.head("main")

    def not_too_few(proposal: MergeProposal) -> str | None:
        rows = int(proposal.metadata["lakeseal.rows"])
        return f"only {rows} rows" if rows < 3 else None

    with pytest.raises(CheckRefused, match="only 1 rows") as refused:
        repo.write(ROWS.slice(0, 1), "main", "orders", mode="overwrite", checks=[not_too_few])
    assert repo.store.head("main") == head
    (kept,) = repo.jobs()
    assert kept.branch in str(refused.value)
    assert repo.to_arrow(kept.branch, "orders").num_rows == 1
    repo.write(ROWS, "main", "orders", mode="overwrite", checks=[not_too_few])


def test_a_protected_branch_takes_jobs_that_pass_its_rules_and_no_commits(repo: Repository) -> None:
    repo.protect("main", rules=[RequiredMetadata(keys=("ticket",))])
    with pytest.raises(CheckRefused):
        repo.write(ROWS, "main", "orders")
    repo.write(ROWS, "main", "orders", metadata={"ticket": "1"})
    with pytest.raises(BranchProtected):
        repo.put("main", "x", b"x")
    assert repo.to_arrow("main", "orders").num_rows == 3


class Between:
    """The repository's branch store, with something that happens right before the job commits."""

    def __init__(self, repo: Repository, happens: object) -> None:
        self._store = repo.store
        self._happens = happens

    def __getattr__(self, name: str) -> object:
        if name == "commit":
            self._happens()  # type: ignore[operator]
        return getattr(self._store, name)


def test_a_foreign_write_under_the_path_is_a_conflict_that_names_it(repo: Repository) -> None:
    repo.write(ROWS, "main", "orders")
    writer = Repository(Between(repo, lambda: repo.put("main", "orders/by-hand.txt", b"x")))  # type: ignore[arg-type]
    with pytest.raises(MergeConflict, match=r"orders/by-hand\.txt") as conflict:
        writer.write(ROWS, "main", "orders", mode="overwrite")
    (found,) = conflict.value.conflicts
    assert (found.path, found.kind) == ("orders/by-hand.txt", "foreign-write")
    assert repo.read("main", "orders/by-hand.txt") == b"x"
    assert repo.to_arrow("main~1", "orders").num_rows == 3


def test_what_others_wrote_before_the_job_is_overwritten(repo: Repository) -> None:
    repo.put("main", "orders/by-hand.txt", b"x")
    repo.write(ROWS, "main", "orders", mode="overwrite")
    assert not any("by-hand" in entry.path for entry in repo.list("main"))


def test_jobs_on_one_path_see_each_other_in_the_log(repo: Repository, caplog: pytest.LogCaptureFixture) -> None:
    repo.store.begin_job("other", dest="main", path="orders", who="ada@host")
    with caplog.at_level(logging.WARNING, "lakeseal.write.BranchCommitProtocol"):
        repo.write(ROWS, "main", "elsewhere")
        assert not caplog.records
        repo.write(ROWS, "main", "orders/2024")
    (record,) = caplog.records
    assert "ada@host is writing to orders on main since" in record.getMessage()


def test_a_job_whose_task_fails_leaves_no_branch_and_no_change(repo: Repository) -> None:
    head = repo.store.head("main")
    reader = pa.RecordBatchReader.from_batches(ROWS.schema, _failing())
    with pytest.raises(StorageUnavailable):
        repo.write(reader, "main", "orders")
    assert repo.store.head("main") == head
    assert repo.jobs() == []
    assert repo.gc().objects == 0


def _failing() -> object:
    yield ROWS.to_batches()[0]
    raise StorageUnavailable("the input is gone")


def test_gc_removes_what_a_dead_job_left_and_never_what_one_in_flight_wrote(repo: Repository) -> None:
    job = repo.store.begin_job("dead", dest="main", path="orders")
    repo.store.objects.open().put(f"{job.data_prefix}/00000-0-x/file", b"x")
    repo.write(ROWS, "main", "orders")
    assert repo.gc().objects == 0
    assert repo.gc(job_grace_hours=0, dry_run=True).job_branches == (job.branch,)
    report = repo.gc(job_grace_hours=0)
    assert (report.objects, report.job_branches) == (1, (job.branch,))
    assert repo.to_arrow("main", "orders").num_rows == 3
    with pytest.raises(InvalidArgument):
        repo.gc(job_grace_hours=-1)


def test_history_is_there_to_go_back_to(repo: Repository) -> None:
    repo.write(ROWS, "main", "orders")
    good = repo.store.head("main")
    repo.tag("v1", "main")
    repo.write(ROWS, "main", "orders")
    repo.revert("main", "main")
    assert repo.to_arrow("main", "orders").num_rows == 3
    repo.reset("main", "main~1")
    assert repo.to_arrow("main", "orders").num_rows == 6
    assert [change.kind.value for change in repo.diff("v1", "main", "orders")] == ["added"]
    repo.create_branch("exp", "v1")
    repo.cherry_pick("exp", "main")
    assert repo.to_arrow("exp", "orders").num_rows == 6
    assert [ref.name for ref in (*repo.branches(), *repo.tags())] == ["exp", "main", "v1"]
    assert repo.store.head("v1") == good
    with pytest.raises(InvalidArgument, match="strategy"):
        repo.merge("exp", "main", strategy="mine")
