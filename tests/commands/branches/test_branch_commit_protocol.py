"""The contract of Hadoop's committers, and the bugs that others shipped in theirs, on branches."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from types import SimpleNamespace

import msgspec
import pytest

from lakeseal import Repository, backoff
from lakeseal.branches.store import Commit, MergeResult
from lakeseal.commands.branch_job import BranchJob, JobPlan, Mode
from lakeseal.errors import (
    AlreadyExists,
    HeadChanged,
    InvalidArgument,
    InvalidPath,
    RefNotFound,
    StorageUnavailable,
    Unsupported,
)
from lakeseal.jobs.branch_commit_protocol import BranchCommitProtocol, BranchWrite
from lakeseal.jobs.file_commit_protocol import TaskCommitMessage, TaskContext, WrittenFile

ON_S3 = True


class JobUnderTest:
    """A job with its driver, whose tasks write a text each."""

    def __init__(
        self, repo: Repository, job_id: str = "job", path: str = "out", mode: Mode = "overwrite", dest: str = "main"
    ) -> None:
        self.repo = repo
        self.plan = JobPlan(id=job_id, dest=dest, path=path, mode=mode, who=f"{job_id}'s owner")
        self.job = BranchJob(repo.store, self.plan)
        self.driver = BranchCommitProtocol(path=path, job_id=job_id, job=self.job)

    def task(self, split: int, text: str, attempt: int = 0, dir: str | None = None) -> TaskCommitMessage:
        protocol, context = self.attempt(split, attempt)
        return protocol.commit_task(context, [self.write(protocol, context, text, dir)])

    def attempt(self, split: int, attempt: int = 0) -> tuple[BranchCommitProtocol, TaskContext]:
        protocol = BranchCommitProtocol(path=self.plan.path, job_id=self.plan.id, data_prefix=self.job.job.data_prefix)
        context = TaskContext(job_id=self.plan.id, split=split, attempt=attempt)
        protocol.setup_task(context)
        return protocol, context

    def write(
        self, protocol: BranchCommitProtocol, task: TaskContext, text: str, dir: str | None = None
    ) -> WrittenFile:
        file = protocol.new_task_file(task, dir, ".txt")
        self.repo.store.objects.open().put(file.key, text.encode())
        return WrittenFile(
            key=file.key, size=len(text.encode()), modified_ms=0, num_records=1, checksum=f"sha256:{text}"
        )


def texts(repo: Repository, path: str = "out", ref: str = "main") -> list[str]:
    return sorted(repo.read(ref, entry.path).decode() for entry in repo.list(ref, path))


def run(repo: Repository, job_id: str, *written: str, path: str = "out", mode: Mode = "overwrite") -> BranchWrite:
    it = JobUnderTest(repo, job_id, path, mode)
    it.driver.setup_job()
    return it.driver.commit_job([it.task(split, text) for split, text in enumerate(written)])


def test_a_committed_job_is_one_merge_with_all_files(repo: Repository) -> None:
    result = run(repo, "job", "a", "b")
    assert texts(repo) == ["a", "b"]
    merge, work, first = repo.log("main")
    assert merge.parents == (first.id, work.id)
    assert merge.job == work.job == "job"
    assert (result.files, result.attempts, result.commit) == (2, 1, merge.id)


def test_the_name_of_the_job_branch_follows_from_path_and_id(repo: Repository) -> None:
    it = JobUnderTest(repo, "job", "deep/out")
    it.driver.setup_job()
    assert it.job.job.branch == "_jobs/deep/out/job"
    assert repo.store.job("job", "deep/out").branch == it.job.job.branch


def test_a_second_commit_of_a_task_attempt_fails(repo: Repository) -> None:
    it = JobUnderTest(repo)
    it.driver.setup_job()
    protocol, task = it.attempt(0)
    written = it.write(protocol, task, "x")
    protocol.commit_task(task, [written])
    with pytest.raises(InvalidArgument, match="before"):
        protocol.commit_task(task, [written])


def test_an_attempt_that_was_aborted_cannot_commit(repo: Repository) -> None:
    it = JobUnderTest(repo)
    it.driver.setup_job()
    protocol, task = it.attempt(0)
    written = it.write(protocol, task, "x")
    protocol.abort_task(task)
    with pytest.raises(InvalidArgument):
        protocol.commit_task(task, [written])


def test_of_two_attempts_that_commit_the_last_wins(repo: Repository) -> None:
    it = JobUnderTest(repo)
    it.driver.setup_job()
    first = it.task(0, "first", attempt=0, dir="p=1")
    second = it.task(0, "second", attempt=1, dir="p=1")
    it.driver.commit_job([first, second])
    assert texts(repo) == ["second"]
    assert [entry.path for entry in repo.list("main", "out")] == ["out/p=1/part-00000-job.txt"]


@pytest.mark.field_bug(29)
def test_a_task_that_commits_and_dies_is_there_once_with_its_other_attempt(repo: Repository) -> None:
    """SPARK-39195: the first attempt's message arrived, then its executor was lost, and the task ran again."""
    it = JobUnderTest(repo, mode="append")
    it.driver.setup_job()
    lost = [it.task(0, "a", dir="p=1"), it.task(0, "b", attempt=1, dir="p=2")]
    it.driver.commit_job([*lost, it.task(1, "c")])
    assert texts(repo) == ["b", "c"]


@pytest.mark.field_bug(29)
def test_what_a_dead_job_left_is_not_committed_by_the_next_one(repo: Repository) -> None:
    """SPARK-29037: a `_temporary` that was left behind was taken for output."""
    dead = JobUnderTest(repo, "dead")
    dead.driver.setup_job()
    dead.task(0, "never committed")
    run(repo, "next", "mine")
    assert texts(repo) == ["mine"]
    assert [job.id for job in repo.jobs()] == ["dead"]


@pytest.mark.field_bug(32)
def test_jobs_that_start_in_the_same_moment_have_ids_of_their_own(repo: Repository) -> None:
    """SPARK-33402."""
    import pyarrow as pa

    ids = {repo.write(pa.table({"x": [n]}), "main", "out").job for n in range(6)}
    assert len(ids) == 6
    assert repo.to_arrow("main", "out").num_rows == 6


@pytest.mark.field_bug(32)
def test_jobs_with_one_id_on_two_paths_are_not_mixed_up(repo: Repository) -> None:
    """HADOOP-17318."""
    one, two = JobUnderTest(repo, "same", "one"), JobUnderTest(repo, "same", "two")
    for it in (one, two):
        it.driver.setup_job()
    messages = [[it.task(0, it.plan.path)] for it in (one, two)]
    one.driver.commit_job(messages[0])
    two.driver.abort_job()
    assert texts(repo, "") == ["one"]


@pytest.mark.field_bug(32)
@pytest.mark.parametrize("path", ["with blank", "a b/ c ", "é/ü", "100%25", "a:b#c?d", "[x]{y}"])
def test_paths_of_any_letters_are_written_to_and_read(repo: Repository, path: str) -> None:
    """HADOOP-17112: blanks in paths."""
    run(repo, "job", "x", path=path)
    assert [entry.path for entry in repo.list("main")] == [f"{path}/part-00000-job.txt"]
    assert texts(repo, path) == ["x"]


@pytest.mark.parametrize("path", ["../up", "a/../../b", "a//b", "./a", "a/\0b", "a/\nb"])
def test_a_path_that_leaves_the_tree_is_refused_and_nothing_began(repo: Repository, path: str) -> None:
    with pytest.raises(InvalidPath):
        JobUnderTest(repo, path=path).driver.setup_job()
    assert repo.jobs() == []


@pytest.mark.parametrize("path", ["../../main", "/etc/passwd", "a/../../x", ""])
def test_a_message_with_a_path_that_leaves_the_output_is_refused(repo: Repository, path: str) -> None:
    it = JobUnderTest(repo)
    it.driver.setup_job()
    good = it.task(0, "x")
    bad = msgspec.structs.replace(good, entries=({**good.entries[0], "path": path},))
    with pytest.raises(InvalidPath):
        it.driver.commit_job([bad])
    assert texts(repo, "") == []


@pytest.mark.parametrize("entry", [{}, {"path": "x"}, {"path": 1, "object": "x", "size": 1, "checksum": "", "rows": 1}])
def test_a_message_with_a_malformed_link_is_refused(repo: Repository, entry: dict[str, object]) -> None:
    it = JobUnderTest(repo)
    it.driver.setup_job()
    message = TaskCommitMessage(protocol="branch", task=TaskContext(job_id="job", split=0), entries=(entry,))
    with pytest.raises(InvalidArgument, match="malformed"):
        it.driver.commit_job([message])


def test_a_job_without_output_is_in_the_log_and_an_overwrite_empties_its_path(repo: Repository) -> None:
    run(repo, "old", "a")
    run(repo, "none")
    assert texts(repo) == []
    assert repo.log("main")[0].job == "none"


def test_files_outside_of_the_output_path_are_refused(repo: Repository) -> None:
    it = JobUnderTest(repo)
    it.driver.setup_job()
    protocol, task = it.attempt(0)
    with pytest.raises(Unsupported):
        protocol.new_task_file_abs_path(task, "/elsewhere", ".txt")


def test_a_task_cannot_commit_the_job(repo: Repository) -> None:
    it = JobUnderTest(repo)
    it.driver.setup_job()
    protocol, _ = it.attempt(0)
    for call in (protocol.setup_job, lambda: protocol.commit_job([]), protocol.abort_job):
        with pytest.raises(InvalidArgument, match="driver"):
            call()


@pytest.mark.parametrize("order", list(itertools.permutations(["abort_task", "abort_job", "abort_task again"])))
def test_aborts_may_come_in_any_order_and_twice(repo: Repository, order: tuple[str, ...]) -> None:
    run(repo, "old", "a")
    it = JobUnderTest(repo)
    it.driver.setup_job()
    protocol, task = it.attempt(0)
    it.write(protocol, task, "x")
    calls: dict[str, Callable[[], None]] = {
        "abort_task": lambda: protocol.abort_task(task),
        "abort_task again": lambda: protocol.abort_task(task),
        "abort_job": it.driver.abort_job,
    }
    for name in order:
        calls[name]()
    it.driver.abort_job()
    assert texts(repo) == ["a"]
    assert repo.jobs() == []


def test_aborting_a_job_that_was_never_set_up_is_fine(repo: Repository) -> None:
    JobUnderTest(repo).driver.abort_job()


def test_aborting_after_the_commit_takes_nothing_back(repo: Repository) -> None:
    it = JobUnderTest(repo)
    it.driver.setup_job()
    it.driver.commit_job([it.task(0, "a")])
    it.driver.abort_job()
    assert texts(repo) == ["a"]


def test_a_job_cannot_commit_after_it_was_aborted(repo: Repository) -> None:
    it = JobUnderTest(repo)
    it.driver.setup_job()
    message = it.task(0, "x")
    it.driver.abort_job()
    with pytest.raises(RefNotFound):
        it.driver.commit_job([message])
    assert texts(repo) == []


class FailingStore:
    """A branch store one of whose calls fails, before or after it was done."""

    def __init__(self, repo: Repository, call: str, *, done: bool, times: int = 1) -> None:
        self._store = repo.store
        self._call = call
        self._done = done
        self.left = times

    def __getattr__(self, name: str) -> object:
        found = getattr(self._store, name)
        if name != self._call or not self.left:
            return found

        def failing(*args: object, **kwargs: object) -> object:
            self.left -= 1
            if self._done:
                found(*args, **kwargs)
            raise StorageUnavailable("injected")

        return failing


@pytest.mark.parametrize("mode", ["append", "overwrite", "error", "ignore"])
@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("call", ["commit", "merge_if", "head"])
def test_a_job_commit_that_failed_can_be_tried_again(repo: Repository, call: str, done: bool, mode: Mode) -> None:
    it = JobUnderTest(repo, mode=mode)
    it.driver.setup_job()
    messages = [it.task(0, "a"), it.task(1, "b")]
    it.job._store = FailingStore(repo, call, done=done)  # type: ignore[assignment]
    with pytest.raises(StorageUnavailable):
        it.driver.commit_job(messages)
    it.driver.commit_job(messages)
    assert texts(repo) == ["a", "b"]
    assert [commit.job for commit in repo.log("main", limit=2)] == ["job", "job"]
    assert repo.jobs() == []


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("call", ["commit", "merge_if"])
def test_another_process_can_finish_a_job_whose_driver_died(repo: Repository, call: str, done: bool) -> None:
    dead = JobUnderTest(repo)
    dead.driver.setup_job()
    messages = [dead.task(0, "a")]
    dead.job._store = FailingStore(repo, call, done=done)  # type: ignore[assignment]
    with pytest.raises(StorageUnavailable):
        dead.driver.commit_job(messages)
    heir = JobUnderTest(repo)
    heir.driver.setup_job()
    heir.driver.commit_job(messages)
    assert texts(repo) == ["a"]


def test_the_branch_that_could_not_be_removed_does_not_fail_the_job(repo: Repository) -> None:
    it = JobUnderTest(repo)
    it.driver.setup_job()
    it.job._store = FailingStore(repo, "end_job", done=False)  # type: ignore[assignment]
    it.driver.commit_job([it.task(0, "a")])
    assert texts(repo) == ["a"]
    assert len(repo.jobs()) == 1


def test_jobs_with_subdirectories_side_by_side_do_not_touch_each_other(repo: Repository) -> None:
    jobs = [JobUnderTest(repo, f"job{n}", f"out/sub{n}") for n in range(4)]
    for it in jobs:
        it.driver.setup_job()
    results = [it.driver.commit_job([it.task(0, str(n), dir=f"p={n}")]) for n, it in enumerate(jobs)]
    assert texts(repo) == ["0", "1", "2", "3"]
    assert [result.replaced for result in results] == [0, 0, 0, 0]


def test_an_overwriter_that_loses_the_race_removes_what_the_winner_added(repo: Repository) -> None:
    run(repo, "old", "old")
    jobs = [JobUnderTest(repo, name) for name in ("winner", "loser")]
    for it in jobs:
        it.driver.setup_job()
    messages = [[it.task(n, f"{it.plan.id}{n}") for n in range(3)] for it in jobs]
    results = [it.driver.commit_job(sent) for it, sent in zip(jobs, messages, strict=True)]
    assert texts(repo) == ["loser0", "loser1", "loser2"]
    assert results[1].replaced == 3
    assert {"winner", "loser"} <= {commit.job for commit in repo.log("main")}


def test_appenders_that_race_both_stay(repo: Repository) -> None:
    jobs = [JobUnderTest(repo, name, mode="append") for name in ("one", "two")]
    for it in jobs:
        it.driver.setup_job()
    for it in jobs:
        it.driver.commit_job([it.task(0, it.plan.id)])
    assert texts(repo) == ["one", "two"]


def test_the_head_that_moves_right_before_the_merge_makes_the_job_merge_again(
    repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = JobUnderTest(repo)
    it.driver.setup_job()
    merge_if, moved = repo.store.merge_if, []

    class Racing(FailingStore):
        def __getattr__(self, name: str) -> object:
            if name != "merge_if" or len(moved) == 3:
                return getattr(repo.store, name)
            moved.append(run(repo, f"other{len(moved)}", "theirs"))
            return merge_if

    waits: list[float] = []
    it.job._store = Racing(repo, "", done=False)  # type: ignore[assignment]
    monkeypatch.setattr(backoff, "time", SimpleNamespace(sleep=waits.append, monotonic=time.monotonic))
    assert it.driver.commit_job([it.task(0, "mine")]).attempts == 4
    assert len(waits) == 3
    assert texts(repo) == ["mine"]


def test_two_jobs_that_must_find_nothing_have_one_winner(repo: Repository) -> None:
    jobs = [JobUnderTest(repo, name, mode="error") for name in ("one", "two")]
    for it in jobs:
        it.driver.setup_job()
    jobs[0].driver.commit_job([jobs[0].task(0, "one")])
    with pytest.raises(AlreadyExists):
        jobs[1].driver.commit_job([jobs[1].task(0, "two")])
    assert texts(repo) == ["one"]


def test_a_job_that_ignores_what_is_there_leaves_what_came_meanwhile(repo: Repository) -> None:
    jobs = [JobUnderTest(repo, name, mode="ignore") for name in ("one", "two")]
    for it in jobs:
        it.driver.setup_job()
    results = [it.driver.commit_job([it.task(0, it.plan.id)]) for it in jobs]
    assert texts(repo) == ["one"]
    assert [bool(result.skipped) for result in results] == [False, True]
    assert repo.jobs() == []


def test_a_job_branch_that_somebody_wrote_to_is_refused(repo: Repository) -> None:
    it = JobUnderTest(repo)
    it.driver.setup_job()
    repo.store.put(it.job.job.branch, "dirt", b"x")
    with pytest.raises(HeadChanged, match="Somebody else"):
        it.driver.commit_job([it.task(0, "a")])
    assert texts(repo, "") == []


def test_a_job_branch_that_was_deleted_fails_the_job_and_changes_nothing(repo: Repository) -> None:
    run(repo, "old", "old")
    it = JobUnderTest(repo)
    it.driver.setup_job()
    repo.store.delete_branch(it.job.job.branch)
    with pytest.raises(RefNotFound):
        it.driver.commit_job([it.task(0, "a")])
    it.driver.abort_job()
    assert texts(repo) == ["old"]


def test_a_job_writes_to_a_branch_that_is_not_main(repo: Repository) -> None:
    repo.create_branch("exp")
    it = JobUnderTest(repo, dest="exp")
    it.driver.setup_job()
    it.driver.commit_job([it.task(0, "a")])
    assert texts(repo, ref="exp") == ["a"]
    assert texts(repo) == []
    assert isinstance(repo.merge("exp", "main"), MergeResult)
    assert texts(repo) == ["a"]
    assert isinstance(repo.log("main")[0], Commit)
